"""Measures spccl and its peers in turn, and prints a table against the targets. Run by compare.sh.

A case is an operation, a size and a number of ranks. In each round every case runs spccl and then
every peer once, each peer as it comes ("stock") and with glibc told to keep large memory and to use
huge pages ("tuned"). What counts is the median over the rounds of each one's median. After the first
round only those algorithms of a peer that were near the best go on.
"""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys

MIB = 1 << 20
TUNED = ("glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=4294967296:"
         "glibc.malloc.trim_threshold=8589934592")
MPI_ALL_REDUCE = ["auto", "recursive_doubling", "ring", "segmented_ring", "rabenseifner"]
MPI_REDUCE_SCATTER = ["reduce_scatter", "reduce_scatter_block"]
GLOO_ALL_REDUCE = ["ring", "bcube", "halving_doubling", "ring_chunked"]
NEAR = 1.3  # of the best: who goes on after the first round
KEPT = 4  # at most, a variant


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table: spccl with these buffers, and how much faster it must be."""
    buffers: str
    stock: float
    tuned: float


@dataclasses.dataclass(frozen=True)
class Case:
    op: str
    size: int
    ranks: int
    rows: tuple
    stream_limit: float = 0  # at most so many times the time of streaming the bytes; 0: not asked


CASES = [
    Case("all_reduce", 64 * MIB, 2, (Row("alloc", 5, 2.5), Row("malloc", 2, 1.2)), 1.4),
    Case("all_reduce", 64 * MIB, 4, (Row("alloc", 7, 3.5),)),
    Case("all_reduce", 16 * MIB, 2, (Row("alloc", 3, 2.5),)),
    Case("all_reduce", 16 * MIB, 4, (Row("alloc", 5, 4),)),
    Case("reduce_scatter", 64 * MIB, 2, (Row("alloc", 5, 2.3),)),
    Case("all_gather", 64 * MIB, 2, (Row("alloc", 2.5, 1.6),)),
]
LATENCY_LIMIT_US = 40


@dataclasses.dataclass(frozen=True)
class Peer:
    tool: str
    algo: str
    tuned: bool
    yields: bool = False  # Open MPI's mpi_yield_when_idle

    def label(self):
        name = {"mpi-perf": "Open MPI", "gloo-perf": "gloo"}[self.tool]
        algo = "" if self.algo == "auto" else f" {self.algo}"
        return f"{name}{algo}{', yielding' if self.yields else ''}"


class Runner:
    """Starts the tools, each with a time limit, and keeps every line that they print."""

    def __init__(self, folder, log):
        self.folder = folder
        self.log = log
        self.failures = []

    def has(self, tool):
        return (self.folder / tool).exists()

    def run(self, label, command, extra_env):
        """The object that the command prints, or None if it fails, which is noted."""
        env = {**os.environ, **extra_env}
        try:
            done = subprocess.run(["timeout", "-k", "5", "120", *map(str, command)], env=env,
                                  capture_output=True, text=True, check=False)
            line = json.loads(done.stdout.strip().splitlines()[-1])
        except (IndexError, json.JSONDecodeError):
            line = None
        if line is None or done.returncode != 0:
            last = done.stderr.strip().splitlines()[-1:] or ["no output"]
            self.failures.append(f"{label}: exit {done.returncode}: {last[0]}")
            return None
        self.log.write(json.dumps({"label": label, **line}) + "\n")
        self.log.flush()
        return line

    def perf(self, tool, case, iters, warmup, *more):
        return [self.folder / tool, "--op", case.op, "--ranks", case.ranks, "--sizes", case.size,
                "--iters", iters, "--warmup", warmup, "--check", "--json", *more]

    def spccl(self, case, buffers, iters, warmup):
        return self.run(f"spccl {buffers}",
                        self.perf("spccl-perf", case, iters, warmup, "--buffers", buffers), {})

    def peer(self, peer, case, iters):
        command = self.perf(peer.tool, case, iters, 2, "--algo", peer.algo)
        if peer.tool == "mpi-perf":
            mpirun = ["mpirun", "--oversubscribe", "-n", case.ranks]
            if os.geteuid() == 0:
                mpirun.append("--allow-run-as-root")
            mpirun += ["--mca", "mpi_yield_when_idle", int(peer.yields)]
            command = mpirun + command
        label = f"{peer.label()}{' (tuned)' if peer.tuned else ''}"
        return self.run(label, command, {"GLIBC_TUNABLES": TUNED} if peer.tuned else {})

    def stream(self, case):
        return self.run("stream", [self.folder / "codec-bench", "--stream", "--ranks", case.ranks,
                                   "--bytes", case.size, "--threads", os.cpu_count(), "--json"], {})


def mpi_algorithms(op, ranks):
    """Those of Open MPI that may be the fastest."""
    several = {"all_reduce": MPI_ALL_REDUCE, "reduce_scatter": MPI_REDUCE_SCATTER}
    if ranks > 2:
        several["all_gather"] = ["auto", "ring", "neighbor"]
    return several.get(op, ["auto"])


def peers_of(case, runner):
    """All that may be the fastest."""
    peers = []
    for tuned in (False, True):
        if runner.has("mpi-perf") and shutil.which("mpirun"):
            # More ranks than cores must yield; else both are tried.
            yields = [True] if case.ranks > os.cpu_count() else [False, True]
            peers += [Peer("mpi-perf", algo, tuned, how)
                      for algo in mpi_algorithms(case.op, case.ranks) for how in yields]
        if runner.has("gloo-perf"):
            algos = GLOO_ALL_REDUCE if case.op == "all_reduce" else ["auto"]
            peers += [Peer("gloo-perf", algo, tuned) for algo in algos]
    return peers


def keep_near(times):
    """Who goes on: of each variant the few that are near its best."""
    kept = []
    for tuned in (False, True):
        variant = sorted((p for p in times if p.tuned == tuned), key=lambda p: times[p][0])
        if variant:
            limit = NEAR * times[variant[0]][0]
            kept += [p for p in variant[:KEPT] if times[p][0] <= limit]
    return {p: times[p] for p in kept}


def measure(cases, runner, options):
    """Per case: the times of each row's spccl, of each peer, and of the stream."""
    found = {case: {"rows": {row: [] for row in case.rows}, "stream": [], "peers": {}}
             for case in cases}
    latency = []
    for number in range(options.rounds):
        for case in cases:
            progress(f"round {number + 1} of {options.rounds}: {title(case)}")
            seen = found[case]
            for row in case.rows:
                note(seen["rows"][row], runner.spccl(case, row.buffers, options.iters, 5))
            if case.stream_limit:
                note(seen["stream"], runner.stream(case), "stream_us")
            peers = peers_of(case, runner) if number == 0 else list(seen["peers"])
            for peer in peers:
                note(seen["peers"].setdefault(peer, []),
                     runner.peer(peer, case, options.peer_iters))
            if number == 0:
                seen["peers"] = keep_near({p: t for p, t in seen["peers"].items() if t})
        small = Case("all_reduce", 8, 2, ())
        note(latency, runner.spccl(small, "alloc", 2000, 200))
    return found, latency


