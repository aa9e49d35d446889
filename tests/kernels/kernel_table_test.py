#!/usr/bin/env python3
"""tools/kernel_table.py finds what ptxas must not have done to a kernel. Run by ctest."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools/kernel_table.py"
NAME = "_ZN5spccl6launch5EntryINS_6sparse10DecodePiciIjEEEEvNT_6ParamsE"
LOG = """ptxas info    : Compiling entry function '{name}' for 'sm_90'
ptxas info    : Function properties for {name}
    {stack} bytes stack frame, {spill} bytes spill stores, 0 bytes spill loads
ptxas info    : Used {registers} registers, used 1 barriers, {shared} bytes smem
"""
TABLE = "arch\tkernel\tregisters\tshared_bytes\n90\tDecodePici<unsigned int>\t30\t1024\n"


class KernelTableTest(unittest.TestCase):

    def check(self, table=TABLE, name=NAME, registers=30, shared=1024, stack=0, spill=0, write=False):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "a.o.ptxas"
            log.write_text(LOG.format(name=name, registers=registers, shared=shared, stack=stack,
                                      spill=spill))
            path = pathlib.Path(folder) / "table.tsv"
            path.write_text(table)
            command = [sys.executable, TOOL, "--table", path, *(["--write"] if write else []), log]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
            return result.returncode, result.stderr, path.read_text()

    def test_as_the_table_says(self):
        self.assertEqual(self.check()[0], 0)
        self.assertEqual(self.check(registers=28)[0], 0)

    def test_what_must_not_be(self):
        for wrong, said in [({"registers": 31}, "31 registers"), ({"shared": 2048}, "2048 bytes"),
                            ({"stack": 16}, "16 bytes of local memory"),
                            ({"spill": 4}, "4 bytes of spills"),
                            ({"name": NAME.replace("Ij", "It")}, "not in the table"),
                            ({"table": TABLE + "90\tGone\t1\t0\n"}, "Gone: in the table, but")]:
            with self.subTest(wrong=wrong):
                status, error, _ = self.check(**wrong)
                self.assertNotEqual(status, 0)
                self.assertIn(said, error)

    def test_write_makes_the_table_but_forgives_no_spill(self):
        self.assertEqual(self.check(table="", write=True), (0, "", TABLE))
        self.assertNotEqual(self.check(table="", write=True, spill=4)[0], 0)


if __name__ == "__main__":
    unittest.main()
