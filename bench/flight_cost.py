#!/usr/bin/env python3
"""What the flight recorder costs: spccl-perf on two daemons, with it and without, by turns.

usage: flight_cost.py BIN_DIR [--rounds N] [--control] [-- SPCCL_PERF_OPTIONS...]

Prints a line a size: the median of the runs' median times with the recorder and without, and the
median of the ratios of neighbouring runs with the middle half of them. Each pair is run in the other
order than the one before it, on two daemons of its own: where a process happens to lie in memory
makes more of a difference than the recorder, and two that live on would differ all along.
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


def measure(bin_dir, folder, options):
    """The median microseconds of an operation, by size."""
    lines = subprocess.run(
        [bin_dir + "/spccl-perf", "--json", "--runtime-dir", folder, *options], check=True,
        stdout=subprocess.PIPE, text=True).stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    return {row["bytes"]: row["time_us_p50"] for row in rows}


def measure_pair(bin_dir, root, flags, number, options):
    """The same with the first flags and with the second."""
    folders = [f"{root}/{number}-{which}" for which in (0, 1)]
    with running(bin_dir, folders[0], flags[0]), running(bin_dir, folders[1], flags[1]):
        times = [None, None]
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            times[which] = measure(bin_dir, folders[which], options)
    return times


def run(bin_dir, root, arguments, options):
    first = WITHOUT if arguments.control else []
    pairs = collections.defaultdict(list)
    for number in range(arguments.rounds):
        one, other = measure_pair(bin_dir, root, (first, WITHOUT), number, options)
        for size in one:
            pairs[size].append((one[size], other[size]))
    name = "without, too" if arguments.control else "with"
    for size, times in pairs.items():
        ratios = [one / other for one, other in times]
        low, middle, high = statistics.quantiles(ratios, n=4)
        one, other = (statistics.median(column) for column in zip(*times))
        print(f"{size:>12} bytes: {one:10.2f} us {name}, {other:10.2f} us without, "
              f"ratio {middle:.4f} ({low:.4f} to {high:.4f})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_dir")
    parser.add_argument("--rounds", type=int, default=10, help="two at least (default 10)")
    parser.add_argument("--control", action="store_true",
                        help="both without: what the machine makes of no difference")
    own, options = sys.argv[1:], []
    if "--" in own:
        own, options = own[:own.index("--")], own[own.index("--") + 1:]
    arguments = parser.parse_args(own)
    if arguments.rounds < 2:
        parser.error("--rounds: two at least")
    with tempfile.TemporaryDirectory() as root:
        run(arguments.bin_dir, root, arguments, options)


if __name__ == "__main__":
    sys.exit(main())
