"""The list of the pages in docs/benchmarks, and README's table and chart of all processors, made from the pages.

``python -m peers.pages FOLDER [README...]`` writes them, and the pictures of the pages, without measuring.
"""

from __future__ import annotations

import pathlib
import re
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from . import plots
from .curves import read_curves

# Columns of a page's tables that are not those of libraries.
_OTHER_COLUMNS = ("problem", "threads", "of peak", "of bandwidth", "best other / saccade", "saccade is")
_UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "MiB": 2.0**20, "GiB": 2.0**30}
BEGIN, END = "<!-- processors: begin -->", "<!-- processors: end -->"


class Row(NamedTuple):
    """A line of a page's tables."""

    problem: str
    threads: int
    amounts: dict[str, str]  # the text of each library's time or memory; saccade is one of them
    ratio: float | None

    def best_other(self) -> str | None:
        """The name of the library other than saccade that takes least."""
        others = [name for name in self.amounts if name != "saccade"]
        return min(others, key=lambda name: amount_in(self.amounts[name]), default=None)


class Page(NamedTuple):
    """What a page says."""

    file: str
    processor: str
    isa: str
    date: str
    commit: str
    noise: str
    rows: list[Row]

    def lead(self) -> tuple[int, int]:
        """On how many lines saccade is ahead, and of how many."""
        compared = [row for row in self.rows if row.ratio is not None]
        return sum(row.ratio >= 1 for row in compared), len(compared)

    def row(self, problem: str) -> Row | None:
        """The row of a problem on one thread."""
        return next((row for row in self.rows if (row.problem, row.threads) == (problem, 1)), None)


def amount_in(text: str) -> float:
    """Seconds or bytes of a table's cell."""
    number, unit = text.split()[:2]
    return float(number) * _UNITS[unit]


def read_page(file: str, text: str) -> Page:
    """
    :raises ValueError: if the page lacks what :func:`peers.report.markdown` writes.
    """
    patterns = {
        "processor": r"^\*\*Processor:\*\* (.*), instruction set level ",
        "isa": r"^\*\*Processor:\*\* .*, instruction set level (.*)\.$",
        "date": r"^\*\*Date:\*\* (\d{4}-\d\d-\d\d)",
        "commit": r"^\*\*Date:\*\* .*commit (\S+?)[. ]",
        "noise": r"^\*\*Noise:\*\* ([^.,;]*)",
    }
    fields = {name: re.search(pattern, text + "\n", re.MULTILINE) for name, pattern in patterns.items()}
    missing = [name for name in fields if fields[name] is None and name != "commit"]
    if missing:
        raise ValueError(f"{file}: no {missing[0]}")
    return Page(file=file, rows=list(_rows(text)), **{name: of[1] if of else "" for name, of in fields.items()})


def _rows(text: str) -> Iterable[Row]:
    heads: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            heads = []
        elif cells[:3] == ["problem", "threads", "saccade"]:
            heads = cells
        elif heads and not cells[0].startswith("---"):
            of = dict(zip(heads, cells))
            amounts = {name: cell for name, cell in of.items() if cell and name not in _OTHER_COLUMNS}
            ratio = of.get("best other / saccade")
            yield Row(of["problem"], int(of["threads"]), amounts, float(ratio) if ratio else None)


def read_pages(folder: pathlib.Path) -> list[Page]:
    """All pages of a folder, the newest first."""
    files = sorted(path for path in folder.glob("*.md") if path.name != "README.md")
    pages = [read_page(path.name, path.read_text()) for path in files]
    return sorted(pages, key=lambda page: page.date, reverse=True)


class _Words(NamedTuple):
    """The texts of README's table in one language."""

    title: str
    problems: dict[str, str]
    ahead: str
    of: str
    between: str
    chart: str
    heading: str


_PROBLEMS = (
    "heads 8, seqlen 4096, head_dim 64, causal",
    "heads 8, seqlen 2048, head_dim 128, bf16",
    "heads 32 (8 of k and v), queries 1, keys 32768, head_dim 128, causal",
    "heads 8, seqlen 4096, head_dim 64, causal, backward",
)
ENGLISH = _Words(
    title="one thread, from Python",
    problems=dict(
        zip(
            _PROBLEMS,
            (
                "causal, 4096 tokens, 8 heads of 64, f32",
                "2048 tokens, 8 heads of 128, bf16",
                "one new token, 32768 cached keys, 32 heads of 128",
                "gradients, causal, 4096 tokens, 8 heads of 64",
            ),
        )
    ),
    ahead="saccade is ahead on",
    of="{ahead} of {all} lines",
    between="; ",
    chart="speed.svg",
    heading="Time of a call from Python, one thread; shorter is better",
)
CHINESE = _Words(
    title="单线程，从 Python 调用",
    problems=dict(
        zip(
            _PROBLEMS,
            (
                "因果，4096 个 token，8 个头，head_dim 64，f32",
                "2048 个 token，8 个头，head_dim 128，bf16",
                "一个新 token，缓存 32768 个 key，32 个头，head_dim 128",
                "梯度，因果，4096 个 token，8 个头，head_dim 64",
            ),
        )
    ),
    ahead="saccade 领先的行数",
    of="{all} 行中的 {ahead} 行",
    between="；",
    chart="speed.zh-CN.svg",
    heading="从 Python 调用一次的时间，单线程；越短越好",
)


