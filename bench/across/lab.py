"""Hosts of tools/netlab.sh, and the programs that are measured on them."""

import csv
import dataclasses
import datetime
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tools")]
from compare import GLOO_ALL_REDUCE, TUNED, machine, mpi_algorithms  # noqa: E402
from netlab import Lab, daemon_arguments, make_certificates  # noqa: E402

MIB = 1 << 20
LIMIT_S = 120  # of one launch
TRIALS = 120  # operations in which those of auto end, where that is soon


@dataclasses.dataclass(frozen=True)
class Place:
    """Where ranks run."""
    lab: Lab
    hosts: int
    per_host: int

    @property
    def ranks(self):
        return self.hosts * self.per_host

    def title(self):
        return f"{self.lab.rate}, {self.hosts} hosts, {self.per_host} a host"


@dataclasses.dataclass(frozen=True)
class Work:
    op: str
    size: int
    sparsity: float = 0
    iters: int = 5
    warmup: int = 1  # operations before those, and in how many seconds at most; 0: however many
    warmup_s: int = 0


@dataclasses.dataclass(frozen=True)
class Peer:
    tool: str
    algo: str
    tuned: bool
    yields: bool = False  # Open MPI's mpi_yield_when_idle

    def label(self):
        name = {"mpi-perf": "Open MPI", "gloo-perf": "gloo"}[self.tool]
        marks = ["" if self.algo == "auto" else f" {self.algo}", ", yielding" if self.yields else "",
                 " (tuned)" if self.tuned else ""]
        return name + "".join(marks)


class Runner:
    """Starts the programs, each with a time limit, and keeps a line of every measurement."""

    FIELDS = ["when", "round", "rate", "hosts", "ranks", "op", "bytes", "sparsity", "who",
              "time_us_min", "time_us_p50", "time_us_mean", "wire_bytes", "dense_bytes", "sends",
              "wrong"]

    def __init__(self, folder, csv_path, scratch):
        self.folder, self.scratch = folder, scratch
        self.round = 0
        self.failures = []
        self.file = open(csv_path, "w", encoding="utf-8", newline="")
        self.writer = csv.DictWriter(self.file, self.FIELDS)
        self.writer.writeheader()

    def has(self, tool):
        return (self.folder / tool).exists()

    def run(self, label, command, extra_env=None, limit_s=LIMIT_S):
        """The object that the command prints last, or None if it fails, which is noted."""
        text = self.output(label, command, extra_env, limit_s)
        return None if text is None else parse_object(text)

    def lines(self, label, command, limit_s=LIMIT_S):
        """The objects that the command prints, one a line; none if it fails, which is noted."""
        text = self.output(label, command, limit_s=limit_s)
        return [json.loads(line) for line in (text or "").splitlines()]

    def output(self, label, command, extra_env=None, limit_s=LIMIT_S):
        """What the command prints, of which the last must be an object; None if it fails."""
        env = {**os.environ, **(extra_env or {})}
        done = subprocess.run(["timeout", "-k", "5", str(limit_s), *map(str, command)], env=env,
                              cwd=self.scratch, capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL)
        line = parse_object(done.stdout)
        if line is None or done.returncode != 0:
            last = (done.stderr.strip() or "no output").splitlines()[-1]
            failure = f"{label}: exit {done.returncode}: {last}"
            progress(f"failed: {failure}")
            self.failures.append(failure)
            return None
        return done.stdout

    def perf(self, tool, place, work):
        limit = ["--warmup-time", work.warmup_s] if work.warmup_s else []
        return [self.folder / tool, "--op", work.op, "--ranks", place.ranks, "--nodes",
                place.hosts, "--sizes", work.size, "--sparsity", work.sparsity, "--iters",
                work.iters, "--warmup", work.warmup, *limit, "--check", "--json"]

    def measure(self, who, place, work, command, extra_env=None):
        """The median in microseconds, or None."""
        line = self.run(f"{who}, {place.title()}, {work.op}", command, extra_env)
        if line is None:
            return None
        if line.get("wrong"):
            sys.exit(f"across.sh: wrong results: {line}")
        row = {key: line.get(key, "") for key in self.FIELDS}
        row.update(when=datetime.datetime.now().isoformat(timespec="seconds"), round=self.round,
                   rate=place.lab.rate, hosts=place.hosts, who=who,
                   sends=" ".join(f"{k}:{v:g}" for k, v in line["sends"].items() if v))
        self.writer.writerow(row)
        self.file.flush()
        return line["time_us_p50"]

    def daemon_arguments(self):
        """Of daemons on a lab's hosts: an address, and certificates, which are made once."""
        folder = self.scratch / "tls"
        if not (folder / "node4.pem").exists():  # the last one: a run that was killed left some
            shutil.rmtree(folder, ignore_errors=True)
            make_certificates(self.folder / "spcclctl", folder, hosts=4)
        return daemon_arguments(folder)

    def on_daemons(self, place, more=()):
        """What makes spccl-perf and the classifier start a daemon on each host."""
        command = ["--launcher", " ".join(map(str, place.lab.on("{}")))]
        for argument in [*self.daemon_arguments(), *more]:
            command += ["--daemon-arg", argument]
        return command

    def spccl(self, place, work, who="spccl", options=(), daemon=()):
        command = self.perf("spccl-perf", place, work) + self.on_daemons(place, daemon)
        return self.measure(who, place, work, [*command, *options])

    def peer(self, peer, place, work):
        command = self.perf(peer.tool, place, work) + ["--algo", peer.algo]
        if peer.tool == "mpi-perf":
            command = mpirun(place, peer) + command
        else:
            command += ["--netns", f"spccl-{place.lab.name}-{{}}", "--interface", "eth0"]
        env = {"GLIBC_TUNABLES": TUNED} if peer.tuned else {}
        return self.measure(peer.label(), place, work, command, env)

    def iperf(self, place, seconds):
        """What one TCP connection moves from host 1 to host 2, in Gbit/s, or None."""
        server = subprocess.Popen([*map(str, place.lab.on(2)), "timeout", str(LIMIT_S), "iperf3",
                                   "-s", "-1"], stdout=subprocess.DEVNULL)
        try:
            for _ in range(50):
                listening = subprocess.run([*map(str, place.lab.on(2)), "ss", "-Hltn",
                                            "sport = :5201"], capture_output=True, check=False)
                if listening.stdout:
                    break
            line = self.run("iperf3", [*place.lab.on(1), "iperf3", "-c", "10.77.0.2", "-t",
                                       seconds, "-J"])
        finally:
            server.terminate()
            server.wait()
        return line["end"]["sum_received"]["bits_per_second"] / 1e9 if line else None


