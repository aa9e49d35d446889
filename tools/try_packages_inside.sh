#!/usr/bin/env bash
# What tools/try_packages.sh runs inside of the bare system: installs, runs, removes.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin
say() { printf 'bare: %s\n' "$*"; }
drop=(--clear-groups --reuid) # of setpriv; the user follows
as() { setpriv "${drop[@]}" "$1" --regid "$1" "${@:2}"; }

# serve USER "DAEMON ARGUMENT..." SPCCLCTL COMMAND...: runs COMMAND while a daemon of USER serves it.
serve() {
  local user="$1" command ctl="$3" daemon status=0
  read -ra command <<<"$2"
  shift 3
  # Not through `as`: a function would leave a shell between, which would get the signal.
  setpriv "${drop[@]}" "$user" --regid "$user" "${command[@]}" >/packages/spccld.log 2>&1 &
  daemon=$!
  "$ctl" wait --ready --timeout 30s || { cat /packages/spccld.log && return 1; }
  "$@" || status=$?
  kill -TERM "$daemon"
  wait "$daemon" || { say "the daemon did not end well" && return 1; }
  return "$status"
}
# found_kernels FILE: the daemon has loaded these kernels for GPUs, and says what they said. There is no
# driver that they could run on: that is how far they get here.
found_kernels() {
  grep -F 'the kernels for GPUs are loaded' /packages/spccld.log | grep -F "library=\"$1\"" &&
    grep 'GPUs are not used.*CUDA driver version is insufficient' /packages/spccld.log && return
  cat /packages/spccld.log
  say "the daemon has not loaded ${1:-any kernels}"
  return 1
}
driver=/packages/libspccl_fake_cuda.so # there if the kernels are
apps=/home/researcher/apps home=/home/researcher
rm -rf "$apps" # of an earlier run (--keep)
measure=(--op all_reduce --ranks 2 --sizes 1M --sparsity 0.99 --check)

apt-get update -qq
apt-get install -y -q --no-install-recommends --reinstall /packages/*.deb
# Not those that others only suggest, which dpkg lists as well.
mapfile -t packages < <(dpkg-query -W -f '${db:Status-Status} ${Package}\n' 'spccl*' 'libspccl*' |
  sed -n 's/^installed //p')
say "installed $(dpkg-query -W -f '${Package} ${Version}, ' "${packages[@]}")"
[ "$(stat -c '%U %a' /run/spccl /var/lib/spccl | tr '\n' ' ')" = "spccl 755 spccl 700 " ]
[ -s /usr/share/bash-completion/completions/spcclctl ] || { say "no completions" && exit 1; }
id researcher >/dev/null 2>&1 || useradd --create-home researcher

installed() {
  as researcher spcclctl status
  as researcher /usr/libexec/spccl/classifier --ranks 2 --epochs 1 --runtime-dir /run/spccl | tail -n 20
  as researcher spccl-perf "${measure[@]}" --socket /run/spccl/session.sock
}
serve spccl /usr/sbin/spccld spcclctl installed
say "the daemon served the classifier and spccl-perf"
if [ -e $driver ]; then
  kernels="$(dpkg-query -L spccl-device | grep '/libspccl_device\.so$')"
  serve spccl "/usr/sbin/spccld --gpu-driver=$driver" spcclctl found_kernels "$kernels"
  say "the daemon loads the kernels of spccl-device, $kernels"
else
  say "spccl-device was not built: passed over"
fi

# The archive, somewhere else, with the packages gone.
apt-get purge -y -q "${packages[@]}" >/dev/null
left="$(find / -xdev \( -path /proc -o -path /packages -o -path /usr/share/doc \) -prune -o \
  -name '*spccl*' -print)"
[ -z "$left" ] || { say "left after purge: $left" && exit 1; }
say "purged; nothing is left"
mkdir -p "$apps" "$home/run" "$home/state"
tar -xzf /packages/*.tar.gz -C "$apps" --strip-components=1
chown -R researcher: "$home"
unpacked() { as researcher "$apps/bin/spccl-perf" "${measure[@]}" --socket "$home/run/session.sock"; }
export SPCCL_RUNTIME_DIR="$home/run"
serve researcher "$apps/sbin/spccld --runtime-dir $home/run --state-dir $home/state" \
  "$apps/bin/spcclctl" unpacked
say "the archive runs from $apps"
if [ -e $driver ]; then
  kernels="$(find "$apps" -name libspccl_device.so)"
  serve researcher "$apps/sbin/spccld --gpu-driver=$driver --runtime-dir $home/run --state-dir $home/state" \
    "$apps/bin/spcclctl" found_kernels "$kernels"
  say "the archive's daemon loads $kernels"
fi
