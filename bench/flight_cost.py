#!/usr/bin/env python3
"""What the flight recorder costs: spccl-perf on two daemons, with it and without, by turns.

usage: flight_cost.py BIN_DIR [--rounds N] [-- SPCCL_PERF_OPTIONS...]

Prints a line a size: the median of the runs' median times with the recorder and without, and the
median of the ratios of neighbouring runs, of which each pair is run in the other order than the one
before it. Whatever else the machine does, it does to both of a pair.
"""

import argparse
import collections
import json
import os
import statistics
import subprocess
import sys
import tempfile

WITH = "with"
WITHOUT = "without"
FLAGS = {WITH: [], WITHOUT: ["--flight-operations=0", "--flight-spans=0", "--flight-files=0"]}


def start(bin_dir, folder, flags):
    """A daemon that is ready, in `folder`."""
    os.makedirs(folder)
    daemon = subprocess.Popen([bin_dir + "/spccld", "--runtime-dir", folder, "--state-dir",
                               folder + "/state", "--log-level=warning", *flags])
    subprocess.run([bin_dir + "/spcclctl", "--runtime-dir", folder, "wait", "--ready"], check=True,
                   stdout=subprocess.DEVNULL)
    return daemon


def measure(bin_dir, folder, options):
    """The median microseconds of an operation, by size."""
    lines = subprocess.run(
        [bin_dir + "/spccl-perf", "--json", "--runtime-dir", folder, *options], check=True,
        stdout=subprocess.PIPE, text=True).stdout.splitlines()
    rows = [json.loads(line) for line in lines]
    return {row["bytes"]: row["time_us_p50"] for row in rows}


def run(bin_dir, root, rounds, options):
    times = {WITH: collections.defaultdict(list), WITHOUT: collections.defaultdict(list)}
    for round_ in range(rounds):
        for name in (WITH, WITHOUT) if round_ % 2 == 0 else (WITHOUT, WITH):
            for size, micros in measure(bin_dir, f"{root}/{name}", options).items():
                times[name][size].append(micros)
    for size, with_it in times[WITH].items():
        without = times[WITHOUT][size]
        ratio = statistics.median(a / b for a, b in zip(with_it, without))
        print(f"{size:>12} bytes: {statistics.median(with_it):10.2f} us with, "
              f"{statistics.median(without):10.2f} us without, ratio {ratio:.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_dir")
    parser.add_argument("--rounds", type=int, default=10)
    own, options = sys.argv[1:], []
    if "--" in own:
        own, options = own[:own.index("--")], own[own.index("--") + 1:]
    arguments = parser.parse_args(own)
    with tempfile.TemporaryDirectory() as root:
        daemons = [start(arguments.bin_dir, f"{root}/{name}", flags)
                   for name, flags in FLAGS.items()]
        try:
            run(arguments.bin_dir, root, arguments.rounds, options)
        finally:
            for daemon in daemons:
                daemon.terminate()
                daemon.wait()


if __name__ == "__main__":
    sys.exit(main())
