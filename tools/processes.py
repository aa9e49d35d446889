"""Processes that tests and tools start, read from and look at."""

import os
import pathlib
import signal
import subprocess
import threading
import time

PATIENCE_S = 20  # for what must happen but is promised no time


def await_true(what, look, patience_s=PATIENCE_S):
    """Looks again until it is so: for what nobody tells us of."""
    deadline = time.monotonic() + patience_s
    while not look():
        assert time.monotonic() < deadline, f"not within {patience_s} s: {what}"
        time.sleep(0.005)


class Process:
    """A process whose lines are read as they come."""

    def __init__(self, command, **options):
        self.name = pathlib.Path(str(command[-1])).name
        self.process = subprocess.Popen([*map(str, command)], text=True, bufsize=1,
                                        start_new_session=True, **options)
        self.lines = []
        self.changed = threading.Condition()
        self.ended = False
        self.stream = self.process.stdout or self.process.stderr
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    @property
    def pid(self):
        return self.process.pid

    def _read(self):
        for line in self.stream:
            with self.changed:
                self.take(line.rstrip("\n"))
                self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def take(self, line):
        """Called with each line, by the thread that reads."""
        self.lines.append(line)

    def has(self, text, since=0):
        with self.changed:
            return [line for line in self.lines[since:] if text in line]

    def await_line(self, start, patience_s=PATIENCE_S, anywhere=False):
        """The first line that starts so (or has it anywhere)."""
        def found():
            return next((line for line in self.lines
                         if line.startswith(start) or (anywhere and start in line)), None)
        with self.changed:
            self.changed.wait_for(lambda: found() or self.ended, patience_s)
            assert found(), f"{self.name} did not say '{start}': {self.lines[-20:]}"
            return found()

    def send(self, number):
        self.process.send_signal(number)

    def end(self, number=signal.SIGKILL):
        """Its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(timeout=PATIENCE_S)
        self.reader.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream:
                stream.close()
        return code


def holdings(pid):
    """Descriptors, and mappings of shared memory."""
    proc = pathlib.Path(f"/proc/{pid}")
    maps = (proc / "maps").read_text(encoding="utf-8")
    return len(os.listdir(proc / "fd")), maps.count("/memfd:")


def status_of(pid, field):
    """A number of /proc/PID/status: "VmRSS" (KiB), "Threads"."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    return 0
