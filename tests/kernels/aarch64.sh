#!/bin/bash
# Cross-compiles the kernels and their golden and property suites for AArch64 and runs them under
# qemu. Needs g++-aarch64-linux-gnu, qemu-user-static and googletest (Debian's names).
# Usage: tests/kernels/aarch64.sh [BUILD_DIR]   (default: build/aarch64)
set -euo pipefail
cd "$(dirname "$0")/../.."
out=${1:-build/aarch64}
cxx=${CXX_AARCH64:-aarch64-linux-gnu-g++}
gtest=/usr/src/googletest
for need in "$cxx" qemu-aarch64-static python3; do
  command -v "$need" > /dev/null || { echo "aarch64.sh: $need is missing" >&2; exit 1; }
done
[ -d "$gtest" ] || { echo "aarch64.sh: $gtest is missing (package googletest)" >&2; exit 1; }

mkdir -p "$out"
python3 tests/vectors/make_vectors.py "$out/frames"
flags=(-std=c++20 -O1 -Wall -Wextra -Wno-unused-parameter -Wno-psabi -static -pthread -I. -I"$out"
       -I"$gtest/googletest/include" -I"$gtest/googlemock/include"
       -DSPCCL_VECTORS_DIR="\"$out/frames\"")
compile() {  # source...
  for source in "$@"; do
    object="$out/$(basename "$source").o"
    objects+=("$object")
    "$cxx" "${flags[@]}" -c "$source" -o "$object"
  done
}
objects=()
if [ ! -f "$out/libgtest.a" ]; then
  "$cxx" "${flags[@]}" -I"$gtest/googletest" -I"$gtest/googlemock" \
    -c "$gtest/googletest/src/gtest-all.cc" -o "$out/gtest-all.o"
  "$cxx" "${flags[@]}" -I"$gtest/googletest" -I"$gtest/googlemock" \
    -c "$gtest/googlemock/src/gmock-all.cc" -o "$out/gmock-all.o"
  "$cxx" "${flags[@]}" -c "$gtest/googletest/src/gtest_main.cc" -o "$out/gtest_main.o"
  aarch64-linux-gnu-ar rcs "$out/libgtest.a" "$out"/{gtest-all,gmock-all,gtest_main}.o
fi
compile base/crc32c.cc kernels/host/{codec,dense,dispatch,validate,target_plain,target_neon}.cc \
  tests/support/frame_oracle.cc
for suite in golden validate dense codec; do
  "$cxx" "${flags[@]}" "tests/kernels/host/${suite}_test.cc" "${objects[@]}" "$out/libgtest.a" \
    -o "$out/${suite}_test"
  echo "== $suite, under qemu"
  qemu-aarch64-static "$out/${suite}_test" --gtest_brief=1
done
