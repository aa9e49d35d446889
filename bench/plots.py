#!/usr/bin/env python3
"""Turns sweeps into PNGs, with gnuplot: give it any of the files below, or folders that hold them.

  heat-*.png       how many times as fast as the fastest peer, by size and number of ranks; where no
                   peer was measured, as the same operation on data without zeros
  thresholds-*.png speed relative to dense sends, by the thresholds within and between hosts
  channels.png     time by the number of channels
  wire.png         bytes of frames over what entropy allows, by the share of zeros
  phases-*.png     where the time of an operation went: how many threads worked in each phase
  model-*.png      what the cost model expects: how many times as fast as dense, by the number of GPUs

Read: thresholds.csv and channels.csv of `bench/across.sh sweeps`, measurements.csv of all of
`bench/across.sh`, points.csv of spccl-tune, and files of lines that spccl-perf, mpi-perf, gloo-perf,
codec-bench and spccl-model print with --json. What a plot has no data for is said, and which command makes it.
"""

import argparse
import collections
import csv
import io
import json
import math
import pathlib
import shutil
import statistics
import subprocess
import sys

MIB = 1 << 20
PALETTE = "set palette defined (0 '#3b4cc0', 0.5 '#dddddd', 1 '#b40426')"
PHASES = ["encode", "send", "reduce"]  # in which threads work; waits of many slices overlap
# What makes the data of a kind of plot.
MAKES = {
    "heat": "bench/across.sh targets, or spccl-perf --json with several --sizes and --ranks",
    "thresholds": "bench/across.sh sweeps --what thresholds",
    "channels": "bench/across.sh sweeps --what channels, or spccl-tune --channels 1,2,4",
    "wire": "codec-bench --json with several --sparsity and --format",
    "phases": "spccl-perf --nodes 2 --json",
    "model": "spccl-model --json",
}
# One measured operation, whatever measured it.
Run = collections.namedtuple("Run", "who op where sparsity bytes ranks time_us")


def gnuplot(path, title, body):
    head = (f"set terminal pngcairo noenhanced size 760,560 font 'sans,11'\nset output '{path}'\n"
            f"set title \"{title}\"\n")
    subprocess.run(["gnuplot"], input=head + body, text=True, check=True)
    print(f"wrote {path}", file=sys.stderr)


def block(name, rows):
    """Rows as a data block of gnuplot's."""
    lines = "\n".join(" ".join(map(str, row)) for row in rows)
    return f"${name} << END\n{lines}\nEND\n"


def grouped(items, key):
    groups = collections.defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return dict(sorted(groups.items(), key=lambda one: str(one[0])))


def size_name(size):
    return f"{size // MIB} MiB" if size >= MIB else f"{size / 1024:g} KiB"


def file_name(*words):
    text = "-".join(str(word) for word in words if word != "")
    return "".join(c if c.isalnum() or c in "-._" else "-" for c in text)


# --- what is read ---

