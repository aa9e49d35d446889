"""An epoch of examples/classifier across hosts: dense, sparse, and what it would be with the peers.

The classifier's own programs train with spccl, in dense and in sparse frames, and must end with the
same weights. Of the peers the all-reduce of a vector as long as the gradient is measured; what a
step does besides is the dense training's. The rounds take turns.
"""

import argparse
import statistics
import sys

import lab as labs
from lab import Place, Work, progress


def train(runner, place, options):
    """The runs of one training with each plan, or an empty list."""
    command = [runner.folder / "classifier", "--ranks", place.ranks, "--nodes", place.hosts,
               "--epochs", 1, "--per-class", options.per_class, "--json",
               *runner.on_daemons(place)]
    line = runner.run(f"classifier, {place.title()}", command, limit_s=600)
    if line is None:
        return None, []
    if not line["same_weights"]:
        sys.exit(f"across.sh: the weights differ: {line}")
    return line, line["runs"]


def measure(runner, place, options):
    """What is the same in all rounds, the runs by plan, and the peers' times."""
    facts, runs, peers = None, {}, {}
    for runner.round in range(options.rounds):
        progress(f"round {runner.round + 1} of {options.rounds}: {place.title()}")
        line, seen = train(runner, place, options)
        facts = facts or line
        for one in seen:
            runs.setdefault(one["plan"], []).append(one)
        if facts is None:
            break
        work = Work("all_reduce", facts["parameters"] * 4, 0, 3)
        candidates = labs.peers_for(runner, "all_reduce", place.ranks, options.quick)
        for peer in candidates if runner.round == 0 else list(peers):
            time = runner.peer(peer, place, work)
            if time is not None:
                peers.setdefault(peer, []).append(time)
        keep = sorted(peers, key=lambda p: peers[p][0])[:3]
        peers = {peer: peers[peer] for peer in keep}
    return facts, runs, peers


def lines_of(place, facts, runs, peers):
    if facts is None:
        return [f"{place.title()}: failed"]
    rows = []
    for plan, seen in runs.items():
        step, reduce = (statistics.median(r[k] for r in seen) / 1e3
                        for k in ("step_us", "all_reduce_us"))
        rows.append((f"spccl, {plan}", seen[0]["codec"] == "dense", step, reduce))
    dense = next((r for r in rows if r[1]), rows[0])
    if peers:
        best = min(peers, key=lambda p: statistics.median(peers[p]))
        reduce = statistics.median(peers[best]) / 1e3
        rows.append((best.label(), False, dense[2] - dense[3] + reduce, reduce))
    steps = runs[dense[0].removeprefix("spccl, ")][0]["steps"]
    lines = [f"{place.title()}: {facts['parameters'] * 4 / labs.MIB:.0f} MiB gradients, "
             f"{facts['gradient_sparsity']:.2%} zeros, of the sum {facts['sum_sparsity']:.2%}; "
             f"{steps} steps an epoch; same weights in all.", "",
             "| sums by | epoch s | step ms | all-reduce ms | all-reduce, of dense | epoch, of dense |",
             "|---|---|---|---|---|---|"]
    for name, _, step, reduce in rows:
        lines.append(f"| {name} | {step * steps / 1e3:.1f} | {step:.1f} | {reduce:.1f} | "
                     f"{dense[3] / reduce:.2f}x | {dense[2] / step:.2f}x |")
    return lines


def run(options, runner):
    lines = [labs.stamp(options.rounds)]
    with labs.Lab("across-classifier", 4, options.rate) as lab:
        for hosts in (2, 4):
            place = Place(lab, hosts, options.per_host)
            lines += ["", *lines_of(place, *measure(runner, place, options))]
    print("\n".join(lines))
    (options.out / "classifier.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 2 if runner.failures else 0


def main():
    parser = argparse.ArgumentParser(prog="bench/across.sh classifier", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    labs.add_options(parser, "across/classifier")
    parser.add_argument("--rate", default="1gbit", help="of the links (default %(default)s)")
    parser.add_argument("--per-host", type=int, default=1, help="ranks a host (default 1)")
    parser.add_argument("--per-class", type=int, default=400,
                        help="most documents of a class (default %(default)s)")
    parser.add_argument("--rounds", type=int, help="(default 3; 1 with --quick)")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 3)
    return labs.start(run, options)


if __name__ == "__main__":
    sys.exit(main())
