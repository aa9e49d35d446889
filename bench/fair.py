#!/usr/bin/env python3
"""How two jobs share a daemon: spccl-perf processes, each a job of its own.

usage: fair.py BIN_DIR [--seconds S] [--rounds N] [--bulk BYTES] [--small BYTES] [--ops N]
                       [--daemon-arg ARG]...

Prints the payload of a bulk job of weight 2 over that of one of weight 1, while both run; then the
p50 and p99 of a small all-reduce, alone and while a bulk job of the same weight runs, round by round by
turns, and the median of the rounds' ratios.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

PATIENCE_S = 60


class Daemon:
    def __init__(self, bin_dir, folder, flags):
        self.bin_dir, self.folder = bin_dir, folder
        os.makedirs(folder)
        self.process = subprocess.Popen(
            [f"{bin_dir}/spccld", "--runtime-dir", folder, "--state-dir", f"{folder}/state",
             "--log-level=warning", *flags])
        self.tool("wait", "--ready")

    def tool(self, *arguments):
        return subprocess.run([f"{self.bin_dir}/spcclctl", "--runtime-dir", self.folder, *arguments],
                              check=True, stdout=subprocess.PIPE, text=True).stdout

    def perf(self, size, iters, warmup):
        """A job of its own: its processes are a kernel session."""
        return subprocess.Popen(
            [f"{self.bin_dir}/spccl-perf", "--json", "--runtime-dir", self.folder, "--ranks=2",
             f"--sizes={size}", f"--iters={iters}", f"--warmup={warmup}"],
            stdout=subprocess.PIPE, text=True, start_new_session=True)

    def bulk(self, size):
        return self.perf(size, 1000000, 0)

    def payload(self, job):
        for one in json.loads(self.tool("jobs", "-o", "json"))["jobs"]:
            if one["id"] == job_id(job):
                return one["counters"]["payload_bytes"]
        return 0

    def await_moving(self, job):
        deadline = time.monotonic() + PATIENCE_S
        while self.payload(job) == 0:
            if time.monotonic() > deadline:
                sys.exit("the bulk job does not move")
            time.sleep(0.05)

    def stop(self):
        self.process.terminate()
        self.process.wait()


def job_id(job):
    return f"u{os.getuid()}.s{job.pid}"


def end(job):
    os.killpg(job.pid, 9)
    job.communicate()


def shares(daemon, bulk, seconds):
    jobs = {weight: daemon.bulk(bulk) for weight in (1, 2)}
    try:
        daemon.tool("job", "set", job_id(jobs[2]), "--weight", "2")
        for job in jobs.values():
            daemon.await_moving(job)
        before = {weight: daemon.payload(job) for weight, job in jobs.items()}
        time.sleep(seconds)
        moved = {weight: daemon.payload(job) - before[weight] for weight, job in jobs.items()}
    finally:
        for job in jobs.values():
            end(job)
    print(f"weights 2 and 1: {moved[2] / 2**30:.2f} and {moved[1] / 2**30:.2f} GiB in "
          f"{seconds:g} s, ratio {moved[2] / moved[1]:.3f}")


def latency(daemon, size, ops):
    job = daemon.perf(size, ops, 100)
    lines = job.communicate()[0].splitlines()
    if job.returncode != 0:
        sys.exit("spccl-perf failed")
    row = json.loads(lines[0])
    return row["time_us_p50"], row["time_us_p99"]


def latencies(daemon, arguments):
    ratios = []
    for round_ in range(arguments.rounds):
        idle = latency(daemon, arguments.small, arguments.ops)
        bulk = daemon.bulk(arguments.bulk)
        try:
            daemon.await_moving(bulk)
            loaded = latency(daemon, arguments.small, arguments.ops)
        finally:
            end(bulk)
        ratios.append(loaded[1] / idle[1])
        print(f"round {round_}: idle p50 {idle[0]:.1f} p99 {idle[1]:.1f} us, beside a bulk job p50 "
              f"{loaded[0]:.1f} p99 {loaded[1]:.1f} us, ratio of p99 {ratios[-1]:.2f}", flush=True)
    print(f"all_reduce of {arguments.small}, 2 ranks: median ratio of p99 "
          f"{statistics.median(ratios):.2f}; target at most 3")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_dir")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bulk", default="64M")
    parser.add_argument("--small", default="64K")
    parser.add_argument("--ops", type=int, default=5000)
    parser.add_argument("--daemon-arg", action="append", default=[])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        daemon = Daemon(arguments.bin_dir, f"{root}/run", arguments.daemon_arg)
        try:
            shares(daemon, arguments.bulk, arguments.seconds)
            latencies(daemon, arguments)
        finally:
            daemon.stop()


if __name__ == "__main__":
    sys.exit(main())
