# Sourced by every script: stops at the first error, changes to the repository's root, handles --help.
set -euo pipefail

script_file=$(realpath "$0")
cd "$(dirname "$script_file")/.."
mkdir -p build

# Prints the comment that opens the calling script.
usage() {
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$script_file"
}

# Ends the script with an error about its arguments.
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

# Prints the version of the working tree: 0.2.0, or 0.2.0-dev before it is released.
saccade_version() {
  sed -n 's/^project(saccade VERSION \([0-9.]*\).*/\1/p; s/^set(SACCADE_VERSION_SUFFIX "\(.*\)")/\1/p' CMakeLists.txt |
    tr -d '\n'
}

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

# python_environment NAME PACKAGE...: creates the virtual environment build/NAME and installs these packages from
# PyPI unless they are installed. Uses $PYTHON, or python3. A last argument may be a file of requirements.
python_environment() {
  local folder=build/$1 log=build/$1.log wanted=${*:2}
  shift
  if [[ -f ${*: -1} ]]; then
    wanted+=$'\n'$(<"${*: -1}")
  fi
  if [[ $(cat "$folder/packages" 2>/dev/null) == "$wanted" ]]; then
    return
  fi
  echo "making the Python environment $folder with $* (log: $log)" >&2
  rm -rf "$folder" "$log"
  quietly "$log" "${PYTHON-python3}" -m venv "$folder"
  quietly "$log" "$folder/bin/python" -m pip install --disable-pip-version-check "$@"
  echo "$wanted" >"$folder/packages"
}

# build PRESET [TARGET...]: configures and builds build/PRESET (all targets by default) with the CMake arguments of
# the array cmake_arguments. Prints output only for errors, or progress on a terminal.
cmake_arguments=()
build() {
  local preset=$1 log=build/$1.log
  shift
  echo "building with preset $preset (log: $log)" >&2
  if ! { cmake --preset "$preset" "${cmake_arguments[@]}" && cmake --build --preset "$preset" --parallel "$(nproc)" ${1:+--target "$@"}; } \
    >"$log" 2>&1; then
    tail -n 60 "$log" >&2
    echo "the build failed; all of its output: $log" >&2
    exit 1
  fi
}

# checked_part TEXT: prints K/N, the part that TEXT names, or refuses it.
checked_part() {
  [[ $1 =~ ^([1-9][0-9]*)/([1-9][0-9]*)$ ]] && ((BASH_REMATCH[1] <= BASH_REMATCH[2])) || refuse "--part needs K/N, such as 1/4"
  echo "$1"
}

# programs_of_part PRESET K/N [REGEX]: sets `targets` to what builds the K-th of N parts of the test programs, of those whose name
# has REGEX, and `labels` to an expression for the labels of their tests. A program may also be there with other threading layers.
programs_of_part() {
  local all programs
  cmake --preset "$1" "${cmake_arguments[@]}" >"build/$1.log" 2>&1 || build "$1"  # which prints the error
  all=$(ninja -C "build/$1" -t targets all | sed -n 's/^\([a-z0-9_]*_test\): phony$/\1/p')
  programs=$(find tests -name '*_test.cpp' -exec basename --suffix .cpp {} + | sort | grep --line-regexp --fixed-strings "$all" |
    grep --extended-regexp "${3-.}" | awk -v part="${2%/*}" -v parts="${2#*/}" 'NR % parts == part % parts' |
    paste --serial --delimiters '|')
  mapfile -t targets < <(grep --line-regexp --extended-regexp "((std|none)_)?($programs)" <<<"$all")
  labels="^($programs)\$"
}

# baseline PURPOSE: prints the revision to compare with, for "gate" on this machine's processor or for "bits", as the
# files of bench/baseline name it.
baseline() {
  python3 bench/processors.py revision "$1" || exit
}

# build_revision REV TARGET: unpacks revision REV into build/revisions/COMMIT, which is kept for later runs, and
# builds its TARGET with preset release (libsaccade.a is the core library; saccade is the command). Sets `revision`
# to that folder.
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

# compile_with TREE SOURCE [ARGUMENT...]: compiles a program of one source with the public headers and the core library of
# TREE, into TREE/build/release. Prints its path.
compile_with() {
  local folder=$1/build/release
  local program
  program=$folder/$(basename "$2" .cpp)
  "${CXX-c++}" -std=c++20 -O2 -fopenmp -I "$1/include" "${@:3}" "$2" -o "$program" "$(find "$folder" -path "$folder/tests" -prune -o -name libsaccade.a -print)" ||
    { echo "$2 does not compile with the library in $1" >&2; exit 2; }
  echo "$program"
}

# compile_with_layer LAYER SOURCE: the same with this tree's library and the threading layer LAYER: openmp, std or none. The
# program's own layer comes before the library's.
compile_with_layer() {
  local folder=build/release/threading/$1
  mkdir -p "$folder"
  local program
  program=$folder/$(basename "$2" .cpp)
  "${CXX-c++}" -std=c++20 -O2 -fopenmp -I include -I src "$2" "src/core/threads/$1.cpp" -o "$program" \
    "$(find build/release -path build/release/tests -prune -o -name libsaccade.a -print)" ||
    { echo "$2 does not compile with the threading layer $1" >&2; exit 2; }
  echo "$program"
}

# print_results REPORT: the tests of ctest's report that failed or were skipped, with the reasons, and how many passed. The status is 1
# if one failed or none ran.
print_results() {
  awk '
    function attribute(name) { return match($0, name "=\"[^\"]*\"") ? substr($0, RSTART + length(name) + 2, RLENGTH - length(name) - 3) : "" }
    /<testcase / { name = attribute("name"); status = attribute("status"); reason = ""; skipped = 0 }
    /<skipped / { skipped = 1 }
    skipped && after_marker && reason == "" && !/\[  SKIPPED \]/ { sub(/^[ \t]+/, ""); reason = $0 }
    { after_marker = /: Skipped$/ }
    /<\/testcase>/ {
      if (status == "run") ++passed
      else if (skipped && reason != "") { ++explained; print "skipped: " name ": " reason }
      else { ++failed; print "failed: " name (skipped ? ": skipped without a reason" : "") }
    }
    END {
      if (explained) print explained " skipped, for the reasons above"
      print passed + 0 " passed, " failed + 0 " failed"
      exit failed > 0 || passed == 0
    }' "$1"
}
