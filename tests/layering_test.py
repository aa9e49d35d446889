#!/usr/bin/env python3
"""Checks who includes whom against the rule in docs/architecture.md, section "Layers".

Run by ctest. By hand: python3 tests/layering_test.py [--tree DIR] prints every violation.
"""

import argparse
import pathlib
import re
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent

# A unit is a folder of the project; a file belongs to the longest that matches. Each lists the units
# that its files may include besides itself. "api" is the public header, client/include/spccl.
MAY_INCLUDE = {
    "base": [],
    "proto/shm": ["base"],
    "proto": ["base"],
    "api": [],
    "client": ["api", "base", "proto/shm", "kernels"],
    "kernels": ["base"],
    "collective/plan": ["base", "kernels", "collective", "collective/policy"],
    "collective/policy": ["base", "kernels", "collective"],
    "collective": ["base", "kernels", "collective/plan", "collective/policy"],
    "daemon": ["base", "proto", "proto/shm", "kernels", "collective", "collective/plan",
               "collective/policy"],
    "ctl": ["api", "base", "proto", "kernels"],
    "bench/support": ["base", "proto/shm"],
    "bench": ["api", "base", "proto", "proto/shm", "kernels", "bench/support"],
    "bench/model": ["base", "kernels", "collective", "collective/policy", "bench", "bench/support"],
    "bench/tune": ["base", "kernels", "collective", "collective/policy", "bench", "bench/support"],
    "examples": ["api", "bench/support"],
}
# Files that belong to another unit than their folder says.
UNIT_OF_PREFIX = {"client/include/spccl/": "api"}

# Headers of the outside world that only some places may include: (name, pattern, allowed places).
CUDA_PLACES = ["kernels/simt/cuda_lane.cuh", "kernels/launch/", "bench/gpu/", "tests/base/cuda/abi_test.cc",
               "tests/collective/transport/nccl/"]
RESTRICTED = [
    ("CUDA or NCCL", re.compile(r"^(cuda|nccl|nvml|curand|cusparse|cooperative_groups|cub/|thrust/|nv/)"),
     CUDA_PLACES),
    ("protobuf or gRPC", re.compile(r"^(google/protobuf|grpc)|\.pb\.h$"),
     ["proto/spccl/", "daemon/", "ctl/", "bench/", "tests/"]),
    ("Beast or Asio", re.compile(r"^boost/(beast|asio)"), ["daemon/metrics/http_server.cc"]),
    ("libsvm", re.compile(r"^libsvm/"), ["bench/tune/svm.cc"]),
    ("UCX", re.compile(r"^(ucp|uct|ucs|ucm)/"),
     ["collective/transport/ucx/", "tests/collective/transport/ucx/"]),
]
# Headers with which one does I/O or waits; plan, policy and kernels are free of both.
IO = re.compile(
    r"^(fstream|iostream|cstdio|stdio\.h|filesystem|unistd\.h|fcntl\.h|poll\.h|dlfcn\.h|aio\.h|"
    r"spawn\.h|thread|mutex|condition_variable|future|semaphore|latch|pthread\.h|semaphore\.h|"
    r"sys/.*|linux/.*|net/.*|netinet/.*|arpa/.*|boost/(asio|interprocess|beast)/.*|"
    r"base/(futex|memory|log|unique_fd)\.h)$")
PURE = ["collective/plan/", "collective/policy/", "kernels/"]

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', re.MULTILINE)
SUFFIXES = {".h", ".cc", ".c", ".cpp", ".hpp", ".inl", ".cu", ".cuh"}
TOP_FOLDERS = {unit.split("/")[0] for unit in MAY_INCLUDE} | {"tests"}


def unit_of(path):
    """The unit that a file, or an include that names a project file, belongs to; None: outside."""
    for prefix, unit in UNIT_OF_PREFIX.items():
        if path.startswith(prefix):
            return unit
    if path.startswith("spccl/v1/"):
        return "proto"
    if path.startswith("spccl/"):
        return "api"
    parts = path.split("/")
    for length in range(len(parts) - 1, 0, -1):
        unit = "/".join(parts[:length])
        if unit in MAY_INCLUDE or unit == "tests":
            return unit
    return None


