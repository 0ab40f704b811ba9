"""Runs the code of docs/tutorial and writes what it prints and draws into the pages.

A chapter's Python blocks are one program, and so are its C++ blocks: their #include lines, and a function of the rest.
A block of each language and the text block that follows belong together: both programs print that text, apart from
commas and spaces. Before a text block the comment

    <!-- printed: six_tokens/simple/scores -->

names numbers in cases/data/published_examples.json, several with commas between them. They are put beside the computed
ones, row by row. A difference beyond the tolerance that is given there (default: half a unit of the last printed digit)
ends the run. A picture is a file x.svg that the code writes, the same in both languages.

    tutorial.py --source FILE       writes the C++ program of all chapters; its argument is the folder for pictures
    tutorial.py --extract FOLDER    writes each chapter's two programs to a folder
    tutorial.py [--check] PROGRAM   runs the Python code and the built PROGRAM, and rewrites the pages, or with --check
                                    compares them
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/tutorial"
PICTURES = FOLDER / "pictures"
# The folders of the pages, and the heads of the two columns.
LANGUAGES = {"": ("computed", "printed"), "zh-CN": ("算得", "印出")}
BLOCK = re.compile(r"^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
PRINTED = re.compile(r"<!-- printed: (.*?) -->\s*\Z")
NUMBER = re.compile(r"-?(?:\d+\.?\d*(?:e[+-]?\d+)?|inf|nan)")
MARK = "\x1e"  # begins a line that separates the outputs of two blocks
LARGEST_PICTURE = 30_000


class Wrong(Exception):
    """What a page says is not so."""


@dataclass
class Step:
    """A block of each language, or of one, and what they print."""

    line: int  # of the page's source
    code: dict[str, str] = field(default_factory=dict)  # by language
    lines: dict[str, int] = field(default_factory=dict)  # where that code begins
    printed: list[str] = field(default_factory=list)
    text: tuple[int, int] | None = None  # where the output stands in the page


@dataclass
class Page:
    path: Path
    source: str
    steps: list[Step]

    def place(self, step: Step) -> str:
        return f"{self.path.relative_to(ROOT)}:{step.line}"

    def code(self, language: str) -> Iterator[tuple[int, Step, str]]:
        for number, step in enumerate(self.steps):
            if language in step.code:
                yield number, step, step.code[language]


def chapters() -> list[str]:
    return sorted(path.name for path in FOLDER.glob("[0-9]-*.md"))


def read(path: Path) -> Page:
    source = path.read_text(encoding="utf-8")
    page = Page(path, source, [])
    for match in BLOCK.finditer(source):
        kind = match["kind"]
        step = page.steps[-1] if page.steps else None
        if kind in ("python", "cpp"):
            if step is None or step.text or kind in step.code or kind == "python":
                step = Step(source.count("\n", 0, match.start()) + 1)
                page.steps.append(step)
            step.code[kind] = match["text"]
            step.lines[kind] = source.count("\n", 0, match.start("text")) + 1
        elif kind == "text":
            if step is None or step.text:
                raise Wrong(f"{path}: a text block without code before it: {match['text']!r}")
            step.text = match.span("text")
            comment = PRINTED.search(source, 0, match.start())
            step.printed = comment[1].split(", ") if comment else []
    return page


def cpp_source(pages: list[Page]) -> str:
    """One program of all chapters; the compiler's messages name the lines of the pages."""
    includes, functions, calls = {"#include <cstdlib>", "#include <filesystem>", "#include <iostream>"}, "", ""
    for chapter, page in enumerate(pages):
        functions += f"static void chapter_{chapter}() {{\n"
        for number, step, code in page.code("cpp"):
            lines = code.splitlines()
            includes.update(line for line in lines if line.startswith("#include"))
            functions += f'#line {step.lines["cpp"]} "{page.path}"\n'
            functions += "".join(line + "\n" if not line.startswith("#include") else "\n" for line in lines)
            functions += f'std::cout << "{MARK}{chapter} {number}\\n" << std::flush;\n'
        functions += "}\n\n"
        calls += f"  chapter_{chapter}();\n"
    start = "  if (argc != 2) return EXIT_FAILURE;\n  std::filesystem::current_path(argv[1]);\n"
    main = "int main(int argc, char** argv) {\n" + start + calls + "}\n"
    return "\n".join(sorted(includes)) + "\n\n" + functions + main


def programs(page: Page) -> dict[str, str]:
    """A chapter's code as two programs that stand alone."""
    python = "\n".join(code for _, _, code in page.code("python"))
    lines = "\n".join(code for _, _, code in page.code("cpp")).splitlines()
    includes = sorted({line for line in lines if line.startswith("#include")})
    body = "\n".join("  " + line if line else "" for line in lines if not line.startswith("#include")).strip("\n")
    body = re.sub(r"\n{3,}", "\n\n", body)
    return {"py": python, "cpp": "\n".join(includes) + f"\n\nint main() {{\n{body}\n}}\n"}


