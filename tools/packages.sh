#!/usr/bin/env bash
# Installs the Debian packages that the project needs and that are missing. See --help.
set -euo pipefail

# One package a line. `a|b` are names of the same thing in different releases: any one that is
# installed will do; if none is, the first that this release knows is installed.
packages_of() {
  case "$1" in
    build)
      cat <<'LIST'
build-essential
ccache
cmake
libabsl-dev
libarchive-dev
libboost1.81-dev|libboost1.83-dev|libboost-dev
libcli11-dev
libgrpc++-dev
libhwloc-dev
libmunge-dev
libprotobuf-dev
libssl-dev
libsvm-dev
libsystemd-dev
libtomlplusplus-dev
libucx-dev
ninja-build
nlohmann-json3-dev
pkg-config|pkgconf
protobuf-compiler
protobuf-compiler-grpc
python3
zlib1g-dev
LIST
      ;;
    test)
      cat <<'LIST'
iproute2
libboost-context1.81-dev|libboost-context1.83-dev|libboost-context-dev
libgmock-dev
libgtest-dev
lld
munge
nftables
procps
prometheus
python3
shellcheck
slurm-client
slurmctld
slurmd
systemd
LIST
      ;;
    bench)
      cat <<'LIST'
gnuplot-nox
iperf3
libgloo-dev
libopenmpi-dev
openmpi-bin
LIST
      ;;
    lint)
      cat <<'LIST'
clang-format-14
clang-tidy-19|clang-tidy-18|clang-tidy-16
LIST
      ;;
    sanitize)
      cat <<'LIST'
clang-16
libclang-rt-16-dev
llvm-16
LIST
      ;;
    *) return 1 ;;
  esac
}

readonly groups="build test bench lint sanitize"

usage() {
  cat <<USAGE
Usage: tools/packages.sh [--check | --list] [GROUP...]

Installs, with apt-get, what is missing of the packages of each GROUP (default: all groups).
Does nothing, and needs no network, when all are there. Needs Debian 12 or Ubuntu 24.04, and root
or sudo if something has to be installed.

Groups:
  build     what the daemon, the library and the tools are built with
  test      what the tests need besides
  bench     Open MPI, gloo and iperf3, which the comparisons measure against; gnuplot
  lint      clang-format and clang-tidy
  sanitize  clang with its sanitizers and libFuzzer

  --check   install nothing; print what is missing and exit 1 if anything is
  --list    print every package name (alternatives as a|b) and exit
  -h, --help
USAGE
}

fail() {
  printf 'packages: %s\n' "$*" >&2
  exit 1
}

# Prints the lines (alternatives) of the wanted groups of which no name is installed.
missing_of() {
  local installed line name found
  installed=" $(dpkg-query -W -f='${db:Status-Status} ${Package}\n' | sed -n 's/^installed //p' |
    tr '\n' ' ') "
  for line in "$@"; do
    found=no
    for name in ${line//|/ }; do
      case "$installed" in *" $name "*) found=yes ;; esac
    done
    if [ "$found" = no ]; then printf '%s\n' "$line"; fi
  done
}

# Prints the first of the alternatives that the package lists know.
choose() {
  local name policy
  for name in ${1//|/ }; do
    # Not through a pipe: a grep that stops reading early would fail apt-cache, and with it the test.
    policy="$(apt-cache policy "$name" 2>/dev/null)" || true
    if grep -q '^  Candidate: [^(]' <<<"$policy"; then
      printf '%s\n' "$name"
      return
    fi
  done
  fail "this release has no package named ${1//|/ or }"
}

main() {
  local mode=install wanted=() missing=() chosen=() as_root=() group line
  while [ $# -gt 0 ]; do
    case "$1" in
      -h | --help) usage && exit 0 ;;
      --check) mode=check ;;
      --list) mode=list ;;
      -*) usage >&2 && fail "unknown option: $1" ;;
      *) wanted+=("$1") ;;
    esac
    shift
  done
  # shellcheck disable=SC2206  # a list of words
  [ ${#wanted[@]} -gt 0 ] || wanted=($groups)
  local lines=()
  for group in "${wanted[@]}"; do
    packages_of "$group" >/dev/null || fail "unknown group: $group (known: $groups)"
    mapfile -t -O "${#lines[@]}" lines < <(packages_of "$group")
  done
  if [ "$mode" = list ]; then
    printf '%s\n' "${lines[@]}"
    exit 0
  fi

  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    fail "this is not Debian or Ubuntu (no apt-get). Install the equivalents of: ${lines[*]}"
  fi
  mapfile -t missing < <(missing_of "${lines[@]}")
  if [ ${#missing[@]} -eq 0 ]; then
    printf 'packages: all %d of %s are installed\n' "${#lines[@]}" "${wanted[*]}"
    exit 0
  fi
  printf 'packages: missing: %s\n' "${missing[*]}"
  [ "$mode" = install ] || exit 1

  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || fail "run this as root, or install: ${missing[*]}"
    as_root=(sudo)
  fi
  printf 'packages: apt-get update\n'
  "${as_root[@]}" apt-get update -qq </dev/null ||
    printf 'packages: apt-get update failed; going on with the package lists there are\n' >&2
  for line in "${missing[@]}"; do
    chosen+=("$(choose "$line")") || exit 1
  done
  printf 'packages: apt-get install %s\n' "${chosen[*]}"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q \
    --no-install-recommends -o DPkg::Lock::Timeout=120 "${chosen[@]}" </dev/null ||
    fail "apt-get could not install: ${chosen[*]}"
  mapfile -t missing < <(missing_of "${lines[@]}")
  [ ${#missing[@]} -eq 0 ] || fail "still missing after the installation: ${missing[*]}"
  printf 'packages: done\n'
}

main "$@"
