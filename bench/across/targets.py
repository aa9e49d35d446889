"""Measures spccl, Open MPI and gloo between hosts, in turn, and holds the result against the targets.

A case is a link, a number of hosts, ranks a host, and an operation on 64 MiB of float32. In each
round every case runs spccl at four sparsities, each after the operations that auto learns by, or 10
seconds of them, then its peers, which send all elements whatever
their values; every link also runs iperf3. After the first round only those of a peer's algorithms
go on that were near the best. What counts is the median over the rounds of each one's median,
against that of the fastest peer.
"""

import argparse
import contextlib
import dataclasses
import statistics
import sys

import lab as labs
from lab import MIB, Place, Work, progress

SIZE = 64 * MIB
SPARSITIES = [0, 0.9, 0.99, 0.999]
NEAR = 1.15  # of the best: who goes on after the first round
KEPT = 3  # at most
WARMUP_SECONDS = 10

# How many times as fast as the fastest peer, one rank a host: rate, hosts, operation, sparsity.
RATIOS = {
    ("1gbit", 2, "all_reduce"): {0: 0.97, 0.9: 6.5, 0.99: 25, 0.999: 60},
    ("1gbit", 4, "all_reduce"): {0: 0.97, 0.9: 3.5, 0.99: 16, 0.999: 45},
    ("1gbit", 2, "all_gather"): {0: 0.97, 0.9: 6.5, 0.99: 25},
    ("1gbit", 4, "all_gather"): {0: 0.97, 0.9: 6.5, 0.99: 25},
    ("10gbit", 2, "all_reduce"): {0: 1.2, 0.9: 3, 0.99: 6},
    ("10gbit", 2, "all_gather"): {0: 1.2, 0.99: 3},
}
# The same with the smaller formats: what comes after.
GOALS = {
    ("1gbit", 2, "all_reduce"): {0.99: 32},
    ("1gbit", 4, "all_reduce"): {0.99: 22},
    ("1gbit", 2, "all_gather"): {0.99: 35},
    ("1gbit", 4, "all_gather"): {0.99: 35},
}
# The best all-reduce of SparCML's that was seen on such links, ms, and how many times as fast.
SPARCML = {
    ("1gbit", 2): ({0.9: 174, 0.99: 23}, 1.5),
    ("1gbit", 4): ({0.9: 550, 0.99: 75}, 1.8),
    ("10gbit", 2): ({0.9: 55, 0.99: 13}, 1.3),
}
# Of what iperf3 moves, a dense all-reduce, one rank a host.
LINK_SHARE = {("1gbit", 2): 0.92, ("1gbit", 4): 0.92, ("10gbit", 2): 0.8}


@dataclasses.dataclass(frozen=True)
class Case:
    place: Place
    op: str

    def key(self):
        return self.place.lab.rate, self.place.hosts

    def title(self):
        return f"{self.op}, {self.place.title()}"

    def single(self):
        return self.place.per_host == 1

    def ratio_target(self, sparsity, targets):
        return targets.get((*self.key(), self.op), {}).get(sparsity) if self.single() else None

    def sparcml_target(self, sparsity):
        """In ms."""
        figures, factor = SPARCML.get(self.key(), ({}, 1))
        if self.op != "all_reduce" or not self.single() or sparsity not in figures:
            return None
        return figures[sparsity] / factor


def cases_of(all_labs, options):
    cases = [Case(Place(lab, hosts, per_host), op) for lab in all_labs for hosts in (2, 4)
             for per_host in (1, 2) for op in ("all_reduce", "all_gather")]
    if options.quick:
        cases = [c for c in cases if c.single() and (*c.key(), c.op) in RATIOS]
    return [case for case in cases if options.only in case.title()]


def note(times, key, value):
    if value is not None:
        times.setdefault(key, []).append(value)


def run_peers(runner, case, times, options):
    first = runner.round == 0
    peers = labs.peers_for(runner, case.op, case.place.ranks, options.quick) if first else times
    # What is only to be ranked is run less often.
    work = Work(case.op, SIZE, iters=2 if first and not options.quick else options.iters)
    for peer in list(peers):
        note(times, peer, runner.peer(peer, case.place, work))
    if first and times:
        best = min(map(statistics.median, times.values()))
        near = sorted((p for p in times if times[p][0] <= NEAR * best), key=lambda p: times[p][0])
        for peer in set(times) - set(near[:KEPT]):
            del times[peer]