def violations_of_include(path, target, quoted):
    """What is wrong with `path` including `target`: a list of reasons."""
    if ".." in target.split("/"):
        return [f"includes {target}: write the path from the root, without .."]
    reasons = []
    for name, pattern, places in RESTRICTED:
        if pattern.search(target) and not path.startswith(tuple(places)):
            reasons.append(f"includes {target}: {name} headers belong only in {', '.join(places)}")
    if path.startswith(tuple(PURE)) and IO.search(target):
        reasons.append(f"includes {target}: {path.rsplit('/', 1)[0]} does no I/O and never waits")
    if quoted and "/" not in target:
        reasons.append(f"includes {target}: write the path from the root")
    source, unit = unit_of(path), unit_of(target)
    if unit and source != "tests" and unit != source and unit not in MAY_INCLUDE[source]:
        allowed = ", ".join(MAY_INCLUDE[source]) or "nothing"
        reasons.append(f"includes {target}: {source} may include only {allowed} of the project")
    return reasons


def sources_of(tree):
    for top in sorted(TOP_FOLDERS):
        for file in sorted((tree / top).rglob("*")):
            if file.suffix in SUFFIXES and file.is_file():
                yield file


def violations_of(tree):
    """Every violation in the project at `tree`, as 'path:line: reason'."""
    found = []
    for file in sources_of(tree):
        path = file.relative_to(tree).as_posix()
        text = file.read_text(encoding="utf-8")
        for match in INCLUDE.finditer(text):
            line = text.count("\n", 0, match.start(1 if match.group(1) else 2)) + 1
            target = match.group(1) or match.group(2)
            for reason in violations_of_include(path, target, match.group(1) is not None):
                found.append(f"{path}:{line}: {reason}")
    return found


class TreeTest(unittest.TestCase):

    def test_the_tree_keeps_the_rule(self):
        self.assertEqual(violations_of(ROOT), [])

    def test_there_is_something_to_check(self):
        folders = {file.relative_to(ROOT).parts[0] for file in sources_of(ROOT)}
        self.assertLessEqual({"base", "proto", "kernels", "collective", "daemon"}, folders)