def note(times, line, key="time_us_p50"):
    if line is not None:
        times.append(line[key])
        if line.get("wrong"):
            sys.exit(f"compare.sh: wrong results: {line}")


def progress(text):
    print(text, file=sys.stderr, flush=True)


def title(case):
    return f"{case.op} {case.size // MIB} MiB, {case.ranks} ranks"


def verdict(good):
    return "PASS" if good else "FAIL"


def peer_cells(times, peers, tuned, target):
    """Name, median, ratio, target and verdict against the fastest peer of a variant."""
    medians = {p: statistics.median(t) for p, t in peers.items() if p.tuned == tuned and t}
    if not medians or not times:
        return ["-", "-", "-", f"{target:g}", "-"]
    best = min(medians, key=medians.get)
    ratio = medians[best] / statistics.median(times)
    return [best.label(), f"{medians[best] / 1e3:.2f}", f"{ratio:.2f}", f"{target:g}",
            verdict(ratio >= target)]


def table(found, latency):
    """The lines of a Markdown table, and of what does not fit into it."""
    head = ["case", "spccl ms", "stock peer", "ms", "ratio", "target", "", "tuned peer", "ms",
            "ratio", "target", ""]
    rows, below = [], []
    for case, seen in found.items():
        for row, times in seen["rows"].items():
            name = title(case) + ("" if row.buffers == "alloc" else ", malloc'ed")
            cells = [name, f"{statistics.median(times) / 1e3:.2f}" if times else "-"]
            cells += peer_cells(times, seen["peers"], False, row.stock)
            cells += peer_cells(times, seen["peers"], True, row.tuned)
            rows.append(cells)
        times = seen["rows"][case.rows[0]]
        if seen["stream"] and times:
            limit = statistics.median(seen["stream"])
            ratio = statistics.median(times) / limit
            below.append(f"{title(case)}: {ratio:.2f} times the time to stream the bytes "
                         f"({limit / 1e3:.2f} ms); target at most {case.stream_limit:g}: "
                         f"{verdict(ratio <= case.stream_limit)}")
    if latency:
        p50 = statistics.median(latency)
        below.append(f"all_reduce of 8 bytes, 2 ranks: p50 {p50:.1f} us; target under "
                     f"{LATENCY_LIMIT_US}: {verdict(p50 < LATENCY_LIMIT_US)}")
    widths = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(cells, widths)) + " |"
             for cells in [head, *rows]]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return lines + [""] + [f"- {line}" for line in below]


