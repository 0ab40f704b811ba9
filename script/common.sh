# Sourced by every script: stop at the first error, stand in the repository's root, answer --help.
set -euo pipefail

script_file=$(realpath "$0")
cd "$(dirname "$script_file")/.."

# Prints the comment that opens the calling script.
usage() {
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$script_file"
}

# Ends the script as one that was called wrongly.
refuse() {
  echo "$(basename "$script_file"): $1; see --help" >&2
  exit 2
}

for argument in "$@"; do
  if [[ $argument == --help || $argument == -h ]]; then
    usage
    exit 0
  fi
done

# build PRESET [TARGET...]: configures and builds build/PRESET, everything where no target is named. Quiet unless
# something is wrong or there is a terminal to show progress on.
build() {
  local preset=$1 log=build/$1.log
  shift
  mkdir -p build
  echo "building with preset $preset (log: $log)" >&2
  if ! { cmake --preset "$preset" && cmake --build --preset "$preset" --parallel "$(nproc)" ${1:+--target "$@"}; } \
    >"$log" 2>&1; then
    tail -n 60 "$log" >&2
    echo "the build failed; all of its output: $log" >&2
    exit 1
  fi
}
