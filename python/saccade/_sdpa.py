"""PyTorch's scaled_dot_product_attention, computed by this package: the code for both NumPy and PyTorch."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, Callable, NamedTuple

import numpy as np

from . import _core
from ._arguments import drops, flag, number
from ._arrays import as_array, empty

_NAMES = {"q": "query", "k": "key", "v": "value", "mask": "attn_mask"}


class Operands(NamedTuple):
    """q, k and v of rank 2 to 4, and their mask."""

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
    q_shape, k_shape, v_shape = query.shape, key.shape, value.shape
    if q_shape == k_shape == v_shape and 2 <= len(q_shape) <= 4:
        return Operands(query, key, value, attn_mask, q_shape)
    own = -3 if enable_gqa else -2  # the first dimension in which q may differ from k and v
    as_they_are = 2 <= len(q_shape) == len(k_shape) == len(v_shape) <= 4 and k_shape[:-2] == v_shape[:-2]
    if as_they_are and q_shape[:own] == k_shape[:own]:
        return Operands(query, key, value, attn_mask, (*q_shape[:-1], v_shape[-1]))
    for name, shape in (("query", q_shape), ("key", k_shape), ("value", v_shape)):
        if len(shape) < 2:
            raise ValueError(f"{name}: expected [..., seqlen, dim], got shape {list(shape)}")
    try:
        lead_q, lead_kv = _leading(q_shape, k_shape, v_shape, enable_gqa)
        query = expand(query, (*lead_q, *q_shape[-2:]))
        key = expand(key, (*lead_kv, *k_shape[-2:]))
        value = expand(value, (*lead_kv, *v_shape[-2:]))
    except (BufferError, RuntimeError, ValueError):
        shapes = f"query {list(q_shape)}, key {list(k_shape)}, value {list(v_shape)}"
        hint = "" if enable_gqa else "; heads that share keys and values want enable_gqa=True"
        raise ValueError(f"key: batch and heads do not match: {shapes}{hint}") from None
    if len(lead_q) > 2:
        if attn_mask is not None and len(attn_mask.shape) > 3:
            attn_mask = _of_rank_4(_expanded_mask(attn_mask, lead_q, expand))
        query, key, value = _of_rank_4(query), _of_rank_4(key), _of_rank_4(value)
    return Operands(query, key, value, attn_mask, (*lead_q, q_shape[-2], v_shape[-1]))


def renamed(error: ValueError, names: Mapping[str, str] = _NAMES) -> ValueError:
    """The library's error with other names for the arguments; by default PyTorch's."""
    text = re.sub(r"^\[[a-z_]+\] ", "", str(error))
    return ValueError(re.sub(rf"\b({'|'.join(names)})\b", lambda match: names[match[0]], text))


def kernel(seqlen_q: int, seqlen_k: int, group: int) -> Callable[..., None]:
    """The faster of the two functions for these lengths, where `group` query heads share a head of keys."""
    return _core.decode if _core.is_decode_faster(seqlen_q, seqlen_k, group) else _core.attention


def group_of(query: Any, key: Any, heads: int = -3) -> int:
    """How many query heads share a head of keys; `heads` is the axis of heads. 1 without heads, and for shapes that do
    not fit, which the call refuses."""
    if len(query.shape) < 3 or len(key.shape) < 3:
        return 1
    return int(query.shape[heads]) // max(int(key.shape[heads]), 1) or 1


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
    options: dict[str, Any] = {}
    if of.mask is not None:
        options["mask"] = of.mask
    if is_causal:
        options["causal"] = "top_left"
    if scale is not None:
        options["scale"] = scale
    if drops(dropout_p) and not drops_all:
        options.update(dropout_p=dropout_p, seed=_core.draw_seed())
    try:
        attend = kernel(of.q.shape[-2], of.k.shape[-2], group_of(of.q, of.k))
        attend(of.q, of.k, of.v, _of_rank_4(o), None, None, options)
    except ValueError as error:
        raise renamed(error) from None
    if drops_all:
        o[...] = 0
    return o


def _expanded(array: Any, shape: tuple[int, ...]) -> Any:
    if not hasattr(array, "__array__"):
        array = np.from_dlpack(array)
    return np.broadcast_to(array, shape)


def _leading(
    q_shape: tuple[int, ...], k_shape: tuple[int, ...], v_shape: tuple[int, ...], enable_gqa: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The dimensions before the last two, of q and of k and v. With enable_gqa the heads of q may be a multiple of
    k's and v's; a single head of k and v is always shared by all."""
    if not enable_gqa:
        lead = _broadcast(q_shape[:-2], k_shape[:-2], v_shape[:-2])
        heads = _broadcast(k_shape[-3:-2], v_shape[-3:-2])
        return lead, (*lead[:-1], 1) if heads == (1,) else lead
    batch = _broadcast(q_shape[:-3], k_shape[:-3], v_shape[:-3])
    heads = _broadcast(k_shape[-3:-2], v_shape[-3:-2])
    return (*batch, *q_shape[-3:-2]), (*batch, *heads)


def _broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Like numpy.broadcast_shapes, which torch.compile does not support."""
    rank = max(len(shape) for shape in shapes)
    result = [1] * rank
    for shape in shapes:
        for i, length in enumerate(shape, rank - len(shape)):
            if length != 1 and result[i] not in (1, length):
                raise ValueError("shapes do not broadcast")
            if length != 1:
                result[i] = length
    return tuple(result)


def _expanded_mask(mask: Any, lead: tuple[int, ...], expand: Callable[[Any, tuple[int, ...]], Any]) -> Any:
    """The mask with all batch dimensions, so that they can be joined; heads, rows and keys stay broadcast."""
    try:
        return expand(mask, (*lead[:-1], *mask.shape[-3:]))
    except (BufferError, RuntimeError, ValueError):
        wanted = f"[{', '.join(map(str, lead))}, seqlen_q, seqlen_k]"
        raise ValueError(f"attn_mask: has shape {list(mask.shape)}, which does not broadcast to {wanted}") from None


def _of_rank_4(array: Any) -> Any:
    return array if len(array.shape) <= 4 else array.reshape((math.prod(array.shape[:-3]), *array.shape[-3:]))
