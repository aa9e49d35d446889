#!/usr/bin/env bash
# Installs the packages on a bare Debian 12 and runs the example there. See --help.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

usage() {
  cat <<'USAGE'
Usage: tools/try_packages.sh [--mirror URL] [--keep FOLDER]

Builds the packages (cpack), makes a bare Debian 12 with debootstrap, installs the .deb files in it
with nothing but what they depend on, starts the daemon there as its own user, and runs the
classifier and spccl-perf as another. Then unpacks the tar.gz in a folder of its own and runs its
daemon, tool and benchmark from there. Removes the packages at the end and looks at what is left.
Where nvcc is found, in PATH or /usr/local/cuda/bin, the package of the kernels for GPUs is built and
installed too, and the daemon must load them from there, given a driver that runs on the CPU (they
themselves do not run on it); without, that is passed over. Needs the packages of tools/packages.sh
build and test, root, debootstrap and a Debian mirror; changes nothing outside of build/ and a temporary
folder.

  --mirror URL    where Debian comes from (default: the first that apt here uses)
  --keep FOLDER   make or use the bare system in FOLDER, and leave it there; its /packages are made anew
  -h, --help
USAGE
}

die() {
  printf 'try_packages.sh: %s\n' "$*" >&2
  exit 1
}

# Of apt's own sources: either form, the first that ends in "debian".
mirror="$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null | tr ' ' '\n' |
  grep -m 1 -E '^https?://.*debian/?$' || true)"
keep=
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage && exit 0 ;;
    --mirror) mirror="${2:?--mirror takes a URL}" && shift ;;
    --keep) keep="${2:?--keep takes a folder}" && shift ;;
    *) usage >&2 && die "unknown argument: $1" ;;
  esac
  shift
done
[ "$(id -u)" -eq 0 ] || die "needs root, for debootstrap and chroot"
command -v debootstrap >/dev/null || die "debootstrap is missing: apt-get install debootstrap"
[ -n "$mirror" ] || die "no mirror in apt's sources: name one with --mirror"

# shellcheck source=tools/steps.sh
. "$root/tools/steps.sh"
cd "$root"

cuda=OFF
if [ -x "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)" ]; then
  cuda=ON
  export PATH="$PATH:/usr/local/cuda/bin"
else
  printf 'try_packages.sh: there is no nvcc: spccl-device is passed over\n'
fi
step "package configure" cmake --preset package -DSPCCL_WITH_CUDA="$cuda" || die "step package configure failed"
step "package build" cmake --build --preset package -j "$jobs" || die "step package build failed"
rm -rf build/package/packages
step "cpack" cpack --preset package || die "step cpack failed"
files=(build/package/packages/*.deb build/package/packages/*.tar.gz)
if [ "$cuda" = ON ]; then
  # The tests' driver: a tree of its own, for packages are of a build without tests.
  step "driver configure" cmake --preset package -B build/package-driver -DSPCCL_BUILD_TESTS=ON ||
    die "step driver configure failed"
  step "driver build" cmake --build build/package-driver -j "$jobs" --target spccl_fake_cuda ||
    die "step driver build failed"
  files+=(build/package-driver/tests/libspccl_fake_cuda.so)
fi

bare="${keep:-$(mktemp -d "${TMPDIR:-/tmp}/spccl-bare-XXXXXX")}"
cleanup() { [ -n "$keep" ] || rm -rf --one-file-system "$bare"; }
trap cleanup EXIT
mkdir -p "$bare"
chmod 755 "$bare"  # its root folder: ordinary users go through it
if [ ! -x "$bare/bin/sh" ]; then
  step "debootstrap" debootstrap --variant=minbase bookworm "$bare" "$mirror" ||
    die "step debootstrap failed"
fi
rm -rf "$bare/packages"
mkdir "$bare/packages"
cp "${files[@]}" "$bare/packages/"
cp tools/try_packages_inside.sh "$bare/packages/inside.sh"
cp /etc/resolv.conf "$bare/etc/resolv.conf"

# shellcheck disable=SC2016  # the inner shell expands them
# Mounts that end with the processes; the network is this machine's.
step "bare system" unshare --mount --pid --fork --kill-child bash -euc '
  mount -t proc proc "$1/proc"
  mount -t tmpfs tmpfs "$1/run"
  mount --rbind /dev "$1/dev"
  exec chroot "$1" /bin/bash /packages/inside.sh' _ "$bare" || die "step bare system failed"
grep '^bare:' "$log_dir/bare-system.log"
