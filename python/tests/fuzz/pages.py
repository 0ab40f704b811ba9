"""Pages, from weights and from a model's folder."""

from __future__ import annotations

import os
import pathlib
import tempfile
from typing import Any

import numpy as np
import saccade

from .call import Call, Case, spoiled
from .values import Values

MODELS = pathlib.Path(__file__).parents[3] / "tests" / "data" / "models"
WORDS = ("Your", "旅", "", "</script>", "<img src=x onerror=alert(1)>", "\n", "\x1b[31m", "\u202e")


def page(values: Values) -> Case:
    if values.chance(0.1):
        made = yield spoiled(values, look(values))
    else:
        made = yield spoiled(values, Call("saccade.page", saccade.page, drawn(values), extra=EXTRA))
    if not isinstance(made, saccade.Page):
        return
    added = drawn(values)
    del added["title"]
    yield spoiled(values, Call("Page.add", made.add, added))
    yield Call("Page.html", lambda: (made.html(), repr(made))[0].encode(), {})
    yield spoiled(values, Call("Page.frame", made.frame, {"height": 300, "max_size": 10**6}))
    with tempfile.TemporaryDirectory() as folder:
        given = {"path": os.path.join(folder, "page.html")}
        yield spoiled(values, Call("Page.save", made.save, given, may_raise=(OSError, TypeError, ValueError)))


EXTRA = ("name", "special", "words", "key_seconds", "image", "patches", "kv_heads", "maps")


def drawn(values: Values) -> dict[str, Any]:
    """The arguments of a page of a few heads."""
    layers, heads, tokens = values.pick(1, 2), values.pick(1, 2), values.pick(1, 3, 9)
    weights = values.numbers.random((layers, heads, tokens, tokens)).astype(np.float32)
    arguments: dict[str, Any] = {"weights": weights, "title": values.pick(*WORDS)}
    if values.chance(0.5):
        arguments["tokens"] = [values.pick(*WORDS) for _ in range(tokens)]
    if values.chance(0.2):
        arguments["special"] = [False] * tokens
    if values.chance(0.2):
        arguments["maps"] = {values.pick(*WORDS): weights[0, 0]}
    return arguments


def look(values: Values) -> Call:
    arguments = {"model": str(MODELS / values.pick("text-encoder", "text-decoder")), "text": "A causal mask."}
    if values.chance(0.3):
        arguments["title"] = values.pick(*WORDS)
    if values.chance(0.3):
        arguments["details"] = [(0, 1)]
    may_raise = (RuntimeError, TypeError)  # of folders that cannot be read, and keywords that were renamed
    return Call("saccade.look", saccade.look, arguments, may_raise=may_raise)
