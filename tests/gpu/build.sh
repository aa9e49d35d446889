#!/usr/bin/env bash
# Builds what tests/gpu/run.sh runs, with nvcc and a C++ compiler and nothing else. See --help.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"

usage() {
  cat <<'USAGE'
Usage: tests/gpu/build.sh DIR [--arch ARCH]

Builds into DIR: libspccl_device.so, gpu-codec-suite, gpu-order-test, gpu-ipc-test, gpu-codec-bench.

  --arch ARCH   of nvcc's -arch: native (the GPU of this machine), sm_90, all-major, ... By default
                native where there is a GPU; else sm_80, sm_90, sm_100 and PTX, as cmake builds.

nvcc is NVCC, or that of PATH, or that of /usr/local/cuda/bin; the compiler is CXX, or g++.
USAGE
}

die() {
  printf 'build.sh: %s\n' "$*" >&2
  exit 1
}
wrong() {
  printf 'build.sh: %s; see --help\n' "$*" >&2
  exit 2
}

out='' arch=''
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage && exit 0 ;;
    --arch)
      [ -n "${2:-}" ] || wrong "--arch takes an architecture"
      arch="$2"
      shift
      ;;
    -*) wrong "unknown option: $1" ;;
    *)
      [ -z "$out" ] || wrong "one folder, not also $1"
      out="$1"
      ;;
  esac
  shift
done
[ -n "$out" ] || wrong "no folder named"
mkdir -p "$out/objects"
out="$(cd "$out" && pwd)"
cd "$root"

nvcc="${NVCC:-$(command -v nvcc || true)}"
nvcc="${nvcc:-/usr/local/cuda/bin/nvcc}"
[ -x "$nvcc" ] || die "no nvcc: put it into PATH, or into NVCC"
cxx="${CXX:-g++}"
command -v "$cxx" >/dev/null || die "no C++ compiler: $cxx"
if [ -z "$arch" ] && nvidia-smi -L >/dev/null 2>&1; then arch=native; fi
if [ -n "$arch" ]; then
  archs=("-arch=$arch")
else
  archs=(-gencode "arch=compute_80,code=sm_80" -gencode "arch=compute_90,code=sm_90"
    -gencode "arch=compute_100,code=sm_100" -gencode "arch=compute_100,code=compute_100")
fi

case "$(uname -m)" in
  x86_64) targets=(kernels/host/target_avx2.cc) ;;
  aarch64) targets=(kernels/host/target_neon.cc) ;;
  *) targets=() ;;
esac
host=(base/check.cc base/crc32c.cc kernels/host/codec.cc kernels/host/codec_lossy.cc
  kernels/host/dense.cc kernels/host/dispatch.cc kernels/host/validate.cc
  kernels/host/validate_lossy.cc kernels/host/target_plain.cc "${targets[@]}")
suite=(tests/gpu/codec_suite.cc tests/gpu/codec_suite_dense.cc tests/gpu/codec_suite_large.cc
  tests/gpu/codec_suite_sparse.cc tests/kernels/host/elements.cc tests/support/frame_oracle.cc)
programs=(tests/gpu/order_test.cc tests/gpu/ipc_test.cc bench/gpu/report.cc)
device=(kernels/launch/*.cu)
bench=(bench/gpu/gpu_codec_bench.cu)

# compile SOURCE...: prints a line of shell for each, all of which can run at the same time.
cxx_flags=(-std=c++20 -O2 -Wall -fPIC -ffp-contract=off -DSPCCL_NO_AVX512 -I "$root")
cuda_flags=(-std=c++20 -O3 --expt-relaxed-constexpr "${archs[@]}" "-Xcompiler=-fPIC,-fvisibility=hidden"
  -I "$root")
object() {
  local name="${1//\//_}"
  printf '%s/objects/%s.o' "$out" "${name%.*}"
}
compile() {
  local source
  for source in "$@"; do
    case "$source" in
      *.cu) printf '%q ' "$nvcc" "${cuda_flags[@]}" -c "$source" -o "$(object "$source")" ;;
      *) printf '%q ' "$cxx" "${cxx_flags[@]}" -c "$source" -o "$(object "$source")" ;;
    esac
    printf '\n'
  done
}
objects() {
  local source
  for source in "$@"; do object "$source" && printf '\n'; done
}

# The longest first.
compile "${device[@]}" "${bench[@]}" "${host[@]}" "${suite[@]}" "${programs[@]}" |
  tr '\n' '\0' | xargs -0 -P "$(nproc)" -I {} bash -c '{}' ||
  die "something does not compile"

link() {
  local name="$1"
  shift
  mapfile -t inputs < <(objects "$@")
  "$cxx" -o "$out/$name" "${inputs[@]}" -ldl -lpthread
}
mapfile -t inputs < <(objects "${device[@]}")
"$nvcc" "${archs[@]}" -shared -cudart static -o "$out/libspccl_device.so" "${inputs[@]}" \
  -Xlinker "--version-script=kernels/launch/spccl_device.map"
link gpu-codec-suite "${suite[@]}" "${host[@]}"
link gpu-order-test tests/gpu/order_test.cc
link gpu-ipc-test tests/gpu/ipc_test.cc
mapfile -t inputs < <(objects "${bench[@]}" bench/gpu/report.cc)
"$nvcc" "${archs[@]}" -cudart static -o "$out/gpu-codec-bench" "${inputs[@]}" -ldl
echo "built in $out"
