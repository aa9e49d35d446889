#!/usr/bin/env python3
"""Prints what ptxas made of every kernel and checks it against a table: registers and shared memory no
more than the table's, no spill, no local memory, no kernel more or less.

  tools/kernel_table.py --table bench/kernel_table.tsv LOG...            check
  tools/kernel_table.py --table bench/kernel_table.tsv --write LOG...    make the table anew
"""

import argparse
import pathlib
import re
import subprocess
import sys

COMPILING = re.compile(r"Compiling entry function '(\w+)' for 'sm_(\d+)'")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers(?:.*?, (\d+) bytes smem)?")
COLUMNS = "arch\tkernel\tregisters\tshared_bytes"


def demangled(names):
    result = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True,
                            check=True)
    return dict(zip(names, result.stdout.splitlines()))


def short(name):
    """Entry<spccl::sparse::EncodePici<unsigned int>>(...) to EncodePici<unsigned int>."""
    match = re.search(r"Entry<(.*)>\(", name)
    kernel = (match.group(1) if match else name).strip()
    return re.sub(r"spccl::(sparse|simt|launch)::", "", kernel).replace("> >", ">>")


def read_logs(paths):
    """{(arch, mangled): (registers, shared, stack, spills)}; the worst of several copies."""
    found = {}
    for path in paths:
        key, stack, spills = None, 0, 0
        for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
            if match := COMPILING.search(line):
                key, stack, spills = (int(match.group(2)), match.group(1)), 0, 0
            elif match := STACK.search(line):
                stack, spills = int(match.group(1)), int(match.group(2)) + int(match.group(3))
            elif (match := USED.search(line)) and key:
                row = (int(match.group(1)), int(match.group(2) or 0), stack, spills)
                found[key] = tuple(map(max, row, found.get(key, row)))
    names = demangled(sorted({name for _, name in found}))
    return {(arch, short(names[name])): row for (arch, name), row in found.items()}


def read_table(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    if not lines or lines[0] != COLUMNS:
        sys.exit(f"{path}: not a kernel table")
    rows = [line.split("\t") for line in lines[1:]]
    return {(int(arch), kernel): (int(registers), int(shared))
            for arch, kernel, registers, shared in rows}


def problems_of(found, table):
    problems = []
    for key, (registers, shared, stack, spills) in sorted(found.items()):
        what = f"sm_{key[0]} {key[1]}"
        if stack or spills:
            problems.append(f"{what}: {stack} bytes of local memory, {spills} bytes of spills")
        if key not in table:
            problems.append(f"{what}: not in the table")
        elif registers > table[key][0] or shared > table[key][1]:
            problems.append(f"{what}: {registers} registers and {shared} bytes of shared memory, "
                            f"the table has {table[key][0]} and {table[key][1]}")
    problems += [f"sm_{arch} {kernel}: in the table, but not compiled"
                 for arch, kernel in sorted(set(table) - set(found))]
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=pathlib.Path, required=True)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("logs", nargs="+")
    arguments = parser.parse_args()
    found = read_logs(arguments.logs)
    lines = [f"{arch}\t{kernel}\t{row[0]}\t{row[1]}" for (arch, kernel), row in sorted(found.items())]
    print("\n".join([COLUMNS, *lines]))
    if not found:
        sys.exit("no kernel in the logs: were they compiled with -Xptxas -v?")
    if arguments.write:
        arguments.table.write_text("\n".join([COLUMNS, *lines]) + "\n", encoding="utf-8")
    problems = problems_of(found, read_table(arguments.table))
    if problems:
        print("\n".join(problems), file=sys.stderr)
        sys.exit(f"kernel_table: {len(problems)} problems; --write makes the table anew")
    print(f"kernel_table: {len(found)} kernels as in {arguments.table}, no spill, no local memory")


if __name__ == "__main__":
    main()