def mpirun(place, peer):
    """TCP between the hosts, shared memory within one; from host 1, which the others must reach."""
    hosts = ",".join(f"10.77.0.{i}:{place.per_host}" for i in range(1, place.hosts + 1))
    command = [*place.lab.on(1), "mpirun", "--oversubscribe", "--bind-to", "none", "--host", hosts,
               "-n", place.ranks]
    if os.geteuid() == 0:
        command.append("--allow-run-as-root")
    for name, value in {"plm_rsh_agent": f"{ROOT}/bench/peers/on_host.sh {place.lab.name}",
                        "pml": "ob1", "btl": "self,vader,tcp", "btl_tcp_if_include": "eth0",
                        "oob_tcp_if_include": "eth0",
                        "mpi_yield_when_idle": int(peer.yields)}.items():
        command += ["--mca", name, value]
    if peer.tuned:  # what mpirun passes on to other hosts
        command += ["-x", "GLIBC_TUNABLES"]
    return command


def peers_for(runner, op, ranks, quick=False):
    """All that may be the fastest; in a hurry, those that mostly are."""
    peers = []
    for tuned in (False,) if quick else (False, True):
        if runner.has("mpi-perf") and shutil.which("mpirun"):
            algos = mpi_algorithms(op, ranks)
            algos = ["ring" if "ring" in algos else "auto"] if quick else algos
            # More ranks than cores must yield; else both are tried.
            yields = [True] if quick or ranks > os.cpu_count() else [False, True]
            peers += [Peer("mpi-perf", algo, tuned, how) for algo in algos for how in yields]
        if runner.has("gloo-perf"):
            algos = GLOO_ALL_REDUCE if op == "all_reduce" else ["auto"]
            algos = ["ring", "halving_doubling"] if quick and op == "all_reduce" else algos
            peers += [Peer("gloo-perf", algo, tuned) for algo in algos]
    return peers


def parse_object(text):
    """The JSON object that is all of the text, or its last line."""
    lines = text.strip().splitlines()
    for candidate in (text, lines[-1] if lines else ""):
        try:
            return json.loads(candidate)
        except json.JSONDecodeError:
            continue
    return None


def progress(text):
    print(text, file=sys.stderr, flush=True)


def add_options(parser, out):
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin",
                        help="where the programs are (default %(default)s)")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / out,
                        help="folder for what is written (default %(default)s)")
    parser.add_argument("--quick", action="store_true", help="few of everything, for a first look")


def start(body, options):
    """Runs body(options, runner) so that no lab and no file outlives it, whatever ends it."""
    if os.geteuid() != 0:
        sys.exit("across.sh: network namespaces need root; run this with sudo")
    if not (options.bin / "spccl-perf").exists():
        sys.exit(f"across.sh: no spccl-perf in {options.bin}; build the release preset, or say "
                 "--bin")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda got, _: sys.exit(128 + got))
    options.bin = options.bin.resolve()
    options.out = options.out.resolve()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="spccl-across-") as scratch:
        runner = Runner(options.bin, options.out / "measurements.csv", pathlib.Path(scratch))
        return body(options, runner)


def stamp(rounds):
    return f"{datetime.date.today()}, {machine()}; {rounds} rounds."
