"""The name of this machine's processor, and the revision whose speed `script/bench --gate` compares with on it.

`processors.py revision gate` and `processors.py revision bits` print the revision that the gate and
script/compare_bits compare with; without arguments it prints the processor's name.
"""

from __future__ import annotations

import pathlib
import platform
import re
import subprocess
import sys
from collections.abc import Sequence

BASELINES = pathlib.Path(__file__).resolve().parent / "baseline"

# Ranges of models with the same cores. AMD: by the CPU family, as arch/x86/kernel/cpu/amd.c of Linux divides them.
# Intel: of family 6, as arch/x86/include/asm/intel-family.h names them.
_Ranges = Sequence[tuple[int, int, str]]
_AMD: dict[int, _Ranges] = {
    0x17: (
        (0x00, 0x2F, "Zen"),
        (0x50, 0x5F, "Zen"),
        (0x30, 0x4F, "Zen 2"),
        (0x60, 0x7F, "Zen 2"),
        (0x90, 0x91, "Zen 2"),
        (0xA0, 0xAF, "Zen 2"),
    ),
    0x19: ((0x00, 0x0F, "Zen 3"), (0x20, 0x5F, "Zen 3"), (0x10, 0x1F, "Zen 4"), (0x60, 0xAF, "Zen 4")),
    0x1A: ((0x00, 0x2F, "Zen 5"), (0x40, 0x4F, "Zen 5"), (0x60, 0x7F, "Zen 5")),
}
_INTEL: dict[int, str] = {
    **dict.fromkeys((0x3C, 0x3F, 0x45, 0x46), "Haswell"),
    **dict.fromkeys((0x3D, 0x47, 0x4F, 0x56), "Broadwell"),
    **dict.fromkeys((0x4E, 0x5E, 0x8E, 0x9E, 0xA5, 0xA6), "Skylake"),
    0x55: "Skylake-SP",
    **dict.fromkeys((0x6A, 0x6C), "Ice Lake-SP"),
    **dict.fromkeys((0x7D, 0x7E), "Ice Lake"),
    **dict.fromkeys((0x8C, 0x8D), "Tiger Lake"),
    0xA7: "Rocket Lake",
    **dict.fromkeys((0x97, 0x9A), "Alder Lake"),
    **dict.fromkeys((0xB7, 0xBA, 0xBF), "Raptor Lake"),
    **dict.fromkeys((0xAA, 0xAC), "Meteor Lake"),
    **dict.fromkeys((0xB5, 0xC5, 0xC6), "Arrow Lake"),
    **dict.fromkeys((0x8F, 0xCF), "Sapphire Rapids"),  # 0xCF: Emerald Rapids, with the same cores
    **dict.fromkeys((0xAD, 0xAE), "Granite Rapids"),
}
_AMX = ("Sapphire Rapids", "Granite Rapids")
_ARM: dict[int, str] = {  # the part numbers of implementer 0x41, from the cores' reference manuals
    0xD0C: "Neoverse N1",
    0xD40: "Neoverse V1",
    0xD49: "Neoverse N2",
    0xD4F: "Neoverse V2",
    0xD84: "Neoverse V3",
    0xD8E: "Neoverse N3",
}


def name_of(cpuinfo: str, machine: str = "") -> str:
    """The name of a processor's cores from the text of /proc/cpuinfo, such as "AMD Zen 5"; of a processor that is not
    in the lists above the name that it reports, or else ``machine``."""
    fields: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        fields.setdefault(key.strip(), value.strip())
    vendor, family, model = fields.get("vendor_id"), _number(fields, "cpu family"), _number(fields, "model")
    if vendor == "AuthenticAMD":
        for first, last, name in _AMD.get(family, ()):
            if first <= model <= last:
                return f"AMD {name}"
    if vendor == "GenuineIntel" and family == 6 and model in _INTEL:
        if "amx_tile" in fields.get("flags", "").split() and _INTEL[model] not in _AMX:
            return "Intel with AMX"  # a virtual machine that reports the model of another processor
        return f"Intel {_INTEL[model]}"
    if _number(fields, "CPU implementer") == 0x41 and _number(fields, "CPU part") in _ARM:
        return f"Arm {_ARM[_number(fields, 'CPU part')]}"
    return _plain(fields.get("model name", "")) or machine or "unknown"


def _number(fields: dict[str, str], key: str) -> int:
    try:
        return int(fields.get(key, ""), 0)
    except ValueError:
        return -1


def _plain(model_name: str) -> str:
    """A model's name without its trademarks, clock rate and number of cores."""
    name = re.sub(r"\((R|r|TM|tm)\)|@.*|\b(CPU|Processor)\b|\b\d+-Core\b", " ", model_name)
    return " ".join(name.split())


def file_name(name: str) -> str:
    """A processor's name as the name of a file, without extension: "AMD Zen 5" is "amd-zen-5"."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "unknown"


def this_name() -> str:
    """The name of this machine's processor."""
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    return name_of(cpuinfo.read_text() if cpuinfo.exists() else "", platform.processor() or platform.machine())


def baseline_file(purpose: str, name: str, folder: pathlib.Path = BASELINES) -> pathlib.Path:
    """The file that names the revision to compare with: for "gate" that of the processor, or ``default`` if it has
    none; for "bits" the same for every processor."""
    if purpose == "bits":
        return folder / "bits"
    own = folder / file_name(name)
    return own if own.exists() else folder / "default"


def revision_in(file: pathlib.Path) -> str:
    """The revision that a file of bench/baseline names. "this commit" is the last one that changed the file.

    :raises ValueError: if it does not name one, or if git does not know the file.
    """
    lines = [line.partition("#")[0].strip() for line in file.read_text().splitlines()]
    named = [line for line in lines if line]
    if len(named) != 1:
        raise ValueError(f"{file}: expected one revision, got {len(named)}")
    if named[0] != "this commit":
        return named[0]
    command = ["git", "log", "-1", "--format=%h", "--", file.name]
    found = subprocess.run(command, cwd=file.parent, capture_output=True, text=True).stdout.strip()
    if not found:
        raise ValueError(f'{file}: "this commit", but no commit has this file')
    return found


def main(arguments: Sequence[str]) -> int:
    name = this_name()
    if not arguments:
        print(name)
        return 0
    if len(arguments) != 2 or arguments[0] != "revision" or arguments[1] not in ("gate", "bits"):
        print("processors.py: expected 'revision gate', 'revision bits' or no arguments", file=sys.stderr)
        return 2
    try:
        file = baseline_file(arguments[1], name)
        revision = revision_in(file)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    on = f" on {name}" if arguments[1] == "gate" else ""
    print(f"comparing{on} with {revision} (bench/baseline/{file.name})", file=sys.stderr)
    print(revision)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
