#!/usr/bin/env python3
"""Runs a compiler command and keeps what ptxas says of each kernel (-Xptxas -v) beside the object, in
OBJECT.ptxas, for tools/kernel_table.py. All else that the compiler says is passed on."""

import subprocess
import sys


def main():
    command = sys.argv[1:]
    result = subprocess.run(command, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True)
    said, rest = [], []
    for line in result.stdout.splitlines():
        verbose = line.startswith("ptxas info") or " bytes stack frame" in line
        (said if verbose else rest).append(line)
    if rest:
        print("\n".join(rest), file=sys.stderr)
    if result.returncode == 0 and "-o" in command:
        with open(command[command.index("-o") + 1] + ".ptxas", "w", encoding="utf-8") as log:
            log.write("\n".join(said) + "\n")
    sys.exit(result.returncode)


if __name__ == "__main__":
    main()
