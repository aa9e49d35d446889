#!/usr/bin/env bash
# Sourced by the scripts beside it and by .ci/run: runs named steps, each with a log of its own, and
# keeps their times and counts. Expects `root`, the top of the source tree.
#
# A script that others call appends to the caller's SPCCL_STEPS_FILE; else it starts one of its own
# and owns_steps is yes.

# shellcheck disable=SC2154  # root is the caller's; jobs and owns_steps are for the caller
readonly log_dir="$root/build/logs"
mkdir -p "$log_dir"
# shellcheck disable=SC2034
jobs="$(nproc)" owns_steps=no
if [ -z "${SPCCL_STEPS_FILE:-}" ]; then
  # shellcheck disable=SC2034
  owns_steps=yes
  export SPCCL_STEPS_FILE="$log_dir/steps.tsv"
  : >"$SPCCL_STEPS_FILE"
fi

# show_failed_tests LOG: the end of what each failed test said, of a ctest that ran with
# --output-on-failure, which has it among the lines of all the other tests. Of a GoogleTest program
# without the cases that passed, so that those that failed are in it.
show_failed_tests() {
  awk -v most=80 '
    function show(i) {
      if (name != "") printf "---- the end of failed test %s ----\n", name
      for (i = lines > most ? lines - most : 0; i < lines; ++i) print line[i]
      name = ""
      lines = 0
    }
    /^ *[0-9]+\/[0-9]+ Test +#[0-9]+: / { show(); if (/\*\*\*/) name = $0; next }
    /^ +Start +[0-9]+: / || /^[0-9]+% tests passed, / { show(); next }
    name == "" || /^\[-+\]/ { next }
    /^\[ RUN      \]/ { run = lines }
    /^\[       OK \]/ { lines = run; next }
    { line[lines++] = $0 }
  ' "$1"
}

# step NAME COMMAND...: runs it with its output in build/logs/NAME.log. Says how long it took, also of
# processor time (cpu_s: of several that ran at once, what each of them cost), and on failure shows the end of the log, and of each failed test's output. Returns the command's status.
step() {
  local name="$1" log status=0 start seconds cpu_s passed=1 failed=0 line TIMEFORMAT='%U %S'
  shift
  log="$log_dir/${name// /-}.log"
  printf '==> %s\n' "$name"
  start="$(date +%s)"
  { time "$@" >"$log" 2>&1 </dev/null || status=$?; } 2>"$log.cpu"
  seconds=$(($(date +%s) - start))
  # The last line: of a command that was killed the shell speaks before it.
  cpu_s="$(tail -n 1 "$log.cpu" | awk '{ print int($1 + $2) }')"
  # A step that ran ctest counts its tests; any other counts as one.
  line="$(grep -E '^[0-9]+% tests passed, [0-9]+ tests? failed out of [0-9]+$' "$log" | tail -n 1)" || true
  if [ -n "$line" ]; then
    failed="$(sed -E 's/.*, ([0-9]+) tests? failed.*/\1/' <<<"$line")"
    passed=$((${line##* } - failed))
  elif [ "$status" -ne 0 ]; then
    passed=0 failed=1
  fi
  printf '%s\t%s\t%s\t%s\t%s\n' "$name" "$seconds" "$cpu_s" "$passed" "$failed" >>"$SPCCL_STEPS_FILE"
  if [ "$status" -eq 0 ]; then
    printf '    %s: ok, %d s%s\n' "$name" "$seconds" "${line:+, $line}"
  else
    printf '    %s: FAILED, %d s%s\n' "$name" "$seconds" "${line:+, $line}"
    printf -- '---- the end of %s ----\n' "$log" >&2
    tail -n 60 "$log" >&2
    show_failed_tests "$log" >&2
    printf -- '---- step "%s" failed (exit %d): see %s ----\n' "$name" "$status" "$log" >&2
  fi
  return "$status"
}

# Prints the times of all steps and, as the last line, "N passed, N failed". Returns 1 if any failed.
steps_summary() {
  printf '\n%-28s %8s %8s %8s %8s\n' step seconds cpu_s passed failed
  awk -F '\t' '
    { printf "%-28s %8d %8d %8d %8d\n", $1, $2, $3, $4, $5; s += $2; c += $3; p += $4; f += $5 }
    END { printf "%-28s %8d %8d\n\n%d passed, %d failed\n", "total", s, c, p, f; exit f > 0 }
  ' "$SPCCL_STEPS_FILE"
}
