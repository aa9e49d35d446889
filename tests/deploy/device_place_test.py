#!/usr/bin/env python3
"""An installed spccld finds the kernels for GPUs where `cmake --install` puts them, in any prefix. The
driver and the kernels are those that run on the CPU.

  device_place_test.py BUILD_DIR PLACE DRIVER KERNELS [--built]

PLACE is the folder of libspccl_device.so in the prefix. --built: the build has the real ones too.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

PATIENCE_S = 60
BUILD, PLACE, DRIVER, KERNELS = (sys.argv[1:5] + [None] * 4)[:4]
BUILT = "--built" in sys.argv[5:]
NAME = "libspccl_device.so"


class DevicePlaceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="spccl-place-")
        cls.root = pathlib.Path(cls.folder.name).resolve()
        cls.prefix = cls.root / "prefix"
        cls.install("spccld")
        cls.installed = cls.prefix / PLACE / NAME

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def setUp(self):
        self.addCleanup(self.installed.unlink, missing_ok=True)

    @classmethod
    def install(cls, component):
        subprocess.run(["cmake", "--install", BUILD, "--prefix", cls.prefix, "--component", component],
                       check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE_S)

    def start(self):
        """What the installed daemon logs of GPUs at its start: {message: its last line}."""
        run = self.root / "run"
        daemon = subprocess.Popen(
            [self.prefix / "sbin/spccld", "--runtime-dir", run, "--state-dir", run / "state",
             "--log-format", "json", "--gpu-driver", DRIVER],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        limit = threading.Timer(PATIENCE_S, daemon.kill)
        limit.start()
        lines = {}
        said = ""
        for text in daemon.stderr:
            said += text
            line = json.loads(text) if text.startswith("{") else {}
            if line.get("component") == "gpu":
                lines[line["message"]] = line
            if any(" used" in message for message in lines):
                break
        daemon.terminate()
        said += daemon.communicate()[1]
        limit.cancel()
        self.assertEqual(daemon.returncode, 0, said)
        return lines

    def test_it_finds_them_where_they_are_installed(self):
        self.installed.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(KERNELS, self.installed)
        lines = self.start()
        self.assertIn("a GPU is used", lines)
        self.assertEqual(lines["the kernels for GPUs are loaded"]["library"], str(self.installed))

    def test_it_says_where_they_should_be(self):
        lines = self.start()
        self.assertNotIn("a GPU is used", lines)
        reason = next(line["reason"] for message, line in lines.items() if "are not used" in message)
        self.assertIn(f" {self.installed}", reason)

    @unittest.skipUnless(BUILT, "built without the real ones")
    def test_that_is_where_they_are_installed(self):
        self.install("spccl-device")
        self.assertTrue(self.installed.is_file())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
