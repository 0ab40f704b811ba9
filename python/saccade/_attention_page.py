"""Pages that show every head of a model."""

from __future__ import annotations

import html
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from . import _core
from ._arguments import flag, shown
from ._arrays import as_array, is_torch
from ._files import file_name, write_file
from ._image import pixels_of, png_of

NOTEBOOK_SIZE = 4_000_000
# What the element around a page does there: it hides the sentence above it, and tells the page whether the host's text
# is light or dark, at first and whenever its color changes. A page in a sandbox cannot see its host. (Chromium takes an
# attribute ontransitionend for another event.)
_ON_LOAD = (
    "this.previousElementSibling.hidden = true; (this.ontransitionend = () => { "
    r"const color = getComputedStyle(this).color.match(/^rgba?\((\d+), (\d+), (\d+)/); "
    "if (color) this.contentWindow.postMessage"
    "({ saccadeTheme: +color[1] + +color[2] + +color[3] > 382 ? 'dark' : 'light' }, '*'); })()"
)


class Page:
    """A page with the attention of a model: one HTML file that needs no network. Notebooks display it.

    :param title, subtitle: its heading, and a line below it.
    :param max_size: the most bytes of the file. The most telling heads are kept whole, the others as thumbnails; the
        page says so.
    :param is_sequence: the parts are states of one model in their order, such as checkpoints: shown along a slider.
    :raises RuntimeError: if this build has no pages.
    """

    def __init__(
        self, title: str = "attention", subtitle: str = "", *, max_size: int = 25_000_000, is_sequence: bool = False
    ) -> None:
        if not hasattr(_core, "AttentionPage"):
            raise RuntimeError("this saccade was built without pages, which need zlib and nlohmann-json")
        self._title = _text(title, "title")
        _check_size(max_size)
        self._page = _core.AttentionPage(
            self._title, _text(subtitle, "subtitle"), max_size, flag(is_sequence, "is_sequence")
        )
        self._html: str | None = None

    @classmethod
    def _of(cls, page: Any, title: str) -> Page:
        """A page around one of the library."""
        result = cls.__new__(cls)
        result._title, result._page, result._html = _text(title, "title"), page, None
        return result

    def add(
        self,
        weights: Any,
        tokens: Sequence[str] | None = None,
        key_tokens: Sequence[str] | None = None,
        *,
        name: str = "",
        special: Sequence[bool] | None = None,
        words: Sequence[int | None] | None = None,
        key_seconds: float = 0.0,
        image: Any = None,
        patches: tuple[int, int] | None = None,
        kv_heads: int = 0,
        maps: Mapping[str, Any] | None = None,
    ) -> Page:
        """Adds the heads of a model, of its encoder, of its cross-attention, or of a second model to compare with.

        :param weights: a list of layers, each [heads, seqlen_q, seqlen_k] or [1, heads, seqlen_q, seqlen_k], as
            ``output_attentions=True`` of ``transformers`` gives them, or one array with the layers first; of any dtype
            and library.
        :param tokens: the text of each query; default: positions.
        :param key_tokens: that of each key, where keys are of another sequence; default: ``tokens``, if there are as
            many keys as queries.
        :param name: of this part; default: the page's title, if there are several.
        :param special: which of ``tokens`` are not part of the text, such as [CLS], so that they can be hidden.
        :param words: the number of the word that each of ``tokens`` is a part of, or None, so that pieces can be
            merged (``word_ids()`` of ``transformers``).
        :param key_seconds: of sound: how long a key lasts.
        :param image: the picture that the tokens are patches of: a picture of Pillow, or uint8 [height, width, 3]. Only
            for attention of a sequence to itself.
        :param patches: (rows, columns) of patches. They are the last tokens, row after row; tokens before them, such as
            [CLS], are no patches. Default: a square of patches, after at most one other token.
        :param kv_heads: heads of keys and values, if several query heads share one; 0: as many as query heads.
        :param maps: matrices over all heads by name, [seqlen_q, seqlen_k]: gradient times attention, for example.
        :raises ValueError: for shapes and labels that do not fit; names the argument.
        """
        layers = _layers(weights)
        heads, rows, keys = layers[0].shape
        if not isinstance(key_seconds, (int, float)) or not 0 <= key_seconds < 1e6:
            raise ValueError(f"key_seconds: expected a number of seconds, got {shown(key_seconds)}")
        if maps is not None and not isinstance(maps, Mapping):
            raise ValueError(f"maps: expected matrices by name, got {type(maps).__name__}")
        attends_to_itself = key_tokens is None and rows == keys and key_seconds == 0.0
        queries = _sequence(tokens, rows, "tokens", special, words)
        if image is not None:
            if not attends_to_itself:
                raise ValueError("image: expected attention of a sequence to itself, got keys of another one")
            grid = _grid(patches, rows)
            queries["image"] = (png_of(pixels_of(image)), *grid)
            if tokens is None:  # patches need no names
                queries["tokens"][grid[2] :] = [""] * (rows - grid[2])
        elif patches is not None:
            raise ValueError("patches: expected an image too")
        part = {
            "name": _text(name, "name"),
            "queries": queries,
            "keys": None if attends_to_itself else _sequence(key_tokens, keys, "key_tokens", seconds=key_seconds),
            "num_layers": len(layers),
            "num_heads": heads,
            "num_kv_heads": kv_heads,
            "is_causal": attends_to_itself and not any(np.triu(layer, 1).any() for layer in layers),
        }
        drawn = {_text(key, "maps"): _matrix(value, f"maps[{key!r}]") for key, value in (maps or {}).items()}
        for key, value in drawn.items():
            if value.shape != (rows, keys):
                raise ValueError(f"maps[{key!r}]: expected shape {(rows, keys)}, got {value.shape}")
        if not isinstance(kv_heads, int) or kv_heads < 0 or (kv_heads > 0 and heads % kv_heads != 0):
            raise ValueError(f"kv_heads: expected a divisor of the {heads} heads, got {shown(kv_heads)}")
        number = self._page.add_part(part)
        for i, layer in enumerate(layers):
            self._page.add_layer(number, i, layer)
        for key, value in drawn.items():
            self._page.add_map(number, key, value)
        self._html = None
        return self

    def html(self) -> str:
        """The file: the same text for the same input."""
        if self._html is None:
            self._html = self._page.html()
        return self._html

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the file.

        :param path: its name, "page.html" for example; a file of that name is replaced.
        :raises OSError: if it cannot be written; then an old file of that name is as it was.
        """
        write_file(file_name(path), self.html().encode())

    def frame(self, *, height: int = 720, max_size: int = NOTEBOOK_SIZE) -> str:
        """The page as an element of another page: what notebooks display, with other numbers if need be.

        ::

            IPython.display.HTML(page.frame(height=1000))

        The element is a sandboxed ``iframe`` that contains the page. It can run the page's script and save files; it
        cannot reach the page around it, its address or its storage, nor any network.

        :param height: in pixels, at least 200.
        :param max_size: the most bytes of the page, as in :class:`Page`, whose own limit holds too. Notebooks store
            what they display.
        """
        if isinstance(height, bool) or not isinstance(height, int) or not 200 <= height < 2**31:
            raise ValueError(f"height: expected a number of pixels, at least 200, got {shown(height)}")
        _check_size(max_size)
        page = self.html()
        if len(page.encode()) > max_size:
            page = self._page.html(max_size)
        title = html.escape(self._title)
        return (
            f"<div><p>{title}: the heads are shown here when the cell is run, or in a trusted notebook.</p>"
            f'<iframe sandbox="allow-scripts allow-downloads" title="{title}" onload="{_attribute(_ON_LOAD)}" '
            f'style="display: block; width: 100%; height: {height}px; border: 0; transition: color 1ms" '
            f'srcdoc="{_attribute(page)}"></iframe></div>'
        )

    def _repr_html_(self) -> str:
        return self.frame()

    def __repr__(self) -> str:
        return f"<saccade.Page: {self._title}; .save('x.html')>"


def page(
    weights: Any,
    tokens: Sequence[str] | None = None,
    key_tokens: Sequence[str] | None = None,
    *,
    title: str = "attention",
    subtitle: str = "",
    max_size: int = 25_000_000,
    **options: Any,
) -> Page:
    """Every head of a model in one HTML file: thumbnails by what heads do, maps, the text, summaries.

    ::

        outputs = model(**tokenizer(text, return_tensors="pt"), output_attentions=True)
        saccade.page(outputs.attentions, tokens).save("page.html")

    :param weights: a list of layers, each [heads, seqlen_q, seqlen_k] or [1, heads, seqlen_q, seqlen_k], or one array
        with the layers first; see :meth:`Page.add`.
    :param tokens: the text of each query; default: positions.
    :param key_tokens: that of each key, where keys are of another sequence; default: ``tokens``, if there are as many
        keys as queries.
    :param title, subtitle: the page's heading, and a line below it.
    :param max_size: the most bytes of the file, as in :class:`Page`.
    :param options: the other arguments of :meth:`Page.add`.
    :returns: a :class:`Page`, which notebooks display, and to which parts may be added.
    :raises ValueError: for shapes and labels that do not fit; names the argument.
    :raises RuntimeError: if this build has no pages.
    """
    return Page(title, subtitle, max_size=max_size).add(weights, tokens, key_tokens, **options)


def _check_size(max_size: Any) -> None:
    if isinstance(max_size, bool) or not isinstance(max_size, int) or not 0 < max_size < 2**62:
        raise ValueError(f"max_size: expected a number of bytes, got {shown(max_size)}")


def _attribute(text: str) -> str:
    """Text between double quotes. Only these two characters mean something there; a page has many others."""
    return text.replace("&", "&amp;").replace('"', "&quot;")


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name}: expected a str, got {type(value).__name__}")
    return value.encode("utf-8", "replace").decode()


def _matrix(value: Any, name: str) -> np.ndarray:
    """The numbers as f32, row after row."""
    array = as_array(value, name)
    if is_torch(array):
        array = array.detach().float().cpu().numpy()
    try:
        return np.ascontiguousarray(array if hasattr(array, "__array__") else np.from_dlpack(array), dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: expected numbers, got {type(value).__name__} ({error})") from None


def _layers(weights: Any) -> list[np.ndarray]:
    given = list(weights) if isinstance(weights, (list, tuple)) else _matrix(weights, "weights")
    if isinstance(given, np.ndarray) and given.ndim not in (4, 5):
        raise ValueError(f"weights: expected [layers, heads, seqlen_q, seqlen_k], got shape {given.shape}")
    layers: list[np.ndarray] = []
    for i, layer in enumerate(given):
        matrix = _matrix(layer, f"weights[{i}]")
        if matrix.ndim == 4 and matrix.shape[0] == 1:
            matrix = matrix[0]
        if matrix.ndim != 3 or 0 in matrix.shape:
            raise ValueError(
                f"weights[{i}]: expected [heads, seqlen_q, seqlen_k] or a batch of one, got {matrix.shape}"
            )
        if layers and matrix.shape != layers[0].shape:
            raise ValueError(f"weights[{i}]: expected shape {layers[0].shape} as weights[0] has, got {matrix.shape}")
        layers.append(matrix)
    if not layers:
        raise ValueError("weights: expected at least one layer, got none")
    return layers


def _grid(patches: Any, tokens: int) -> tuple[int, int, int]:
    """Rows and columns of patches, and the first token that is one."""
    if patches is None:
        side = math.isqrt(tokens)
        if tokens - side * side > 1:
            raise ValueError(
                f"patches: expected (rows, columns), because {tokens} tokens are no square of "
                "patches, with at most one other token before them"
            )
        patches = (side, side)
    elif isinstance(patches, np.ndarray):
        patches = patches.tolist()
    if (
        not isinstance(patches, (list, tuple))
        or len(patches) != 2
        or any(isinstance(n, bool) or not isinstance(n, (int, np.integer)) or not 1 <= n <= tokens for n in patches)
        or patches[0] * patches[1] > tokens
    ):
        raise ValueError(f"patches: expected (rows, columns) of at most {tokens} tokens, got {shown(patches)}")
    rows, columns = (int(n) for n in patches)
    return rows, columns, tokens - rows * columns


def _converted(values: Any, name: str, convert: Callable[[Any], Any]) -> list[Any]:
    """What each of the values is as another type; none: an empty list."""
    try:
        return [] if values is None else [convert(value) for value in values]
    except Exception as error:  # iterating over what a caller gives may raise anything
        if isinstance(error, ValueError) and str(error).startswith(name):
            raise
        raise ValueError(f"{name}: cannot be read ({error})") from error


def _sequence(
    tokens: Sequence[str] | None,
    count: int,
    name: str,
    special: Sequence[bool] | None = None,
    words: Sequence[int | None] | None = None,
    seconds: float = 0.0,
) -> dict[str, Any]:
    labels = _converted(
        map(str, range(count)) if tokens is None else tokens, name, lambda t: _text(shown(t, str), name)
    )
    parts = _converted(words, "words", lambda word: -1 if word is None else int(word))
    hidden = _converted(special, "special", bool)
    for option, values in ((name, labels), ("words", parts), ("special", hidden)):
        if len(values) not in (0, count) or (option == name and len(values) != count):
            raise ValueError(f"{option}: expected one for each of the {count} tokens, got {len(values)}")
    # A token of a vocabulary may spell the space before it.
    spaces = ("\u0120", "\u2581")
    gaps = [" " if label.startswith(spaces) and i > 0 else "" for i, label in enumerate(labels)]
    labels = [label[1:] if label.startswith(spaces) and len(label) > 1 else label for label in labels]
    return {"tokens": labels, "gaps": gaps, "words": parts, "special": hidden, "seconds": float(seconds)}
