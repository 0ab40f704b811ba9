"""Pictures of attention weights."""

from __future__ import annotations

import functools
import html
import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any, Callable, Literal

import numpy as np

from . import _core
from ._arguments import shown
from ._arrays import as_array, is_torch
from ._files import file_name, write_file
from ._sdpa import renamed

_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>body {{ margin: 1em; font-family: sans-serif }} svg {{ max-width: 100%; height: auto }}</style>
</head>
<body>
{svg}
</body>
</html>
"""


class Picture:
    """A finished picture: later changes of the weights do not change it. Jupyter displays it; ``print(picture)``
    shows a heat map in a terminal. :func:`heatmap` and :func:`attention_lines` make pictures.

    :param svg: the picture as an SVG document.
    :param title: its title; "": none.
    :param terminal: a function that returns the picture as text for a terminal; default: none.
    :ivar svg: the picture as an SVG document.
    """

    def __init__(self, svg: str, title: str, terminal: Any = None) -> None:
        self.svg = svg
        self._title = title
        self._terminal = terminal

    def _repr_svg_(self) -> str:
        return self.svg

    def __str__(self) -> str:
        return self._terminal() if self._terminal else repr(self)

    def __repr__(self) -> str:
        return f"<saccade.Picture: {self._title or 'untitled'}; .save('x.svg'), .save('x.png') or .save('x.html')>"

    def png(self, zoom: float = 2.0) -> bytes:
        """The picture as PNG.

        :param zoom: pixels for each unit of the SVG document.
        :raises RuntimeError: if this build has no PNG.
        """
        try:
            zoom = float(zoom)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"zoom: expected a number, got {type(zoom).__name__}") from None
        try:
            from . import _png  # type: ignore[attr-defined]
        except ImportError as error:
            raise RuntimeError(f"this saccade has no PNG ({error}); save the picture as .svg or .html") from None
        try:
            return _png.png_of_svg(self.svg, zoom)
        except ValueError as error:
            raise ValueError(f"zoom: {error}") from None

    def html(self) -> str:
        """An HTML page that needs no other files."""
        svg = self.svg[self.svg.index("<svg") :]
        return _PAGE.format(title=html.escape(self._title or "attention"), svg=svg)

    def save(self, path: str | os.PathLike[str], *, zoom: float = 2.0) -> None:
        """Writes the picture in the format of the extension: .svg, .png or .html.

        :param path: the file's name; a file of that name is replaced.
        :param zoom: pixels of a PNG for each unit of the SVG document.
        :raises ValueError: for another extension.
        :raises OSError: if it cannot be written; then an old file of that name is as it was.
        """
        name = file_name(path)
        ending = os.path.splitext(name)[1].lower()
        if ending == b".svg":
            content = self.svg.encode()
        elif ending == b".html":
            content = self.html().encode()
        elif ending == b".png":
            content = self.png(zoom)
        else:
            raise ValueError(f"path: expected a name that ends in .svg, .png or .html, got {os.fsdecode(name)!r}")
        write_file(name, content)


def heatmap(
    weights: Any,
    tokens: Sequence[str] | None = None,
    key_tokens: Sequence[str] | None = None,
    *,
    title: str = "",
    caption: str = "",
    panel_titles: Sequence[str] | None = None,
    query_axis: str = "query",
    key_axis: str = "key",
    value_name: str = "weight",
    queries: int = 0,
    keys: int = 0,
    low: float | None = None,
    high: float | None = None,
    scale: Literal["automatic", "linear", "logarithmic"] = "automatic",
    show_values: bool = True,
    decimals: int | None = None,
) -> Picture:
    """A heat map: a row for each query, a column for each key, darker = larger.

    :param weights: [seqlen_q, seqlen_k], or [heads, seqlen_q, seqlen_k] for a grid of panels; of any dtype. A
        matrix that is too large to show is pooled.
    :param tokens: labels of the rows, one for each query; default: positions.
    :param key_tokens: labels of the columns; default: ``tokens`` where the matrix is square, else positions.
    :param title, caption: text above and below the picture.
    :param panel_titles: one for each head; default "head 0", "head 1", ...
    :param query_axis, key_axis, value_name: labels of the axes and of the colour bar.
    :param queries, keys: if the matrix is a map of a larger one (``inspect(...).pooled``): the size of that one.
    :param low, high: the values of the lightest and the darkest colour; default: 0 and the largest value.
    :param scale: how values are mapped to colours; "automatic" is logarithmic if a long sequence needs it.
    :param show_values: write numbers into the cells where they fit.
    :param decimals: digits after the point, 0 to 12; default: by the largest value (0.24, 1.50, 12.3, 123).
    :raises ValueError: for shapes, labels or numbers that do not fit; names the argument.
    """
    options = {
        "tokens": _labels(tokens, "tokens"),
        "key_tokens": _labels(key_tokens, "key_tokens"),
        "title": title,
        "caption": caption,
        "panel_titles": _labels(panel_titles, "panel_titles"),
        "query_axis": query_axis,
        "key_axis": key_axis,
        "value_name": value_name,
        "queries": queries,
        "keys": keys,
        "low": low,
        "high": high,
        "scale": scale,
        "show_values": show_values,
        "decimals": decimals,
    }
    matrix = as_array(weights, "weights")
    svg = _drawn(_core.heatmap_svg, matrix, options)
    return Picture(svg, title, functools.partial(_terminal, _copy(matrix), options))


def attention_lines(
    weights: Any,
    tokens: Sequence[str] | None = None,
    key_tokens: Sequence[str] | None = None,
    *,
    title: str = "",
    caption: str = "",
    panel_titles: Sequence[str] | None = None,
    high: float | None = None,
) -> Picture:
    """Query tokens on the left, key tokens on the right, joined by lines whose width is the weight.

    :param weights: [seqlen_q, seqlen_k], or [heads, seqlen_q, seqlen_k] for a panel each; at most 128 rows and columns,
        and no negative weights.
    :param tokens: the text of each query; default: positions.
    :param key_tokens: that of each key; default: ``tokens`` where the matrix is square, else positions.
    :param title, caption: text above and below the picture.
    :param panel_titles: one for each head; default "head 0", "head 1", ...
    :param high: the weight of the widest line; default: the largest weight.
    :raises ValueError: for shapes, labels or numbers that do not fit; names the argument.
    """
    options = {
        "tokens": _labels(tokens, "tokens"),
        "key_tokens": _labels(key_tokens, "key_tokens"),
        "title": title,
        "caption": caption,
        "panel_titles": _labels(panel_titles, "panel_titles"),
        "high": high,
    }
    return Picture(_drawn(_core.attention_lines_svg, as_array(weights, "weights"), options), title)


def _drawn(draw: Callable[..., str], matrix: Any, options: dict[str, Any]) -> str:
    try:
        return draw(matrix, options)
    except ValueError as error:
        raise renamed(error, {"query_tokens": "tokens"}) from None


def _terminal(matrix: Any, options: dict[str, Any]) -> str:
    """The picture for the current standard output, with its width and colours."""
    color = _core.terminal_color(sys.stdout.isatty())
    return _core.heatmap_terminal(matrix, options, max(20, shutil.get_terminal_size().columns), color)


def _copy(array: Any) -> Any:
    if is_torch(array):
        return array.clone()
    return np.array(array if hasattr(array, "__array__") else np.from_dlpack(array))


def _labels(labels: Sequence[str] | None, name: str) -> list[str]:
    try:
        return [] if labels is None else [shown(label, str) for label in labels]
    except Exception as error:  # iterating over the labels may raise anything
        raise ValueError(f"{name}: expected a list of str, got {type(labels).__name__}") from error
