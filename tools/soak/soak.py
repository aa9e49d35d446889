"""The body of tools/soak.sh, which says what it is for."""

import argparse
import collections
import pathlib
import random
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import netlab  # noqa: E402
import report  # noqa: E402
from episode import Running, roll_call  # noqa: E402
from growth import Growth  # noqa: E402
from plan import Draw  # noqa: E402
from world import Trouble, World  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Counts(collections.Counter):
    def __init__(self):
        super().__init__()
        self.slowest_s = {}  # by theme: until all of a harmed job knew


def parse():
    parser = argparse.ArgumentParser(prog="tools/soak.sh", description="See tools/soak.sh --help.")
    parser.add_argument("minutes", type=float)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--only", type=int)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build/soak")
    parser.add_argument("--no-lab", action="store_true")
    parser.add_argument("--sanitized", action="store_true")
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--dry", action="store_true")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1 << 32)
    options.bin, options.out = options.bin.resolve(), options.out.resolve()
    return options


def say(text):
    print(text, flush=True)


class Soak:

    def __init__(self, options, with_lab):
        self.options, self.with_lab = options, with_lab
        self.counts, self.running = Counts(), None
        self.growth = Growth(options.sanitized)
        self.number = options.only or 0

    def plan(self):
        return Draw(self.options.seed, self.number, self.with_lab, self.options.scale).episode()

    def run(self, world):
        end_s = time.monotonic() + 60 * self.options.minutes
        self._run(roll_call(world, self.counts))
        while time.monotonic() < end_s:
            start_s, before = time.monotonic(), self.counts["operations"]
            plan = self.plan()
            self._run(Running(world, plan, self.counts))
            self._run(roll_call(world, self.counts))
            for daemon in world.daemons:
                self.growth.take(daemon)
            self.counts["episodes"] += 1
            say(f"episode {self.number} {plan.theme}: {len(plan.jobs)} jobs, "
                f"{self.counts['operations'] - before} operations, "
                f"{time.monotonic() - start_s:.1f} s")
            if self.options.only is None:
                self.number += 1
        self.running = None
        world.end()
        if faults := self.growth.faults():
            raise Trouble("growth: " + "; ".join(faults))

    def _run(self, running):
        self.running = running
        running.run()

    def replay(self):
        options = self.options
        words = [f"tools/soak.sh {options.minutes:g} --seed {options.seed} --only {self.number}",
                 f"--bin {options.bin}"]
        words += ["--no-lab"] if not self.with_lab else []
        words += ["--sanitized"] if options.sanitized else []
        words += [f"--scale {options.scale:g}"] if options.scale != 1 else []
        return " ".join(words)

    def table(self):
        counts = self.counts
        rows = [("episodes", f"{counts['episodes']}"),
                ("operations checked", f"{counts['operations']:,}"),
                ("bytes", f"{counts['bytes']:,}")]
        rows += [(what, f"{counts[what]:,}")
                 for what in ("jobs", "processes", "communicators", "kills", "aborts", "freezes",
                              "daemons lost", "brief cuts", "long cuts", "lossy episodes",
                              "changes", "reloads", "looks", "expected errors")]
        rows += [(f"slowest error after {theme}", f"{seconds:.2f} s")
                 for theme, seconds in sorted(counts.slowest_s.items())]
        say("\n".join(f"{what:<32} {value:>18}" for what, value in rows))
        say("what daemons held at each calm, medians of the first and the last quarter:")
        say("\n".join(self.growth.table()))


def soak(options):
    why_no_lab = "asked for" if options.no_lab else netlab.reason_to_skip()
    run = Soak(options, not why_no_lab)
    say(f"seed {options.seed}; hosts: "
        + (f"this machine alone, no cuts ({why_no_lab})" if why_no_lab else "a lab's"))
    if options.dry:
        for run.number in range(20):
            say(str(run.plan()))
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    start_s = time.monotonic()
    trouble = None
    with tempfile.TemporaryDirectory(prefix="spccl-soak-") as folder, \
            World(options, folder, why_no_lab) as world:
        try:
            run.run(world)
        except (Trouble, AssertionError, OSError) as found:
            trouble = found
            path = options.out / f"trouble-{options.seed}-{run.number}.txt"
            report.write(world, run.running, path)
        finally:
            if run.running:
                run.running.end_jobs()
    run.table()
    if trouble:
        say(f"FAILED in episode {run.number} of seed {options.seed}: {trouble}")
        say(f"plan: {run.plan()}")
        say(f"what was seen: {path}; the daemons' logs are beside it")
        say(f"again: {run.replay()}")
    counts = run.counts
    say(f"soak: seed {options.seed}, {(time.monotonic() - start_s) / 60:.1f} min, "
        f"{counts['operations']:,} operations checked, {counts['expected errors']:,} errors "
        f"expected, {1 if trouble and 'WRONG' in str(trouble) else 0} wrong results: "
        + ("FAILED" if trouble else "fine"))
    return 1 if trouble else 0


def main():
    options = parse()
    if not options.dry:
        for tool in ("spccld", "spcclctl", "soak-job"):
            if not (options.bin / tool).exists():
                sys.exit(f"soak.sh: no {tool} in {options.bin}; build the release preset, or say "
                         "--bin")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda got, _: sys.exit(128 + got))
    sys.exit(soak(options))


if __name__ == "__main__":
    main()
