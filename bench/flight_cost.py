#!/usr/bin/env python3
"""What the flight recorder costs: spccl-perf on a daemon with it and on one without, by turns.

usage: flight_cost.py BIN_DIR [--rounds N] [--runs N] [--control] [-- SPCCL_PERF_OPTIONS...]

Prints a line a size: the median of the times with the recorder and without, and the median of the
ratios of neighbouring times with the middle half of them. A time is the median of some runs' median
times on a daemon that was started for them and is alone. Where a process lies in memory makes more of
a difference than the recorder: hence a new one each time. Each pair is measured in the other order
than the one before it.
"""

import argparse
import collections
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile

WITHOUT = ["--flight-operations=0", "--flight-spans=0", "--flight-files=0"]


@contextlib.contextmanager
def running(bin_dir, folder, flags):
    """A daemon that is ready, in `folder`."""
    os.makedirs(folder)
    daemon = subprocess.Popen([bin_dir + "/spccld", "--runtime-dir", folder, "--state-dir",
                               folder + "/state", "--log-level=warning", *flags])
    try:
        subprocess.run([bin_dir + "/spcclctl", "--runtime-dir", folder, "wait", "--ready"],
                       check=True, stdout=subprocess.DEVNULL)
        yield
    finally:
        daemon.terminate()
        daemon.wait()


def run_once(bin_dir, folder, options):
    """The median microseconds of an operation, by size."""
    lines = subprocess.run(
        [bin_dir + "/spccl-perf", "--json", "--runtime-dir", folder, *options], check=True,
        stdout=subprocess.PIPE, text=True).stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    return {row["bytes"]: row["time_us_p50"] for row in rows}


def measure(bin_dir, folder, flags, runs, options):
    """The same, of so many runs on a new daemon."""
    with running(bin_dir, folder, flags):
        times = [run_once(bin_dir, folder, options) for _ in range(runs)]
    return {size: statistics.median(one[size] for one in times) for size in times[0]}


def run(bin_dir, root, arguments, options):
    sides = [WITHOUT if arguments.control else [], WITHOUT]
    pairs = collections.defaultdict(list)
    for number in range(arguments.rounds):
        times = [None, None]
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            times[side] = measure(bin_dir, f"{root}/{number}-{side}", sides[side], arguments.runs,
                                  options)
        for size in times[0]:
            pairs[size].append((times[0][size], times[1][size]))
    name = "without, too" if arguments.control else "with"
    for size, both in pairs.items():
        low, middle, high = statistics.quantiles([one / other for one, other in both], n=4)
        one, other = (statistics.median(column) for column in zip(*both))
        print(f"{size:>12} bytes: {one:10.2f} us {name}, {other:10.2f} us without, "
              f"ratio {middle:.4f} ({low:.4f} to {high:.4f})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_dir")
    parser.add_argument("--rounds", type=int, default=10, help="two at least (default 10)")
    parser.add_argument("--runs", type=int, default=5, help="on a daemon (default 5)")
    parser.add_argument("--control", action="store_true",
                        help="both without: what the machine makes of no difference")
    own, options = sys.argv[1:], []
    if "--" in own:
        own, options = own[:own.index("--")], own[own.index("--") + 1:]
    arguments = parser.parse_args(own)
    if arguments.rounds < 2 or arguments.runs < 1:
        parser.error("--rounds: two at least; --runs: one")
    with tempfile.TemporaryDirectory() as root:
        run(arguments.bin_dir, root, arguments, options)


if __name__ == "__main__":
    sys.exit(main())
