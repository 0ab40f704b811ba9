"""Refuses a site, argv[1], that lacks a public name of Python, C or C++: compares its inventory with the sources.

argv[2] is the folder of Doxygen's XML, argv[3] the folder of the Python package.
"""

import ast
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

from sphinx.util.inventory import InventoryFile

ROOT = Path(__file__).parents[2]


def python_names(package: Path) -> set[str]:
    """What the public modules list in __all__."""
    names = set()
    for path in package.rglob("*.py"):
        parts = path.relative_to(package.parent).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        if any(part.startswith("_") for part in parts):
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
                names |= {".".join((*parts, name)) for name in ast.literal_eval(node.value)}
    return names


def c_names() -> set[str]:
    header = (ROOT / "include/saccade/c_api.h").read_text()
    return set(re.findall(r"^SACCADE_C_API .*?\b(saccade_\w+)\(", header, re.MULTILINE))


def cpp_names(xml: Path) -> set[str]:
    names = set()
    for path in [*xml.glob("namespacesaccade*.xml"), *xml.glob("class*.xml"), *xml.glob("struct*.xml")]:
        scope = ET.parse(path).find("compounddef")
        owner = scope.findtext("compoundname")
        if not owner.startswith("saccade") or "detail" in owner or scope.get("language") != "C++":
            continue
        if owner.startswith("saccade_"):
            continue
        if scope.get("kind") != "namespace":
            names.add(owner)
        for member in scope.iter("memberdef"):
            if member.get("prot") == "public" and member.get("kind") == "function":
                names.add(f"{owner}::{member.findtext('name')}")
    return names


def main() -> None:
    site, xml, package = map(Path, sys.argv[1:])
    with (site / "objects.inv").open("rb") as file:
        inventory = InventoryFile.load(file, "", lambda base, target: target)
    shown = {kind: set(names) for kind, names in ((kind, inventory[kind]) for kind in inventory)}
    failed = False
    for language, domain, wanted in (
        ("Python", "py:", python_names(package)),
        ("C", "c:", c_names()),
        ("C++", "cpp:", cpp_names(xml)),
    ):
        found = set().union(*(names for kind, names in shown.items() if kind.startswith(domain)))
        missing = sorted(name for name in wanted if name not in found)
        failed |= bool(missing) or not wanted
        print(f"{language}: {len(wanted)} public names, {len(missing)} missing {' '.join(missing)}".rstrip())
    sys.exit(failed)


if __name__ == "__main__":
    main()
