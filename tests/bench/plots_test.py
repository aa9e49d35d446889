#!/usr/bin/env python3
"""Draws every kind of plot from small made-up sweeps. Run by ctest."""

import contextlib
import io
import json
import pathlib
import shutil
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))
import plots  # noqa: E402

THRESHOLDS = """rate,intra,inter,codec,ms
1gbit,,,dense,100
1gbit,0,0,pici,50
1gbit,0,1,pici,90
1gbit,1,0,pici,60
1gbit,1,1,pici,110
"""
CHANNELS = """rate,channels,codec,ms
1gbit,1,pici,30
1gbit,2,pici,20
"""
POINTS = """op,nodes,ranks,bytes,sparsity,channels,way,ran,iters,time_us
all_reduce,2,2,65536,0,1,auto,split,3,200
all_reduce,2,2,65536,0,2,auto,split,3,150
all_reduce,2,2,65536,0.99,2,auto,split,3,50
all_reduce,2,2,65536,0.99,2,split,split,3,50
"""
MEASURED = """when,round,rate,hosts,ranks,op,bytes,sparsity,who,time_us_min,time_us_p50
x,0,1gbit,2,2,all_reduce,67108864,0.99,spccl,1,20000
x,0,1gbit,2,2,all_reduce,67108864,0,gloo ring,1,800000
x,0,1gbit,4,4,all_reduce,67108864,0.99,spccl,1,40000
x,0,1gbit,4,4,all_reduce,67108864,0,gloo ring,1,900000
"""


def perf_line(size, sparsity, time_us):
    return {"tool": "spccl-perf", "op": "all_gather", "bytes": size, "ranks": 2,
            "sparsity": sparsity, "time_us_p50": time_us, "time_us_mean": time_us,
            "spent_us": {"encode": 10, "send": 20, "reduce": 5, "receive_wait": 40}}


def frame_line(form, sparsity, frame_bytes):
    return {"op": "codec", "format": form, "dtype": "float32", "bytes": 1 << 20,
            "sparsity": sparsity, "frame_bytes": frame_bytes}


def model_line(gpus, speedup):
    return {"tool": "spccl-model", "preset": "perlmutter", "op": "all_reduce", "bytes": 1 << 30,
            "gpus": gpus, "sparsity": 0.99, "algo": "ring", "speedup": speedup}


@unittest.skipUnless(shutil.which("gnuplot"), "gnuplot is missing")
class PlotsTest(unittest.TestCase):

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def draw(self, files):
        """The names of the PNGs, and the kinds without data."""
        for name, content in files.items():
            if content is not None:
                (self.folder / name).write_text(content)
        out = self.folder / "out"
        with contextlib.redirect_stderr(io.StringIO()):
            missing = plots.draw([self.folder / name for name in files], out)
        for png in out.iterdir():
            content = png.read_bytes()
            self.assertEqual(content[:8], b"\x89PNG\r\n\x1a\n", png.name)
            self.assertGreater(len(content), 2000, png.name)
        return {png.name for png in out.iterdir()}, missing

    def test_every_kind_is_drawn(self):
        lines = [perf_line(65536, 0, 300), perf_line(65536, 0.9, 100), perf_line(1 << 20, 0, 900)]
        frames = [frame_line(f, s, int(1.3 * (1 << 20) * (1 - s)))
                  for f in ("pici", "gap") for s in (0.9, 0.99)]
        names, missing = self.draw({
            "thresholds.csv": THRESHOLDS, "channels.csv": CHANNELS, "points.csv": POINTS,
            "measurements.csv": MEASURED,
            "perf.jsonl": "\n".join(map(json.dumps, lines)) + "\nnot a line\n",
            "codec.jsonl": "\n".join(map(json.dumps, frames)),
            "model.jsonl": "\n".join(json.dumps(model_line(8 * n, 3 / n)) for n in (1, 2, 4))})
        self.assertEqual(missing, [])
        self.assertEqual(names, {
            "thresholds-1gbit.png", "channels.png", "wire.png", "phases-all_gather-2.png",
            "heat-all_gather-0.9.png", "heat-all_reduce-0.99.png",
            "heat-all_reduce-1gbit--1-a-host-0.99.png",
            "model-perlmutter-all_reduce-1073741824.png"})

    def test_what_is_missing_is_named(self):
        names, missing = self.draw({"channels.csv": CHANNELS})
        self.assertEqual(names, {"channels.png"})
        self.assertEqual(missing, ["heat", "thresholds", "wire", "phases", "model"])
        self.assertEqual(set(plots.MAKES), set(plots.PLOTS))

    def test_a_folder_s_other_files_are_passed_over(self):
        for name, content in {"sweep.json": b'{\n  "cpu": "x",\n  "sizes": [1, 2]\n}\n',
                              "points.csv": POINTS.encode(), "other.csv": b"way,when\n1,2\n",
                              "zip.csv": b"PK\xff\xfe\x00", "model.toml": b"x = 1\n",
                              "cut.jsonl": json.dumps(perf_line(65536, 0, 300))[:-9].encode()
                              + b"\n" + json.dumps(perf_line(65536, 0, 300)).encode()}.items():
            (self.folder / name).write_bytes(content)
        names, missing = self.draw({"": None})
        self.assertEqual(names, {"channels.png", "heat-all_reduce-0.99.png",
                                 "phases-all_gather-2.png"})
        self.assertEqual(missing, ["thresholds", "wire", "model"])

    def test_a_named_file_that_is_none_of_a_sweep_is_refused(self):
        for name, content, said in (("zip.csv", b"PK\xff\xfe", "zip.csv is no text"),
                                    ("zip.json", b"PK\xff\xfe", "zip.json is no text"),
                                    ("sweep.json", b'{\n "a": 1\n}\n', "sweep.json has a line"),
                                    ("other.csv", b"way\n1\n", "other.csv has a line")):
            (self.folder / name).write_bytes(content)
            with self.assertRaises(SystemExit) as refused:
                plots.draw([self.folder / name], self.folder / "out")
            self.assertIn(said, str(refused.exception))


class ArithmeticTest(unittest.TestCase):

    def test_speedups_are_over_the_fastest_peer_or_over_dense(self):
        def run(who, sparsity, time_us):
            return plots.Run(who, "all_reduce", "", sparsity, 1024, 2, time_us)
        mine = [run("spccl", 0, 8), run("spccl", 0.9, 2)]
        self.assertEqual(plots.speedups(mine, 0.9), ({(1024, 2): 4}, "data without zeros"))
        peers = [run("gloo", 0, 20), run("Open MPI", 0, 10)]
        self.assertEqual(plots.speedups(mine + peers, 0.9), ({(1024, 2): 5}, "the fastest peer"))

    def test_the_limit_is_a_value_and_its_place(self):
        self.assertAlmostEqual(plots.entropy_limit(0.99, 4), 0.04 + 0.0807931 / 8, 6)
        self.assertEqual(plots.entropy_limit(0, 4), 4)


if __name__ == "__main__":
    unittest.main()