class PlantedTest(unittest.TestCase):
    """Plants an include into an otherwise empty tree and looks whether it is found."""

    def planted(self, path, line):
        with tempfile.TemporaryDirectory() as name:
            tree = pathlib.Path(name)
            (tree / path).parent.mkdir(parents=True)
            (tree / path).write_text(f"#pragma once\n{line}\n", encoding="utf-8")
            return violations_of(tree)

    def test_forbidden(self):
        for path, line in [
            ("base/a.h", '#include "proto/shm/ring.h"'),
            ("base/a.h", '#include "kernels/format.h"'),
            ("proto/shm/a.h", '#include "daemon/session.h"'),
            ("proto/shm/a.h", "#include <google/protobuf/message.h>"),
            ("proto/shm/a.h", '#include "spccl/v1/control.pb.h"'),
            ("client/a.cc", '#include "collective/op.h"'),
            ("client/a.cc", '#include "daemon/control.h"'),
            ("client/a.cc", '#include "proto/spccl/v1/control.pb.h"'),
            ("client/include/spccl/a.h", '#include "base/status.h"'),
            ("kernels/host/a.cc", '#include "collective/op.h"'),
            ("kernels/host/a.cc", "#include <unistd.h>"),
            ("collective/a.cc", '#include "daemon/control.h"'),
            ("collective/a.cc", '#include "proto/shm/slot.h"'),
            ("collective/a.cc", "#include <grpcpp/grpcpp.h>"),
            ("collective/plan/a.cc", "#include <fstream>"),
            ("collective/plan/a.cc", "#include <sys/socket.h>"),
            ("collective/policy/a.cc", '#include "base/futex.h"'),
            ("collective/policy/deep/a.cc", "#  include <thread>"),
            ("daemon/a.cc", '#include "spccl/spccl.h"'),
            ("daemon/a.cc", '#include "client/comm.h"'),
            ("daemon/a.cc", '#include "tests/support/oracle.h"'),
            ("ctl/a.cc", '#include "daemon/control.h"'),
            ("ctl/a.cc", '#include "collective/op.h"'),
            ("ctl/a.cc", '#include "proto/shm/ring.h"'),
            ("bench/perf/a.cc", '#include "collective/op.h"'),
            ("bench/perf/a.cc", '#include "daemon/control.h"'),
            ("examples/a.cc", '#include "base/status.h"'),
            ("daemon/a.cc", '#include "daemon/../base/log.h"'),
            ("daemon/a.cc", '#include "../base/log.h"'),
            ("daemon/a.cc", '#include "config.h"'),
            ("daemon/a.cc", "#include <cuda_runtime.h>"),
            ("kernels/simt/a.cuh", "#include <cub/cub.cuh>"),
            ("client/a.cc", "#include <nccl.h>"),
            ("daemon/a.cc", '#include "ucp/api/ucp.h"'),
            ("tests/daemon/a_test.cc", "#include <cuda.h>"),
            ("daemon/metrics/http_server.h", '#include "boost/beast/http.hpp"'),
            ("daemon/a.cc", "#include <boost/asio.hpp>"),
        ]:
            with self.subTest(path=path, line=line):
                found = self.planted(path, line)
                self.assertTrue(found, "not found")
                self.assertTrue(found[0].startswith(f"{path}:2: "), found)

    def test_allowed(self):
        for path, line in [
            ("base/a.h", '#include "base/status.h"'),
            ("base/a.h", '#include "absl/status/status.h"'),
            ("proto/shm/a.h", '#include "base/status.h"'),
            ("client/a.cc", '#include "proto/shm/ring.h"'),
            ("client/a.cc", '#include "kernels/host/dense.h"'),
            ("client/a.cc", '#include "spccl/spccl.h"'),
            ("kernels/a.cc", '#include "base/crc32c.h"'),
            ("collective/runtime/a.cc", "#include <unistd.h>"),
            ("collective/runtime/a.cc", '#include "collective/plan/plan.h"'),
            ("collective/plan/a.cc", '#include "collective/op.h"'),
            ("collective/plan/a.cc", "#include <vector>"),
            ("daemon/a.cc", '#include "proto/shm/ring.h"'),
            ("daemon/a.cc", '#include "proto/spccl/v1/control.grpc.pb.h"'),
            ("daemon/a.cc", '#include "collective/policy/settings.h"'),
            ("ctl/a.cc", "#include <grpcpp/grpcpp.h>"),
            ("ctl/a.cc", '#include "kernels/format.h"'),
            ("bench/codec_bench.cc", '#include "kernels/format.h"'),
            ("bench/perf/a.cc", '#include "spccl/spccl.h"'),
            ("examples/a.c", "#include <spccl/spccl.h>"),
            ("tests/daemon/a_test.cc", '#include "client/comm.h"'),
            ("kernels/launch/a.cu", "#include <cuda_runtime.h>"),
            ("tests/collective/transport/nccl/a.cc", "#include <nccl.h>"),
            ("collective/transport/ucx/a.cc", '#include "ucp/api/ucp.h"'),
            ("daemon/metrics/http_server.cc", '#include "boost/beast/http.hpp"'),
            ("daemon/a.cc", '// #include "client/comm.h"'),
        ]:
            with self.subTest(path=path, line=line):
                self.assertEqual(self.planted(path, line), [])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tree", type=pathlib.Path, help="print the violations in this tree")
    arguments, rest = parser.parse_known_args()
    if arguments.tree is None:
        unittest.main(argv=[sys.argv[0], *rest])
    found = violations_of(arguments.tree)
    print("\n".join(found + [f"{len(found)} violations"]))
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
