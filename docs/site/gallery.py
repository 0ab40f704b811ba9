"""Makes the pages of docs/gallery: runs the code of each of its sections.

    gallery.py OUT SACCADE MODELS   writes the pages to the folder OUT; SACCADE is the command, MODELS what
                                    script/models made

The code runs in a folder with links to examples and, under its name, to each model, with this Python, whose package
saccade it uses. A section names its pages in a comment, and the run fails if one of them was not made.
"""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import live

ROOT = Path(__file__).parents[2]
PAGE = Path("docs/gallery/README.md")
MARK = re.compile(r"^<!-- pages: (.+) -->\n", re.MULTILINE)
BLOCK = re.compile(r"^```(console|python)[^\n]*\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
MASKS = {"en": "Masks and biases", "zh": "掩码与偏置"}


def sections() -> list[tuple[str, list[str], str]]:
    """(title, addresses of its pages, text) of each section. An address may name a view, as in a.html#view=map."""
    parts = re.split(r"^## (.*)\n", (ROOT / PAGE).read_text(encoding="utf-8"), flags=re.MULTILINE)
    pairs = zip(parts[1::2], parts[2::2], strict=True)
    return [(title, " ".join(MARK.findall(text)).split(), text) for title, text in pairs]


def name_of(address: str) -> str:
    return address.partition("#")[0]


def with_links(text: str, folder: Path) -> str:
    """The gallery as the site has it: with a link to each page in `folder`, and its size."""

    def link(address: str, several: bool) -> str:
        page = folder / name_of(address)
        with page.open(encoding="utf-8") as file:
            title = re.search("<title>(.*)</title>", file.read(10_000))[1]
        megabytes = page.stat().st_size / 1e6
        return f'<a href="{html.escape(address)}">{title if several else "Open it"}</a> ({megabytes:.1f} MB)'

    def links(match: re.Match) -> str:
        addresses = match[1].split()
        return "<p>" + " · ".join(link(each, len(addresses) > 1) for each in addresses) + "</p>\n\n"

    return MARK.sub(links, text)


def run(language: str, code: str, folder: Path, environment: dict[str, str]) -> None:
    if language == "python":
        command = [sys.executable, "-c", code]
    else:
        lines = [line[2:] for line in code.splitlines() if line.startswith("$ ")]
        command = ["bash", "-euc", "\n".join(lines)]
    done = subprocess.run(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode != 0:
        raise SystemExit(f"{code}\nended with {done.returncode}:\n{done.stdout}")


def write_instruments(out: Path) -> None:
    """The tutorial's instruments, and the gallery's own."""
    live.write_pages(out)
    picture = ROOT / "docs/gallery/pictures/masks.png"
    for language, title in MASKS.items():
        page = live.page(
            title,
            live.place("masks", language, live.address_of(picture), title),
            language,
            [ROOT / "docs/gallery/masks.js"],
        )
        (out / f"masks.{language}.html").write_text(page, encoding="utf-8")


def main() -> None:
    out, command, models = (Path(argument).resolve() for argument in sys.argv[1:])
    out.mkdir(parents=True, exist_ok=True)
    path = [str(command.parent), str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = {**os.environ, "PATH": os.pathsep.join(path)}
    for _, pages, _ in sections():  # of an earlier run; other files of the folder are not ours
        for page in pages:
            (out / name_of(page)).unlink(missing_ok=True)
    write_instruments(out)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for place in [ROOT / "examples", *models.iterdir()]:
            (folder / place.name).symlink_to(place)
        for title, pages, text in sections():
            for language, code in BLOCK.findall(text):
                run(language, code, folder, environment)
            for page in folder.glob("*.html"):
                shutil.move(page, out / page.name)
            names = [name_of(page) for page in pages]
            missing = [name for name in names if not (out / name).is_file()]
            if missing:
                raise SystemExit(f"{PAGE}: the code of '{title}' made no {' and no '.join(missing)}")
            print(f"{title}: " + ", ".join(f"{name} ({(out / name).stat().st_size / 1e6:.1f} MB)" for name in names))


if __name__ == "__main__":
    main()
