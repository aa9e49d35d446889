#!/usr/bin/env bash
# Hosts on one machine: network namespaces on a shaped switch. See --help.
#
# A lab of N hosts is N + 1 namespaces: spccl-LAB-switch holds a bridge with one port a host,
# spccl-LAB-I holds host I's eth0. Nothing is made in the namespace of the caller, and so nothing
# there can be hurt or left behind. What a lab consists of is written to the state folder before it
# is made; `down` removes what is written there and nothing else.
set -euo pipefail

readonly state_root=/run/spccl-netlab
readonly most_hosts=200

usage() {
  cat <<USAGE
Usage: tools/netlab.sh [--lab NAME] COMMAND

Makes hosts out of network namespaces and connects them by a switch with shaped links. Needs root,
ip and tc (iproute2); loss needs nft (nftables). Labs of different names do not see each other.

Commands:
  up N RATE       N hosts (1 to $most_hosts), each with a link of RATE in each direction: 1gbit, 10gbit, any
                  other number of kbit, mbit or gbit, or none (as fast as the machine)
  exec I CMD...   runs CMD on host I (1 to N) and exits with its exit code
  addr I          prints the address of host I (the lab's own: 10.77.0.I, on eth0)
  loss I PERCENT  loses this share of the packets from and to host I; fractions are fine, 0 ends it
                  (a packet is what the sender hands to the link: up to 64 KiB of a TCP stream)
  cut I           unplugs host I: what it and others send each other is lost, nobody is told
  join I          plugs host I in again
  list            prints the labs that are up: name, hosts, rate
  down            ends every process on the lab's hosts, removes the lab; fine if there is none

Options:
  --lab NAME      which lab (default: main); up to 20 letters, digits and -
  -h, --help
USAGE
}

fail() {
  printf 'netlab: %s\n' "$*" >&2
  exit 1
}

wrong_use() {
  printf 'netlab: %s (see --help)\n' "$*" >&2
  exit 2
}

need_root() {
  [ "$(id -u)" -eq 0 ] || fail "network namespaces need root; run this with sudo"
}

need_tools() {
  local tool
  for tool in "$@"; do
    command -v "$tool" >/dev/null || fail "$tool is missing: apt-get install iproute2 nftables"
  done
}

# The namespace of host $1, or of the switch.
namespace_of() { printf 'spccl-%s-%s' "$lab" "$1"; }

address_of() { printf '10.77.0.%d' "$1"; }

# Every command but exec changes or reads the lab as a whole: one at a time.
lock_lab() {
  mkdir -p "$state_root"
  exec 9>"$state_root/.lock"
  flock -w 60 9 || fail "another netlab.sh has held $state_root/.lock for a minute"
}

read_lab() {
  [ -f "$state/hosts" ] || fail "lab $lab is not up"
  hosts=$(<"$state/hosts")
}

check_host() {
  read_lab
  if ! [[ $1 =~ ^[1-9][0-9]{0,2}$ ]] || [ "$1" -gt "$hosts" ]; then
    wrong_use "lab $lab has hosts 1 to $hosts, not '$1'"
  fi
}

add_namespace() {
  local name control
  name=$(namespace_of "$1")
  [ ! -e "/run/netns/$name" ] || fail "there is a namespace $name already that is not this lab's"
  printf '%s\n' "$name" >>"$state/namespaces"
  ip netns add "$name"
  # Nobody waits for addresses that are not used.
  ip netns exec "$name" sysctl -q -w net.ipv6.conf.all.disable_ipv6=1 2>/dev/null || true
  # What clusters' hosts use, whatever this machine prefers: bbr goes by the rate that it sees, and hosts
  # that share a machine's cores show it many. A namespace may take only what the machine allows it.
  for control in cubic reno; do
    ip netns exec "$name" sysctl -q -w net.ipv4.tcp_congestion_control="$control" 2>/dev/null && break
  done
  ip -n "$name" link set lo up
}

# Shapes what namespace $1 sends through interface $2.
shape() {
  local burst=256kb latency=20ms
  case "$rate" in
    none) return 0 ;;
    *gbit) if [ "${rate%%[.g]*}" -ge 2 ]; then burst=1mb latency=10ms; fi ;;
  esac
  tc -n "$1" qdisc add dev "$2" root tbf rate "$rate" burst "$burst" latency "$latency"
}

add_host() {
  local host switch=$2
  host=$(namespace_of "$1")
  add_namespace "$1"
  ip -n "$switch" link add "port$1" type veth peer name eth0 netns "$host"
  ip -n "$switch" link set "port$1" master br0 up
  ip -n "$host" addr add "$(address_of "$1")/16" dev eth0
  ip -n "$host" link set eth0 up
  shape "$host" eth0         # what the host sends
  shape "$switch" "port$1"   # what it receives
}