class Data:
    """All rows of all files, by what they are."""

    def __init__(self):
        self.thresholds, self.channels, self.frames, self.spent = [], [], [], []
        self.runs, self.projections = [], []

    def read(self, path):
        """In a folder, other files and lines are passed over; a file that is named has none."""
        if not path.is_dir():
            self.read_file(path, self.refuse)
            return
        for file in sorted(path.rglob("*")):
            if file.suffix in (".csv", ".jsonl", ".json") and file.is_file():
                self.read_file(file, lambda path, what: None)

    @staticmethod
    def refuse(path, what):
        sys.exit(f"plots.py: {path} {what}; expected one of the files that --help names")

    def read_file(self, path, complain):
        try:
            text = path.read_text(encoding="utf-8")
            if path.suffix == ".csv":
                take, lines = self.take_row, list(csv.DictReader(io.StringIO(text)))
            else:
                take = self.take_json
                lines = [line for line in text.splitlines() if line.startswith("{")]
        except (UnicodeDecodeError, csv.Error):
            complain(path, "is no text")
            return
        for line in lines:
            try:
                take(line)
            except (KeyError, TypeError, ValueError):
                complain(path, f"has a line that is none of a sweep's: {line}")

    def take_json(self, text):
        self.take_line(json.loads(text))

    def take_row(self, row):
        if "intra" in row:
            self.thresholds.append({**row, "ms": float(row["ms"])})
        elif "codec" in row and "channels" in row:
            self.channels.append({"curve": f"{row['rate']}, {row['codec']}",
                                  "channels": int(row["channels"]), "ms": float(row["ms"])})
        elif "way" in row:
            self.take_point(row)
        elif row.get("time_us_p50") and not row["who"].startswith("spccl "):  # with options
            where = f"{row['rate']}, {int(row['ranks']) // int(row['hosts'])} a host"
            self.runs.append(Run(row["who"], row["op"], where, float(row["sparsity"]),
                                 int(row["bytes"]), int(row["ranks"]), float(row["time_us_p50"])))

    def take_point(self, row):
        """Of spccl-tune."""
        sparsity, ms = float(row["sparsity"]), float(row["time_us"]) / 1e3
        if row["way"] == "auto" and int(row["channels"]) > 0:
            size = size_name(int(row["bytes"]))
            self.channels.append({"curve": f"{row['op']}, {size}, {sparsity:.2%} zeros",
                                  "channels": int(row["channels"]), "ms": ms})
        if row["way"] == "auto":
            self.runs.append(Run("spccl", row["op"], "", sparsity, int(row["bytes"]),
                                 int(row["ranks"]), ms * 1e3))

    def take_line(self, line):
        if line.get("tool") == "spccl-model":
            if "speedup" in line:
                self.projections.append(line)
            return
        if "frame_bytes" in line:
            self.frames.append(line)
            return
        if "time_us_p50" not in line or "ranks" not in line:
            return
        who = "spccl" if line["tool"] == "spccl-perf" else line["tool"]
        self.runs.append(Run(who, line["op"], "", line["sparsity"], line["bytes"], line["ranks"],
                             line["time_us_p50"]))
        if line.get("spent_us"):
            self.spent.append(line)


# --- what is drawn ---

def speedups(runs, sparsity):
    """By (bytes, ranks), and what it is relative to."""
    def best(of):
        times = {}
        for run in of:
            key = (run.bytes, run.ranks)
            times[key] = min(times.get(key, math.inf), run.time_us)
        return times

    mine = best(r for r in runs if r.who == "spccl" and r.sparsity == sparsity)
    peers = best(r for r in runs if r.who != "spccl")
    dense = best(r for r in runs if r.who == "spccl" and r.sparsity == 0)
    others, what = (peers, "the fastest peer") if peers else (dense, "data without zeros")
    return {key: others[key] / time for key, time in mine.items() if key in others}, what


def heat_map(cells, half_x, half_y, font):
    """Of (x, y, ratio), with the ratios written in."""
    ratios = [float(ratio) for _, _, ratio in cells]
    return block("data", cells) + f"""
{PALETTE}
set cbrange [{min(ratios) / 1.01}:{max(ratios) * 1.01}]
plot $data using 1:2:({half_x}):({half_y}):3 with boxxyerror lc palette fs solid notitle, \\
     $data using 1:2:(sprintf('%.2f', $3)) with labels font ',{font}' notitle
"""


