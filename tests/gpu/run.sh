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
  ranks-2 -4 -8  so many ranks on one GPU through spccld, none staged, also by rings of frames, against a plain
               reference; of 2 also calls in CUDA graphs that are replayed, and memory copied through the host
  nccl         two spccld on one GPU through NCCL 2.30 or later
  order-mps    order with both processes in one MPS server
  memcheck     a part of codec under compute-sanitizer, where there is one
  racecheck    and its search for races in shared memory

Each says PASS, FAIL or SKIP and why. The last line is the verdict, and so is the exit status:

  0   PASS: all of it ran and passed (with --only: "PASS of A,B alone")
  3   PASS, but skipped: nothing failed, and what is named there did not run, or not in full, or was not judged
  1   FAIL: names the steps that failed; after a failed build nothing else runs
  77  SKIP: nothing ran, as where there is no GPU
  2   no verdict: an argument is wrong

On a machine with a GPU, codec, bench, order and ipc may not be skipped: they come first, and their limits,
with the build's, are no more than what all have, so that none of them ever finds no time left. The others
begin while they have the whole of their limits left. bench fails by its targets on an H100 alone: on another
card these are not judged.

  --bin DIR      what tests/gpu/build.sh has built, maybe elsewhere
  --spccl DIR    of spccld and spccl-perf, for ranks-2, -4, -8 and nccl (default: --bin, else build/release/bin);
                 where it is the bin of a build with SPCCL_WITH_CUDA, they take that build's kernels
  --nccl FILE    libnccl.so.2 of NCCL 2.30 or later (default: SPCCL_GPU_NCCL; PyPI: nvidia-nccl-cu13)
  --out DIR      for logs and bench.jsonl (default: build/gpu)
  --only A,B     these steps only
  --arch ARCH    of build.sh
  --limit S      no step may take longer than S seconds
  --total S      all of them may take S seconds (default: 470)
  --dry-run      says what would run (RUN), what would not here (SKIP) and what lacks its program (FAIL), runs none
                 of it, ends with 0
  -h, --help

SPCCL_CUDA_LIBRARY names a CUDA driver where it is not libcuda.so.1, SPCCL_GPU_KERNELS other kernels than
these, for all steps, SPCCL_GPU_CODEC_OPTIONS options of gpu-codec-suite, for slow places; then codec
does not count as run in full.
USAGE
}

die() {
  printf 'run.sh: %s\n' "$*" >&2
  exit 2
}

bin='' spccl='' nccl="${SPCCL_GPU_NCCL:-}" out="$root/build/gpu" only='' arch='' limit=470 total=470 dry=no
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage && exit 0 ;;
    --dry-run) dry=yes ;;
    --bin | --spccl | --nccl | --out | --only | --arch | --limit | --total)
      [ -n "${2:-}" ] || die "$1 takes a value"
      printf -v "${1#--}" '%s' "$2"
      shift
      ;;
    *) die "unknown argument: $1; see --help" ;;
  esac
  shift
done
for name in limit total; do
  [[ "${!name}" =~ ^[1-9][0-9]{0,5}$ ]] || die "--$name takes seconds, 1 to 999999, not '${!name}'"
done
all_steps=(build codec bench order ipc ranks-2 ranks-4 ranks-8 nccl order-mps memcheck racecheck)
IFS=, read -ra only_steps <<<"$only"
for name in "${only_steps[@]}"; do
  [[ " ${all_steps[*]} " == *" $name "* && "$name" != *' '* ]] ||
    die "unknown step: '$name'; there are ${all_steps[*]}"
done
if [ -n "$bin" ] && [[ ",$only," == *,build,* ]]; then die "--only names build, and with --bin nothing is built"; fi
if [ -n "$bin" ] && [ ! -d "$bin" ]; then die "no folder at $bin: see --bin"; fi
if [ -n "$spccl" ] && [ ! -d "$spccl" ]; then die "no folder at $spccl: see --spccl"; fi
if [ -n "$nccl" ] && [ ! -f "$nccl" ]; then die "no NCCL at $nccl: see --nccl, SPCCL_GPU_NCCL"; fi

builds=no
if [ -z "$bin" ]; then builds=yes bin="$out/bin"; fi
if [ -z "$spccl" ]; then
  spccl="$root/build/release/bin"
  if [ -x "$bin/spccl-perf" ]; then spccl="$bin"; fi
fi
if [ "$dry" = no ]; then mkdir -p "$out" || die "cannot make $out"; fi
out="$(realpath -m "$out")"
bin="$(realpath -m "$bin")" spccl="$(realpath -m "$spccl")"
if [ -n "$nccl" ]; then nccl="$(realpath -m "$nccl")"; fi

readonly kIncomplete=3 kSkipped=77
started="$SECONDS"
passed=0 skipped=0 failed=() # names
absent=() reasons=()         # what did not run, or not in full, and why

