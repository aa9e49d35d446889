#!/usr/bin/env bash
# From a fresh clone to a result: builds spccl, starts a daemon of its own, trains on it. See --help.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

usage() {
  cat <<'USAGE'
Usage: tools/quickstart.sh [--ranks N] [-- CLASSIFIER-ARGUMENT...]

Installs the packages that a build needs and that are missing (Debian 12 or Ubuntu 24.04, as root or
with sudo; no services among them), builds the release in build/release, starts a private spccld in
a temporary folder and trains the classifier of examples/ on it: N processes (default 4) sum their
gradients through the daemon, with the dense ring, the sparse ring and the local plan in turn. Prints
what each plan took and what was gained. The daemon is stopped at the end; nothing is installed but
packages. Logs are kept in build/logs.

  --ranks N     processes of the job
  -h, --help
USAGE
}

die() {
  printf 'quickstart.sh: %s\n' "$*" >&2
  exit 1
}

ranks=4
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage && exit 0 ;;
    --ranks)
      [[ "${2:-}" =~ ^[1-9][0-9]*$ ]] || die "--ranks takes a number, not '${2:-}'"
      ranks="$2"
      shift
      ;;
    --) shift && break ;;
    *) usage >&2 && die "unknown argument: $1" ;;
  esac
  shift
done

# shellcheck source=tools/steps.sh
. "$root/tools/steps.sh"
cd "$root"

step "packages" tools/packages.sh build || die "step packages failed"
step "release configure" cmake --preset release -DSPCCL_BUILD_TESTS=OFF ||
  die "step release configure failed"
echo "    a few minutes the first time; its output goes to $log_dir/release-build.log"
step "release build" cmake --build --preset release -j "$jobs" \
  --target spccld spcclctl classifier || die "step release build failed"

bin="$root/build/release/bin"
scratch="$(mktemp -d "${TMPDIR:-/tmp}/spccl-XXXXXX")"
daemon=
stop() {
  if [ -n "$daemon" ]; then
    kill -TERM "$daemon" 2>/dev/null || true
    wait "$daemon" 2>/dev/null || true
  fi
  rm -rf "$scratch"
}
trap stop EXIT

export SPCCL_RUNTIME_DIR="$scratch/run"
echo "==> spccld, private, in $SPCCL_RUNTIME_DIR"
mkdir -p "$scratch/run" "$scratch/state"
"$bin/spccld" --runtime-dir "$scratch/run" --state-dir "$scratch/state" \
  >"$log_dir/spccld.log" 2>&1 </dev/null &
daemon=$!
"$bin/spcclctl" wait --ready --timeout 30s || {
  tail -n 20 "$log_dir/spccld.log" >&2
  die "step spccld failed: it is not ready; see $log_dir/spccld.log"
}
"$bin/spcclctl" status

echo "==> classifier, $ranks ranks"
"$bin/classifier" --ranks "$ranks" --runtime-dir "$SPCCL_RUNTIME_DIR" "$@" ||
  die "step classifier failed (exit $?); the daemon's log is $log_dir/spccld.log"
