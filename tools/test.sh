#!/usr/bin/env bash
# Builds the project and runs its tests. See --help.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

usage() {
  cat <<'USAGE'
Usage: tools/test.sh [--preset dev|release|asan|tsan|all] [--threads-only] [--fuzz-seconds N]

Installs the missing packages (Debian 12 or Ubuntu 24.04, as root or with sudo), builds and runs the
whole test suite. Logs are kept in build/logs; the exit status is 0 when everything passed.

  --preset NAME       which build to test (default: dev); all: each in turn
  --threads-only      with tsan: build and run only the tests whose code starts threads or processes
  --fuzz-seconds N    with asan: how long each fuzzer runs (default: 5)
  -h, --help
USAGE
}

die() {
  printf 'test.sh: %s\n' "$*" >&2
  exit 1
}

presets=(dev)
fuzz_seconds=5
threads_only=OFF
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage && exit 0 ;;
    --preset)
      case "${2:-}" in
        dev | release | asan | tsan) presets=("$2") ;;
        all) presets=(dev release asan tsan) ;;
        *) die "--preset takes dev, release, asan, tsan or all, not '${2:-}'" ;;
      esac
      shift
      ;;
    --threads-only) threads_only=ON ;;
    --fuzz-seconds)
      [[ "${2:-}" =~ ^[0-9]+$ ]] || die "--fuzz-seconds takes a number, not '${2:-}'"
      fuzz_seconds="$2"
      shift
      ;;
    *) usage >&2 && die "unknown argument: $1" ;;
  esac
  shift
done

# shellcheck source=tools/steps.sh
. "$root/tools/steps.sh"
cd "$root"

# Tests of the batch system's scripts (label slurm) are left out under ThreadSanitizer: the scripts clear
# the environment, and with it the suppressions. The same scripts run under AddressSanitizer.
# ThreadSanitizer needs its part of the address space free; some kernels randomise too much of it.
run_ctest() {
  local runner=()
  if [ "$1" = tsan ] && setarch "$(uname -m)" -R true 2>/dev/null; then
    runner=(setarch "$(uname -m)" -R)
  fi
  # Twice as many as there are cores: many tests mostly wait, for a peer to be found dead, say.
  "${runner[@]}" ctest --preset "$1" -j "$((2 * jobs))"
}

failures=0
groups=(build test bench)
case " ${presets[*]} " in *san*) groups+=(sanitize) ;; esac
step "packages" "$root/tools/packages.sh" "${groups[@]}" || exit 1

for preset in "${presets[@]}"; do
  options=(-DSPCCL_BUILD_TESTS=ON)
  case "$preset" in
    asan) options+=(-DSPCCL_FUZZ_SECONDS="$fuzz_seconds") ;;
    tsan) options+=(-DSPCCL_TEST_THREADS_ONLY="$threads_only") ;;
  esac
  step "$preset configure" cmake --preset "$preset" "${options[@]}" &&
    step "$preset build" cmake --build --preset "$preset" -j "$jobs" &&
    step "$preset test" run_ctest "$preset" || failures=$((failures + 1))
done

if [ "$owns_steps" = yes ]; then steps_summary || true; fi
[ "$failures" -eq 0 ]
