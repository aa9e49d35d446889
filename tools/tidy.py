#!/usr/bin/env python3
"""Runs clang-tidy over the project's .cc files, several at once, and remembers which were clean.

A file is checked again when it, a header that it includes, its compile command, the checks or
clang-tidy itself have changed. tools/lint.sh calls this.

What was changed last goes first. With --changed, only the files go that the last so many commits
changed, or whose own header they did, and what is not committed yet.
"""

import argparse
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
KEEP_SECONDS = 30 * 24 * 3600
COMMITS_TO_ORDER_BY = 200


def included(path, build, known):
    """The files that this one includes by name in quotes, as far as they are ours or generated."""
    if path not in known:
        known[path] = set()
        for name in re.findall(rb'^ *# *include +"([^"]+)"', path.read_bytes(), re.MULTILINE):
            for folder in (path.parent, ROOT, ROOT / "client/include", build):
                found = folder / name.decode()
                if found.is_file():
                    known[path].add(found)
                    break
    return known[path]


def made_of(path, build, known):
    """The file and all that it includes, directly or not; no need to have built it."""
    found, new = set(), {path}
    while new:
        found |= new
        new = set().union(*(included(file, build, known) for file in new)) - found
    return sorted(found)


def entries(build):
    """One compile command a source file of the project; generated files are left out."""
    seen = {}
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        path = pathlib.Path(entry["file"])
        if path.suffix == ".cc" and build not in path.parents:
            seen.setdefault(str(path), entry)
    return [seen[path] for path in sorted(seen)]


def digest_of(path, known):
    if path not in known:
        known[path] = hashlib.sha256(path.read_bytes()).hexdigest()
    return known[path]


def packages():
    """What is installed for development: of what the headers that are not ours depend on."""
    result = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Version}\n", "*-dev"],
                            capture_output=True, check=False)
    return result.stdout


def key_of(entry, files, salt, digests):
    """Names a clean result: by all that it depends on."""
    state = hashlib.sha256(salt)
    state.update(entry["command"].replace(str(ROOT), ".").encode())
    for path in files:
        state.update(f"{path.relative_to(ROOT)}={digest_of(path, digests)}\n".encode())
    return state.hexdigest()


def changed_last(commits):
    """What the last so many commits changed, without suffixes -> how many were changed after it; 0 is
    not committed yet. A header and the source of its name count as one."""
    order = {}
    for command in (["git", "diff", "--name-only", "HEAD"],
                    ["git", "ls-files", "--others", "--exclude-standard"],
                    ["git", "log", "-n", str(commits), "--format=", "--name-only"]):
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        for line in result.stdout.splitlines():
            if line.endswith((".cc", ".h")):
                order.setdefault((ROOT / line).with_suffix(""), len(order))
    return order


def stem(entry):
    return pathlib.Path(entry["file"]).with_suffix("")


def check(tidy, build, entry):
    start = time.monotonic()
    result = subprocess.run([tidy, "--quiet", "-p", str(build), entry["file"]], capture_output=True,
                            text=True, check=False)
    return result.returncode, result.stdout, result.stderr, time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clang-tidy", required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--changed", type=int, metavar="COMMITS")
    options = parser.parse_args()
    build = options.build.resolve()
    options.cache.mkdir(parents=True, exist_ok=True)
    for old in options.cache.iterdir():
        if time.time() - old.stat().st_mtime > KEEP_SECONDS:
            old.unlink()

    version = subprocess.run([options.clang_tidy, "--version"], capture_output=True, check=True)
    salt = version.stdout + (ROOT / ".clang-tidy").read_bytes() + packages()
    includes, digests, todo = {}, {}, []
    order = changed_last(options.changed or COMMITS_TO_ORDER_BY)
    listed = [entry for entry in entries(build) if not options.changed or stem(entry) in order]
    for entry in listed:
        files = made_of(pathlib.Path(entry["file"]), build, includes)
        mark = options.cache / key_of(entry, files, salt, digests)
        if mark.exists():
            mark.touch()
        else:
            todo.append((entry, mark))
    todo.sort(key=lambda item: order.get(stem(item[0]), len(order)))

    failed = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        running = {pool.submit(check, options.clang_tidy, build, entry): (entry, mark)
                   for entry, mark in todo}
        for done in concurrent.futures.as_completed(running):
            entry, mark = running[done]
            code, out, err, seconds = done.result()
            name = os.path.relpath(entry["file"], ROOT)
            print(f"{name}: {'clean' if code == 0 else 'FAILED'}, {seconds:.1f} s", flush=True)
            if code == 0:
                mark.touch()
            if code != 0:
                failed.append(name)
                print(out or err, flush=True)
    print(f"clang-tidy: {len(listed)} files, {len(listed) - len(todo)} known to be clean, "
          f"{len(failed)} failed: {' '.join(sorted(failed))}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
