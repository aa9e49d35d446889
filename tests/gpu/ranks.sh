#!/usr/bin/env bash
# Several ranks on the first GPU through daemons of their own, every result checked:
#
#   tests/gpu/ranks.sh DIR KERNELS RANKS [spccl-perf's options...]
#
# DIR has spccl-perf and spccld, KERNELS is libspccl_device.so. Ranks on one GPU send no frames by default: rings
# do, with pici, coo and gap. Of two ranks also calls in CUDA graphs that are replayed, and memory that is copied
# through the host. Ends with 0 if all is right and the daemon worked on the GPU's memory itself, but for what
# was to be copied.
set -euo pipefail
if [ $# -lt 3 ]; then
  echo "ranks.sh: usage: tests/gpu/ranks.sh DIR KERNELS RANKS [spccl-perf's options...]" >&2
  exit 2
fi
dir="$1" kernels="$2" ranks="$3"
shift 3
export CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES-0}"
count=0 kinds=''
perf() {
  "$dir/spccl-perf" --device cuda:0 --ranks "$ranks" --iters 3 --warmup 1 --check \
    "--daemon-arg=--gpu-kernels=$kernels" "$@"
}
check() {
  perf --handed-over "$@"
  count=$((count + 1))
}
# The same, and what it prints is in $said.
said=''
listen() {
  local status=0
  said="$(perf "$@")" || status="$?"
  printf '%s\n' "$said"
  [ "$status" -eq 0 ] || exit "$status"
  count=$((count + 1))
}
# must_say TEXT ELSE: what is wrong where it did not.
must_say() {
  [[ "$said" != *"$1"* ]] || return 0
  echo "results are right, but $2"
  exit 1
}
check_copied() {
  SPCCL_FORCE_STAGING=1 listen "$@"
  must_say '# memory: staged through the host' "the memory was not copied through the host"
}
for sparsity in 0 0.9 0.999; do
  check --op all_reduce --sizes "4K,16M" --sparsity "$sparsity" "$@"
done
check --op all_reduce --sizes "4K,16M" --sparsity 0.99 --dtype bfloat16 "$@"
check --op all_reduce --sizes "1M" --sparsity 0.99 --redop max --dtype int32 "$@"
check --op reduce_scatter --sizes "16M" --sparsity 0.99 "$@"
check --op all_gather --sizes "16M" --sparsity 0.99 "$@"
formats=(pici coo gap)
listen --handed-over --op all_reduce --sizes "4K,1M" --sparsity 0.99 --algo ring \
  "${formats[@]/#/--settings=codec=}" "$@"
for format in "${formats[@]}"; do must_say " $format:" "no frame was sent as $format"; done
if [ "$ranks" -eq 2 ]; then
  check --op all_reduce --sizes "4K,16M" --sparsity 0.99 --captured "$@"
  check_copied --op all_reduce --sizes "4K,16M" --sparsity 0.99 "$@"
  check_copied --op all_reduce --sizes "4K,16M" --sparsity 0.99 --captured "$@"
  kinds=', 2 captured, 2 of copied memory'
fi
echo "$ranks ranks: $count runs (1 by rings of frames$kinds), all results right"