up() {
  local i switch
  hosts=$1 rate=$2
  if ! [[ $hosts =~ ^[1-9][0-9]{0,2}$ ]] || [ "$hosts" -gt $most_hosts ]; then
    wrong_use "a lab has 1 to $most_hosts hosts, not '$hosts'"
  fi
  [[ $rate =~ ^([1-9][0-9]*(\.[0-9]+)?[kmg]bit|none)$ ]] ||
    wrong_use "'$rate' is no rate: none, or a number of kbit, mbit or gbit, such as 1gbit"
  [ ! -e "$state" ] || fail "lab $lab is up already (or was left half made): netlab.sh --lab $lab down"
  mkdir -p "$state"
  trap 'take_down; fail "could not make lab $lab; what there was of it is removed"' EXIT
  add_namespace switch
  switch=$(namespace_of switch)
  ip -n "$switch" link add br0 type bridge
  ip -n "$switch" link set br0 up
  for ((i = 1; i <= hosts; ++i)); do add_host "$i" "$switch"; done
  printf '%s\n' "$rate" >"$state/rate"
  printf '%s\n' "$hosts" >"$state/hosts"
  trap - EXIT
}

# One table a host in the switch, so that what is lost is lost on the wire: the sender's stack
# believes it sent, as with a real link.
loss() {
  local switch parts port="port$1" some=
  [[ $2 =~ ^[0-9]{1,3}(\.[0-9]{1,4})?$ ]] || wrong_use "'$2' is no percentage"
  parts=$(awk -v p="$2" 'BEGIN { printf "%d", p * 10000 + 0.5 }')
  [ "$parts" -le 1000000 ] || wrong_use "'$2' is more than 100 percent"
  switch=$(namespace_of switch)
  {
    printf 'table bridge loss%s\ndelete table bridge loss%s\n' "$1" "$1"  # gone, if there was one
    if [ "$parts" -lt 1000000 ]; then some="numgen random mod 1000000 < $parts"; fi
    if [ "$parts" -gt 0 ]; then
      cat <<RULES
table bridge loss$1 {
  chain forward {
    type filter hook forward priority 0;
    iifname "$port" $some counter drop
    oifname "$port" $some counter drop
  }
}
RULES
    fi
  } | ip netns exec "$switch" nft -f -
}

set_port() { ip -n "$(namespace_of switch)" link set "port$1" "$2"; }

# Ends what runs in namespace $1, but for this script and what it runs in.
end_processes() {
  local pid attempt signal=TERM
  for attempt in $(seq 50); do
    local left=()
    for pid in $(ip netns pids "$1" 2>/dev/null); do
      if [ "$pid" -ne $$ ] && [ "$pid" -ne "$PPID" ]; then left+=("$pid"); fi
    done
    [ ${#left[@]} -gt 0 ] || return 0
    if [ "$attempt" -ge 10 ]; then signal=KILL; fi
    kill -s "$signal" "${left[@]}" 2>/dev/null || true
    kill -s CONT "${left[@]}" 2>/dev/null || true
    sleep 0.1
  done
  printf 'netlab: processes in %s do not end: %s\n' "$1" "${left[*]}" >&2
}

take_down() {
  local name
  [ -e "$state" ] || return 0
  if [ -f "$state/namespaces" ]; then
    while read -r name; do
      [ -e "/run/netns/$name" ] || continue
      end_processes "$name"
      # Processes that outlive their namespace's name would keep the links alive.
      if [ "$name" = "$(namespace_of switch)" ]; then ip -n "$name" link del br0 2>/dev/null || true; fi
      ip -n "$name" link del eth0 2>/dev/null || true
      ip netns del "$name"
    done <"$state/namespaces"
  fi
  rm -rf "$state"
}

list() {
  local one
  for one in "$state_root"/*/hosts; do
    [ -f "$one" ] || continue
    one=${one%/hosts}
    printf '%s %s %s\n' "${one##*/}" "$(<"$one/hosts")" "$(<"$one/rate")"
  done
}

main() {
  lab=main
  while [ $# -gt 0 ]; do
    case "$1" in
      -h | --help) usage && exit 0 ;;
      --lab) [ $# -ge 2 ] || wrong_use "--lab needs a name"; lab=$2 && shift 2 ;;
      --lab=*) lab=${1#--lab=} && shift ;;
      -*) wrong_use "unknown option $1" ;;
      *) break ;;
    esac
  done
  [[ $lab =~ ^[A-Za-z0-9][A-Za-z0-9-]{0,19}$ ]] || wrong_use "'$lab' is no name for a lab"
  state=$state_root/$lab
  local command=${1:-}
  [ $# -eq 0 ] || shift
  case "$command:$#" in
    up:2 | addr:1 | loss:2 | cut:1 | join:1 | list:0 | down:0) ;;
    exec:*) [ $# -ge 2 ] || wrong_use "exec needs a host and a command" ;;
    :*) usage >&2 && exit 2 ;;
    up:* | addr:* | loss:* | cut:* | join:* | list:* | down:*)
      wrong_use "$command does not take $# arguments" ;;
    *) wrong_use "unknown command $command" ;;
  esac
  need_root
  need_tools ip tc flock awk
  case "$command" in
    exec) check_host "$1" ;;
    addr) check_host "$1" ;;
    list) ;;
    *) lock_lab ;;
  esac
  case "$command" in
    up) up "$1" "$2" ;;
    exec)
      local host=$1
      shift
      exec ip netns exec "$(namespace_of "$host")" "$@"
      ;;
    addr) printf '%s\n' "$(address_of "$1")" ;;
    loss) need_tools nft && check_host "$1" && loss "$1" "$2" ;;
    cut) check_host "$1" && set_port "$1" down ;;
    join) check_host "$1" && set_port "$1" up ;;
    list) list ;;
    down) take_down ;;
  esac
}

main "$@"
