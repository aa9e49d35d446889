#!/usr/bin/env bash
# Proves on a machine with a GPU what no other machine can prove. See --help.
set -uo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"

usage() {
  cat <<'USAGE'
Usage: tests/gpu/run.sh [OPTIONS]

Runs, each step under a time limit, all of them in less than 8 minutes:

  build        what follows, with nvcc and a C++ compiler; nothing else is needed (not with --bin)
  codec        the kernels against the host's codecs: every format, type and reduction
  bench        encode, decode, reduce-into, fused, beside a copy, CUB and cuSPARSE
  order        stream memory operations between two processes, eager and captured
  ipc          memory handed to another process: legacy handle, POSIX descriptor
  memcheck     a part of codec under compute-sanitizer, where there is one
  racecheck    and its search for races in shared memory
  order-mps    order with both processes in one MPS server
  ranks-2 -4 -8  so many ranks on one GPU through spccld, none staged, against a plain reference
  nccl         two spccld on one GPU through NCCL 2.30 or later

Each says PASS, FAIL or SKIP and why; the last line is PASS, FAIL, or SKIP where there is no GPU, the exit
status 0, 1 or 77. On a machine with a GPU, codec, bench, order and ipc may not be skipped: they come
first, and their limits, with the build's, are no more than what all have, so that none of them ever finds
no time left.

  --bin DIR      what tests/gpu/build.sh has built, maybe elsewhere
  --spccl DIR    of spccld and spccl-perf, for ranks and nccl (default: --bin, else build/release/bin)
  --nccl FILE    libnccl.so.2 of NCCL 2.30 or later (default: SPCCL_GPU_NCCL; PyPI: nvidia-nccl-cu13)
  --out DIR      for logs and bench.jsonl (default: build/gpu)
  --only A,B     these steps only
  --arch ARCH    of build.sh
  --limit S      no step may take longer than S seconds
  --dry-run      says what would run, and runs nothing
  -h, --help
USAGE
}

die() {
  printf 'run.sh: %s\n' "$*" >&2
  exit 2
}

bin='' spccl='' nccl="${SPCCL_GPU_NCCL:-}" out="$root/build/gpu" only='' arch='' limit=470 dry=no
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage && exit 0 ;;
    --dry-run) dry=yes ;;
    --bin | --spccl | --nccl | --out | --only | --arch | --limit)
      [ $# -ge 2 ] || die "$1 takes a value"
      printf -v "${1#--}" '%s' "$2"
      shift
      ;;
    *) usage >&2 && die "unknown argument: $1" ;;
  esac
  shift
done
[[ "$limit" =~ ^[1-9][0-9]*$ ]] || die "--limit takes seconds, not '$limit'"
all_steps=(build codec bench order ipc memcheck racecheck order-mps ranks-2 ranks-4 ranks-8 nccl)
for name in ${only//,/ }; do
  [[ " ${all_steps[*]} " == *" $name "* ]] || die "unknown step: $name"
done

builds=no
if [ -z "$bin" ]; then builds=yes bin="$out/bin"; fi
if [ -z "$spccl" ]; then
  spccl="$root/build/release/bin"
  if [ -x "$bin/spccl-perf" ]; then spccl="$bin"; fi
fi
mkdir -p "$out" || die "cannot make $out"
out="$(realpath "$out")"
bin="$(realpath -m "$bin")" spccl="$(realpath -m "$spccl")"
if [ -n "$nccl" ]; then nccl="$(realpath -m "$nccl")"; fi

readonly total_seconds=470 kSkipped=77
started="$SECONDS"
passed=0 failed=0 skipped=0

say() { printf '%-4s %-10s %s\n' "$1" "$2" "${3:-}"; }
pass() { say PASS "$1" "${2:-}" && passed=$((passed + 1)); }
fail() { say FAIL "$1" "${2:-}" && failed=$((failed + 1)); }
skip() { say SKIP "$1" "${2:-}" && skipped=$((skipped + 1)); }

# Why there is nothing to run on; empty where there is. SPCCL_CUDA_LIBRARY names another driver.
no_gpu() {
  [ -z "${SPCCL_CUDA_LIBRARY:-}" ] || return 0
  if ! compgen -G '/dev/nvidia[0-9]*' >/dev/null && ! nvidia-smi -L >/dev/null 2>&1; then
    echo "no GPU"
  fi
}
wanted() { [ -z "$only" ] || [[ ",$only," == *",$1,"* ]]; }

# may_run NAME: whether the step is to run now; else it has been told why not.
may_run() {
  wanted "$1" || return 1
  if [ -n "$why_not" ] && [ "$dry" = no ]; then
    skip "$1" "$why_not"
    return 1
  fi
}

# step NAME NEEDED SECONDS COMMAND...: NEEDED yes: on a GPU it may not be skipped.
step() {
  local name="$1" needed="$2" seconds="$3" left status=0 reason
  shift 3
  may_run "$name" || return 0
  if [ "$dry" = yes ]; then
    skip "$name" "would run, $seconds s at most: $*"
    return 0
  fi
  left=$((total_seconds - (SECONDS - started)))
  if [ "$left" -le 0 ]; then
    fail "$name" "no time left"
    return 0
  fi
  [ "$seconds" -le "$left" ] || seconds="$left"
  [ "$seconds" -le "$limit" ] || seconds="$limit"
  local begun="$SECONDS" log="$out/$name.log"
  timeout --kill-after=5 "$seconds" "$@" >"$log" 2>&1 </dev/null || status=$?
  reason="$(tail -n 1 "$log" | cut -c 1-140)"
  case "$status" in
    0) pass "$name" "$((SECONDS - begun)) s: $reason" ;;
    "$kSkipped") if [ "$needed" = yes ]; then
      fail "$name" "was skipped on a machine with a GPU: $reason"
    else
      skip "$name" "$reason"
    fi ;;
    124 | 137) fail "$name" "not done after $seconds s; see $log" ;;
    *) fail "$name" "exit $status: $reason; see $log" ;;
  esac
}

