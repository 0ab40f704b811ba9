"""Puts the tutorial's instruments together: docs/tutorial/live, saccade.js and the numbers that the authors printed.

    live.py FOLDER   writes each chapter's instrument as a page of its own, one file in each language

The documentation's site has them in the chapters (prepare.py). Nothing is fetched.

A place for an instrument is an element of class "live", with data-instrument and data-language. Until its scripts have
run, and where they cannot, it shows a picture of what the chapter computes.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIVE = ROOT / "docs/tutorial/live"
LANGUAGES = {"en": "", "zh": "zh-CN"}
# The picture of each chapter that stands for its instrument, and what it shows.
STILLS = {
    1: ("simple_weights.svg", "The six words' weights as a heat map", "六个词的权重热图"),
    2: ("scale.svg", "Weights without and with the division by √d", "除以 √d 之前和之后的权重"),
    3: ("causal_weights.svg", "The weights under the causal mask", "因果掩码下的权重"),
    4: ("two_heads.svg", "The weights of two heads", "两个头的权重"),
    5: ("induction_by_hand.svg", "The weights of an induction head", "归纳头的权重"),
}
NOTES = {
    "en": "With JavaScript, numbers can be changed here, and all that follows from them is computed in this page.",
    "zh": "启用 JavaScript 后，可以在这里改动数字，由此而来的一切都在本页内算出。",
}


def chapter_files() -> list[Path]:
    return sorted(LIVE.glob("[0-9]_*.js"))


def scripts(files: list[Path]) -> str:
    """The instruments of these files as one script, which waits for saccade.js."""
    published = json.loads((ROOT / "cases/data/published_examples.json").read_text(encoding="utf-8"))
    parts = "\n".join(path.read_text(encoding="utf-8") for path in [LIVE / "instrument.js", *files])
    return f"(() => {{\nconst PUBLISHED = {json.dumps(published)};\n{parts}\nstartInstruments();\n}})();\n"


def library() -> str:
    """saccade.js as a script that pages from a disk can load: they may not import modules."""
    module = (ROOT / "web/prebuilt/saccade.js").read_text(encoding="utf-8")
    code, count = re.subn(r"export \{([^}]*)\};\s*\Z", r"return {\1};", module)
    if count != 1:
        raise SystemExit("web/prebuilt/saccade.js does not end with what it exports")
    return f"globalThis.saccadeLibrary = (async () => {{\n{code}\n}})();\n"


def style() -> str:
    return (LIVE / "live.css").read_text(encoding="utf-8")


def place(name: str, language: str, picture: str, shows: str) -> str:
    """The place of an instrument; `picture` is the address of its still picture, and `shows` what can be seen there."""
    return (
        f'<div class="live" data-instrument="{name}" data-language="{language}">'
        f'<img src="{picture}" alt="{shows}"><p class="live-still">{NOTES[language]}</p></div>'
    )


def place_of(chapter: int, language: str, picture: str) -> str:
    return place(str(chapter), language, picture, STILLS[chapter][1 if language == "en" else 2])


def address_of(picture: Path) -> str:
    """A picture as an address that contains it."""
    kind = {".svg": "image/svg+xml", ".png": "image/png"}[picture.suffix]
    return f"data:{kind};base64," + base64.b64encode(picture.read_bytes()).decode()


def in_chapter(page: Path) -> str:
    """What takes the place of <!-- live --> in a page of the site, below docs/tutorial: HTML without empty lines."""
    language = next(name for name, folder in LANGUAGES.items() if page.parent == Path("docs/tutorial", folder))
    chapter = int(page.name[0])
    root = "../" * (len(page.parts) - 1)
    picture = f"{root}_static/live/{STILLS[chapter][0]}"
    return (
        f'<link rel="stylesheet" href="{root}_static/live/live.css">\n'
        f"{place_of(chapter, language, picture)}\n"
        f'<script defer src="{root}_static/live/saccade.js"></script>\n'
        f'<script defer src="{root}_static/live/live.js"></script>\n'
    )


def write_for_site(folder: Path) -> None:
    """The files that in_chapter() names, and the still pictures, to the folder of static files."""
    (folder / "live").mkdir(parents=True, exist_ok=True)
    for name, text in {"live.css": style(), "saccade.js": library(), "live.js": scripts(chapter_files())}.items():
        (folder / "live" / name).write_text(text, encoding="utf-8")
    for picture, *_ in STILLS.values():
        shutil.copy(ROOT / "docs/tutorial/pictures" / picture, folder / "live")


def page(title: str, instrument: str, language: str, files: list[Path]) -> str:
    """An instrument's place as a page of its own, with the scripts of these files."""
    policy = (
        "default-src 'none'; script-src 'unsafe-inline' 'wasm-unsafe-eval'; style-src 'unsafe-inline'; img-src data:"
    )
    return f"""<!DOCTYPE html>
<html lang="{"en" if language == "en" else "zh-CN"}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>
{(LIVE / "page.css").read_text(encoding="utf-8")}{style()}</style>
</head>
<body>
<main>
<h1>{title}</h1>
{instrument}
</main>
<script>
{library()}</script>
<script>
{scripts(files)}</script>
</body>
</html>
"""


def page_of(chapter: int, language: str) -> str:
    source = (ROOT / "docs/tutorial" / LANGUAGES[language] / chapters()[chapter - 1]).read_text(encoding="utf-8")
    address = address_of(ROOT / "docs/tutorial/pictures" / STILLS[chapter][0])
    return page(re.match(r"# (.*)", source)[1], place_of(chapter, language, address), language, chapter_files())


def chapters() -> list[str]:
    return sorted(path.name for path in (ROOT / "docs/tutorial").glob("[0-9]-*.md"))


def write_pages(folder: Path) -> list[Path]:
    """Each chapter's instrument in each language."""
    files = []
    for chapter, name in enumerate(chapters(), 1):
        for language in LANGUAGES:
            files.append(folder / f"{Path(name).stem}.{language}.html")
            files[-1].write_text(page_of(chapter, language), encoding="utf-8")
    return files


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for file in write_pages(folder):
        print(f"{file}: {file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
