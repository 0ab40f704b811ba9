"""The pictures of a page of docs/benchmarks."""

from __future__ import annotations

import pathlib
import statistics
from collections.abc import Sequence
from typing import Any, Callable

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from .problem import Problem
from .report import Run
from .timing import Line

# The colours of Okabe and Ito, which colour-blind people can distinguish, each with a marker.
STYLES = {
    "saccade": ("#D55E00", "o"),
    "torch": ("#0072B2", "s"),
    "onnxruntime": ("#009E73", "^"),
    "openvino": ("#CC79A7", "D"),
    "jax": ("#E69F00", "v"),
}
OTHERS = (("#56B4E9", "P"), ("#000000", "X"), ("#7F7F7F", "*"))
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def draw(run: Run, stem: pathlib.Path) -> list[str]:
    """Writes the pictures that the run has points for, STEM-speed.svg and so on; returns their names."""
    curves = _curves(run)
    times = [lines for lines in curves if not lines[0].problem.memory]
    memory = [lines for lines in curves if lines[0].problem.memory]
    style = {"svg.hashsalt": "saccade", "axes.grid": True, "grid.color": "#DDDDDD", "axes.axisbelow": True}
    made = []
    with plt.rc_context(style):
        for name, of, figure in (("speed", times, _speed), ("share", times, _share), ("memory", memory, _memory)):
            if of and (name != "share" or any(line.share("saccade") for lines in of for line in lines)):
                drawn = figure(run, of)
                path = stem.with_name(f"{stem.name}-{name}.svg")
                drawn.savefig(path, metadata={"Date": None}, facecolor="white")
                plt.close(drawn)
                made.append(path.name)
    return made


def _curves(run: Run) -> list[list[Line]]:
    """Groups of lines that differ only in the length."""
    found: dict[tuple[Problem, int], list[Line]] = {}
    for line in run.lines:
        if line.problem.curve:
            found.setdefault((line.problem.but(seqlen_q=0, seqlen_k=0), line.threads), []).append(line)
    return [sorted(lines, key=lambda line: line.problem.seqlen_q) for lines in found.values()]


def _words(lines: Sequence[Line]) -> list[str]:
    """The problem and the threads, without the length."""
    words = f"{lines[0].problem.title()}, {lines[0].threads} thread{'s' * (lines[0].threads != 1)}".split(", ")
    return [word for word in words if not word.startswith("seqlen")]


def _titles(curves: Sequence[Sequence[Line]]) -> tuple[str, list[str]]:
    """The words that all curves share, and the other words of each."""
    words = [_words(lines) for lines in curves]
    common = [word for word in words[0] if all(word in of for of in words)]
    own = [", ".join(word for word in of if word not in common) for of in words]
    return ", ".join(common), [text or "plain" for text in own]


def _style(run: Run, name: str) -> tuple[str, str]:
    others = [other for other in run.titles if other not in STYLES]
    return STYLES.get(name) or OTHERS[others.index(name) % len(OTHERS)]


def _panels(curves: Sequence[Sequence[Line]], height: float) -> tuple[Any, Sequence[Any]]:
    """A figure with a panel for each curve's problem, two in a row."""
    columns = min(len(curves), 2)
    rows = -(-len(curves) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(5.0 * columns, height * rows + 0.8), squeeze=False, layout="constrained"
    )
    for spare in axes.flat[len(curves) :]:
        spare.set_visible(False)
    common, own = _titles(curves)
    figure.suptitle(common, fontsize=10)
    for axis, lines, title in zip(axes.flat, curves, own):
        axis.set_title(title, fontsize=10)
        _lengths_axis(axis, lines)
    return figure, axes.flat[: len(curves)]


def _lengths_axis(axis: Any, lines: Sequence[Line]) -> None:
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_locator(FixedLocator([line.problem.seqlen_q for line in lines]))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda length, _: f"{length:.0f}"))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlabel("sequence length")


def _plot(run: Run, axis: Any, lines: Sequence[Line], value: Callable[[Line, str], float | None]) -> None:
    """A curve for each peer with results."""
    for name in reversed(list(run.titles)):  # saccade on top
        points = [(line.problem.seqlen_q, value(line, name)) for line in lines]
        points = [point for point in points if point[1] is not None]
        if not points:
            continue
        colour, marker = _style(run, name)
        width = 2.4 if name == "saccade" else 1.5
        axis.plot(*zip(*points), color=colour, marker=marker, markersize=5, linewidth=width, label=run.titles[name])


def _legend(figure: Any, axes: Sequence[Any], run: Run) -> None:
    """One legend for all panels, in the order of the tables' columns."""
    handles = {}
    for axis in axes:
        handles.update({label: handle for handle, label in zip(*axis.get_legend_handles_labels())})
    order = [title for title in run.titles.values() if title in handles]
    order += [label for label in handles if label not in order]
    of = [handles[label] for label in order]
    figure.legend(of, order, loc="outside lower center", ncols=len(order), frameon=False)


def _speed(run: Run, curves: Sequence[Sequence[Line]]) -> Any:
    figure, axes = _panels(curves, 2.9)
    for axis, lines in zip(axes, curves):
        _plot(run, axis, lines, _gflops)
        peaks = [_peak(line) for line in lines if line.limits]
        if peaks:
            style = {"color": "#555555", "linestyle": "--", "linewidth": 1}
            axis.axhline(statistics.median(peaks), label="peak of multiply-adds", **style)
        axis.set_ylim(bottom=0)
        axis.set_ylabel("GFLOP/s")
    _legend(figure, axes, run)
    return figure


def _gflops(line: Line, name: str) -> float | None:
    seconds = line.amount(name)
    return line.problem.flops() / seconds / 1e9 if seconds else None


def _peak(line: Line) -> float:
    name = next(name for name in line.cells if line.share(name))
    return _gflops(line, name) / line.share(name)


def _share(run: Run, curves: Sequence[Sequence[Line]]) -> Any:
    figure, axis = plt.subplots(figsize=(9.5, 4.4), layout="constrained")
    common, own = _titles(curves)
    for colour, marker, lines, title in zip(COLOURS, "osD^vP", curves, own):
        lengths = [line.problem.seqlen_q for line in lines]
        rivals = [line.best_rival() for line in lines]
        others = [line.share(rival) if rival else None for line, rival in zip(lines, rivals)]
        style = {"color": colour, "marker": marker, "markersize": 5}
        axis.plot(lengths, [line.share("saccade") for line in lines], linewidth=2.4, label=f"saccade: {title}", **style)
        axis.plot(lengths, others, "--", linewidth=1.3, markerfacecolor="white", label=f"best other: {title}", **style)
    _lengths_axis(axis, max(curves, key=len))
    axis.set_ylim(0, max(1.0, axis.get_ylim()[1]))
    axis.set_ylabel("share of the peak of multiply-adds")
    axis.set_title(common, fontsize=10)
    figure.legend(loc="outside right upper", frameon=False, fontsize=9)
    return figure


def _memory(run: Run, curves: Sequence[Sequence[Line]]) -> Any:
    figure, axes = _panels(curves, 3.2)
    for axis, lines in zip(axes, curves):
        _plot(run, axis, lines, _mebibytes)
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter(FuncFormatter(lambda amount, _: f"{amount:g}"))
        axis.set_ylabel("MiB beyond the inputs")
    _legend(figure, axes, run)
    return figure


def _mebibytes(line: Line, name: str) -> float | None:
    amount = line.amount(name)
    return None if amount is None else max(amount / 2**20, 0.1)
