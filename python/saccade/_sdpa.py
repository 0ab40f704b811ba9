"""PyTorch's scaled_dot_product_attention in terms of this package: what NumPy's and PyTorch's arrays have in common."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple

import numpy as np

from . import _core
from ._arrays import as_array, empty
from ._options import drops, flag, number

# For one row of a long sequence decode() takes half of attention()'s time (32 query heads on 8, 4096 keys) to 0.9 of it
# (as many heads, 1024 keys); for more rows or fewer keys it takes longer (Zen 4, f32, head_dim 64).
DECODE_KEYS = 1024

_NAMES = {"q": "query", "k": "key", "v": "value", "mask": "attn_mask"}


class Operands(NamedTuple):
    """q, k and v of rank 2 to 4, and the mask that belongs to them."""

    q: Any
    k: Any
    v: Any
    mask: Any
    shape: tuple[int, ...]  # of the output


def operands(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any,
    is_causal: bool,
    enable_gqa: bool,
    expand: Callable[[Any, tuple[int, ...]], Any],
) -> Operands:
    """Joins leading dimensions; ``expand(array, shape)`` repeats an array without copying it."""
    if is_causal and attn_mask is not None:
        raise ValueError("attn_mask: is_causal=True excludes a mask; put causality into the mask")
    named = {"query": query, "key": key, "value": value}
    for name, array in named.items():
        if len(array.shape) < 2:
            raise ValueError(f"{name}: wanted [..., seqlen, dim], got shape {list(array.shape)}")
    if attn_mask is not None and "int" in str(attn_mask.dtype):
        raise ValueError(f"attn_mask: wanted bool or floating, got {attn_mask.dtype}")
    shape = (*query.shape[:-1], value.shape[-1])
    if len(shape) <= 4 and (enable_gqa or query.shape[:-2] == key.shape[:-2] == value.shape[:-2]):
        return Operands(query, key, value, attn_mask, shape)
    try:
        lead = _leading(query, key, value, enable_gqa)
        key = expand(key, (*lead.kv, *key.shape[-2:]))
        value = expand(value, (*lead.kv, *value.shape[-2:]))
        query = expand(query, (*lead.q, *query.shape[-2:]))
    except (BufferError, RuntimeError, ValueError):
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in named.items())
        raise ValueError(f"key: batch and heads do not go together: {shapes}") from None
    shape = (*lead.q, query.shape[-2], value.shape[-1])
    if len(lead.q) > 2:
        if attn_mask is not None and len(attn_mask.shape) > 2:
            try:
                attn_mask = expand(attn_mask, (*lead.q, *attn_mask.shape[-2:]))
            except (BufferError, RuntimeError, ValueError):
                given, wanted = list(attn_mask.shape), [*lead.q, *shape[-2:-1], key.shape[-2]]
                raise ValueError(f"attn_mask: wanted shape {wanted} or what broadcasts to it, got {given}") from None
        query, key, value, attn_mask = (_of_rank_4(array) for array in (query, key, value, attn_mask))
    return Operands(query, key, value, attn_mask, shape)


def renamed(error: ValueError, names: Mapping[str, str] = _NAMES) -> ValueError:
    """The library's message with the names that somebody else gives the arguments; PyTorch's by default."""
    text = re.sub(r"^\[[a-z_]+\] ", "", str(error))
    return ValueError(re.sub(rf"\b({'|'.join(names)})\b", lambda match: names[match[0]], text))


def kernel(seqlen_q: int, seqlen_k: int) -> Callable[..., None]:
    """What computes that many rows fastest."""
    return _core.decode if seqlen_q == 1 and seqlen_k >= DECODE_KEYS else _core.attention


def numpy_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Any:
    query, key, value = as_array(query, "query"), as_array(key, "key"), as_array(value, "value")
    if attn_mask is not None:
        attn_mask = as_array(attn_mask, "attn_mask")
    is_causal, enable_gqa = flag(is_causal, "is_causal"), flag(enable_gqa, "enable_gqa")
    of = operands(query, key, value, attn_mask, is_causal, enable_gqa, _expanded)
    o = empty(query, of.shape)
    drops_all = number(dropout_p) == 1
    options = {"mask": of.mask, "causal": "top_left" if is_causal else None, "scale": scale}
    if drops(dropout_p) and not drops_all:
        options["dropout_p"] = dropout_p
        options["seed"] = _core.draw_seed()
    try:
        kernel(query.shape[-2], key.shape[-2])(of.q, of.k, of.v, _of_rank_4(o), None, None, options)
    except ValueError as error:
        raise renamed(error) from None
    if drops_all:
        o[...] = 0
    return o


def _expanded(array: Any, shape: tuple[int, ...]) -> Any:
    if not hasattr(array, "__array__"):
        array = np.from_dlpack(array)
    return np.broadcast_to(array, shape)


class _Leading(NamedTuple):
    q: tuple[int, ...]
    kv: tuple[int, ...]


def _leading(query: Any, key: Any, value: Any, enable_gqa: bool) -> _Leading:
    """The dimensions in front of the last two. With enable_gqa the heads of q may be a multiple of k's and v's."""
    if not enable_gqa:
        lead = np.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
        return _Leading(lead, lead)
    batch = np.broadcast_shapes(query.shape[:-3], key.shape[:-3], value.shape[:-3])
    heads = np.broadcast_shapes(key.shape[-3:-2], value.shape[-3:-2])
    return _Leading((*batch, *query.shape[-3:-2]), (*batch, *heads))


def _of_rank_4(array: Any) -> Any:
    if array is None or len(array.shape) <= 4:
        return array
    return array.reshape((math.prod(array.shape[:-3]), *array.shape[-3:]))
