# Sourced by the scripts that build other projects' sources, which they take from Debian's archive. Commands print to the file $log.

sources=$PWD/build/sources

# fetch_sources SUITE PACKAGE...: unpacks the sources of packages of a release of Debian into $sources/PACKAGE/unpacked. apt-get keeps
# its lists of source packages in our folder, because most systems have none. Needs no rights.
fetch_sources() {
  local lists=$sources/lists-$1 package missing=()
  for package in "${@:2}"; do
    [[ -e $sources/$package ]] || missing+=("$package")
  done
  ((${#missing[@]} > 0)) || return 0
  mkdir -p "$lists/partial"
  printf 'deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian %s main\n' "$1" \
    >"$sources/$1.list"
  local options=(-o "Dir::Etc::SourceList=$sources/$1.list" -o Dir::Etc::SourceParts=/dev/null
    -o "Dir::State::Lists=$lists" -o APT::Sandbox::User=)
  quietly "$log" apt-get "${options[@]}" update
  for package in "${missing[@]}"; do
    local part=$sources/$package.part
    rm -rf "$part"
    mkdir -p "$part/unpacked"
    (cd "$part" && quietly "$log" apt-get "${options[@]}" source --download-only "$package")
    tar -x -C "$part/unpacked" --strip-components=1 -f "$(find "$part" -name '*.orig.tar.*' ! -name '*.asc')"
    mv "$part" "$sources/$package"
  done
}
