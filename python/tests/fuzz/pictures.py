"""Pictures, and settings of the whole process."""

from __future__ import annotations

import os
import tempfile
import xml.etree.ElementTree as ElementTree
from typing import Any

import numpy as np
import saccade

from .call import Call, Case, spoiled
from .values import Values


def picture(values: Values) -> Case:
    function = values.pick(saccade.heatmap, saccade.attention_lines)
    heads, rows, keys = values.pick(1, 2, 5), values.pick(1, 2, 7, 30), values.pick(1, 2, 7, 30)
    weights = values.numbers.random((heads, rows, keys) if heads > 1 or values.chance(0.3) else (rows, keys))
    weights = weights.astype(values.pick(np.float32, np.float64, np.float16))
    words = ["Your", "旅", "", "<&>", "a" * 300, "\n", "\0", "\x1b[31m", "e\u0301", "\u202e", "😀"]
    arguments: dict[str, Any] = {"weights": values.laid_out(weights)}
    if values.chance(0.5):
        arguments["tokens"] = [values.pick(*words) for _ in range(rows)]
    if values.chance(0.3):
        arguments["key_tokens"] = [values.pick(*words) for _ in range(keys)]
    if values.chance(0.5):
        arguments.update(title=values.pick(*words), caption=values.pick(*words))
    if values.chance(0.2):
        arguments["high"] = values.pick(0.5, 1)
    if function is saccade.heatmap:
        arguments["scale"] = values.pick("automatic", "linear", "logarithmic")
    made = yield spoiled(
        values,
        Call(f"saccade.{function.__name__}", function, arguments, check=lambda made: ElementTree.fromstring(made.svg)),
    )
    if not isinstance(made, saccade.Picture):
        return
    yield Call("str(picture)", lambda: (str(made), repr(made), made.html())[2].encode(), {})
    if values.chance(0.15):
        yield spoiled(values, Call("Picture.png", made.png, {"zoom": values.pick(0.5, 1)}))
    ending = values.pick("svg", "html", "png")
    if ending == "png" and values.chance(0.8):  # takes as long as a hundred other calls
        return
    with tempfile.TemporaryDirectory() as folder:
        given = {"path": os.path.join(folder, f"picture.{ending}"), "zoom": values.pick(0.5, 1)}
        yield spoiled(values, Call("Picture.save", made.save, given, may_raise=(OSError,)))


def _within_backend(names: Any) -> None:
    with saccade.backend(names):
        pass


def settings(values: Values) -> Case:
    calls = (
        Call("saccade.set_num_threads", saccade.set_num_threads, {"num_threads": values.pick(0, 1, 2, 3)}),
        Call("saccade.manual_seed", saccade.manual_seed, {"seed": values.pick(0, -1, 2**63 - 1)}),
        Call("saccade.alibi_slopes", saccade.alibi_slopes, {"num_heads": values.pick(1, 3, 8, 100)}),
        Call("saccade.num_threads", saccade.num_threads, {}),
        Call("saccade.get_num_threads", saccade.get_num_threads, {}),
        Call("saccade.backend", _within_backend, {"names": values.pick("cpu", "reference,cpu", "")}),
        Call("saccade.release_workspaces", saccade.release_workspaces, {}),
        Call("saccade.info", saccade.info, {}),
    )
    for _ in range(3):
        yield spoiled(values, values.pick(*calls))
