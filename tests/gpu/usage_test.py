#!/usr/bin/env python3
"""What the scripts and programs of tests/gpu say of wrong arguments. Usage: usage_test.py BIN_DIR"""

import pathlib
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
BIN = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else None
PROGRAMS = ["gpu-codec-suite", "gpu-order-test", "gpu-ipc-test"]


def run(*command):
    return subprocess.run([str(word) for word in command], text=True, timeout=60,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class UsageTest(unittest.TestCase):

    def test_scripts_say_what_is_wrong_in_a_line(self):
        for script, arguments, said in [
                ("run.sh", ["--frob"], "run.sh: unknown argument: --frob; see --help"),
                ("build.sh", ["--arch"], "build.sh: --arch takes an architecture; see --help"),
                ("build.sh", ["out", "--frob"], "build.sh: unknown option: --frob; see --help"),
                ("build.sh", ["out", "in"], "build.sh: one folder, not also in; see --help"),
                ("build.sh", [], "build.sh: no folder named; see --help"),
                ("ranks.sh", [], "ranks.sh: usage: tests/gpu/ranks.sh DIR KERNELS RANKS "
                                 "[spccl-perf's options...]"),
                ("nccl.sh", ["bin"], "nccl.sh: usage: tests/gpu/nccl.sh DIR KERNELS NCCL LOGS"),
                ("with_mps.sh", [], "with_mps.sh: usage: tests/gpu/with_mps.sh COMMAND...")]:
            result = run(HERE / script, *arguments)
            self.assertEqual((result.returncode, result.stdout, result.stderr),
                             (2, "", said + "\n"))

    @unittest.skipUnless(BIN, "no BIN_DIR")
    def test_programs_refuse_what_they_do_not_know(self):
        for program in PROGRAMS:
            result = run(BIN / program, "--frob")
            self.assertEqual(result.returncode, 2, program)
            self.assertIn(f"usage: {program}", result.stderr)

    @unittest.skipUnless(BIN, "no BIN_DIR")
    def test_programs_say_how_they_are_used(self):
        for program in PROGRAMS:
            result = run(BIN / program, "--help")
            self.assertEqual((result.returncode, result.stderr), (0, ""), program)
            self.assertTrue(result.stdout.startswith(f"usage: {program}"), result.stdout)


if __name__ == "__main__":
    unittest.main()
