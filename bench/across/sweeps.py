"""Sweeps what decides how fast sparse collectives are between hosts; CSV files and PNG plots.

thresholds  A reduce-scatter with Pici by the flat ring, two ranks on each of 4 hosts, for pairs of
            the thresholds of sends within and between hosts, against the same in dense frames. The
            input's sparsity is such that the last sum is about as dense as in SpCCL's Figure 2.
channels    An all-gather of 99% zeros on 4 hosts by the number of a daemon's channels, and in dense
            frames (SpCCL's Figure 4).

All points of a sweep are measured once a round, in turn; what counts is the median over the rounds.
"""

import argparse
import contextlib
import csv
import statistics
import sys

import lab as labs
import plots
from lab import MIB, Place, Work, progress

SIZE = 64 * MIB
HOSTS = 4
SPARSITY = {"reduce_scatter": 0.9, "all_gather": 0.99}
CHANNELS = [1, 2, 3, 4, 6, 8]


def steps(step):
    return [round(i * step, 3) for i in range(round(1 / step) + 1)]


def threshold_points(options):
    """(labels of the CSV, options of spccl-perf, arguments of the daemons)"""
    dense = ({"intra": "", "inter": "", "codec": "dense"},
             ["--algo", "ring", "--codec", "dense"], [])
    return [dense] + [({"intra": intra, "inter": inter, "codec": "pici"},
                       ["--algo", "ring", "--codec", "pici"],
                       [f"--thresholds-pici-intra={intra}", f"--thresholds-pici-inter={inter}"])
                      for intra in steps(options.step) for inter in steps(options.step)]


def channel_points(options):
    channels = [1, 2, 4] if options.quick else CHANNELS
    return [({"channels": count, "codec": codec}, ["--codec", codec], [f"--channels={count}"])
            for count in channels for codec in ("pici", "dense")]


def sweep(runner, options, place, op, points):
    """The labels of each point with its time; points that failed are left out."""
    work = Work(op, SIZE, SPARSITY[op], options.iters, 2)
    times = [[] for _ in points]
    for runner.round in range(options.rounds):
        progress(f"round {runner.round + 1} of {options.rounds}: {op}, {place.title()}, "
                 f"{len(points)} points")
        for (labels, perf, daemon), seen in zip(points, times):
            who = "spccl " + " ".join(f"{k}={v}" for k, v in labels.items() if v != "")
            time = runner.spccl(place, work, who, perf, daemon)
            if time is not None:
                seen.append(time)
    return [{"rate": place.lab.rate, **labels, "ms": round(statistics.median(seen) / 1e3, 3)}
            for (labels, _, _), seen in zip(points, times) if seen]


def write_csv(path, rows):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def run(options, runner):
    plots.need_gnuplot()
    where = labs.stamp(options.rounds)
    thresholds, channels = [], []
    with contextlib.ExitStack() as stack:
        for rate in options.rates.split(","):
            lab = stack.enter_context(labs.Lab(f"across-{rate}", HOSTS, rate))
            if options.what != "channels":
                place = Place(lab, HOSTS, 2)
                thresholds += sweep(runner, options, place, "reduce_scatter",
                                    threshold_points(options))
            if options.what != "thresholds":
                place = Place(lab, HOSTS, 1)
                channels += sweep(runner, options, place, "all_gather", channel_points(options))
    for kind, rows in {"thresholds": thresholds, "channels": channels}.items():
        if rows:
            write_csv(options.out / f"{kind}.csv", rows)
            plots.draw([options.out / f"{kind}.csv"], options.out, [kind])
    (options.out / "about.txt").write_text(where + "\n", encoding="utf-8")
    return 2 if runner.failures else 0


def main():
    parser = argparse.ArgumentParser(prog="bench/across.sh sweeps", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    labs.add_options(parser, "across/sweeps")
    parser.add_argument("--what", choices=["both", "thresholds", "channels"], default="both",
                        help="(default both)")
    parser.add_argument("--rates", default="1gbit,10gbit", help="of the links (default both)")
    parser.add_argument("--step", type=float,
                        help="between thresholds (default 0.1; 0.25 with --quick)")
    parser.add_argument("--rounds", type=int, help="(default 3; 1 with --quick)")
    parser.add_argument("--iters", type=int, default=3, help="operations a round (default 3)")
    options = parser.parse_args()
    options.step = options.step or (0.25 if options.quick else 0.1)
    options.rounds = options.rounds or (1 if options.quick else 3)
    if not 0.01 <= options.step <= 1:
        parser.error("--step is a number from 0.01 to 1")
    return labs.start(run, options)


if __name__ == "__main__":
    sys.exit(main())