def run_python(page: Page, folder: Path) -> dict[int, str]:
    outputs, names, before = {}, {"__name__": "__main__"}, os.getcwd()
    os.chdir(folder)
    try:
        for number, step, code in page.code("python"):
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile("\n" * (step.lines["python"] - 1) + code, page.path, "exec"), names)
            outputs[number] = output.getvalue()
    finally:
        os.chdir(before)
    return outputs


def run_cpp(program: Path, folder: Path) -> list[dict[int, str]]:
    result = subprocess.run([program.resolve(), folder], capture_output=True, encoding="utf-8")
    if result.returncode != 0:
        raise Wrong(f"{program} ended with {result.returncode}: {result.stderr}")
    outputs: list[dict[int, str]] = [{} for _ in chapters()]
    for text, chapter, number in re.findall(rf"(.*?){MARK}(\d+) (\d+)\n", result.stdout, re.DOTALL):
        outputs[int(chapter)][int(number)] = text
    return outputs


def plain(output: str) -> str:
    """An output without what differs between NumPy's way to print and saccade::to_string()."""
    words = re.sub(r"([][])", r" \1 ", output.replace(",", " ")).split()
    return " ".join(word[1:] if re.fullmatch(r"-(nan|0\.0*)", word) else word for word in words)


def published(path: str, examples: dict) -> tuple[list[list], float, float]:
    """Numbers that an author printed as rows, and their tolerances: absolute, and as a share of each number."""
    value, absolute, relative = examples, None, 0.0
    for name in path.split("/"):
        value = value[int(name) if isinstance(value, list) else name]
        if isinstance(value, dict) and "tolerance" in value:
            absolute, relative = value["tolerance"], 0.0
        elif isinstance(value, dict) and "relative_tolerance" in value:
            absolute, relative = 0.0, value["relative_tolerance"]
    if not isinstance(value, list):
        value = [value]
    rows = value if isinstance(value[0], list) else [value]
    if absolute is None:
        absolute = 0.5 * 10.0 ** -decimals(rows)
    return rows, absolute, relative


def decimals(rows: list[list]) -> int:
    """The digits after the point of the number that has the most."""
    return max(0, *(-Decimal(repr(number)).normalize().as_tuple().exponent for row in rows for number in row), 0)


def numbers_of(line: str) -> list[float]:
    """The numbers of a row: behind the last bracket that opens, or behind "="."""
    _, mark, rest = line.rpartition("[")
    if not mark:
        _, mark, rest = line.rpartition("=")
    return [float(number) for number in NUMBER.findall(rest)] if mark else []


def width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def beside(output: str, step: Step, examples: dict, heads: tuple[str, str], place: str) -> str:
    """The lines of an output, and beside them the numbers that were printed."""
    rows = []
    for path in step.printed:
        numbers, absolute, relative = published(path, examples)
        digits = decimals(numbers)
        form = "{:.4e}" if relative else f"{{:.{digits}f}}"
        rows += [(path, row, absolute, relative, form) for row in numbers]
    lines = output.splitlines()
    texts = []
    for line in lines:
        computed = numbers_of(line)
        if not computed or not rows:
            texts.append("")
            continue
        path, row, absolute, relative, form = rows.pop(0)
        if len(row) > len(computed):
            raise Wrong(f"{place}: {path} has {len(row)} numbers where {len(computed)} were computed")
        for number, ours in zip(row, computed):
            if not abs(ours - number) <= absolute + relative * abs(number) + 1e-12:
                raise Wrong(f"{place}: {path} was printed as {number}, computed is {ours}")
        texts.append(" ".join(form.format(number) for number in row))
    if rows:
        raise Wrong(f"{place}: the output has no row for {rows[0][0]}")
    left = max(width(line) for line in [*lines, heads[0]])
    result = [(heads[0], heads[1]), *zip(lines, texts)]
    return "".join(line + (" " * (left - width(line)) + " | " + text if text else "") + "\n" for line, text in result)


def output_of(page: Page, number: int, python: dict[int, str], cpp: dict[int, str]) -> str:
    """What a step prints, the same in both languages."""
    step = page.steps[number]
    outputs = [each[number] for each in (python, cpp) if number in each]
    if len({plain(output) for output in outputs}) > 1:
        raise Wrong(f"{page.place(step)}: Python prints\n{outputs[0]}\nand C++\n{outputs[1]}")
    if outputs[0] and not step.text:
        raise Wrong(f"{page.place(step)}: no text block shows what is printed: {outputs[0]!r}")
    return outputs[0]


def is_same_picture(content: bytes, other: bytes) -> bool:
    """Whether two pictures are equal, but for the sixth digit of the weights in their tooltips: instruction sets round
    differently."""
    weight = rb"\b\d\.\d{4,}\b"
    pairs = zip(re.findall(weight, content), re.findall(weight, other))
    is_close = all(abs(float(a) - float(b)) <= 2e-6 for a, b in pairs)
    return is_close and re.sub(weight, b"#", content) == re.sub(weight, b"#", other)


