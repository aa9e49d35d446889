#!/usr/bin/env python3
"""Runs clang-tidy over the project's .cc files, several at once, and remembers which were clean.

A file is checked again when it, a header that it includes, its compile command, the checks or
clang-tidy itself have changed. tools/lint.sh calls this.

Files outside tests/ go first, and of those what was changed last. With --budget, files are begun only
for so many seconds after the start; those left over are named, and wait for the next run.
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


def changed_last():
    """path -> how many files were changed after it, as far as git tells: 0 is not committed yet."""
    order = {}
    for command in (["git", "diff", "--name-only", "HEAD"],
                    ["git", "log", "-n", "200", "--format=", "--name-only"]):
        result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        for line in result.stdout.splitlines():
            order.setdefault(str(ROOT / line), len(order))
    return order


def is_test(entry):
    return pathlib.Path(entry["file"]).is_relative_to(ROOT / "tests")


def check(tidy, build, entry, last_start):
    start = time.monotonic()
    if start > last_start:
        return None, "", "", 0
    result = subprocess.run([tidy, "--quiet", "-p", str(build), entry["file"]], capture_output=True,
                            text=True, check=False)
    return result.returncode, result.stdout, result.stderr, time.monotonic() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clang-tidy", required=True)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--budget", type=float, default=float("inf"), metavar="SECONDS")
    options = parser.parse_args()
    last_start = time.monotonic() + options.budget
    build = options.build.resolve()
    options.cache.mkdir(parents=True, exist_ok=True)
    for old in options.cache.iterdir():
        if time.time() - old.stat().st_mtime > KEEP_SECONDS:
            old.unlink()

    version = subprocess.run([options.clang_tidy, "--version"], capture_output=True, check=True)
    salt = version.stdout + (ROOT / ".clang-tidy").read_bytes() + packages()
    includes, digests, todo = {}, {}, []
    listed = entries(build)
    for entry in listed:
        files = made_of(pathlib.Path(entry["file"]), build, includes)
        mark = options.cache / key_of(entry, files, salt, digests)
        if mark.exists():
            mark.touch()
        else:
            todo.append((entry, mark))
    order = changed_last()
    todo.sort(key=lambda item: (is_test(item[0]), order.get(item[0]["file"], len(order))))

    failed, left = [], []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        running = {pool.submit(check, options.clang_tidy, build, entry, last_start): (entry, mark)
                   for entry, mark in todo}
        for done in concurrent.futures.as_completed(running):
            entry, mark = running[done]
            code, out, err, seconds = done.result()
            name = os.path.relpath(entry["file"], ROOT)
            if code is None:
                left.append(name)
                continue
            print(f"{name}: {'clean' if code == 0 else 'FAILED'}, {seconds:.1f} s", flush=True)
            if code == 0:
                mark.touch()
            if code != 0:
                failed.append(name)
                print(out or err, flush=True)
    if left:
        print(f"no time left for {len(left)} files: {' '.join(sorted(left))}")
    print(f"clang-tidy: {len(listed)} files, {len(listed) - len(todo)} known to be clean, "
          f"{len(left)} left, {len(failed)} failed: {' '.join(sorted(failed))}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
