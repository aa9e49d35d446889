#!/usr/bin/env python3
"""Tests tests/gpu/run.sh where there is no GPU: with none, with programs that only pretend, and, given
--fake-driver, with the real ones on a CUDA that runs on the CPU.

  run_test.py [--bin DIR --fake-driver FILE --fake-kernels FILE]
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
NEEDED = ["codec", "bench", "order", "ipc"]  # come first, and may not be skipped
STEPS = [*NEEDED, "ranks-2", "ranks-4", "ranks-8", "nccl", "order-mps", "memcheck", "racecheck"]
PRETENDED = {"SPCCL_CUDA_LIBRARY": "pretended"}
PROGRAMS = ["gpu-codec-suite", "gpu-order-test", "gpu-ipc-test", "gpu-codec-bench"]
arguments = argparse.Namespace(bin=None, fake_driver=None, fake_kernels=None)


def has_gpu():
    return any(pathlib.Path("/dev").glob("nvidia[0-9]*"))


def run(*options, **environment):
    """The status, and {step: (verdict, text)}; under the name 'last': the last line up to its first
    colon, which says no more than PASS where nothing was left out, and all of the output."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("SPCCL_")}
    env.update(environment)
    result = subprocess.run([HERE / "run.sh", *map(str, options)], env=env, text=True, timeout=200,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    lines = result.stdout.splitlines()
    found = {"last": (lines[-1].split(":")[0], result.stdout)}
    for line in lines[:-1]:
        verdict, name, text = (line.split(maxsplit=2) + ["", "", ""])[:3]
        found[name] = (verdict, text)
    return result.returncode, found


def last_line(found):
    return found["last"][1].splitlines()[-1]


class RunTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.bin = self.folder / "bin"
        self.bin.mkdir()

    def pretend(self, **bodies):
        """Programs in self.bin that end with 0, or do what `bodies` says."""
        for name in PROGRAMS:
            path = self.bin / name
            path.write_text("#!/bin/sh\n" + bodies.get(name.replace("-", "_"), "echo fine") + "\n",
                            encoding="utf-8")
            path.chmod(0o755)
        (self.bin / "libspccl_device.so").touch()

    def script(self, name, body):
        path = self.folder / name
        path.write_text("#!/bin/sh\n" + body + "\n", encoding="utf-8")
        path.chmod(0o755)

    def pretend_tools(self):
        """All that steps after those in NEEDED take, in self.folder; the environment to find them."""
        self.script("compute-sanitizer", "exit 0")
        self.script("nvidia-cuda-mps-control", "exit 0")
        self.script("spccld", "exit 0")
        self.script("spccl-perf", 'echo "--device pici:1 coo:1 gap:1"\n'
                    '[ -z "$SPCCL_FORCE_STAGING" ] || echo "# memory: staged through the host: pretended"\n'
                    '[ -z "$NCCL_DEBUG_FILE" ] || echo "Init COMPLETE" >"$NCCL_DEBUG_FILE"')
        (self.folder / "libnccl.so.2").touch()
        return {"PATH": f"{self.folder}:{os.environ['PATH']}"}

    def run_pretending(self, *options, **environment):
        return run("--bin", self.bin, "--out", self.folder / "out", "--spccl", self.folder, *options,
                   **PRETENDED, **environment)

    def run_ranks(self, steps, perf=None):
        """These steps, with a spccl-perf that does what `perf` says."""
        self.pretend()
        tools = self.pretend_tools()
        if perf:
            self.script("spccl-perf", perf)
        return self.run_pretending("--only", steps, **tools)

    @unittest.skipIf(has_gpu(), "there is a GPU")
    def test_without_a_gpu_all_is_skipped(self):
        status, found = run("--bin", self.bin, "--out", self.folder / "out")
        self.assertEqual(status, 77, found)
        self.assertEqual(found["last"][0], "SKIP")
        for step in STEPS:
            self.assertEqual(found[step], ("SKIP", "no GPU"))

    def test_a_dry_run_says_what_would_run(self):
        status, found = run("--dry-run", "--out", self.folder / "out", "--spccl", self.folder,
                            "--nccl", self.folder / "libnccl.so.2", **PRETENDED,
                            **self.pretend_tools())
        self.assertEqual(status, 0, found)
        for step in ["build", *STEPS]:
            verdict, text = found[step]
            self.assertEqual(verdict, "RUN", step)
            self.assertRegex(text, r"^\d+ s at most: ")
        self.assertIn("build.sh", found["build"][1])
        self.assertIn("gpu-codec-suite", found["memcheck"][1])
        self.assertTrue(found["ranks-4"][1].endswith(" 4"), found["ranks-4"])
        self.assertIn("nccl.sh", found["nccl"][1])
        self.assertEqual([name for name in found if name in STEPS], STEPS)
        self.assertEqual(last_line(found),
                         "DRY RUN: 12 steps would run, 0 would fail, 0 would be skipped; nothing ran")
        self.assertFalse((self.folder / "out").exists(), "a dry run has made its folder")

    def test_a_dry_run_says_what_would_be_skipped_here_and_its_command(self):
        status, found = self.run_pretending("--dry-run", "--only", "order,ranks-2")
        self.assertEqual(status, 0, found)
        self.assertEqual(found["order"][0], "FAIL")
        self.assertRegex(found["order"][1],
                         "^would fail: no gpu-order-test in .*; else .*gpu-order-test$")
        self.assertRegex(found["ranks-2"][1], "^no libspccl_device.so in .*; else .*ranks.sh ")
        self.pretend()
        status, found = self.run_pretending("--dry-run", "--only", "order,ranks-2")
        self.assertEqual(status, 0, found)
        self.assertEqual((found["order"][0], found["ranks-2"][0]), ("RUN", "SKIP"))
        self.assertRegex(found["ranks-2"][1], "^no spccl-perf and spccld in .*; else .*ranks.sh ")
        self.assertEqual(last_line(found),
                         "DRY RUN: 1 steps would run, 0 would fail, 1 would be skipped; nothing ran")

    def test_a_dry_run_says_what_fails_as_the_run_does(self):
        self.pretend()
        tools = self.pretend_tools()
        for program, steps in {"gpu-codec-bench": ["bench"], "gpu-order-test": ["order", "order-mps"],
                               "libspccl_device.so": ["kernels"]}.items():
            (self.bin / program).rename(self.folder / "away")
            only = ["--only", "codec,bench,order,order-mps"]
            planned = self.run_pretending("--dry-run", *only, **tools)[1]
            ran = self.run_pretending(*only, **tools)[1]
            for found in planned, ran:
                failed = [name for name in found if found[name][0] == "FAIL" and name != "last"]
                self.assertEqual(failed, steps, found)
            for step in steps:
                self.assertIn(f"would fail: no {program} in {self.bin.resolve()}", planned[step][1])
            (self.folder / "away").rename(self.bin / program)

    def test_a_dry_run_with_nothing_built_says_that_it_would_fail(self):
        status, found = run("--dry-run", "--only", "codec", "--out", self.folder / "out", **PRETENDED)
        self.assertEqual(status, 0, found)
        self.assertEqual(found["kernels"][0], "FAIL")
        self.assertIn("would fail: no libspccl_device.so in ", found["kernels"][1])
        self.assertEqual(last_line(found),
                         "DRY RUN: 0 steps would run, 1 would fail, 1 would be skipped; nothing ran")

    @unittest.skipIf(has_gpu(), "there is a GPU")
    def test_a_dry_run_without_a_gpu_prints_the_commands(self):
        status, found = run("--dry-run", "--out", self.folder / "out")
        self.assertEqual(status, 0, found)
        for step in ["build", *STEPS]:
            self.assertRegex(found[step][1], r"^no GPU; else \d+ s at most: .*/")

    def test_what_is_needed_always_has_its_time(self):
        found = run("--dry-run", "--out", self.folder / "out", **PRETENDED)[1]
        limits = [int(re.search(r"(\d+) s at most", found[step][1])[1])
                  for step in ["build", *NEEDED]]
        all_of_it = int(re.search(r" total=(\d+)", (HERE / "run.sh").read_text("utf-8"))[1])
        self.assertLessEqual(sum(limits), all_of_it)
        self.assertLess(all_of_it, 8 * 60)
        stops = re.search(r"(\d+) s at most.*--seconds (\d+)", found["bench"][1])
        self.assertLess(int(stops[2]), int(stops[1]), "bench has to end by itself")

    def test_passes(self):
        self.pretend()
        status, found = self.run_pretending("--nccl", self.folder / "libnccl.so.2",
                                            **self.pretend_tools())
        self.assertEqual(status, 0, found)
        self.assertRegex(last_line(found), r"^PASS: 11 passed, 0 failed, 0 skipped, \d+ s$")
        self.assertEqual({name for name in found if found[name][0] == "PASS"}, {*STEPS, "last"})

    def test_names_what_it_was_told_not_to_run(self):
        self.pretend()
        status, found = self.run_pretending("--only", "codec,order,ipc,bench")
        self.assertEqual(status, 0, found)
        self.assertEqual(found["last"][0], "PASS of codec,order,ipc,bench alone")

    def test_is_no_plain_pass_where_steps_were_skipped(self):
        self.pretend()
        tools = self.pretend_tools()
        (self.folder / "spccld").unlink()
        status, found = self.run_pretending(**tools)
        self.assertEqual(status, 3, found)
        self.assertEqual(found["last"][0], "PASS, but skipped")
        self.assertIn("PASS, but skipped: ranks-2, ranks-4, ranks-8, nccl (no spccl-perf and spccld in "
                      f"{self.folder.resolve()}: see --spccl): 7 passed, 0 failed, 4 skipped,",
                      last_line(found))

    def test_is_no_plain_pass_without_nccl(self):
        self.pretend()
        status, found = self.run_pretending(**self.pretend_tools())
        self.assertEqual(status, 3, found)
        self.assertIn("PASS, but skipped: nccl (no NCCL named: see --nccl): 10 passed,", last_line(found))

    def test_is_no_plain_pass_where_a_program_left_something_out(self):
        self.pretend(gpu_ipc_test="echo 'skipped: by descriptor (none)'; echo fine",
                     gpu_codec_bench="echo 'skipped: targets of an H100, not judged on A card'\n"
                                     "echo PASS: all measured")
        status, found = self.run_pretending("--only", "codec,bench,ipc")
        self.assertEqual(status, 3, found)
        self.assertEqual(found["bench"][0], "PASS")
        self.assertIn("but skipped: bench: targets of an H100, not judged on A card, "
                      "ipc: by descriptor (none): 3 passed,", last_line(found))

    def test_is_no_plain_pass_where_codec_was_told_to_do_less(self):
        self.pretend()
        status, found = self.run_pretending("--only", "codec", SPCCL_GPU_CODEC_OPTIONS="--thin 9")
        self.assertEqual(status, 3, found)
        self.assertIn("skipped: codec: all but --thin 9 (SPCCL_GPU_CODEC_OPTIONS): 1 passed",
                      last_line(found))

    def test_what_finds_too_little_time_is_skipped_and_not_failed(self):
        self.pretend()
        status, found = self.run_pretending("--only", "order,memcheck", "--total", "50",
                                            **self.pretend_tools())
        self.assertEqual(status, 3, found)
        self.assertEqual(found["order"][0], "PASS")
        self.assertIn("skipped: memcheck (too little of 50 s is left for its 60 s)", last_line(found))

    def test_skips_where_nothing_ran(self):
        self.pretend()
        status, found = self.run_pretending("--only", "ranks-2")
        self.assertEqual(status, 77, found)
        self.assertIn("SKIP: nothing ran; skipped: ranks-2 (no spccl-perf", last_line(found))

    def test_a_failed_build_is_the_verdict(self):
        # Programs of an earlier build are there, and are not what is to be proved.
        self.bin = self.folder / "out" / "bin"
        self.bin.mkdir(parents=True)
        self.pretend()
        status, found = run("--out", self.folder / "out", "--spccl", self.folder,
                            NVCC="/nowhere/nvcc", **PRETENDED)
        self.assertEqual(status, 1, found)
        self.assertEqual(found["build"][0], "FAIL")
        log = self.folder.resolve() / "out" / "build.log"
        self.assertIn(f"FAIL: the build failed, see {log}; skipped: codec, ", last_line(found))
        self.assertIn("no nvcc", log.read_text("utf-8"))
        for step in STEPS:
            self.assertEqual(found[step], ("SKIP", "the build failed"))

    def test_fails_where_there_are_no_kernels(self):
        self.pretend()
        (self.bin / "libspccl_device.so").unlink()
        status, found = self.run_pretending("--only", "codec,order")
        self.assertEqual(status, 1, found)
        self.assertIn("FAIL: kernels; skipped: codec (no libspccl_device.so in ", last_line(found))
        self.assertEqual(found["order"][0], "PASS")

    def test_ranks_and_nccl_take_the_kernels_of_the_build_that_they_run(self):
        self.pretend()
        tools = self.pretend_tools()
        built = self.folder.resolve() / "build"
        (built / "bin").mkdir(parents=True)
        for name in ["spccld", "spccl-perf"]:
            (built / "bin" / name).symlink_to(self.folder / name)
        options = ["--dry-run", "--bin", self.bin, "--spccl", built / "bin", "--nccl",
                   self.folder / "libnccl.so.2", "--only", "codec,ranks-2,nccl"]
        beside = self.bin.resolve() / "libspccl_device.so"
        found = run(*options, **PRETENDED, **tools)[1]
        for step in ["codec", "ranks-2", "nccl"]:
            self.assertIn(f" {beside}", found[step][1])
        its_own = built / "kernels/launch/libspccl_device.so"
        its_own.parent.mkdir(parents=True)
        its_own.touch()
        found = run(*options, **PRETENDED, **tools)[1]
        self.assertIn(f" {beside}", found["codec"][1])
        for step in ["ranks-2", "nccl"]:
            self.assertIn(f"{built}/bin {its_own} ", found[step][1])
        found = run(*options, SPCCL_GPU_KERNELS="/nowhere/k.so", **PRETENDED, **tools)[1]
        self.assertIn(f"{built}/bin /nowhere/k.so ", found["ranks-2"][1])
        beside.unlink()  # no matter to those that have their own
        options = options[1:-1] + ["ranks-2", "--out", self.folder / "out"]
        status, found = run(*options, **PRETENDED, **tools)
        self.assertEqual((status, found["ranks-2"][0]), (0, "PASS"), found)

    def test_what_takes_no_kernels_needs_none(self):
        self.pretend()
        (self.bin / "libspccl_device.so").unlink()
        status, found = self.run_pretending("--only", "order,ipc")
        self.assertEqual(status, 0, found)
        self.assertEqual(found["last"][0], "PASS of order,ipc alone")

    def test_a_failure_is_told_and_the_others_still_run(self):
        self.pretend(gpu_order_test="echo words out of order; exit 1")
        status, found = self.run_pretending("--only", "codec,order,ipc")
        self.assertEqual(status, 1)
        self.assertRegex(last_line(found), r"^FAIL: order: 2 passed, 1 failed, 0 skipped, ")
        self.assertEqual(found["order"][0], "FAIL")
        self.assertIn("words out of order", found["order"][1])
        self.assertEqual(found["ipc"][0], "PASS")

    def test_what_hangs_is_ended(self):
        self.pretend(gpu_ipc_test="sleep 60")
        status, found = self.run_pretending("--only", "ipc,bench", "--limit", "1")
        self.assertEqual(status, 1)
        self.assertIn("not done after 1 s", found["ipc"][1])
        self.assertEqual(found["bench"][0], "PASS")

    def test_on_a_gpu_what_matters_may_not_be_skipped(self):
        self.pretend(gpu_codec_suite="echo no driver; exit 77")
        status, found = self.run_pretending("--only", "codec,order")
        self.assertEqual(status, 1)
        self.assertIn("no driver", found["codec"][1])

    def test_a_dry_run_makes_up_no_nccl(self):
        found = run("--dry-run", "--out", self.folder / "out", "--only", "nccl")[1]
        self.assertIn("<none named: see --nccl>", found["nccl"][1])
        self.assertNotIn("libnccl", found["nccl"][1])

    def test_refuses_what_it_does_not_know(self):
        for options in [["--frob"], ["--only", "codec,frob"], ["--only", ","], ["--only", ""], ["--bin"], ["--limit", "soon"],
                        ["--total", "0"], ["--limit", "1" * 20]]:
            self.assertEqual(run(*options)[0], 2, options)

    def test_names_the_steps_that_there_are(self):
        status, found = run("--only", "ranks")
        self.assertEqual(status, 2, found)
        self.assertIn(f"unknown step: 'ranks'; there are build {' '.join(STEPS)}", last_line(found))

    def test_refuses_folders_that_are_not_there(self):
        for option in ["--bin", "--spccl"]:
            for dry in [], ["--dry-run"]:
                status, found = run(option, "/nonexistent", *dry, **PRETENDED)
                self.assertEqual(status, 2, found)
                self.assertIn(f"no folder at /nonexistent: see {option}", last_line(found))

    def test_refuses_to_prove_what_cannot_be(self):
        status, found = run("--only", "build", "--bin", self.bin)
        self.assertEqual(status, 2, found)
        self.assertIn("with --bin nothing is built", last_line(found))
        status, found = run("--nccl", self.folder / "libnccl.so.2")
        self.assertEqual(status, 2, found)
        self.assertIn(f"no NCCL at {self.folder}/libnccl.so.2", last_line(found))

    def test_the_scripts_are_clean(self):
        try:
            result = subprocess.run(["shellcheck", *sorted(HERE.glob("*.sh"))], text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        except FileNotFoundError:
            self.skipTest("no shellcheck")
        self.assertEqual(result.returncode, 0, result.stdout)

    def test_the_programs_pass_on_a_cuda_that_runs_on_the_cpu(self):
        if not arguments.fake_driver:
            self.skipTest("no --fake-driver")
        steps = "codec,order,ipc" if arguments.fake_kernels else "order,ipc"
        options = {"SPCCL_CUDA_LIBRARY": arguments.fake_driver, "SPCCL_GPU_CODEC_OPTIONS":
                   "--thin 150 --large 400000"}
        if arguments.fake_kernels:
            options["SPCCL_GPU_KERNELS"] = arguments.fake_kernels
        (self.bin / "libspccl_device.so").touch()
        for program in PROGRAMS:
            if (pathlib.Path(arguments.bin) / program).exists():
                (self.bin / program).symlink_to((pathlib.Path(arguments.bin) / program).resolve())
        status, found = run("--bin", self.bin, "--out", self.folder / "out", "--only", steps, **options)
        self.assertEqual(status, 3 if arguments.fake_kernels else 0, found["last"][1])
        self.assertEqual([found[step][0] for step in steps.split(",")], ["PASS"] * len(steps.split(",")))
        self.assertIn(f"PASS of {steps} alone", last_line(found))

    def test_two_ranks_also_replay_and_copy(self):
        status, found = self.run_ranks("ranks-2,ranks-4")
        self.assertEqual(status, 0, found)
        self.assertIn("2 ranks: 11 runs (1 by rings of frames, 2 captured, 2 of copied memory), all results "
                      "right", found["ranks-2"][1])
        self.assertIn("4 ranks: 8 runs (1 by rings of frames), all results right", found["ranks-4"][1])

    def test_ranks_fail_where_a_format_was_not_sent(self):
        status, found = self.run_ranks("ranks-4", 'echo "--device pici:1 coo:1"')
        self.assertEqual(status, 1, found)
        self.assertIn("no frame was sent as gap", found["ranks-4"][1])

    def test_two_ranks_fail_where_nothing_was_copied(self):
        status, found = self.run_ranks(
            "ranks-2,ranks-4", 'echo "--device pici:1 coo:1 gap:1"; echo "# memory: handed over (cuda-ipc)"')
        self.assertEqual(status, 1, found)
        self.assertEqual(found["ranks-2"][0], "FAIL")
        self.assertIn("the memory was not copied", found["ranks-2"][1])
        self.assertEqual(found["ranks-4"][0], "PASS")

    def test_two_ranks_fail_where_only_copied_memory_has_wrong_results(self):
        status, found = self.run_ranks(
            "ranks-2", 'echo "--device pici:1 coo:1 gap:1"; [ -z "$SPCCL_FORCE_STAGING" ] || exit 3')
        self.assertEqual(status, 1, found)
        self.assertIn("exit 3", found["ranks-2"][1])

    def test_two_ranks_pass_on_a_cuda_that_runs_on_the_cpu(self):
        if not arguments.fake_driver or not arguments.fake_kernels:
            self.skipTest("no --fake-driver or no --fake-kernels")
        programs = pathlib.Path(arguments.bin).resolve()
        if not all((programs / program).exists() for program in ["spccl-perf", "spccld"]):
            self.skipTest("no spccl-perf and spccld")
        # Without run.sh, whose limits are those of a machine with a GPU.
        environment = {**os.environ, "SPCCL_CUDA_LIBRARY": arguments.fake_driver}
        result = subprocess.run([HERE / "ranks.sh", programs, arguments.fake_kernels, "2"], text=True,
                                env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertEqual(result.stdout.count(", captured,"), 2)
        self.assertEqual(result.stdout.count("# memory: staged through the host"), 2)
        self.assertEqual(result.stdout.count("# memory: handed over"), 9)

    def test_ranks_fail_where_the_daemon_does_not_take_the_gpus_memory(self):
        if not arguments.fake_driver:
            self.skipTest("no --fake-driver")
        programs = pathlib.Path(arguments.bin).resolve()
        if not all((programs / program).exists() for program in ["spccl-perf", "spccld"]):
            self.skipTest("no spccl-perf and spccld")
        status, found = run("--bin", self.bin, "--spccl", programs, "--out", self.folder / "out",
                            "--only", "ranks-2", SPCCL_CUDA_LIBRARY=arguments.fake_driver,
                            SPCCL_GPU_KERNELS="/nowhere/kernels.so")
        self.assertEqual(status, 1, found["last"][1])
        self.assertEqual(found["ranks-2"][0], "FAIL")
        self.assertIn("staged through the host", found["ranks-2"][1])
        self.assertIn("/nowhere/kernels.so", found["ranks-2"][1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in ["--bin", "--fake-driver", "--fake-kernels"]:
        parser.add_argument(option)
    arguments, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