def measure(cases, runner, options):
    """Per case the times of spccl by sparsity and of the peers; per rate what iperf3 moved."""
    spccl, peers, link = {c: {} for c in cases}, {c: {} for c in cases}, {}
    for runner.round in range(options.rounds):
        for case in cases:
            progress(f"round {runner.round + 1} of {options.rounds}: {case.title()}")
            if not options.peers_only:
                for sparsity in SPARSITIES:
                    work = Work(case.op, SIZE, sparsity, options.iters, labs.TRIALS,
                                WARMUP_SECONDS)
                    note(spccl[case], sparsity, runner.spccl(case.place, work))
            run_peers(runner, case, peers[case], options)
        for place in {c.place.lab.rate: c.place for c in cases}.values():
            note(link, place.lab.rate, runner.iperf(place, 2))
    return spccl, peers, link


def verdict(good):
    return "PASS" if good else "FAIL"


def progress_to_goal(good):
    """In other words: a goal that is not reached yet fails no --strict run."""
    return "reached" if good else "not yet"


def row_of(case, sparsity, spccl, best):
    """The cells of one line: spccl's time, the fastest peer's, and what they are held against."""
    own = statistics.median(spccl[sparsity]) / 1e3 if sparsity in spccl else None
    peer, peer_ms = best
    cells = [case.place.lab.rate, str(case.place.hosts), str(case.place.per_host), case.op,
             f"{sparsity:.1%}", f"{own:.1f}" if own else "-", peer.label() if peer else "-",
             f"{peer_ms:.1f}" if peer else "-"]
    ratio = peer_ms / own if peer and own else None
    cells.append(f"{ratio:.2f}" if ratio else "-")
    for targets, words in ((RATIOS, verdict), (GOALS, progress_to_goal)):
        target = case.ratio_target(sparsity, targets)
        cells += [f"{target:g}" if target else "",
                  words(ratio >= target) if target and ratio else ""]
    limit = case.sparcml_target(sparsity)
    return cells + [f"{limit:.1f}" if limit else "", verdict(own <= limit) if limit and own else ""]


def link_line(case, times, link):
    """How much of the link a dense all-reduce fills."""
    rate, hosts = case.key()
    hosts_share = 2 * (hosts - 1) / hosts  # of the buffer, that each host sends at least
    moved = hosts_share * SIZE * 8 / (statistics.median(times) * 1e3)
    line = f"{case.title()}, dense: {moved:.3f} Gbit/s each way"
    if rate in link:
        share = moved / statistics.median(link[rate])
        line += f", {share:.1%} of iperf3's {statistics.median(link[rate]):.3f} Gbit/s"
        target = LINK_SHARE.get((rate, hosts)) if case.single() else None
        if target:
            line += f"; target at least {target:.0%}: {verdict(share >= target)}"
    return line


def table(cases, spccl, peers, link):
    head = ["link", "hosts", "ranks a host", "operation", "sparsity", "spccl ms", "fastest peer",
            "ms", "ratio", "target", "", "goal", "", "SparCML limit ms", ""]
    rows, below = [], []
    for case in cases:
        medians = {p: statistics.median(t) / 1e3 for p, t in peers[case].items()}
        best = min(medians.items(), key=lambda item: item[1], default=(None, None))
        rows += [row_of(case, s, spccl[case], best) for s in SPARSITIES]
        if case.op == "all_reduce" and 0 in spccl[case]:
            below.append(link_line(case, spccl[case][0], link))
    widths = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(cells, widths)) + " |"
             for cells in [head, *rows]]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    below += [f"iperf3, one connection, {rate}: {statistics.median(t):.3f} Gbit/s"
              for rate, t in link.items()]
    return lines + [""] + [f"- {line}" for line in below]


def run(options, runner):
    where = labs.stamp(options.rounds)
    with contextlib.ExitStack() as stack:
        all_labs = [stack.enter_context(labs.Lab(f"across-{rate}", 4, rate))
                    for rate in ("1gbit", "10gbit")]
        cases = cases_of(all_labs, options)
        if not cases:
            sys.exit(f"across.sh: no case's name contains '{options.only}'")
        lines = [where, "", *table(cases, *measure(cases, runner, options))]
    print("\n".join(lines))
    (options.out / "table.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for failure in runner.failures:
        progress(f"failed: {failure}")
    missed = runner.failures or any("FAIL" in line for line in lines)
    return 3 if options.strict and missed else 0


def main():
    parser = argparse.ArgumentParser(prog="bench/across.sh targets", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    labs.add_options(parser, "across")
    parser.add_argument("--rounds", type=int, help="(default 5; 1 with --quick)")
    parser.add_argument("--iters", type=int, default=5, help="operations a round (default 5)")
    parser.add_argument("--only", default="", help="only cases whose name contains this, such as "
                        "'all_reduce, 1gbit, 2 hosts, 1 a host'")
    parser.add_argument("--peers-only", action="store_true", help="leave spccl out")
    parser.add_argument("--strict", action="store_true",
                        help="exit 3 when a target is missed or a run failed; goals are no targets")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 5)
    return labs.start(run, options)


if __name__ == "__main__":
    sys.exit(main())
