"""Holds codec auto with threshold auto against every fixed setting.

For each link, number of hosts, sparsity, kind of positions and size an all-reduce (with --op another
operation) is run with auto, dense, and each fixed codec with each fixed threshold, by one
communicator, the settings in turn (spccl-perf --settings): all have the same plan, the same link and
the same moment. Medians count. Auto may be 5% slower than the fastest fixed setting, and at 0% of
zeros 3% slower than dense.

What is measured comes after 120 operations of auto, in which its trials of ways end, or as many as
fit in 20 seconds, three at least: of operations of more than some 0.2 s trials are measured along.

The fastest of many medians is mostly a lucky one. So a point that misses is run again, with four
times the operations, auto against dense and the fastest only; what that gives counts.

Every launch's lines are kept in points.jsonl, and what is there is not run again: a sweep that was
interrupted goes on where it was, and the whole grid, which takes many hours, can be measured in parts
(--rates, --hosts, --sizes, --sparsities), or points of it in a random order for as long as --minutes
says: a fair sample, however far it gets. `--again` starts anew. table.md has the verdicts.
"""

import argparse
import collections
import contextlib
import json
import math
import random
import statistics
import sys
import time

import lab as labs
from lab import MIB, Place, Work, progress

AUTO = "codec=auto,threshold=auto"
DENSE = "codec=dense,threshold=0.5"
WORST_OF_BEST, WORST_OF_DENSE = 1.05, 1.03
Launch = collections.namedtuple("Launch", "rate hosts sparsity positions")


def fixed_settings(options):
    """A threshold of 0 compresses whatever is not all nonzeros, 1 all first sends and no other."""
    if options.quick:
        return [DENSE, "codec=pici,threshold=0", "codec=coo,threshold=0", "codec=gap,threshold=0",
                "codec=pici,threshold=1", "codec=auto,threshold=0.5"]
    return [DENSE] + [f"codec={codec},threshold={threshold}"
                      for codec in ("pici", "coo", "gap", "auto")
                      for threshold in (0, 0.25, 0.5, 0.75, 0.9, 1)]


def label_of(setting):
    """As in "coo from 0.75": the codec, and the share of zeros that it takes."""
    fields = dict(part.split("=") for part in setting.split(","))
    return fields["codec"] if setting == DENSE else f"{fields['codec']} from {fields['threshold']}"


def launches(options):
    rates, hosts = options.rates.split(","), options.hosts
    if options.quick and not options.sparsities:
        grid = [(r, h, s, "uniform") for r in rates for h in hosts for s in (0, 0.9, 0.99)]
        return [Launch(*g) for g in [*grid, *((r, hosts[0], 0.97, "clustered") for r in rates)]]
    sparsities = (0, 0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 0.97, 0.99, 0.995, 0.999, 0.9999)
    if options.sparsities:
        sparsities = options.sparsities
    return [Launch(r, h, s, p) for r in rates for h in hosts for s in sparsities
            for p in ("uniform", "clustered") if s or p == "uniform"]


def sizes(options):
    if options.sizes:
        return [size << 10 for size in options.sizes]
    if options.quick:
        return [MIB, 16 * MIB]
    return [64 << 10, 256 << 10, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB]


def seconds_of(size, rate):
    """About what a dense operation takes."""
    return size / {"1gbit": 1.1e8, "10gbit": 8e8}.get(rate, 1.5e9) + 1e-3


def iterations(size, rate, options):
    """Few of what takes long: about the same time for each size."""
    count = 3 * round(options.iters / 3 * 0.1 / seconds_of(size, rate))
    return max(3, min(15 * options.iters, count))


WARMUP_SECONDS = 20


class Sweep:
    def __init__(self, runner, options):
        self.runner, self.options = runner, options
        self.path = options.out / "points.jsonl"
        if options.again:
            self.path.unlink(missing_ok=True)
        self.lines = {}  # (launch, size) -> setting -> medians
        self.again = {}  # the same, of the second run
        self.read()

    def read(self):
        """What was measured before, but for half a line that it ended with."""
        if not self.path.exists():
            return
        text = self.path.read_text(encoding="utf-8")
        whole = text[:text.rfind("\n") + 1]
        if whole != text:
            self.path.write_text(whole, encoding="utf-8")
        for line in whole.splitlines():
            self.keep(json.loads(line))

    def keep(self, record):
        key = (Launch(*record["launch"]), record["bytes"])
        into = self.again if record["again"] else self.lines
        into.setdefault(key, {}).setdefault(record["setting"], []).append(record["time_us_p50"])

    def run(self, launch, lab, size, settings, iters, again):
        place = Place(lab, launch.hosts, 1)
        work = Work(self.options.op, size, launch.sparsity, iters, labs.TRIALS, WARMUP_SECONDS)
        command = self.runner.perf("spccl-perf", place, work) + self.runner.on_daemons(place)
        command.remove("--check")
        # Of operations of four hosts, and more of them than are measured.
        limit_s = labs.LIMIT_S + 4 * len(settings) * (3 + iters) * seconds_of(size, launch.rate)
        command += ["--positions", launch.positions]
        for setting in settings:
            command += ["--settings", setting]
        label = " ".join(map(str, launch)) + f", {size} bytes"
        progress(label + (", again" if again else ""))
        with open(self.path, "a", encoding="utf-8") as file:
            for line in self.runner.lines(label, command, limit_s):
                record = {"launch": launch, "bytes": line["bytes"], "again": again,
                          **{key: line[key] for key in ("setting", "time_us_p50", "time_us_min",
                                                        "wire_bytes", "sends", "send_steps")}}
                self.keep(record)
                file.write(json.dumps(record) + "\n")

    def measure(self, launch, size, lab):
        if (launch, size) not in self.lines:
            self.run(launch, lab, size, [AUTO, *fixed_settings(self.options)],
                     iterations(size, launch.rate, self.options), False)
        point = Point(launch, size, self.lines.get((launch, size), {}))
        if point.complete() and not point.holds() and (launch, size) not in self.again:
            self.run(launch, lab, size, self.second_look(point),
                     4 * iterations(size, launch.rate, self.options), True)

    @staticmethod
    def second_look(point):
        """Auto and what it is held against, each as often after the other as the other after it: what
        comes after a large operation finds the link and the caches otherwise."""
        others = [point.best()]
        if point.launch.sparsity == 0 and DENSE not in others:
            others.append(DENSE)
        return [AUTO, *others, *reversed(others), AUTO]

    def points(self):
        found = []
        for (launch, size), times in self.lines.items():
            point = Point(launch, size, times)
            again = self.again.get((launch, size), {})
            if point.complete() and len(again) > 1:
                # Dense is not run again where auto is not held against it.
                point = Point(launch, size, {DENSE: times[DENSE], **again})
            found.append(point)
        return [point for point in found if point.complete()]