say() { printf '%-4s %-10s %s\n' "$1" "$2" "${3:-}"; }
# Counted first: also where nothing can be printed.
pass() { passed=$((passed + 1)) && say PASS "$1" "$2"; }
fail() { failed+=("$1") && say FAIL "$1" "$2"; }
lacks() { absent+=("$1") && reasons+=("$2"); }
skip() { skipped=$((skipped + 1)) && lacks "$1" "$2" && say SKIP "$1" "$2"; }

# "ranks-2, ranks-4 (no spccld), nccl (no NCCL)": what has one reason, together.
absent_in_words() {
  local i words=''
  for i in "${!absent[@]}"; do
    words+="${words:+, }${absent[i]}"
    [ "${reasons[i]}" = "${reasons[i + 1]:-}" ] || words+="${reasons[i]:+ (${reasons[i]})}"
  done
  printf '%s' "$words"
}

# Why there is nothing to run on; empty where there is. SPCCL_CUDA_LIBRARY names another driver.
no_gpu() {
  [ -z "${SPCCL_CUDA_LIBRARY:-}" ] || return 0
  if ! compgen -G '/dev/nvidia[0-9]*' >/dev/null && ! nvidia-smi -L >/dev/null 2>&1; then
    echo "no GPU"
  fi
}
wanted() { [ -z "$only" ] || [[ ",$only," == *",$1,"* ]]; }

# Of a dry run, which of a command's programs is not there: to run it fails.
no_program() {
  local word
  [ "$will_build" = no ] || return 0
  for word in "$@"; do
    if [[ "$word" == "$bin"/gpu-* && ! -x "$word" ]]; then echo "no ${word##*/} in $bin" && return; fi
  done
}

# plan NAME SECONDS REASON COMMAND...: of a dry run.
plan() {
  local name="$1" what="$2 s at most: ${*:4}" lacking
  lacking="$(no_program "${@:4}")"
  if [ -n "$3" ]; then
    skipped=$((skipped + 1)) && say SKIP "$name" "$3; else $what"
  elif [ -n "$lacking" ]; then
    fail "$name" "would fail: $lacking; else $what"
  else
    passed=$((passed + 1)) && say RUN "$name" "$what"
  fi
}

# Programs print "skipped: WHAT (WHY)" for a part that they cannot run.
take_what_it_skipped() {
  local what
  while read -r what; do
    lacks "$1: $what" ""
  done < <(sed -n 's/^skipped: //p' "$2" | sort -u)
}

# run_step NAME NEEDED SECONDS COMMAND...
run_step() {
  local name="$1" needed="$2" seconds="$3" status=0 reason
  shift 3
  local begun="$SECONDS" log="$out/$name.log"
  timeout --kill-after=5 "$seconds" "$@" >"$log" 2>&1 </dev/null || status=$?
  reason="$(tail -n 1 "$log" | cut -c 1-140)"
  case "$status" in
    0)
      take_what_it_skipped "$name" "$log"
      pass "$name" "$((SECONDS - begun)) s: $reason"
      ;;
    "$kSkipped") if [ "$needed" = yes ]; then
      fail "$name" "was skipped on a machine with a GPU: $reason"
    else
      skip "$name" "$reason"
    fi ;;
    124 | 137) if [ $((SECONDS - begun)) -ge "$seconds" ]; then
      fail "$name" "not done after $seconds s; see $log"
    else
      fail "$name" "killed after $((SECONDS - begun)) s (memory?): $reason; see $log"
    fi ;;
    *) fail "$name" "exit $status: $reason; see $log" ;;
  esac
}

# step_if NAME REASON NEEDED SECONDS COMMAND...: a step that is skipped where there is a reason to.
# NEEDED yes: on a GPU it may not be skipped, and takes what time there is.
step_if() {
  local name="$1" reason="${why_not:-$2}" needed="$3" seconds="$4" left
  shift 4
  wanted "$name" || return 0
  [ "$seconds" -le "$limit" ] || seconds="$limit"
  if [ "$dry" = yes ]; then
    plan "$name" "$seconds" "$reason" "$@"
    return 0
  fi
  left=$((total - (SECONDS - started)))
  if [ -n "$reason" ]; then
    skip "$name" "$reason"
  elif [ "$needed" = no ] && [ "$left" -lt "$seconds" ]; then
    skip "$name" "too little of $total s is left for its $seconds s"
  elif [ "$left" -le 0 ]; then
    fail "$name" "no time left"
  else
    run_step "$name" "$needed" "$((seconds < left ? seconds : left))" "$@"
  fi
}
step() { step_if "$1" "" "${@:2}"; }

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
find_no_perf() {
  local help
  if [ ! -x "$spccl/spccl-perf" ] || [ ! -x "$spccl/spccld" ]; then
    echo "no spccl-perf and spccld in $spccl: see --spccl"
  elif ! help="$(timeout 10 "$spccl/spccl-perf" --help 2>/dev/null)"; then
    echo "the spccl-perf of $spccl does not start here"
  elif [[ "$help" != *--device* ]]; then
    echo "this spccl-perf knows no device buffers"
  fi
}
why_not="$(no_gpu)"
will_build=no # in a dry run
if [ "$dry" = yes ] && [ "$builds" = yes ] && wanted build; then will_build=yes; fi
if [ "$builds" = yes ]; then
  step build yes 200 bash "$root/tests/gpu/build.sh" "$bin" ${arch:+--arch "$arch"}
  # What an earlier build has left is not what is to be proved.
  if [ "${#failed[@]}" -gt 0 ]; then why_not="the build failed"; fi