def check_pictures(names: set[str], python: Path, cpp: Path) -> dict[str, bytes]:
    """The pictures that the programs of all chapters wrote to two folders."""
    pictures = {path.name: path.read_bytes() for path in sorted(python.glob("*.svg"))}
    for path in sorted(cpp.glob("*.svg")):
        if not is_same_picture(pictures.setdefault(path.name, path.read_bytes()), path.read_bytes()):
            raise Wrong(f"Python and C++ draw {path.name} differently")
    if names != set(pictures):
        raise Wrong(f"pictures that are only shown or only drawn: {', '.join(sorted(names ^ set(pictures)))}")
    for name, content in pictures.items():
        if len(content) > LARGEST_PICTURE:
            raise Wrong(f"{name} has {len(content)} bytes; a picture has at most {LARGEST_PICTURE}")
    return pictures


def check_translation(page: Page, translation: Page) -> None:
    """The pages of a chapter differ in nothing but prose."""

    def parts(of: Page) -> dict[str, list]:
        return {
            "code": [step.code for step in of.steps],
            "printed numbers": [step.printed for step in of.steps],
            "formulas": [match["text"] for match in BLOCK.finditer(of.source) if match["kind"] == "math"],
            "pictures": [Path(name).name for name in re.findall(r"\]\(([^)]+\.(?:svg|png))\)", of.source)],
            "foldings": re.findall(r"</?details>", of.source),
            "headings": re.findall(r"^#+ ", of.source, re.MULTILINE),
            "place for a live version": re.findall(r"<!-- live -->", of.source),
        }

    theirs = parts(translation)
    for what, ours in parts(page).items():
        if ours != theirs[what]:
            odd = next((pair for pair in zip(ours, theirs[what]) if pair[0] != pair[1]), (len(ours), len(theirs[what])))
            raise Wrong(f"{what} of {translation.path} and {page.path} differ:\n{odd[1]}\n{odd[0]}")
    if len(theirs["place for a live version"]) != 1:
        raise Wrong(f"{page.path} needs one line <!-- live -->")


def finished(program: Path) -> dict[Path, bytes]:
    """What the files of the tutorial must hold."""
    examples = json.loads((ROOT / "cases/data/published_examples.json").read_text())
    files, shown = {}, set()
    with tempfile.TemporaryDirectory() as python_folder, tempfile.TemporaryDirectory() as cpp_folder:
        cpp = run_cpp(program, Path(cpp_folder))
        for chapter, name in enumerate(chapters()):
            page = read(FOLDER / name)
            python = run_python(page, Path(python_folder))
            outputs = [output_of(page, number, python, cpp[chapter]) for number in range(len(page.steps))]
            shown.update(re.findall(r"\]\(pictures/([^)]+)\)", page.source))
            for language, heads in LANGUAGES.items():
                translation = read(FOLDER / language / name)
                check_translation(page, translation)
                files[translation.path] = rewritten(translation, outputs, examples, heads).encode()
        for picture, content in check_pictures(shown, Path(python_folder), Path(cpp_folder)).items():
            files[PICTURES / picture] = content
    return files


def rewritten(page: Page, outputs: list[str], examples: dict, heads: tuple[str, str]) -> str:
    text, end = "", 0
    for step, output in zip(page.steps, outputs):
        if step.text:
            if step.printed:
                output = beside(output, step, examples, heads, page.place(step))
            text += page.source[end : step.text[0]] + output
            end = step.text[1]
    return text + page.source[end:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path, nargs="?")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--source", type=Path)
    parser.add_argument("--extract", type=Path)
    arguments = parser.parse_args()
    try:
        pages = [read(FOLDER / name) for name in chapters()]
        if arguments.source:
            arguments.source.write_text(cpp_source(pages), encoding="utf-8")
        elif arguments.extract:
            arguments.extract.mkdir(parents=True, exist_ok=True)
            for page in pages:
                for ending, program in programs(page).items():
                    (arguments.extract / f"{page.path.stem}.{ending}").write_text(program, encoding="utf-8")
        elif arguments.program:
            update(arguments.program, arguments.check)
        else:
            parser.error("a program is missing")
    except Wrong as error:
        sys.exit(f"tutorial: {error}")


def is_written(path: Path, content: bytes) -> bool:
    there = path.read_bytes() if path.exists() else b""
    return there == content or (path.suffix == ".svg" and is_same_picture(there, content))


def update(program: Path, is_check: bool) -> None:
    files = finished(program)
    changed = [path for path, content in files.items() if not is_written(path, content)]
    changed += [path for path in PICTURES.glob("*") if path not in files]
    if is_check and changed:
        names = ", ".join(str(path.relative_to(ROOT)) for path in changed)
        raise Wrong(f"not as the code prints and draws it: {names}. script/tutorial writes them.")
    for path in changed:
        if path in files:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(files[path])
        else:
            path.unlink()
    pictures = sum(path.suffix == ".svg" for path in files)
    print(f"{len(chapters())} chapters, {pictures} pictures, {len(changed)} files written")


if __name__ == "__main__":
    main()
