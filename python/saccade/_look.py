"""From a model's folder and a text to a page of its heads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _core
from ._arguments import flag, shown
from ._arrays import as_array
from ._attention_page import Page
from ._image import pixels_of, png_of
from ._options import warn_deprecated


def look(
    model: str | os.PathLike[str],
    text: str | None = None,
    *,
    pair: str | None = None,
    target: str | None = None,
    image: Any = None,
    audio: Any = None,
    other_model: str | os.PathLike[str] | None = None,
    other_text: str | None = None,
    title: str = "",
    max_size: int = 25_000_000,
    details: Sequence[tuple[int, int]] = (),
    tiles: Sequence[tuple[int, int, range, range]] = (),
    gradient: bool = False,
    num_threads: int = 0,
    **deprecated: Any,
) -> Page:
    """Every head of a model over a text, a picture or a sound in one HTML file, as ``saccade look`` writes it.

    ::

        saccade.look("SmolLM2-135M", "The capital of France is", gradient=True).save("page.html")

    saccade runs the model itself; it needs neither PyTorch nor ``transformers``. For weights that another library
    computed there is :func:`page`.

    :param model: a Hugging Face folder with config.json, model.safetensors and tokenizer.json; docs/models.md lists
        the families.
    :param text: what a model of text reads; for an encoder-decoder, the source.
    :param pair: a second text, for models that take two.
    :param target: what an encoder-decoder's decoder reads; default: what the model itself makes of the source.
    :param image: what a model of images sees: a picture of Pillow, or uint8 [height, width, 3].
    :param audio: what a model of speech hears: one channel, 16,000 samples a second, from -1 to 1.
    :param other_model, other_text: a second folder or text, to compare with: the page has a part for each.
    :param title: default: the folder's name.
    :param max_size: the most bytes of the file, as in :class:`Page`.
    :param details: heads to keep cell by cell, with their arithmetic, as pairs (layer, head) from 0. Over a text of
        more than 4,096 tokens the page has no others.
    :param tiles: regions to keep exactly, of such a text: (layer, head, queries, keys), the last two ranges.
    :param gradient: also show gradient times attention and relevance: the weights on which the model's answer rests.
    :param num_threads: 0: all that saccade uses; the page does not depend on it.
    :returns: a :class:`Page`, which notebooks display, and to which parts may be added.
    :raises RuntimeError: for a folder that cannot be read or a model that is not known, and if this build lacks what
        reads models.
    :raises ValueError: for what the model does not read, and for heads and tiles that do not exist.
    """
    if "sound" in deprecated:
        warn_deprecated("look(sound=) is deprecated; use audio")
        audio = deprecated.pop("sound")
    if deprecated:
        raise TypeError(f"look() got an unexpected keyword argument '{next(iter(deprecated))}'")
    if not hasattr(_core, "look"):
        raise RuntimeError(
            "this saccade was built without look(), which needs zlib, nlohmann-json, Oniguruma and utf8proc; "
            "the saccade command may have it, and saccade.page() shows weights that are given"
        )
    if isinstance(max_size, bool) or not isinstance(max_size, int) or not 0 < max_size < 2**62:
        raise ValueError(f"max_size: expected a number of bytes, got {shown(max_size)}")
    pixels = None if image is None else pixels_of(image)
    page = _core.look(
        model=_folder(model, "model"),
        text=_optional_text(text, "text"),
        pair=_optional_text(pair, "pair"),
        target=_optional_text(target, "target"),
        rgb=pixels,
        png=b"" if pixels is None else png_of(pixels),
        sound=None if audio is None else _samples(audio),
        other_model=None if other_model is None else _folder(other_model, "other_model"),
        other_text=_optional_text(other_text, "other_text"),
        title=_optional_text(title, "title") or "",
        max_size=max_size,
        details=[_numbers(place, 2, "details", "(layer, head)") for place in details],
        tiles=[_tile(tile) for tile in tiles],
        gradient=flag(gradient, "gradient"),
        num_threads=_numbers((num_threads,), 1, "num_threads", "a number")[0],
    )
    return Page._of(page, title or os.path.basename(os.path.normpath(os.fsdecode(model))))


def _folder(path: Any, name: str) -> bytes:
    try:
        return os.fsencode(path)
    except UnicodeEncodeError:
        raise ValueError(
            f"{name}: expected the path of a model's folder, got {ascii(path)}, which none can have"
        ) from None
    except TypeError:
        raise ValueError(
            f"{name}: expected the path of a model's folder, got {type(path).__name__}; "
            "saccade.page() shows the weights that another library's model returns"
        ) from None


def _optional_text(value: Any, name: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name}: expected a str, got {type(value).__name__}")
    return None if value is None else value.encode("utf-8", "replace").decode()


def _numbers(values: Any, count: int, name: str, meaning: str) -> list[int]:
    numbers = list(values) if isinstance(values, (list, tuple)) else []
    if len(numbers) != count or any(isinstance(n, bool) or not isinstance(n, (int, np.integer)) for n in numbers):
        raise ValueError(f"{name}: expected {meaning}, got {shown(values)}")
    if any(not 0 <= n < 2**31 for n in numbers):
        raise ValueError(f"{name}: expected {meaning} from 0 on, got {shown(values)}")
    return [int(n) for n in numbers]


def _tile(tile: Any) -> list[int]:
    meaning = "(layer, head, range of queries, range of keys)"
    if not isinstance(tile, (list, tuple)) or len(tile) != 4:
        raise ValueError(f"tiles: expected {meaning}, got {shown(tile)}")
    result = _numbers(tuple(tile[:2]), 2, "tiles", meaning)
    for part in tile[2:]:
        if not isinstance(part, range) or part.step != 1 or len(part) == 0 or part.start < 0:
            raise ValueError(f"tiles: expected {meaning}, neither empty, got {shown(part)}")
        result += [part.start, part.stop - 1]
    return result


def _samples(audio: Any) -> np.ndarray:
    try:
        samples = np.ascontiguousarray(as_array(audio, "audio"), dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise ValueError(f"audio: expected numbers, got {type(audio).__name__} ({error})") from None
    if samples.ndim != 1:
        raise ValueError(f"audio: expected one channel, [samples], got {list(samples.shape)}")
    return samples
