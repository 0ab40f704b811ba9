"""What a mask function of transformers hides, found in its closures instead of calling it for every pair."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

import torch
from torch import Tensor
from transformers import masking_utils


class Pattern(NamedTuple):
    """The keys that a token sees, by the positions of both."""

    causal: bool = False
    window: tuple[int, int] = (-1, -1)  #: keys to the left and to the right, inclusive; -1: all
    chunk: int | None = None  #: positions that share the quotient by it see each other
    left_padding: Tensor | None = None  #: where each batch entry begins to count for `chunk`: [batch]
    sequences: Tensor | None = None  #: for each token the packed sequence to which it belongs: [batch, seqlen]
    positions: Tensor | None = None  #: for each token its position in that: [batch, seqlen]


_CAUSAL, _EVERYTHING = Pattern(causal=True), Pattern()


def pattern_of(function: Callable[..., Any]) -> Pattern | None:
    """The pattern of a mask function; None if it is another one than transformers makes for text."""
    if function is masking_utils.causal_mask_function:
        return _CAUSAL
    if function is masking_utils.bidirectional_mask_function:
        return _EVERYTHING
    facts: dict[str, Any] = {}
    return Pattern(**facts) if _collect(function, facts) else None


def _collect(function: Any, facts: dict[str, Any]) -> bool:
    """Adds what a function says to the facts. Whether all of it is understood."""
    code = getattr(function, "__code__", None)
    kind = None
    for known, name in _KINDS:
        if code is known:
            kind = name
    if kind is None:
        return False
    values = _closure(function)
    if kind == "all":
        return all([_collect(part, facts) for part in values["mask_functions"]])
    if kind == "remapped":
        if "positions" in facts:
            return False
        facts["positions"] = values["position_ids"]
        return _collect(values["mask_function"], facts)
    said: dict[str, Any] = {}
    if kind == "causal":
        said["causal"] = True
    elif kind == "window":
        said["window"] = (values["sliding_window"] - 1, -1)
    elif kind == "window_both":
        said["window"] = (values["sliding_window"], values["sliding_window"])
    elif kind == "chunk":
        said.update(chunk=values["chunk_size"], left_padding=values["left_padding"])
    elif kind == "packed":
        said["sequences"] = values["packed_sequence_mask"]
    if any(name in facts for name in said):
        return False
    facts.update(said)
    return True


def _closure(function: Any) -> dict[str, Any]:
    cells = function.__closure__ or ()
    return {name: cell.cell_contents for name, cell in zip(function.__code__.co_freevars, cells)}


def _kinds() -> list[tuple[Any, str]]:
    """The code of transformers' mask functions: all functions that a factory returns share it."""
    causal, zeros = masking_utils.causal_mask_function, torch.zeros(1, 1, dtype=torch.int64)
    arguments: dict[str, tuple[str, tuple[Any, ...]]] = {
        "all": ("and_masks", (causal,)),
        "window": ("sliding_window_overlay", (1,)),
        "window_both": ("sliding_window_bidirectional_overlay", (1,)),
        "chunk": ("chunked_overlay", (1, zeros)),
        "packed": ("packed_sequence_mask_function", (zeros,)),
        "remapped": ("remap_positions_for_packed_sequence", (causal, zeros)),
    }
    functions = {"causal": causal, "everything": masking_utils.bidirectional_mask_function}
    for kind, (name, values) in arguments.items():
        factory = getattr(masking_utils, name, None)  # not every version has all
        if factory is not None:
            functions[kind] = factory(*values)
    return [(function.__code__, kind) for kind, function in functions.items()]


_KINDS = _kinds()