def processors_table(pages: Sequence[Page], words: _Words, folder: str) -> list[str]:
    """A column for each processor: some problems, and on how many lines saccade is ahead.

    :param folder: of the pages, as a prefix of links.
    """
    rows = []
    for problem, title in words.problems.items():
        rows.append([title, *(_times(page.row(problem), words) for page in pages)])
    counts = [words.of.format(ahead=page.lead()[0], all=page.lead()[1]) for page in pages]
    rows.append([words.ahead, *(f"[{count}]({folder}{page.file})" for count, page in zip(counts, pages))])
    head = " | ".join([words.title, *(page.processor for page in pages)])
    return [f"| {head} |", "|---" * (len(pages) + 1) + "|", *("| " + " | ".join(cells) + " |" for cells in rows)]


def _times(row: Row | None, words: _Words) -> str:
    """The times of saccade and of the best other library, the lower one in bold."""
    if row is None or "saccade" not in row.amounts:
        return ""
    own, other = row.amounts["saccade"], row.best_other()
    if other is None:
        return own
    is_ahead = row.ratio is None or row.ratio >= 1
    theirs = f"{other} {row.amounts[other]}"
    return (f"**{own}**" if is_ahead else own) + words.between + (theirs if is_ahead else f"**{theirs}**")


def processors_chart(pages: Sequence[Page], words: _Words) -> str:
    """README's chart: the problems of its table, saccade beside PyTorch. The text of an SVG file."""
    panels = []
    for problem, title in words.problems.items():
        found = [(page.processor, page.row(problem)) for page in pages]
        rows = [(name, _bars(row)) for name, row in found if row and row.amounts.keys() >= set(_CHARTED)]
        if rows:
            panels.append(plots.Bars(title, rows))
    dates = "; ".join(f"{page.processor}: {page.date}" for page in pages)
    return str(plots.chart(panels, _CHARTED, words.heading, dates))


_CHARTED = ("saccade", "PyTorch")


def _bars(row: Row) -> list[tuple[float, str]]:
    return [(amount_in(row.amounts[name]), row.amounts[name]) for name in _CHARTED]


def index(pages: Sequence[Page]) -> str:
    """The text of the folder's README.md."""
    rows = ["| page | instruction set level | date | commit | saccade is ahead on | noise |", "|---" * 6 + "|"]
    for page in pages:
        count = ENGLISH.of.format(ahead=page.lead()[0], all=page.lead()[1])
        cells = [f"[{page.processor}]({page.file})", page.isa, page.date, page.commit, count, page.noise]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join([_INDEX, "", *rows, "", _TABLE, "", *processors_table(pages, ENGLISH, ""), ""])


_INDEX = """\
# Comparison with other libraries

saccade from Python compared with PyTorch, ONNX Runtime, OpenVINO, JAX and NumPy: one page for each processor, made on
it by `script/bench --peers --update`, which also writes this list and the tables of both READMEs. Each page says how it
was measured, and names the lines on which saccade is behind. 64-bit Arm has no page: its kernels have run under
emulation only."""

_TABLE = """\
One thread: the time of saccade, then that of the fastest other library."""


def filled(text: str, table: Sequence[str]) -> str:
    """A text with the table between its marks.

    :raises ValueError: if it has no marks.
    """
    begin, end = text.find(BEGIN), text.find(END)
    if not 0 <= begin < end:
        raise ValueError(f"there is no '{BEGIN}' before '{END}'")
    return text[: begin + len(BEGIN)] + "\n" + "\n".join(table) + "\n" + text[end:]


def update(folder: pathlib.Path, readmes: Iterable[pathlib.Path]) -> None:
    """Writes the list of a folder's pages and their pictures, the table of all processors into these files, and its
    charts into the folder "pictures" beside that of the pages."""
    pages = read_pages(folder)
    for page in pages:
        plots.draw(read_curves((folder / page.file).read_text()), (folder / page.file).with_suffix(""))
    (folder / "README.md").write_text(index(pages))
    for path in readmes:
        words = CHINESE if "zh" in path.name else ENGLISH
        path.write_text(filled(path.read_text(), processors_table(pages, words, "docs/benchmarks/")))
        (folder.parent / "pictures" / words.chart).write_text(processors_chart(pages, words))


if __name__ == "__main__":
    update(pathlib.Path(sys.argv[1]), [pathlib.Path(name) for name in sys.argv[2:]])