def machine():
    model = platform.processor() or platform.machine()
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return (f"{os.cpu_count()} cores, {model}, Linux {platform.release()}, load "
            f"{os.getloadavg()[0]:.1f} at the start")


def parse(arguments):
    parser = argparse.ArgumentParser(prog="bench/compare.sh", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--bin", type=pathlib.Path, default=root / "build/release/bin",
                        help="where the programs are (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(default %(default)s)")
    parser.add_argument("--iters", type=int, default=20,
                        help="operations of spccl a round (default %(default)s)")
    parser.add_argument("--peer-iters", type=int, default=8,
                        help="operations of a peer a round (default %(default)s)")
    parser.add_argument("--only", default="", help="only cases whose name contains this, such as "
                        "'all_reduce 64 MiB, 2'")
    parser.add_argument("--out", type=pathlib.Path,
                        help="a folder for every line measured and for the table")
    parser.add_argument("--strict", action="store_true", help="exit 3 when a target is missed")
    options = parser.parse_args(arguments)
    if not (options.bin / "spccl-perf").exists():
        parser.exit(1, f"compare.sh: no spccl-perf in {options.bin}; build the release preset, "
                       "or say --bin\n")
    return options


def main():
    options = parse(sys.argv[1:])
    out = options.out or pathlib.Path(os.devnull)
    if options.out:
        out.mkdir(parents=True, exist_ok=True)
    cases = [case for case in CASES if options.only in title(case)]
    if not cases:
        sys.exit(f"compare.sh: no case's name contains '{options.only}'")
    where = f"{datetime.date.today()}, {machine()}; {options.rounds} rounds."
    with open(out / "lines.jsonl" if options.out else out, "w", encoding="utf-8") as log:
        runner = Runner(options.bin, log)
        found, latency = measure(cases, runner, options)
    lines = [where, "", *table(found, latency)]
    print("\n".join(lines))
    if options.out:
        (out / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for failure in runner.failures:
        progress(f"failed: {failure}")
    return 3 if options.strict and any("FAIL" in line for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
