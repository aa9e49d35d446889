#!/usr/bin/env bash
# Checks the format and runs the linter. See --help.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

usage() {
  cat <<'USAGE'
Usage: tools/lint.sh [--fix] [--changed COMMITS] format|tidy...

  format    clang-format 14 over every C and C++ file; --fix rewrites the files instead
  tidy      clang-tidy with .clang-tidy over every .cc file of the dev build. What was clean is
            remembered in the user's cache folder, so that a second run checks only what changed.
            With --changed, only what the last so many commits changed, and what is not committed.
  -h, --help
USAGE
}

die() {
  printf 'lint.sh: %s\n' "$*" >&2
  exit 1
}

cd "$root"
sources() { git ls-files -co --exclude-standard -z -- "$@"; }

check_format() {
  command -v clang-format-14 >/dev/null || die "clang-format-14 is missing: tools/packages.sh lint"
  local how=(--dry-run -Werror)
  if [ "$fix" = yes ]; then how=(-i); fi
  sources '*.cc' '*.h' '*.c' | xargs -0 -r clang-format-14 "${how[@]}" ||
    die "wrongly formatted: run tools/lint.sh --fix format"
  echo "format: fine"
}

check_tidy() {
  local tidy
  tidy="$(command -v clang-tidy-19 || command -v clang-tidy-18 || command -v clang-tidy-16)" ||
    die "clang-tidy is missing: tools/packages.sh lint"
  [ -f build/dev/compile_commands.json ] || cmake --preset dev
  cmake --build --preset dev --target spccl_generated_headers
  python3 tools/tidy.py --clang-tidy "$tidy" --build build/dev --jobs "$(nproc)" \
    --cache "${XDG_CACHE_HOME:-$HOME/.cache}/spccl-tidy" "${changed[@]}"
}

fix=no
changed=()
checks=()
while [ $# -gt 0 ]; do
  case "$1" in
    -h | --help) usage && exit 0 ;;
    --fix) fix=yes ;;
    --changed)
      [[ "${2:-}" =~ ^[1-9][0-9]*$ ]] || die "--changed takes a number of commits, not '${2:-}'"
      changed=(--changed "$2")
      shift
      ;;
    format | tidy) checks+=("$1") ;;
    *) usage >&2 && die "unknown argument: $1" ;;
  esac
  shift
done
[ ${#checks[@]} -gt 0 ] || { usage >&2 && die "name a check"; }
for check in "${checks[@]}"; do "check_$check"; done
