"""What a wheel carries besides saccade: the licences, and a list in SPDX 2.3.

    contents.py licences PLATFORM FOLDER  one text for each component, for the wheel of PLATFORM (win_amd64 or another)
    contents.py sbom WHEEL... -o OUT      the components, the wheels, and the checksums of their files

`licences` runs in the environment that builds the wheel, whose nanobind is compiled in; nlohmann-json and the run-time
library of OpenMP are Debian's. Wheels for Windows have what script/cross_libraries builds from build/sources, and the
run-time libraries of Zig in build/ziglang. `sbom` reads these texts from the wheels; it fails if a wheel lacks the text
of a component, or carries a library that is no component. $SOURCE_DATE_EPOCH is the document's date.
"""

import argparse
import datetime
import hashlib
import json
import os
import re
import subprocess
import sys
import uuid
import zipfile
from importlib import metadata
from pathlib import Path

# The licence of each component, as SPDX writes it, and its home.
COMPONENTS = {
    "nanobind": ("BSD-3-Clause", "https://github.com/wjakob/nanobind"),
    "robin-map": ("MIT", "https://github.com/Tessil/robin-map"),
    "nlohmann-json": ("MIT", "https://github.com/nlohmann/json"),
    "libgomp": ("GPL-3.0-or-later WITH GCC-exception-3.1", "https://gcc.gnu.org"),
    "zlib": ("Zlib", "https://zlib.net"),
    "libc++": ("Apache-2.0 WITH LLVM-exception", "https://libcxx.llvm.org"),
    "libc++abi": ("Apache-2.0 WITH LLVM-exception", "https://libcxxabi.llvm.org"),
    "libunwind": ("Apache-2.0 WITH LLVM-exception", "https://github.com/llvm/llvm-project"),
    "compiler-rt": ("MIT", "https://ziglang.org"),
    "mingw-w64": ("ZPL-2.1", "https://www.mingw-w64.org"),
}
EVERYWHERE = {"nanobind", "robin-map", "nlohmann-json"}
OF_ZIG = {
    "libc++": "lib/libcxx/LICENSE.TXT",
    "libc++abi": "lib/libcxxabi/LICENSE.TXT",
    "libunwind": "lib/libunwind/LICENSE.TXT",
    "compiler-rt": "LICENSE",
    "mingw-w64": "lib/libc/mingw/COPYING",
}


def components_of(platform: str) -> set[str]:
    return EVERYWHERE | ({"zlib", *OF_ZIG} if "win_amd64" in platform else {"libgomp"})


def licence_of_a_wheel(platform: str) -> str:
    licences = (licence for name, (licence, _) in COMPONENTS.items() if name in components_of(platform))
    return " AND ".join(dict.fromkeys(["Apache-2.0", *licences]))


def nanobind_file(pattern: str) -> str:
    distribution = metadata.distribution("nanobind")
    return Path(
        next(distribution.locate_file(file) for file in distribution.files if re.search(pattern, str(file)))
    ).read_text()


def debian_version(package: str) -> str:
    return subprocess.check_output(["dpkg-query", "-Wf", "${Version}\n", package], text=True).splitlines()[0]


def debian_copyright(package: str) -> str:
    return Path("/usr/share/doc", package, "copyright").read_text()


def gomp() -> tuple[str, str]:
    gcc = re.search(r"GCC RUNTIME LIBRARY EXCEPTION.*?(?=\n\n\n|\Z)", debian_copyright("libgomp1"), re.DOTALL)[0]
    gpl = Path("/usr/share/common-licenses/GPL-3").read_text()
    return debian_version("libgomp1"), f"{gcc}\n\n{gpl}"


def of_sources(package: str, licence: str) -> tuple[str, str]:
    folder = Path("build/sources", package)
    description = next(folder.glob("*.dsc")).read_text()
    return re.search(r"^Version: (.*)$", description, re.MULTILINE)[1], (folder / "unpacked" / licence).read_text()


def of_zig(licence: str) -> tuple[str, str]:
    version = next(Path("build/ziglang").resolve().parent.glob("ziglang-*.dist-info")).stem.removeprefix("ziglang-")
    return f"as in Zig {version}", Path("build/ziglang", licence).read_text()


