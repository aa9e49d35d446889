"""The daemons of a soak, each on a host of its own: of a lab, or this machine once more."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess

import netlab
from plan import HOSTS
from processes import Process, await_true, holdings, status_of

# Patience is multiplied by this under sanitizers.
SANITIZED_SLOWER = 4


class Trouble(Exception):
    """What a soak is there to find."""


class Daemon(Process):
    """spccld; what it logs is added to a file that all daemons of its host share."""

    def __init__(self, world, host):
        self.world, self.host = world, host
        self.folder = world.folder / f"host{host + 1}"
        self.folder.mkdir(exist_ok=True)
        config = self.folder / "spccld.toml"
        config.touch()
        command = [*world.on(host), world.bin / "spccld", "--config", config, "--runtime-dir",
                   self.folder, "--state-dir", self.folder / "state", "--op-timeout", "120s",
                   "--init-timeout", f"{world.patience_s // 2}s", "--stop-timeout", "1s",
                   *world.peer_arguments(host)]
        self.log = open(world.out / f"spccld-{host + 1}.log", "a", encoding="utf-8", buffering=1)
        super().__init__(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                         stderr=subprocess.PIPE, env=world.environment)
        self.name = f"spccld of host {host + 1}"
        self.await_line("main: serving", world.patience_s, anywhere=True)
        self.birth = world.births
        world.births += 1

    def take(self, line):
        self.log.write(line + "\n")
        self.lines = [*self.lines[-200:], line]

    def end(self, number=signal.SIGKILL):
        code = super().end(number)
        self.log.close()
        return code

    def end_well(self):
        """It is told to end, if it was not before, and does as it should."""
        code = self.end(signal.SIGTERM)
        if code != 0:
            raise Trouble(f"{self.name} ended with {code} when told to end: "
                          + " | ".join(self.lines[-30:]))

    def ctl(self, *words, fine=(0,)):
        """The last object that spcclctl prints, or None where its exit code is another fine one."""
        done = subprocess.run([self.world.bin / "spcclctl", "--runtime-dir", self.folder, "-o",
                               "json", "--deadline", f"{self.world.patience_s}s",
                               *map(str, words)], capture_output=True, text=True, check=False,
                              timeout=2 * self.world.patience_s, env=self.world.environment)
        if done.returncode not in fine:
            raise Trouble(f"{self.name}: spcclctl {' '.join(map(str, words))}: exit "
                          f"{done.returncode}: {(done.stderr + done.stdout).strip()}")
        if done.returncode != 0:
            return None
        return json.loads((done.stdout.splitlines() or ["{}"])[-1])

    def status(self):
        return self.ctl("status")["status"]

    def is_calm(self):
        status = self.status()
        return not any(status[what] for what in ("sessions", "communicators", "buffers",
                                                 "mapped_bytes"))

    def check_metrics(self):
        with socket.socket(socket.AF_UNIX) as asked:
            asked.settimeout(self.world.patience_s)
            asked.connect(str(self.folder / "metrics.sock"))
            asked.sendall(b"GET /metrics HTTP/1.1\r\nHost: soak\r\nConnection: close\r\n\r\n")
            answer = b"".join(iter(lambda: asked.recv(1 << 16), b""))
        if not answer.startswith(b"HTTP/1.1 200 ") or b"\nspccl_healthy 1\n" not in answer:
            raise Trouble(f"{self.name}: metrics: {answer[:300]!r}")

    def sample(self):
        """What it holds, while nobody uses it."""
        descriptors, shared = holdings(self.pid)
        # Flight records are bounded by themselves; settings are there once something has been set.
        files = sum(len(set(names) - {"settings.toml"}) for _, _, names in os.walk(self.folder)
                    ) - len(list(self.folder.glob("state/flight/*")))
        return {"descriptors": descriptors, "shared mappings": shared,
                "threads": status_of(self.pid, "Threads"), "files": files,
                "mappings": pathlib.Path(f"/proc/{self.pid}/maps").read_text("utf-8").count("\n"),
                "resident KiB": status_of(self.pid, "VmRSS")}


class World:
    """Its daemons run within a `with`."""

    def __init__(self, options, folder, why_no_lab):
        self.bin, self.out, self.folder = options.bin, options.out, pathlib.Path(folder)
        self.sanitized = options.sanitized
        self.patience_s = 20 * (SANITIZED_SLOWER if self.sanitized else 1)
        self.lab = None if why_no_lab else netlab.Lab(f"soak-{os.getpid()}", HOSTS, "none")
        self.births = 0
        self.daemons = []
        # gRPC's other resolver leaks.
        self.environment = {**os.environ, "GRPC_DNS_RESOLVER": "native"}

    def __enter__(self):
        with contextlib.ExitStack() as undo:
            if self.lab:
                netlab.make_certificates(self.bin / "spcclctl", self.folder / "tls", HOSTS)
                undo.enter_context(self.lab)
            undo.callback(self._kill)
            for host in range(HOSTS):
                self.daemons.append(Daemon(self, host))
            self.undo = undo.pop_all()
        return self

    def __exit__(self, *_):
        self.undo.close()

    def _kill(self):
        for daemon in self.daemons:
            daemon.end()

    def on(self, host):
        """What a command is put behind to run there."""
        return self.lab.on(host + 1) if self.lab else []

    def peer_arguments(self, host):
        if self.lab:
            return netlab.daemon_arguments(self.folder / "tls", host + 1)
        return ["--peers-listen", "127.0.0.1:0"]

    def restart(self, host):
        self.daemons[host] = Daemon(self, host)

    def check_alive(self, but=()):
        for daemon in self.daemons:
            if daemon not in but and daemon.process.poll() is not None:
                raise Trouble(f"{daemon.name} has ended by itself, with {daemon.process.poll()}: "
                              + " | ".join(daemon.lines[-30:]))

    def await_calm(self):
        """Until no daemon has anything of anybody's."""
        for daemon in self.daemons:
            try:
                await_true("calm", daemon.is_calm, self.patience_s)
            except AssertionError:
                raise Trouble(f"{daemon.name} keeps what is nobody's: {daemon.status()}; buffers "
                              f"{daemon.ctl('buffers')}") from None

    def end(self):
        for daemon in self.daemons:
            daemon.end_well()
