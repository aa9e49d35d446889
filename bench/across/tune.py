"""Runs spccl-tune on hosts of tools/netlab.sh. What follows -- goes to spccl-tune."""

import argparse
import subprocess
import sys

import lab as labs


def run(options, runner):
    with labs.Lab(f"tune-{options.rate}", options.hosts, options.rate) as lab:
        place = labs.Place(lab, options.hosts, 1)
        folder = options.out / options.rate
        # Certificates stay there: the same arguments let the same folder go on.
        runner.scratch = folder
        folder.mkdir(parents=True, exist_ok=True)
        command = [options.bin / "spccl-tune", "--out", folder,
                   *runner.on_daemons(place), *options.more]
        # It ends by itself on a signal, and tells how to go on.
        tuner = subprocess.Popen([*map(str, command)])
        try:
            return tuner.wait()
        except BaseException:
            tuner.terminate()
            tuner.wait()
            raise


def main():
    parser = argparse.ArgumentParser(prog="bench/across.sh tune", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    labs.add_options(parser, "across/tune")
    parser.add_argument("--rate", default="10gbit", help="of the links (default %(default)s)")
    parser.add_argument("--hosts", type=int, default=2, help="(default %(default)s)")
    known, more = parser.parse_known_args()
    known.more = [word for word in more if word != "--"]
    return labs.start(run, known)


if __name__ == "__main__":
    sys.exit(main())
