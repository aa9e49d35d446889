#!/usr/bin/env python3
"""Checks the unit, its drop-in, the user and the folders that `cmake --install` puts in place, with
systemd's own tools. Usage: systemd_test.py BUILD_DIR

Exits with 77 (skipped) where systemd-analyze is missing.
"""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

BUILD = pathlib.Path(sys.argv.pop(1)) if len(sys.argv) > 1 else None
MOST_EXPOSURE = 30  # of 100; systemd-analyze prints it as 3.0


def run(*command):
    done = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=50)
    return done.returncode, done.stdout


class SystemdTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.prefix = pathlib.Path(cls.folder.name) / "usr"
        code, text = run("cmake", "--install", BUILD, "--prefix", cls.prefix,
                         "--component", "spccld")
        assert code == 0, text
        # The programs are those of the build; they need not be installed for this.
        installed = cls.prefix / "lib/systemd/system/spccld.service"
        cls.unit = pathlib.Path(cls.folder.name) / "spccld.service"
        cls.unit.write_text(re.sub(r"(?m)^(Exec\w+=)\S*/spccld\b", rf"\g<1>{BUILD}/bin/spccld",
                                   installed.read_text()))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def with_drop_ins(self):
        """The unit in a folder with the drop-ins for GPU and for RDMA nodes: each, and both."""
        for names in (["gpu"], ["rdma"], ["gpu", "rdma"]):
            folder = pathlib.Path(self.folder.name) / "-".join(names)
            (folder / "spccld.service.d").mkdir(parents=True, exist_ok=True)
            shutil.copy(self.unit, folder / "spccld.service")
            for name in names:
                shutil.copy(self.prefix / f"share/spccl/systemd/{name}.conf",
                            folder / "spccld.service.d")
            yield folder / "spccld.service"

    def settings(self):
        lines = [line.split("=", 1) for line in self.unit.read_text().splitlines()
                 if "=" in line and not line.startswith("#")]
        return {name: value for name, value in lines}

    def test_the_unit_is_valid(self):
        for unit in (self.unit, *self.with_drop_ins()):
            code, text = run("systemd-analyze", "verify", "--man=no", unit)
            self.assertEqual((code, text), (0, ""))

    def test_a_wrong_unit_would_be_found(self):
        wrong = pathlib.Path(self.folder.name) / "wrong.service"
        wrong.write_text(self.unit.read_text().replace("WatchdogSec=30s", "WatchdogSec=soon"))
        self.assertIn("Failed to parse", run("systemd-analyze", "verify", "--man=no", wrong)[1])

    def test_it_is_hardened(self):
        for unit in (self.unit, *self.with_drop_ins()):
            code, text = run("systemd-analyze", "security", "--offline=true", "--no-pager",
                             f"--threshold={MOST_EXPOSURE}", unit)
            self.assertEqual(code, 0, text)
            print(text.strip().splitlines()[-1])

    def test_every_exception_is_explained(self):
        text = self.unit.read_text()
        for setting in ("AmbientCapabilities=CAP_SYS_PTRACE", "MemoryDenyWriteExecute=no",
                        "RestrictAddressFamilies=", "PrivateNetwork=no", "PrivateUsers=no",
                        "ProtectProc=default"):
            before = text[:text.index("\n" + setting) + 1].rstrip("\n").splitlines()
            paragraph = []
            while before and not re.match(r"^# Exception:", before[-1]):
                paragraph.append(before.pop())
            self.assertTrue(before, f"{setting} comes without a comment 'Exception: ...'")
            self.assertLessEqual(len(paragraph), 3, f"{setting} is far from its explanation")

    def test_it_promises_what_the_daemon_keeps(self):
        settings = self.settings()
        self.assertEqual(settings["Type"], "notify")
        self.assertEqual(settings["RuntimeDirectory"], "spccl")
        self.assertEqual(settings["RuntimeDirectoryPreserve"], "restart")
        self.assertEqual(settings["StateDirectory"], "spccl")
        self.assertEqual(settings["LimitMEMLOCK"], "infinity")
        limits = dict(re.findall(r"(?m)^(\w+) = \"(\d+)s\"", run(BUILD / "bin/spccld",
                                                                  "--print-config")[1]))
        # A stop within the configured time, with the grace for a last slice, is never cut short.
        self.assertGreaterEqual(int(settings["TimeoutStopSec"].rstrip("s")),
                                int(limits["stop_timeout"]) + 10)
        # The watchdog judges later than the daemon does itself.
        self.assertGreater(int(settings["WatchdogSec"].rstrip("s")), int(limits["stall_limit"]))

    def test_the_user_and_the_folders_are_valid(self):
        code, text = run("systemd-sysusers", "--dry-run", self.prefix / "lib/sysusers.d/spccl.conf")
        self.assertEqual(code, 0, text)
        tmpfiles = (self.prefix / "lib/tmpfiles.d/spccl.conf").read_text()
        # As another user and elsewhere, or it would need the user that is made above.
        here = pathlib.Path(self.folder.name) / "root"
        own = pathlib.Path(self.folder.name) / "tmpfiles.conf"
        own.write_text(re.sub(r" spccl spccl -", " - - -", tmpfiles))
        here.mkdir()
        code, text = run("systemd-tmpfiles", "--create", f"--root={here}", own)
        self.assertEqual(code, 0, text)
        self.assertEqual(oct((here / "run/spccl").stat().st_mode & 0o777), "0o755")
        self.assertEqual(oct((here / "var/lib/spccl").stat().st_mode & 0o777), "0o700")


if __name__ == "__main__":
    if shutil.which("systemd-analyze") is None:
        print("skipped: systemd-analyze is missing (package systemd)")
        sys.exit(77)
    unittest.main()