def plot_heat(data, out):
    made = 0
    for (op, where), runs in grouped(data.runs, lambda r: (r.op, r.where)).items():
        for sparsity in sorted({r.sparsity for r in runs if r.who == "spccl"}):
            ratios, what = speedups(runs, sparsity)
            if not ratios or (what != "the fastest peer" and sparsity == 0):
                continue
            sizes = sorted({size for size, _ in ratios})
            ranks = sorted({count for _, count in ratios})
            rows = [[ranks.index(count), sizes.index(size), f"{ratio:.4f}"]
                    for (size, count), ratio in sorted(ratios.items())]
            xtics = ", ".join(f"'{count}' {i}" for i, count in enumerate(ranks))
            ytics = ", ".join(f"'{size_name(size)}' {i}" for i, size in enumerate(sizes))
            head = f"{op}, {sparsity:.2%} zeros{', ' + where if where else ''}"
            gnuplot(out / f"{file_name('heat', op, where, sparsity)}.png",
                    f"{head}:\\nspeed relative to {what}", f"""
set xlabel 'ranks'
set ylabel 'bytes'
set xtics ({xtics})
set ytics ({ytics})
set xrange [-0.5:{len(ranks) - 0.5}]
set yrange [-0.5:{len(sizes) - 0.5}]
set logscale cb
""" + heat_map(rows, 0.5, 0.5, 11))
            made += 1
    return made


def plot_thresholds(data, out):
    """A map of how many times as fast as dense."""
    made = 0
    for rate, rows in grouped(data.thresholds, lambda r: r["rate"]).items():
        dense = [row["ms"] for row in rows if row["codec"] == "dense"]
        points = [row for row in rows if row["codec"] != "dense"]
        if not dense or not points:
            continue
        cells = [[r["inter"], r["intra"], f"{dense[0] / r['ms']:.3f}"] for r in points]
        step = 1 / max(1, len({r["inter"] for r in points}) - 1)
        gnuplot(out / f"thresholds-{file_name(rate)}.png",
                f"Reduce-scatter, {points[0]['codec']}, {rate}:\\n"
                f"speed relative to dense ({dense[0]:.0f} ms)", f"""
set xlabel 'threshold between hosts (dense at or below)'
set ylabel 'threshold within a host'
set xrange [{-step / 2}:{1 + step / 2}]
set yrange [{-step / 2}:{1 + step / 2}]
""" + heat_map(cells, step / 2, step / 2, 8))
        made += 1
    return made


def plot_channels(data, out):
    """Time by channels, a curve a link and codec, or an operation."""
    blocks, curves = "", []
    for curve, rows in grouped(data.channels, lambda r: r["curve"]).items():
        medians = {count: statistics.median(r["ms"] for r in same)
                   for count, same in grouped(rows, lambda r: r["channels"]).items()}
        if len(medians) < 2:
            continue
        name = f"d{len(curves)}"
        blocks += block(name, sorted(medians.items()))
        curves.append(f"${name} using 1:2 with linespoints pt 7 title '{curve}'")
    if not curves:
        return 0
    counts = ", ".join(str(c) for c in sorted({r["channels"] for r in data.channels}))
    gnuplot(out / "channels.png", "Time by channels", blocks + f"""
set xlabel 'channels'
set ylabel 'ms'
set logscale xy
set key outside bottom center vertical maxrows 4
set xtics ({counts})
plot {', '.join(curves)}
""")
    return 1


def entropy_limit(sparsity, width):
    """Bytes of an element at least, at uniform positions: its value if it is there, and whether."""
    density = 1 - sparsity
    bits = sum(-p * math.log2(p) for p in (density, sparsity) if p > 0)
    return density * width + bits / 8


def plot_wire(data, out):
    widths = {"float64": 8, "int64": 8, "float16": 2, "bfloat16": 2, "int8": 1, "uint8": 1}
    blocks, curves = "", []
    for form, lines in grouped(data.frames, lambda r: r["format"]).items():
        rows = []
        for line in lines:
            width = widths.get(line.get("dtype"), 4)
            limit = entropy_limit(line["sparsity"], width) * line["bytes"] / width
            if 0 < line["sparsity"] < 1:
                rows.append([f"{1 - line['sparsity']:.6g}", f"{line['frame_bytes'] / limit:.4f}"])
        if not rows:
            continue
        name = f"d{len(curves)}"
        blocks += block(name, sorted(rows, key=lambda row: float(row[0])))
        curves.append(f"${name} using 1:2 with linespoints pt 7 title '{form}'")
    if not curves:
        return 0
    gnuplot(out / "wire.png", "Bytes of frames over the entropy limit, uniform positions",
            blocks + f"""
set xlabel 'density'
set ylabel 'times the limit'
set logscale x
set xrange [] reverse
set yrange [0.95:3]
plot {', '.join(curves)}, 1 with lines lc rgb 'black' title 'limit'
""")
    return 1