fi
kernels="${SPCCL_GPU_KERNELS:-$bin/libspccl_device.so}"
# A build is tried with the kernels that it packs.
perf_kernels="$(dirname "$spccl")/kernels/launch/libspccl_device.so"
if [ -n "${SPCCL_GPU_KERNELS:-}" ] || [ ! -f "$perf_kernels" ]; then perf_kernels="$kernels"; fi
no_kernels='' # for the steps that take them
if [ -z "$why_not" ] && [ "$will_build" = no ] && [ -z "${SPCCL_GPU_KERNELS:-}" ] &&
  [ ! -f "$kernels" ]; then
  no_kernels="no libspccl_device.so in $bin"
  for name in codec bench ranks-2 ranks-4 ranks-8 nccl memcheck racecheck; do
    if [[ "$name" =~ ^(ranks|nccl) && "$perf_kernels" != "$kernels" ]]; then continue; fi
    wanted "$name" || continue
    would=''
    [ "$dry" = no ] || would='would fail: '
    fail kernels "$would$no_kernels: see tests/gpu/build.sh" && break
  done
fi

codec_options="${SPCCL_GPU_CODEC_OPTIONS:-}" passed_before="$passed"
# shellcheck disable=SC2086  # options, one a word, for slow places
step_if codec "$no_kernels" yes 90 "$bin/gpu-codec-suite" "$kernels" $codec_options
if [ -n "$codec_options" ] && [ "$passed" -gt "$passed_before" ]; then
  lacks "codec: all but $codec_options" "SPCCL_GPU_CODEC_OPTIONS"
fi
# It ends by itself, and names what it had no time for, before it is ended.
bench_s=$((total - (SECONDS - started)))
for most in 110 "$limit"; do [ "$bench_s" -le "$most" ] || bench_s="$most"; done
bench_s=$((bench_s > 21 ? bench_s - 20 : 1))
step_if bench "$no_kernels" yes 110 "$bin/gpu-codec-bench" "$kernels" --seconds "$bench_s" --json "$out/bench.jsonl"
step order yes 40 "$bin/gpu-order-test"
step ipc yes 30 "$bin/gpu-ipc-test"

# What may be skipped shares what is left: what the product does comes before what looks once more at the
# kernels.
no_perf=''
if [ "$perf_kernels" = "$kernels" ]; then no_perf="$no_kernels"; fi
no_perf="${no_perf:-$(find_no_perf)}"
no_nccl="$no_perf"
if [ -z "$no_nccl" ] && [ -z "$nccl" ]; then no_nccl="no NCCL named: see --nccl"; fi
for ranks in 2 4 8; do
  step_if "ranks-$ranks" "$no_perf" no 60 \
    bash "$root/tests/gpu/ranks.sh" "$spccl" "$perf_kernels" "$ranks"
done
step_if nccl "$no_nccl" no 60 bash "$root/tests/gpu/nccl.sh" "$spccl" "$perf_kernels" "${nccl:-<none named: see --nccl>}" "$out"
no_mps=''
command -v nvidia-cuda-mps-control >/dev/null || no_mps="no nvidia-cuda-mps-control"
step_if order-mps "$no_mps" no 60 bash "$root/tests/gpu/with_mps.sh" "$bin/gpu-order-test"
sanitizer="$(find_sanitizer || true)"
no_sanitizer=''
[ -n "$sanitizer" ] || no_sanitizer="no compute-sanitizer"
no_sanitizer="${no_kernels:-$no_sanitizer}"
for tool in memcheck racecheck; do
  step_if "$tool" "$no_sanitizer" no 60 "${sanitizer:-compute-sanitizer}" --tool "$tool" \
    --error-exitcode 1 "$bin/gpu-codec-suite" "$kernels" --thin 100 --large 0
done

if [ "$dry" = yes ]; then
  echo "DRY RUN: $passed steps would run, ${#failed[@]} would fail, $skipped would be skipped; nothing ran"
  exit 0
fi
but="$(absent_in_words)"
if [ "${#failed[@]}" -gt 0 ]; then
  names="${failed[*]}"
  verdict="FAIL: ${names// /, }" status=1
  if [ "${failed[0]}" = build ]; then verdict="FAIL: the build failed, see $out/build.log"; fi
  verdict+="${but:+; skipped: $but}"
elif [ "$passed" -eq 0 ]; then
  verdict="SKIP: nothing ran${but:+; skipped: $but}" status="$kSkipped"
else
  verdict="PASS${only:+ of $only alone}${but:+, but skipped: $but}" status=0
  if [ -n "$but" ]; then status="$kIncomplete"; fi
fi
printf '%s: %d passed, %d failed, %d skipped, %d s\n' "$verdict" "$passed" "${#failed[@]}" "$skipped" \
  "$((SECONDS - started))"
exit "$status"
