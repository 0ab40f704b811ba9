"""Lays out the sources of the documentation site in the folder argv[1]; argv[2] is the command saccade, argv[3] the
built Python package, argv[4] the pages of the gallery.

Pages keep their places in the repository, so that links between them stay; README.md becomes the home. A link to a
header leads to its page of the API, and a link to any other file to a copy of it. What cannot be found ends the run.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import gallery
import live

ROOT = Path(__file__).parents[2]
CHAPTERS = ["README", *sorted(path.stem for path in ROOT.glob("docs/tutorial/[0-9]-*.md"))]
GROUPS = {  # of the pages in docs/; a page that is in none ends the run
    "Tutorial": " ".join(f"tutorial/{name}" for name in CHAPTERS),
    "教程": " ".join(f"tutorial/zh-CN/{name}" for name in CHAPTERS),
    "Gallery": "gallery/README",
    "Quick starts": "quickstart/cpp quickstart/pytorch quickstart/transformers quickstart/numpy "
    "quickstart/command-line quickstart/look quickstart/distributed",
    "How-to": "howto/migrate howto/padding howto/serving howto/training howto/profiling install",
    "Reference": "contract options python torch transformers jax onnx onnxruntime c command-line page "
    "web attention-modules layers decoding quantized-caches models tokenizer distributed inspection heatmaps random "
    "files errors environment versioning glossary",
    "Explanation": "faq comparison campaign/README performance/README performance/method "
    "performance/optimizations design testing training",
}


def pages() -> list[Path]:
    listed = subprocess.check_output(["git", "ls-files", "*.md"], cwd=ROOT, text=True).split()
    return [Path(name) for name in listed if re.match(r"(docs/|[A-Z_]+(\.zh-CN)?\.md$)", name)]


def target_of(page: Path, link: str, site: Path) -> str:
    """Where a link of a page leads in the site."""
    path, _, anchor = link.partition("#")
    if not path or re.match(r"[a-z]+:", path):
        return link
    file = Path(os.path.normpath(page.parent / path))
    if not (ROOT / file).exists():
        raise SystemExit(f"{page} links to {path}, which is not there")
    if file == Path("README.md"):
        file = Path("index.md")
    elif file.parent == Path("include/saccade"):
        file = Path("api", file.name + ".md")
    elif (ROOT / file).is_dir():
        return ""
    elif file.suffix != ".md":
        copy = site / file
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, copy)
    elif file not in pages():
        return ""
    relative = os.path.relpath(file, page.parent)
    return relative + (f"#{anchor}" if anchor else "")


def rewritten(page: Path, text: str, site: Path) -> str:
    """The text with its links changed, but for those in code."""

    def change(match: re.Match) -> str:
        if not match["link"]:
            return match[0]
        target = target_of(page, match["link"], site)
        return f"{match['mark']}[{match['text']}]({target})" if target else match["text"]

    code = r"^```.*?^```|`[^`\n]+`"
    link = r"(?P<mark>!?)\[(?P<text>(?:[^][]|\[[^]]*\])*)\]\((?P<link>[^)\s]+)\)"
    return re.sub(f"{code}|{link}", change, text, flags=re.DOTALL | re.MULTILINE)


def toctree(caption: str, entries: list[str], depth: int = 1) -> str:
    lines = "\n".join(entries)
    return f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n:maxdepth: {depth}\n\n{lines}\n```\n"


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def write_headers(site: Path) -> list[str]:
    entries = []
    for header in sorted((ROOT / "include/saccade").glob("*.h")):
        text = header.read_text()
        opening = re.match(r"((?://.*\n)+)", text)
        about = re.sub(r"^// ?", "", opening[1], flags=re.MULTILINE) if opening else ""
        body = f"# saccade/{header.name}\n\n{about}\n```{{doxygenfile}} {header.name}\n```\n"
        write(site / "api" / f"{header.name}.md", body)
        if header.name != "c_api.h":
            entries.append(f"api/{header.name}")
    return entries


def write_commands(site: Path, command: str) -> list[str]:
    def help_of(*arguments: str) -> str:
        return subprocess.check_output([command, *arguments, "--help"], text=True)

    whole = help_of()
    write(site / "command/saccade.md", f"# saccade\n\n```text\n{whole}```\n")
    entries = ["command/saccade"]
    for name in re.findall(r"^  ([a-z][a-z-]*) +[A-Z]", whole, flags=re.MULTILINE):
        write(site / f"command/{name}.md", f"# saccade {name}\n\n```text\n{help_of(name)}```\n")
        entries.append(f"command/{name}")
    return entries


def main() -> None:
    site, command = Path(sys.argv[1]), sys.argv[2]
    found = pages()
    for page in found:
        name = "index.md" if page == Path("README.md") else page
        text = rewritten(page, (ROOT / page).read_text(), site)
        if "<!-- live -->\n" in text:
            text = text.replace("<!-- live -->\n", live.in_chapter(page))
        if page == gallery.PAGE:
            text = gallery.with_links(text, Path(sys.argv[4]))
        write(site / name, text)
    live.write_for_site(site / "_static")
    # A copy, because a built package holds links.
    shutil.copytree(sys.argv[3], site / "python/saccade", ignore=shutil.ignore_patterns("*.so", "__pycache__"))

    benchmarks = sorted(str(page.with_suffix("")) for page in found if page.parts[:2] == ("docs", "benchmarks"))
    groups = {caption: [f"docs/{name}" for name in names.split()] for caption, names in GROUPS.items()}
    groups["The project"] = ["CHANGELOG", "CONTRIBUTING", "SECURITY", "CODE_OF_CONDUCT"]
    groups["Measurements"] = benchmarks
    missing = {str(page.with_suffix("")) for page in found} - {name for names in groups.values() for name in names}
    missing -= {"README", "README.zh-CN", "docs/README"}
    if missing:
        raise SystemExit(f"GROUPS of {Path(__file__).name} lacks {', '.join(sorted(missing))}")
    groups["API of Python"] = ["api/python/saccade/index"]
    groups["API of C"] = ["api/c_api.h"]
    groups["API of C++"] = write_headers(site)
    groups["The command"] = write_commands(site, command)
    home = toctree("Start", ["Home <self>", "中文 <README.zh-CN>", "docs/README"])
    home += "".join(toctree(caption, entries) for caption, entries in groups.items())
    with (site / "index.md").open("a") as file:
        file.write(home)


if __name__ == "__main__":
    main()
