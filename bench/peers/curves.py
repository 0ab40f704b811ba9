"""The curves of a page of docs/benchmarks: as tables, from which its pictures are drawn."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .report import Run
    from .timing import Line

UNITS = {"Speed": "GFLOP/s", "Memory": "MiB"}
SECTION = "Curves"
_LENGTHS, _PEAK = "seqlen", "peak of multiply-adds"
_LEAST_MEMORY = 0.1  # MiB, so that a logarithmic axis can show it


class Curve(NamedTuple):
    """Figures over the length of the sequence."""

    kind: str  # a key of UNITS
    title: str  # the problem without its length, and the threads
    lengths: list[int]
    values: dict[str, list[float | None]]  # of each library, by its name
    peaks: list[float]  # measured with each length; empty if they were not

    def words(self) -> list[str]:
        return self.title.split(", ")

    def shares(self, name: str) -> list[float | None]:
        """Of the peaks."""
        return [None if value is None else value / peak for value, peak in zip(self.values[name], self.peaks)]

    def best_others(self) -> list[float | None]:
        """The share of the peak of the fastest other library at each length."""
        found = [self.shares(name) for name in self.values if name != "saccade"]
        return [max((share for share in at if share is not None), default=None) for at in zip(*found)]


def curves_of(run: Run) -> list[Curve]:
    """The curves of a run: its lines that differ only in the length. Memory is last."""
    groups: dict[tuple, list[Line]] = {}
    for line in run.lines:
        if line.problem.curve:
            groups.setdefault((line.problem.but(seqlen_q=0, seqlen_k=0), line.threads), []).append(line)
    return sorted((_curve(run, lines) for lines in groups.values()), key=lambda curve: curve.kind == "Memory")


def _curve(run: Run, lines: Sequence[Line]) -> Curve:
    lines = sorted(lines, key=lambda line: line.problem.seqlen_q)
    value = _mebibytes if lines[0].problem.memory else _gflops
    values = {title: [value(line, name) for line in lines] for name, title in run.titles.items()}
    words = f"{lines[0].problem.title()}, {lines[0].threads} thread{'s' * (lines[0].threads != 1)}".split(", ")
    return Curve(
        kind="Memory" if lines[0].problem.memory else "Speed",
        title=", ".join(word for word in words if not word.startswith("seqlen")),
        lengths=[line.problem.seqlen_q for line in lines],
        values={title: of for title, of in values.items() if any(value is not None for value in of)},
        peaks=[_peak(line) for line in lines] if all(line.limits for line in lines) else [],
    )


def _gflops(line: Line, name: str) -> float | None:
    seconds = line.amount(name)
    return line.problem.flops() / seconds / 1e9 if seconds else None


def _peak(line: Line) -> float:
    name = next(name for name in line.cells if line.share(name))
    return _gflops(line, name) / line.share(name)


def _mebibytes(line: Line, name: str) -> float | None:
    amount = line.amount(name)
    return None if amount is None else max(amount / 2**20, _LEAST_MEMORY)


def tables(curves: Iterable[Curve]) -> list[str]:
    """The lines of the tables of a page."""
    lines: list[str] = []
    for curve in curves:
        columns: Mapping[str, Sequence[float | None]] = curve.values | ({_PEAK: curve.peaks} if curve.peaks else {})
        lines += [f"{curve.kind} of {curve.title}, in {UNITS[curve.kind]}:", ""]
        lines += ["| " + " | ".join([_LENGTHS, *columns]) + " |", "|" + "---:|" * (len(columns) + 1)]
        for length, *values in zip(curve.lengths, *columns.values()):
            lines.append("| " + " | ".join([str(length), *map(_text, values)]) + " |")
        lines.append("")
    return lines


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}" if value >= 1000 else f"{value:#.4g}"


def read_curves(page: str) -> list[Curve]:
    """The curves of the tables in a page's text."""
    found = []
    tables_of = re.compile(r"^(Speed|Memory) of (.+), in \S+:\n\n((?:\|.*\n)+)", re.MULTILINE)
    for kind, title, rows in tables_of.findall(page):
        heads, _, *lines = ([cell.strip() for cell in row.strip("|").split("|")] for row in rows.splitlines())
        columns = dict(zip(heads, zip(*lines)))
        lengths = [int(length) for length in columns.pop(_LENGTHS)]
        peaks = [float(peak) for peak in columns.pop(_PEAK, ())]
        values = {name: [float(cell) if cell else None for cell in of] for name, of in columns.items()}
        found.append(Curve(kind, title, lengths, values, peaks))
    return found
