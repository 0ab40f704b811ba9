"""What a wheel carries besides saccade: the licences, and a list in SPDX 2.3.

    contents.py licences FOLDER       one text for each component, for the wheel
    contents.py sbom WHEEL... -o OUT  the components, the wheels, and the SHA-256 of their files

`licences` runs in the environment that builds the wheel, whose nanobind is compiled in; nlohmann-json and the run-time
library of OpenMP are Debian's. `sbom` reads these texts from the wheels. $SOURCE_DATE_EPOCH is the document's date.
"""

import argparse
import datetime
import hashlib
import json
import os
import re
import subprocess
import uuid
import zipfile
from importlib import metadata
from pathlib import Path
from typing import NamedTuple


class Component(NamedTuple):
    name: str
    version: str
    licence: str  # an SPDX expression
    text: str
    home: str


def debian_version(package: str) -> str:
    return subprocess.check_output(["dpkg-query", "-Wf", "${Version}\n", package], text=True).splitlines()[0]


def debian_copyright(package: str) -> str:
    return Path("/usr/share/doc", package, "copyright").read_text()


def nanobind_file(pattern: str) -> Path:
    distribution = metadata.distribution("nanobind")
    return Path(next(distribution.locate_file(file) for file in distribution.files if re.search(pattern, str(file))))


HEAD = re.compile(r"(?P<name>.+?) (?P<version>.+)\n(?P<licence>.+)\n(?P<home>https:.+)\n")


def components() -> list[Component]:
    robin_map = nanobind_file(r"tsl/robin_map\.h$").read_text()
    return [
        Component(
            "nanobind",
            metadata.version("nanobind"),
            "BSD-3-Clause",
            nanobind_file(r"LICENSE$").read_text(),
            "https://github.com/wjakob/nanobind",
        ),
        Component(
            "robin-map",
            f"as in nanobind {metadata.version('nanobind')}",
            "MIT",
            re.sub(
                r"^ \* ?", "", robin_map[robin_map.index("MIT License") : robin_map.index("*/")], flags=re.MULTILINE
            ),
            "https://github.com/Tessil/robin-map",
        ),
        Component(
            "nlohmann-json",
            debian_version("nlohmann-json3-dev"),
            "MIT",
            debian_copyright("nlohmann-json3-dev"),
            "https://github.com/nlohmann/json",
        ),
        Component(
            "libgomp",
            debian_version("libgomp1"),
            "GPL-3.0-or-later WITH GCC-exception-3.1",
            re.search(r"GCC RUNTIME LIBRARY EXCEPTION.*?(?=\n\n\n|\Z)", debian_copyright("libgomp1"), re.DOTALL)[0]
            + "\n\n"
            + Path("/usr/share/common-licenses/GPL-3").read_text(),
            "https://gcc.gnu.org",
        ),
    ]


def licences(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for component in components():
        head = f"{component.name} {component.version}\n{component.licence}\n{component.home}\n\n"
        (folder / f"{component.name}.txt").write_text(head + component.text)


def package(identity: str, name: str, version: str, licence: str, home: str) -> dict:
    return {
        "SPDXID": identity,
        "name": name,
        "versionInfo": version,
        "downloadLocation": home or "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": licence,
        "licenseDeclared": licence,
        "copyrightText": "NOASSERTION",
    }


def components_of(wheel: zipfile.ZipFile) -> list[Component]:
    texts = [wheel.read(name).decode() for name in sorted(wheel.namelist()) if re.search(r"/licences/.*\.txt$", name)]
    return [Component(**HEAD.match(text).groupdict(), text=text) for text in texts]


def spdx_id(part: Component) -> str:
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", f"{part.name}-{part.version}")


def sbom(wheels: list[Path], out: Path) -> None:
    version = wheels[0].name.split("-")[1]
    packages, files, relations = [], [], []
    digests = hashlib.sha256()
    for number, wheel in enumerate(sorted(wheels)):
        owner = f"SPDXRef-wheel-{number}"
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        digests.update(digest.encode())
        described = package(owner, wheel.name, version, "Apache-2.0", "")
        described["checksums"] = [{"algorithm": "SHA256", "checksumValue": digest}]
        packages.append(described)
        relations.append(("SPDXRef-DOCUMENT", "DESCRIBES", owner))
        with zipfile.ZipFile(wheel) as archive:
            for part in components_of(archive):
                relations.append((owner, "CONTAINS", spdx_id(part)))
                described = package(spdx_id(part), part.name, part.version, part.licence, part.home)
                if described not in packages:
                    packages.append(described)
            for name in sorted(name for name in archive.namelist() if not name.endswith("/")):
                contents = archive.read(name)
                files.append(
                    {
                        "SPDXID": f"SPDXRef-file-{len(files)}",
                        "fileName": f"./{wheel.name}/{name}",
                        "checksums": [
                            {"algorithm": kind, "checksumValue": hashlib.new(kind.lower(), contents).hexdigest()}
                            for kind in ("SHA1", "SHA256")
                        ],
                        "licenseConcluded": "NOASSERTION",
                        "copyrightText": "NOASSERTION",
                    }
                )
                relations.append((owner, "CONTAINS", files[-1]["SPDXID"]))
    created = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    identity = uuid.uuid5(uuid.NAMESPACE_URL, digests.hexdigest())  # the same wheels, the same document
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"saccade-{version}-wheels",
        "documentNamespace": f"urn:uuid:{identity}",
        "creationInfo": {"created": created.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: saccade-contents.py"]},
        "packages": packages,
        "files": files,
        "relationships": [
            {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}
            for one, kind, other in relations
        ],
    }
    out.write_text(json.dumps(document, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("licences").add_argument("folder", type=Path)
    listing = commands.add_parser("sbom")
    listing.add_argument("wheels", type=Path, nargs="+")
    listing.add_argument("-o", dest="out", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.command == "licences":
        licences(arguments.folder)
    else:
        sbom(arguments.wheels, arguments.out)


if __name__ == "__main__":
    main()
