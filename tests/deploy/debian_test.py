#!/usr/bin/env python3
"""The scripts of the Debian package, against deb-systemd-helper in a folder of the test's own, with
stubs for what would touch this machine. Never `purge`: it removes what a daemon here remembers.

Exits with 77 (skipped) where deb-systemd-helper is missing.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "deploy/debian/spccld"
STUBS = ("systemd-sysusers", "systemd-tmpfiles", "systemctl", "deb-systemd-invoke")


class DebianTest(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="spccl-debian-"))
        self.addCleanup(shutil.rmtree, self.root)
        for folder in ("stubs", "lib/systemd/system", "etc/systemd/system", "var/lib/systemd"):
            (self.root / folder).mkdir(parents=True)
        for name in STUBS:
            stub = self.root / "stubs" / name
            stub.write_text("#!/bin/sh\nexit 0\n")
            stub.chmod(0o755)
        self.unit = self.root / "lib/systemd/system/spccld.service"
        self.wanted = self.root / "etc/systemd/system/multi-user.target.wants/spccld.service"
        self.mask = self.root / "etc/systemd/system/spccld.service"

    def script(self, name, *arguments):
        subprocess.run([SCRIPTS / name, *arguments], check=True, stdout=subprocess.DEVNULL,
                       env={"PATH": f"{self.root}/stubs:{os.environ['PATH']}",
                            "DPKG_ROOT": str(self.root), "DPKG_MAINTSCRIPT_PACKAGE": "spccld"})

    def install(self, previous=""):
        """As dpkg does: `previous` is the version that was configured last, even if removed since."""
        self.unit.write_text("[Service]\nExecStart=/bin/true\n"
                             "[Install]\nWantedBy=multi-user.target\n")
        self.script("postinst", "configure", previous)
        self.assertFalse(self.mask.is_symlink())
        return self.wanted.is_symlink()

    def remove(self):
        self.script("prerm", "remove")
        self.unit.unlink()
        self.script("postrm", "remove")

    def test_it_is_enabled_also_after_a_removal(self):
        self.assertTrue(self.install())
        self.assertTrue(self.install("1"))  # an upgrade
        self.remove()
        self.assertTrue(self.mask.is_symlink())
        self.assertTrue(self.install("1"))

    def test_what_was_disabled_stays_so(self):
        self.assertTrue(self.install())
        self.wanted.unlink()
        self.assertFalse(self.install("1"))
        self.remove()
        self.assertFalse(self.install("1"))


if __name__ == "__main__":
    if not shutil.which("deb-systemd-helper"):
        print("skipped: deb-systemd-helper is missing")
        sys.exit(77)
    unittest.main()