class Point:
    def __init__(self, launch, size, times):
        self.launch, self.size = launch, size
        self.times = {setting: statistics.fmean(medians) for setting, medians in times.items()}

    def complete(self):
        return AUTO in self.times and DENSE in self.times and len(self.times) > 1

    def best(self):
        return min((s for s in self.times if s != AUTO), key=self.times.get)

    def of_best(self):
        return self.times[AUTO] / self.times[self.best()]

    def of_dense(self):
        return self.times[AUTO] / self.times[DENSE]

    def holds(self):
        fine = self.of_best() <= WORST_OF_BEST
        return fine and (self.launch.sparsity > 0 or self.of_dense() <= WORST_OF_DENSE)

    def row(self):
        launch = self.launch
        return [launch.rate, launch.hosts, f"{launch.sparsity:.2%}", launch.positions,
                f"{self.size >> 10} KiB", f"{self.times[AUTO] / 1e3:.3f}",
                label_of(self.best()), f"{self.times[self.best()] / 1e3:.3f}",
                f"{self.of_best():.3f}", f"{self.of_dense():.3f}",
                "" if self.holds() else "MISS"]


def report(points, where):
    lines = [where, "", "| link | hosts | zeros | positions | size | auto ms | best fixed | ms | "
             "auto/best | auto/dense | |", "|---" * 11 + "|"]
    for point in sorted(points, key=lambda p: (p.launch, p.size)):
        lines.append("| " + " | ".join(map(str, point.row())) + " |")
    ratios = sorted(p.of_best() for p in points)
    if ratios:
        dense = [p.of_dense() for p in points if p.launch.sparsity == 0]
        misses = sum(not p.holds() for p in points)
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        lines += ["", f"- {len(points)} points, {misses} missed; auto over the best fixed: median "
                  f"{statistics.median(ratios):.3f}, geometric mean {mean:.3f}, worst "
                  f"{ratios[-1]:.3f}"]
        if dense:
            lines.append(f"- at 0%, auto over dense: median {statistics.median(dense):.3f}, worst "
                         f"{max(dense):.3f}")
    return lines


def points_of(options):
    """In the order of the grid, link by link; in a random one if they are a sample."""
    points = [(launch, size) for launch in launches(options) for size in sizes(options)]
    if options.minutes:
        random.Random(options.seed).shuffle(points)
    return points


def run(options, runner):
    sweep = Sweep(runner, options)
    todo = points_of(options)
    hosts = max(launch.hosts for launch, _ in todo)
    end = time.monotonic() + 60 * (options.minutes or math.inf)
    with contextlib.ExitStack() as stack:
        there = {}
        for launch, size in todo:
            if time.monotonic() > end:
                break
            if launch.rate not in there:
                lab = labs.Lab(f"auto-{launch.rate}", hosts, launch.rate)
                there[launch.rate] = stack.enter_context(lab)
            sweep.measure(launch, size, there[launch.rate])
    lines = report(sweep.points(), labs.stamp(1))
    print("\n".join(lines))
    (options.out / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    missed = runner.failures or any(not point.holds() for point in sweep.points())
    return 3 if options.strict and missed else 0


def integers(text):
    """Of an option: argparse says which was no list of these."""
    return [int(one) for one in text.split(",")]


def shares(text):
    return [float(one) for one in text.split(",")]


def main():
    parser = argparse.ArgumentParser(prog="bench/across.sh auto", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    labs.add_options(parser, "across/auto")
    parser.add_argument("--op", default="all_reduce", help="(default all_reduce)")
    parser.add_argument("--rates", default="1gbit,10gbit,none", help="of the links (default all)")
    parser.add_argument("--hosts", type=integers, default=[2, 4], help="(default 2,4)")
    parser.add_argument("--sizes", type=integers, help="in KiB (default: of the grid)")
    parser.add_argument("--sparsities", type=shares,
                        help="shares of zeros (default: of the grid)")
    parser.add_argument("--iters", type=int, default=9,
                        help="operations a setting where they take 0.1 s (default 9)")
    parser.add_argument("--minutes", type=float, help="begin points in a random order for so long")
    parser.add_argument("--seed", type=int, default=1, help="of that order (default 1)")
    parser.add_argument("--again", action="store_true", help="forget what was measured before")
    parser.add_argument("--strict", action="store_true",
                        help="exit 3 when auto misses somewhere or a run failed")
    return labs.start(run, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