def version_and_text(name: str, platform: str) -> tuple[str, str]:
    nanobind = metadata.version("nanobind")
    if name == "nanobind":
        return nanobind, nanobind_file(r"LICENSE$")
    if name == "robin-map":
        text = re.search(r"MIT License.*?(?=\*/)", nanobind_file(r"tsl/robin_map\.h$"), re.DOTALL)[0]
        return f"as in nanobind {nanobind}", re.sub(r"^ \* ?", "", text, flags=re.MULTILINE)
    if name in OF_ZIG:
        return of_zig(OF_ZIG[name])
    if name == "zlib":
        return of_sources("zlib", "LICENSE")
    if name == "libgomp":
        return gomp()
    if "win_amd64" in platform:
        return of_sources("nlohmann-json3", "LICENSE.MIT")
    return debian_version("nlohmann-json3-dev"), debian_copyright("nlohmann-json3-dev")


def licences(platform: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in components_of(platform):
        version, text = version_and_text(name, platform)
        licence, home = COMPONENTS[name]
        (folder / f"{name}.txt").write_text(f"{name} {version}\n{licence}\n{home}\n\n{text}")


def components_in(wheel: str, contents: dict[str, bytes]) -> list[dict]:
    texts = [contents[name].decode() for name in contents if re.search(r"/licences/[^/]*\.txt$", name)]
    versions = dict(text.split("\n", 1)[0].split(" ", 1) for text in texts)
    needed = components_of(wheel)
    if versions.keys() != needed:
        sys.exit(f"{wheel} has the licences of {sorted(versions)} and needs those of {sorted(needed)}")
    for name in contents:
        library = re.match(r"saccade\.libs/([^/.-]+)", name)
        if library and library[1] not in needed:
            sys.exit(f"{wheel} carries {name}, which is none of the components {sorted(needed)}")
    return [
        {
            "SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", f"{name}-{version}"),
            "name": name,
            "versionInfo": version,
            "downloadLocation": "NOASSERTION",
            "homepage": COMPONENTS[name][1],
            "filesAnalyzed": False,
            "licenseConcluded": COMPONENTS[name][0],
        }
        for name, version in versions.items()
    ]


def digest(kind: str, data: bytes) -> dict:
    return {"algorithm": kind, "checksumValue": hashlib.new(kind, data).hexdigest()}


def describe(wheel: Path, identity: str) -> tuple[dict, list[dict], list[dict]]:
    """The wheel, its components, and its files."""
    with zipfile.ZipFile(wheel) as archive:
        contents = {name: archive.read(name) for name in sorted(archive.namelist()) if not name.endswith("/")}
    files = [
        {
            "SPDXID": f"{identity}-file-{number}",
            "fileName": f"./{wheel.name}/{name}",
            "checksums": [digest("SHA1", data), digest("SHA256", data)],
        }
        for number, (name, data) in enumerate(contents.items())
    ]
    sums = sorted(file["checksums"][0]["checksumValue"] for file in files)
    code = hashlib.sha1("".join(sums).encode()).hexdigest()
    package = {
        "SPDXID": identity,
        "name": wheel.name,
        "versionInfo": wheel.name.split("-")[1],
        "downloadLocation": "NOASSERTION",
        "checksums": [digest("SHA256", wheel.read_bytes())],
        "filesAnalyzed": True,
        "packageVerificationCode": {"packageVerificationCodeValue": code},
        "licenseConcluded": licence_of_a_wheel(wheel.name),
        "licenseDeclared": "Apache-2.0",
    }
    return package, components_in(wheel.name, contents), files


def sbom(wheels: list[Path], out: Path) -> None:
    packages, components, files, relations = [], {}, [], []
    for number, wheel in enumerate(sorted(wheels)):
        package, its_components, its_files = describe(wheel, f"SPDXRef-wheel-{number}")
        packages.append(package)
        components.update((component["SPDXID"], component) for component in its_components)
        files += its_files
        relations.append(("SPDXRef-DOCUMENT", "DESCRIBES", package["SPDXID"]))
        relations += [(package["SPDXID"], "CONTAINS", part["SPDXID"]) for part in its_components + its_files]
    created = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    # The same wheels give the same document.
    identity = uuid.uuid5(uuid.NAMESPACE_URL, "".join(package["checksums"][0]["checksumValue"] for package in packages))
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"saccade-{packages[0]['versionInfo']}-wheels",
        "documentNamespace": f"urn:uuid:{identity}",
        "creationInfo": {"created": created.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: saccade-contents.py"]},
        "packages": [*packages, *components.values()],
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
    texts = commands.add_parser("licences")
    texts.add_argument("platform")
    texts.add_argument("folder", type=Path)
    listing = commands.add_parser("sbom")
    listing.add_argument("wheels", type=Path, nargs="+")
    listing.add_argument("-o", dest="out", type=Path, required=True)
    arguments = parser.parse_args()
    if arguments.command == "licences":
        licences(arguments.platform, arguments.folder)
    else:
        sbom(arguments.wheels, arguments.out)


if __name__ == "__main__":
    main()
