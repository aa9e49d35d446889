#!/usr/bin/env python3
"""Runs image-stacking between hosts of tools/netlab.sh, by default over links of 1 Gbit/s.

    examples/image_stacking/on_link.py --bin build/release/bin --hosts 4 -- --bound 1e-4

What follows "--" goes to image-stacking. Needs root, and a release build.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import netlab  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=ROOT / "build/release/bin")
    parser.add_argument("--hosts", type=int, default=4, help="an image on each")
    parser.add_argument("--rate", default="1gbit", help="of each host's link; none: as it is")
    parser.add_argument("more", nargs="*", help="options of image-stacking")
    options = parser.parse_args()
    reason = netlab.reason_to_skip()
    if reason:
        sys.exit(f"on_link.py: {reason}")
    folder = options.bin.resolve()
    for program in ("image-stacking", "spcclctl", "spccld"):
        if not (folder / program).exists():
            sys.exit(f"on_link.py: no {program} in {folder}; build the release preset, or say --bin")
    with tempfile.TemporaryDirectory() as certificates, \
            netlab.Lab(f"stacking-{os.getpid()}", options.hosts, options.rate) as lab:
        netlab.make_certificates(folder / "spcclctl", certificates, options.hosts)
        launcher = " ".join(map(str, lab.on("{}")))
        arguments = [f"--daemon-arg={one}" for one in netlab.daemon_arguments(certificates)]
        done = subprocess.run([folder / "image-stacking", "--ranks", str(options.hosts), "--nodes",
                               str(options.hosts), "--launcher", launcher, *arguments,
                               *options.more], check=False)
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
