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

# quietly LOG COMMAND...: runs a command whose output goes to the file LOG, and shows its end when it fails.
quietly() {
  local log=$1
  shift
  if ! "$@" >>"$log" 2>&1; then
    tail -n 60 "$log" >&2
    echo "'$*' failed; all of its output: $log" >&2
    exit 1
  fi
}

# python_environment NAME PACKAGE...: makes the virtual environment build/NAME with these packages from PyPI, where it
# does not have them yet. Python is that of $PYTHON, or python3.
python_environment() {
  local folder=build/$1 log=build/$1.log
  shift
  if [[ $(cat "$folder/packages" 2>/dev/null) == "$*" ]]; then
    return
  fi
  echo "making the Python environment $folder with $* (log: $log)" >&2
  rm -rf "$folder" "$log"
  mkdir -p build
  quietly "$log" "${PYTHON-python3}" -m venv "$folder"
  quietly "$log" "$folder/bin/python" -m pip install --disable-pip-version-check "$@"
  echo "$*" >"$folder/packages"
}

# build PRESET [TARGET...]: configures and builds build/PRESET, everything where no target is named, with the CMake
# arguments of the array cmake_arguments. Quiet unless something is wrong or there is a terminal to show progress on.
cmake_arguments=()
build() {
  local preset=$1 log=build/$1.log
  shift
  mkdir -p build
  echo "building with preset $preset (log: $log)" >&2
  if ! { cmake --preset "$preset" "${cmake_arguments[@]}" && cmake --build --preset "$preset" --parallel "$(nproc)" ${1:+--target "$@"}; } \
    >"$log" 2>&1; then
    tail -n 60 "$log" >&2
    echo "the build failed; all of its output: $log" >&2
    exit 1
  fi
}

# baseline: prints the revision that the file bench/baseline names.
baseline() {
  local rev
  rev=$(sed 's/#.*//; /^[[:space:]]*$/d' bench/baseline)
  [[ $rev != "this commit" ]] || rev=$(git log -1 --format=%h -- bench/baseline)
  echo "$rev"
}

# build_revision REV TARGET: unpacks revision REV into build/revisions/COMMIT, where it stays for the next time, and
# builds its TARGET with preset release (libsaccade.a is the core library; saccade is the command, by its file). Sets
# `revision` to that folder.
build_revision() {
  local commit
  commit=$(git rev-parse --quiet --verify "$1^{commit}") || refuse "there is no revision '$1'"
  revision=build/revisions/$commit
  if [[ ! -e $revision ]]; then
    rm -rf "$revision.part"
    mkdir -p "$revision.part"
    git archive "$commit" | tar -x -C "$revision.part"
    mv "$revision.part" "$revision"
  fi
  echo "building $2 of $1 (log: $revision.log)" >&2
  if ! (cd "$revision" && cmake --preset release -DSACCADE_BUILD_TESTS=OFF &&
    cmake --build --preset release --parallel "$(nproc)" --target "$2") >"$revision.log" 2>&1; then
    tail -n 60 "$revision.log" >&2
    echo "the build of $1 failed; all of its output: $revision.log" >&2
    exit 2
  fi
}

# compile_with TREE SOURCE: compiles a program of one source with the public headers of TREE and the core library that
# is built there, into TREE/build/release. Prints its path.
compile_with() {
  local folder=$1/build/release
  local program
  program=$folder/$(basename "$2" .cpp)
  "${CXX-c++}" -std=c++20 -O2 -fopenmp -I "$1/include" "$2" -o "$program" "$(find "$folder" -name libsaccade.a)" ||
    { echo "$2 does not compile with the library in $1" >&2; exit 2; }
  echo "$program"
}