# step_if NAME REASON ...: a step that is skipped where there is a reason to.
step_if() {
  local name="$1" reason="$2"
  shift 2
  if [ -n "$reason" ] && [ "$dry" = no ]; then
    may_run "$name" && skip "$name" "$reason"
    return 0
  fi
  step "$name" no "$@"
}

find_sanitizer() {
  command -v compute-sanitizer || {
    local found
    for found in "${CUDA_HOME:-/usr/local/cuda}"/bin/compute-sanitizer \
      "${CUDA_HOME:-/usr/local/cuda}"/compute-sanitizer/compute-sanitizer; do
      [ ! -x "$found" ] || { echo "$found" && return; }
    done
  }
}

# Why spccl-perf cannot run here; empty if it can.
no_perf() {
  if [ ! -x "$spccl/spccl-perf" ] || [ ! -x "$spccl/spccld" ]; then
    echo "no spccl-perf and spccld in $spccl: see --spccl"
  elif ! "$spccl/spccl-perf" --help >/dev/null 2>&1; then
    echo "the spccl-perf of $spccl does not start here"
  elif ! "$spccl/spccl-perf" --help 2>/dev/null | grep -q -- '--device'; then
    echo "this spccl-perf knows no device buffers"
  fi
}
no_nccl() {
  local reason
  reason="$(no_perf)"
  if [ -n "$reason" ]; then
    echo "$reason"
  elif [ ! -f "$nccl" ]; then
    echo "no NCCL named: see --nccl"
  fi
}
why_not="$(no_gpu)"
if [ "$builds" = yes ]; then
  step build yes 200 bash "$root/tests/gpu/build.sh" "$bin" ${arch:+--arch "$arch"}
fi
if [ -z "$why_not" ] && [ "$dry" = no ] && [ ! -f "$bin/libspccl_device.so" ] &&
  [ -z "${SPCCL_GPU_KERNELS:-}" ]; then
  die "no libspccl_device.so in $bin"
fi
kernels="${SPCCL_GPU_KERNELS:-$bin/libspccl_device.so}"

# shellcheck disable=SC2086  # options, one a word, for slow places
step codec yes 90 "$bin/gpu-codec-suite" "$kernels" ${SPCCL_GPU_CODEC_OPTIONS:-}
step bench yes 110 "$bin/gpu-codec-bench" "$kernels" --json "$out/bench.jsonl"
step order yes 40 "$bin/gpu-order-test"
step ipc yes 30 "$bin/gpu-ipc-test"

# What may be skipped shares what is left.
sanitizer="$(find_sanitizer || true)"
no_sanitizer=''
[ -n "$sanitizer" ] || no_sanitizer="no compute-sanitizer"
for tool in memcheck racecheck; do
  step_if "$tool" "$no_sanitizer" 60 "${sanitizer:-compute-sanitizer}" --tool "$tool" \
    --error-exitcode 1 "$bin/gpu-codec-suite" "$kernels" --thin 100 --large 0
done
no_mps=''
command -v nvidia-cuda-mps-control >/dev/null || no_mps="no nvidia-cuda-mps-control"
step_if order-mps "$no_mps" 60 bash "$root/tests/gpu/with_mps.sh" "$bin/gpu-order-test"
for ranks in 2 4 8; do
  step_if "ranks-$ranks" "$(no_perf)" 45 bash "$root/tests/gpu/ranks.sh" "$spccl" "$kernels" "$ranks"
done
step_if nccl "$(no_nccl)" 60 bash "$root/tests/gpu/nccl.sh" "$spccl" "$kernels" "$nccl" "$out"

if [ "$failed" -gt 0 ]; then
  verdict=FAIL status=1
elif [ "$passed" -gt 0 ]; then
  verdict=PASS status=0
else
  verdict=SKIP status="$kSkipped"
fi
printf '%s: %d passed, %d failed, %d skipped, %d s\n' "$verdict" "$passed" "$failed" "$skipped" \
  "$((SECONDS - started))"
exit "$status"
