# Sourced by the scripts that make packages: checks what cmake/hardening.cmake promises.

# check_hardened FILE...: fails unless each program or library has a stack protector, checked calls of the C library where it calls any
# that could be, tables of addresses that are read-only, no executable stack and, on x86-64, the mark for shadow stacks.
check_hardened() {
  local file found expected
  for file in "$@"; do
    found=$(checksec --format=json --file="$file" | python3 -c '
import json, sys
((_, found),) = json.load(sys.stdin).items()
print(*(key + "=" + found[key] for key in ("relro", "canary", "nx", "pie")),
      "fortified" if found["fortify-able"] == "0" or int(found["fortified"]) > 0 else "unfortified")')
    expected='relro=full canary=yes nx=yes pie=(yes|dso) fortified'
    if readelf --file-header "$file" | grep --quiet X86-64; then
      found+=$(readelf --notes --wide "$file" | sed -n 's/.*x86 feature: .*SHSTK.*/, shadow stack/p')
      expected+=', shadow stack'
    fi
    [[ $found =~ ^$expected$ ]] || { echo "${file##*/} was built without SACCADE_HARDEN, or not all of it: $found" >&2; return 1; }
  done
}