def plot_phases(data, out):
    """Threads at work, stacked by phase, by size and share of zeros."""
    made = 0
    for (op, ranks), lines in grouped(data.spent, lambda r: (r["op"], r["ranks"])).items():
        lines = sorted(lines, key=lambda r: (r["bytes"], r["sparsity"]))
        rows = [[f"\"{size_name(line['bytes'])} {line['sparsity']:.1%}\"",
                 *(f"{line['spent_us'].get(phase, 0) / line['time_us_mean']:.4f}" for phase in PHASES)]
                for line in lines]
        bars = ", ".join(f"$data using {i + 2}{':xtic(1)' if i == 0 else ''} "
                         f"title '{phase}'" for i, phase in enumerate(PHASES))
        gnuplot(out / f"phases-{file_name(op, ranks)}.png",
                f"{op}, {ranks} ranks: threads at work", block("data", rows) + f"""
set style data histograms
set style histogram rowstacked
set style fill solid 0.8
set boxwidth 0.8
set ylabel 'threads, mean over the operation'
set xtics rotate by -35
set yrange [0:*]
set key outside right top
plot {bars}
""")
        made += 1
    return made


def plot_model(data, out):
    made = 0
    for (preset, op, size), lines in grouped(
            data.projections, lambda r: (r["preset"], r["op"], r["bytes"])).items():
        blocks, curves = "", []
        for (sparsity, algorithm), rows in grouped(
                lines, lambda r: (r["sparsity"], r["algo"])).items():
            name = f"d{len(curves)}"
            blocks += block(name, sorted([row["gpus"], f"{row['speedup']:.4f}"] for row in rows))
            curves.append(f"${name} using 1:2 with linespoints pt 7 "
                          f"title '{100 * sparsity:.6g}% zeros, {algorithm}'")
        gnuplot(out / f"model-{file_name(preset, op, size)}.png",
                f"{op}, {size_name(size)}, {preset}: projected, not measured", blocks + f"""
set xlabel 'GPUs'
set ylabel 'times as fast as dense'
set logscale x 2
set yrange [0:*]
set key outside bottom center vertical maxrows 4
plot {', '.join(curves)}, 1 with lines lc rgb 'black' title 'dense'
""")
        made += 1
    return made


PLOTS = {"heat": plot_heat, "thresholds": plot_thresholds, "channels": plot_channels,
         "wire": plot_wire, "phases": plot_phases, "model": plot_model}


def need_gnuplot():
    if not shutil.which("gnuplot"):
        sys.exit("gnuplot is missing: apt-get install gnuplot-nox")


def draw(paths, out, only=None):
    """Writes all plots that there are data for; the kinds that have none."""
    need_gnuplot()
    data = Data()
    for path in paths:
        data.read(pathlib.Path(path))
    out.mkdir(parents=True, exist_ok=True)
    return [kind for kind in only or PLOTS if PLOTS[kind](data, out) == 0]


def main():
    parser = argparse.ArgumentParser(prog="bench/plots.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", type=pathlib.Path, help="files of sweeps, or folders")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("plots"),
                        help="folder of the PNGs (default %(default)s)")
    options = parser.parse_args()
    absent = [str(path) for path in options.paths if not path.exists()]
    if absent:
        parser.error(f"not there: {', '.join(absent)}")
    for kind in draw(options.paths, options.out):
        print(f"no {kind} plot: its data are made by {MAKES[kind]}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
