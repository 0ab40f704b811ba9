"""The pictures of docs/benchmarks, drawn from the tables of its pages, and README's chart."""

from __future__ import annotations

import math
import pathlib
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .curves import UNITS, Curve
from .svg import COLOURS, Picture

_LIBRARIES = ("saccade", "PyTorch", "ONNX Runtime", "OpenVINO", "JAX")  # in the order of their colours
_PANEL, _LEFT, _RIGHT, _TOP, _BOTTOM = 360, 54, 14, 28, 40  # the width of a panel, and its margins


class Axis(NamedTuple):
    """Values to places."""

    low: float
    high: float
    begin: float  # the place of low
    end: float
    is_log: bool = False

    def at(self, value: float) -> float:
        scale: Callable[[float], float] = math.log if self.is_log else float
        share = (scale(value) - scale(self.low)) / (scale(self.high) - scale(self.low))
        return self.begin + share * (self.end - self.begin)

    def ticks(self) -> list[float]:
        if self.is_log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            return [10.0**power for power in range(first, last + 1)]
        step = _step(self.high - self.low)
        return [step * i for i in range(math.floor(self.high / step + 1e-9) + 1)]


def _step(span: float) -> float:
    """1, 2 or 5 times a power of 10, such that the span has four to ten."""
    power = 10.0 ** math.floor(math.log10(span / 4))
    return next(step * power for step in (5, 2, 1) if step * power <= span / 4)


def draw(curves: Sequence[Curve], stem: pathlib.Path) -> list[str]:
    """Writes the pictures that there are curves for, STEM-speed.svg and so on; returns their names."""
    speed = [curve for curve in curves if curve.kind == "Speed"]
    memory = [curve for curve in curves if curve.kind == "Memory"]
    with_peaks = [curve for curve in speed if curve.peaks]
    made = []
    for name, of, picture in (("speed", speed, _panels), ("share", with_peaks, _shares), ("memory", memory, _panels)):
        if of:
            path = stem.with_name(f"{stem.name}-{name}.svg")
            path.write_text(str(picture(of)))
            made.append(path.name)
    return made


def _titles(curves: Sequence[Curve]) -> tuple[str, list[str]]:
    """The words that all curves share, and the other words of each."""
    words = [curve.words() for curve in curves]
    common = [word for word in words[0] if all(word in of for of in words)]
    own = [", ".join(word for word in of if word not in common) for of in words]
    return ", ".join(common), [text or "plain" for text in own]


def _libraries(curves: Sequence[Curve]) -> list[str]:
    found = dict.fromkeys(name for curve in curves for name in curve.values)
    return sorted(found, key=lambda name: _LIBRARIES.index(name) if name in _LIBRARIES else len(_LIBRARIES))


def _series(name: str, libraries: Sequence[str]) -> int:
    others = [other for other in libraries if other not in _LIBRARIES]
    free = len(COLOURS) - len(_LIBRARIES)
    return _LIBRARIES.index(name) if name in _LIBRARIES else len(_LIBRARIES) + others.index(name) % free


