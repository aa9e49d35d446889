#!/usr/bin/env bash
# Measures the UCX transport between two hosts of a lab (tools/netlab.sh) against iperf3 on the same
# link, in turn. As root, from the project's root, with fabric_bench built (preset release).
#
# Usage: tests/collective/transport/ucx/bench.sh [RATE...]     (default: 1gbit 10gbit none)
set -euo pipefail
readonly bench=build/release/bin/fabric_bench lab=(tools/netlab.sh --lab fabric-bench)
[ -x $bench ] || { echo "build it first: cmake --build --preset release --target fabric_bench" >&2; exit 1; }

# What else runs on the machine must not be what is measured.
on() { local host=$1; shift; "${lab[@]}" exec "$host" nice -n -15 timeout 60 "$@"; }

measure() {
  on 2 $bench serve 7200 2>/dev/null &
  sleep 0.3
  on 1 $bench connect "$("${lab[@]}" addr 2)" 7200 --ms 700 "$@" 2>/dev/null
  wait $!
}

trap '"${lab[@]}" down' EXIT
[ $# -gt 0 ] || set -- 1gbit 10gbit none
for rate in "$@"; do
  "${lab[@]}" down
  "${lab[@]}" up 2 "$rate"
  for repeat in 1 2 3; do
    on 2 iperf3 -s -1 -D
    sleep 0.3
    printf '%s %s iperf3 ' "$rate" "$repeat"
    on 1 iperf3 -c "$("${lab[@]}" addr 2)" -t 1 -f g | awk '/receiver/ { print "gbps", $7 }'
    for setup in "--frame 65536" "--frame 262144" "--frame 1048576" "--frame 262144 --workers 1" \
      "--frame 262144 --rendezvous 1"; do
      printf '%s %s %s: ' "$rate" "$repeat" "$setup"
      # shellcheck disable=SC2086  # words
      measure $setup
    done
  done
done
