"""Daemons and ranks on hosts of tools/netlab.sh, for tests that break them."""

import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import netlab  # noqa: E402
from processes import (PATIENCE_S, Process, await_true, holdings,  # noqa: E402
                       status_of)

KNOWN_WITHIN_S = 3.0
REMOTE_ERROR = 6  # spcclRemoteError

Told = collections.namedtuple("Told", "result at_s text")  # what a rank says of a failure


class Daemon(Process):
    """spccld on a host, with that host's certificate."""

    def __init__(self, lab, host, folder, certificates, more=()):
        self.host, self.folder = host, pathlib.Path(folder)
        super().__init__([*lab.on(host), OPTIONS.bin / "spccld", "--runtime-dir", self.folder,
                          "--state-dir", self.folder / "state",
                          *netlab.daemon_arguments(certificates, host), *more],
                         stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.name = f"spccld of host {host}"
        self.await_line("main: serving", anywhere=True)

    def comms(self):
        """The communicators that it knows, as spcclctl shows them."""
        done = subprocess.run([OPTIONS.bin / "spcclctl", "--runtime-dir", self.folder, "-o", "json",
                               "comms"], stdout=subprocess.PIPE, check=True, timeout=PATIENCE_S)
        return json.loads(done.stdout)["comms"]

    def holdings(self):
        return holdings(self.pid)

    def resident_kib(self):
        return status_of(self.pid, "VmRSS")


class Ranks(Process):
    """A process of ranks on a daemon's host; a job of its own. Its commands: tests/netlab/rank.cc."""

    def __init__(self, lab, daemon):
        super().__init__([*lab.on(daemon.host), OPTIONS.rank], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE,
                         env={**os.environ, "SPCCL_RUNTIME_DIR": str(daemon.folder)})
        self.name = f"ranks on host {daemon.host}"

    def say(self, line):
        self.process.stdin.write(line + "\n")

    def unique_id(self):
        with self.changed:
            self.lines = [line for line in self.lines if not line.startswith("id ")]
        self.say("id")
        return self.await_line("id ").split()[1]

    def forget(self, comm):
        """A name may be used again."""
        with self.changed:
            self.lines = [line for line in self.lines if line.split()[1:2] != [comm]]

    def rounds(self, comm):
        with self.changed:
            self.lines = [line for line in self.lines if not line.startswith("rounds ")]
        self.say(f"rounds {comm}")
        return int(self.await_line(f"rounds {comm} ").split()[2])

    def told(self, comm, word="failed"):
        _, _, result, nanos, text = self.await_line(f"{word} {comm} ").split(" ", 4)
        return Told(int(result), int(nanos) / 1e9, text)


class Comm:
    """A communicator: rank i is of processes[i]."""

    def __init__(self, name, processes, root=None):
        self.name, self.processes = name, processes
        self.join((root or processes[0]).unique_id())

    def join(self, unique_id):
        for rank, process in enumerate(self.processes):
            process.say(f"join {self.name} {len(self.processes)} {rank} {unique_id}")

    def joined(self):
        for process in self.processes:
            process.await_line(f"joined {self.name}")
        return self

    def sum(self, count=300_000):
        for process in self.processes:
            process.say(f"sum {self.name} {count}")
        for process in self.processes:
            process.await_line(f"summing {self.name}")
        return self

    def stop(self):
        """How many sums they made, all alike, all right."""
        self.processes[0].say(f"stop {self.name}")
        rounds = {process.await_line(f"stopped {self.name} ") for process in self.processes}
        assert len(rounds) == 1, rounds
        return int(rounds.pop().split()[2])

    def leave(self):
        for process in self.processes:
            process.say(f"leave {self.name}")
        for process in self.processes:
            process.await_line(f"left {self.name} ")
            process.forget(self.name)

    def await_rounds(self, more):
        """Until so many more sums are made."""
        goal = self.processes[0].rounds(self.name) + more
        await_true(f"{more} sums more", lambda: self.processes[0].rounds(self.name) >= goal)


class FaultCase(unittest.TestCase):
    """Daemons on hosts of a lab; all that a test starts ends with it."""
    HOSTS = 3
    RATE = "none"

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="spccl-netlab-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.certificates = pathlib.Path(cls.folder.name) / "tls"
        netlab.make_certificates(OPTIONS.bin / "spcclctl", cls.certificates, cls.HOSTS)
        cls.lab = netlab.Lab(f"fault-{os.getpid()}", cls.HOSTS, cls.RATE)
        cls.lab.__enter__()  # enterClassContext is of Python 3.11
        cls.addClassCleanup(cls.lab.__exit__)

    def setUp(self):
        self.daemons = {}
        for host in range(1, self.HOSTS + 1):
            self.start_daemon(host)

    def start_daemon(self, host, certificates=None, more=()):
        folder = tempfile.mkdtemp(prefix=f"{host}-", dir=self.folder.name)
        daemon = Daemon(self.lab, host, folder, certificates or self.certificates, more)
        self.addCleanup(self._end_daemon, daemon)
        self.daemons[host] = daemon
        return daemon

    def run(self, result=None):
        self.result, self.failures_before = result, len(result.failures) + len(result.errors)
        return super().run(result)

    def _end_daemon(self, daemon):
        daemon.end()
        if len(self.result.failures) + len(self.result.errors) > self.failures_before:
            print(f"--- {daemon.name}:", *daemon.lines, sep="\n", flush=True)

    def ranks(self, *hosts):
        """A process on each of these hosts, by rank."""
        processes = [Ranks(self.lab, self.daemons[host]) for host in hosts]
        for process in processes:
            self.addCleanup(process.end)
        return processes

    def summing(self, *hosts, name="a", count=300_000):
        return Comm(name, self.ranks(*hosts)).joined().sum(count)

    def expect_told(self, comm, ranks, culprit, since_s, within_s=KNOWN_WITHIN_S):
        """These ranks are told in time, and by name, whose fault it is."""
        for rank in ranks:
            told = comm.processes[rank].told(comm.name)
            self.assertEqual(told.result, REMOTE_ERROR, told)
            self.assertIn(culprit, told.text)
            self.assertLess(told.at_s - since_s, within_s, told)

    def expect_all_well(self, *hosts):
        """A new communicator can be made at once, and works."""
        comm = self.summing(*hosts, name="after")
        comm.stop()
        comm.leave()


OPTIONS = None


def main():
    """Runs the tests of the calling program. Exits with 77 (skipped) where there can be no lab."""
    global OPTIONS
    parser = argparse.ArgumentParser()
    parser.add_argument("--bin", type=pathlib.Path, required=True, help="folder of spccld")
    parser.add_argument("--rank", type=pathlib.Path, required=True, help="of tests/netlab/rank.cc")
    parser.add_argument("--sanitized", action="store_true",
                        help="the programs are: their memory tells nothing")
    OPTIONS, rest = parser.parse_known_args()
    if why := netlab.reason_to_skip():
        print(f"{sys.argv[0]}: skipped: {why}", file=sys.stderr)
        sys.exit(77)
    unittest.main(module="__main__", argv=[sys.argv[0], *rest])