def _panels(curves: Sequence[Curve]) -> Picture:
    """A panel for each curve, two in a row, with one legend."""
    columns, height = min(len(curves), 2), 230
    rows = -(-len(curves) // columns)
    picture = Picture(_PANEL * columns, 26 + height * rows + 28)
    common, own = _titles(curves)
    picture.text(picture.width / 2, 20, common, "m")
    libraries = _libraries(curves)
    for i, (curve, title) in enumerate(zip(curves, own)):
        left, top = _PANEL * (i % columns), 26 + height * (i // columns)
        _panel(picture, curve, title, libraries, (left, top, height))
    entries = [(name, _series(name, libraries), "w" if name == "saccade" else "") for name in libraries]
    _legend(picture, entries, picture.height - 12, any(curve.peaks for curve in curves))
    return picture


def _panel(
    picture: Picture, curve: Curve, title: str, libraries: Sequence[str], place: tuple[float, float, float]
) -> None:
    left, top, height = place
    x = Axis(curve.lengths[0], curve.lengths[-1], left + _LEFT + 8, left + _PANEL - _RIGHT - 8, is_log=True)
    values = [value for of in curve.values.values() for value in of if value is not None]
    is_log = curve.kind == "Memory"
    low = 10 ** math.floor(math.log10(min(values))) if is_log else 0.0
    high = max(values) * 1.3 if is_log else max([*values, *curve.peaks]) * 1.05
    y = Axis(low, high, top + height - _BOTTOM, top + _TOP, is_log)
    unit = UNITS[curve.kind]
    _axes(picture, x, y, curve.lengths, "MiB beyond the inputs" if is_log else unit)
    picture.text(left + _PANEL / 2 + 10, top + 16, title, "m t")
    if curve.peaks:
        peak = y.at(statistics.median(curve.peaks))
        picture.line(x.begin - 8, peak, x.end + 8, peak, "r d")
    for name in reversed([name for name in libraries if name in curve.values]):  # saccade on top
        points = [(x.at(n), y.at(value)) for n, value in zip(curve.lengths, curve.values[name]) if value is not None]
        picture.curve(points, _series(name, libraries), "w" if name == "saccade" else "")


def _axes(picture: Picture, x: Axis, y: Axis, lengths: Sequence[int], unit: str) -> None:
    for tick in y.ticks():
        picture.line(x.begin - 8, y.at(tick), x.end + 8, y.at(tick), "g")
        picture.text(x.begin - 12, y.at(tick) + 4, f"{tick:.6g}", "e n")
    for length in lengths:
        picture.line(x.at(length), y.begin, x.at(length), y.end, "g")
        picture.text(x.at(length), y.begin + 16, str(length), "m n")
    picture.text((x.begin + x.end) / 2, y.begin + 32, "sequence length", "m")
    picture.text(x.begin - 48, (y.begin + y.end) / 2, unit, "m", turned=True)


def _legend(picture: Picture, entries: Sequence[tuple[str, int, str]], y: float, has_peak: bool) -> None:
    """In one row."""
    widths = [46 + 7.4 * len(name) for name, _, _ in entries]
    x = (picture.width - sum(widths) - 170 * has_peak) / 2
    for (name, series, kind), width in zip(entries, widths):
        picture.curve([(x, y - 4), (x + 12, y - 4), (x + 24, y - 4)], series, kind)
        picture.text(x + 30, y, name)
        x += width
    if has_peak:
        picture.line(x, y - 4, x + 24, y - 4, "r d")
        picture.text(x + 30, y, "peak of multiply-adds")


def _shares(curves: Sequence[Curve]) -> Picture:
    """saccade's share of the peak, and that of the best other, for all problems."""
    common, own = _titles(curves)
    picture = Picture(720, 300 + 20 * len(curves))
    lengths = max((curve.lengths for curve in curves), key=len)
    found = [share for curve in curves for of in (curve.shares("saccade"), curve.best_others()) for share in of]
    bottom = picture.height - 20 * len(curves) - 42
    x = Axis(lengths[0], lengths[-1], _LEFT + 8, picture.width - _RIGHT - 8, is_log=True)
    y = Axis(0.0, max([1.0, *(share for share in found if share is not None)]) * 1.03, bottom, 30)
    _axes(picture, x, y, lengths, "share of the peak of multiply-adds")
    picture.text((x.begin + x.end) / 2, 20, common, "m")
    for i, (curve, title) in enumerate(zip(curves, own)):
        at = bottom + 56 + 20 * i
        for shares, kind, begin, name in (
            (curve.best_others(), "d", 390, f"best other: {title}"),
            (curve.shares("saccade"), "w", 70, f"saccade: {title}"),
        ):
            points = [(x.at(n), y.at(share)) for n, share in zip(curve.lengths, shares) if share is not None]
            if points:
                picture.curve(points, i % len(COLOURS), kind)
                picture.curve([(begin, at - 4), (begin + 18, at - 4), (begin + 36, at - 4)], i % len(COLOURS), kind)
                picture.text(begin + 44, at, name)
    return picture


class Bars(NamedTuple):
    """A panel of README's chart."""

    title: str
    rows: list[tuple[str, list[tuple[float, str]]]]  # a processor, and for each library an amount and its text


def chart(panels: Sequence[Bars], libraries: Sequence[str], heading: str, note: str) -> Picture:
    """Bars for each problem and processor, two panels in a row. The longest bar of a panel has its whole width."""
    thick, gap, left, right = 11, 10, 104, 76
    row = len(libraries) * (thick + 2) + gap
    height = 32 + row * max(len(panel.rows) for panel in panels)
    picture = Picture(_PANEL * 2, 52 + height * -(-len(panels) // 2) + 24)
    picture.text(16, 22, heading, "t")
    x = 16.0
    for series, name in enumerate(libraries):
        picture.bar(x, 34, 12, 12, series)
        picture.text(x + 18, 44, name)
        x += 40 + 7 * len(name)
    for i, panel in enumerate(panels):
        begin, top = _PANEL * (i % 2), 52 + height * (i // 2)
        picture.text(begin + 16, top + 22, panel.title)
        longest = max(amount for _, of in panel.rows for amount, _ in of)
        for j, (name, amounts) in enumerate(panel.rows):
            y = top + 34 + row * j
            picture.text(begin + left, y + row / 2 - 1, name, "e n")
            for series, (amount, text) in enumerate(amounts):
                width = (_PANEL - left - right) * amount / longest
                picture.bar(begin + left + 8, y + series * (thick + 2), width, thick, series)
                picture.text(begin + left + 14 + width, y + series * (thick + 2) + 10, text)
    picture.text(16, picture.height - 10, note, "n")
    return picture
