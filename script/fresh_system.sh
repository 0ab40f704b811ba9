# Sourced by the scripts that try packages: a minimal system of a release of Debian, to install them into.
# Commands print to the file $log.

# fresh_system SUITE [PACKAGE...]: makes a system of that release in $root, a new folder, with Debian's essential packages and
# those named, and without a compiler. Files for it go to $root/packages.
fresh_system() {
  [[ $EUID == 0 ]] || refuse "trying packages needs root, for debootstrap and chroot"
  script/bootstrap --deb
  remove_system
  root=$(mktemp -d)
  echo "making a fresh system of $1 in $root (log: $log)" >&2
  quietly "$log" debootstrap --variant=minbase ${2:+--include="$(IFS=, && echo "${*:2}")"} "$1" "$root"
  mount -t proc proc "$root/proc"
  mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
  ln -sf pts/ptmx "$root/dev/ptmx"
  mkdir "$root/packages"
  quietly "$log" in_root "! command -v gcc cc c++ clang"
}

# Removes the system, if there is one. Scripts call it when they end.
remove_system() {
  [[ -n ${root-} ]] || return 0
  local place
  for place in proc dev/pts; do
    ! mountpoint --quiet "$root/$place" || umount "$root/$place"
  done
  rm -rf "$root"
  root=
}

# in_root COMMAND: runs a command of bash in the system. Nothing is started as a service.
in_root() {
  chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 \
    bash -euo pipefail -c "$1"
}

# seconds COMMAND: runs a command in the system quietly, and prints how long it took.
seconds() {
  local begin
  begin=$(date +%s.%N)
  quietly "$log" in_root "$1"
  awk -v begin="$begin" -v end="$(date +%s.%N)" 'BEGIN { printf "%.1f\n", end - begin }'
}

# step TEXT COMMAND: runs a command in the system quietly, and prints what it was and how long it took.
step() {
  local time
  time=$(seconds "$2")
  printf '%6.1f s  %s\n' "$time" "$1"
}

# Everything in the system but what apt-get downloads and writes down, what Python compiles, and /etc/hosts, which Debian 13's
# netbase writes when it is missing.
list_files() {
  in_root "find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /packages -o -path /var/cache -o -path /var/log \
    -o -path /var/lib/apt -o -path /var/lib/dpkg -o -path /etc/hosts \) -prune -o -print | grep -v __pycache__ | sort; dpkg-query --show"
}
