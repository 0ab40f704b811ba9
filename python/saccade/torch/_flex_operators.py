"""The operators behind saccade.torch.flex_attention where it has not become options of attention: dispatch modes
(FlopCounterMode, policies of checkpointing) see a call as one of these."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from .. import _core
from ._tensors import are_batched, empty_rows_like, is_recorded, or_empty, precision, readable

# Functions of calls that an operator is computing now, by the number that stands for them in its arguments.
_running: dict[int, Any] = {}
_numbers = itertools.count()


def forward(functions: Any, q: Tensor, k: Tensor, v: Tensor, tensors: Any, scale: float | None, wants_max: bool) -> Any:
    """Output, lse, and the largest score of each row or an empty tensor."""
    if not is_recorded():
        return _forward(functions, q, k, v, tensors, scale, wants_max)
    with _number_of(functions) as number:
        return operator(q, k, v, tensors, scale, wants_max, number)


def backward(functions: Any, *arguments: Any) -> list[Tensor]:
    """Gradients of q, k, v and the tensors that are needed. Takes the operator's arguments without the last."""
    if are_batched(*arguments[5:7]):
        return _backward_of_each(functions, *arguments)
    if not is_recorded():
        return _backward(functions, *arguments)
    with _number_of(functions) as number:
        return operator_backward(*arguments, number)


@contextmanager
def _number_of(functions: Any) -> Iterator[int]:
    number = next(_numbers)
    _running[number] = functions
    try:
        yield number
    finally:
        del _running[number]


def _functions(number: int) -> Any:
    if number not in _running:
        raise RuntimeError("flex_attention: a recorded call cannot be run again, because its functions are gone")
    return _running[number]


def _forward(functions: Any, q: Tensor, k: Tensor, v: Tensor, tensors: Any, scale: Any, wants_max: bool) -> Any:
    o = _output(q, v)
    lse = q.new_empty(q.shape[:-1], dtype=precision(q))
    maxima = torch.full_like(lse, -math.inf) if wants_max else None
    options = {"num_threads": torch.get_num_threads(), "scale": scale, **functions.options(tensors, maxima=maxima)}
    _core.attention(readable(q), readable(k), readable(v), o, lse, None, options)
    return o, lse, or_empty(maxima, q)


def _backward(
    functions: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    dout: Tensor | None,
    dlse: Tensor | None,
    tensors: Any,
    needed: Any,
    scale: float | None,
) -> list[Tensor]:
    dq, dk, dv = empty_rows_like(q), empty_rows_like(k), empty_rows_like(v)
    others = [torch.zeros_like(x, dtype=torch.float64) if need else None for x, need in zip(tensors, needed)]
    options = {"num_threads": torch.get_num_threads(), "scale": scale, **functions.options(tensors, others)}
    dout = torch.zeros_like(o) if dout is None else readable(dout)
    given = (readable(q), readable(k), readable(v), o, lse, dout, None if dlse is None else readable(dlse))
    _core.attention_backward(*given, dq, dk, dv, {}, options)
    return [dq, dk, dv, *(d.to(x.dtype) for x, d in zip(tensors, others) if d is not None)]


def _backward_of_each(
    functions: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    lse: Tensor,
    dout: Tensor | None,
    dlse: Tensor | None,
    tensors: Any,
    needed: Any,
    scale: float | None,
) -> list[Tensor]:
    def gradients(dout: Tensor | None, dlse: Tensor | None) -> list[Tensor]:
        return _backward(functions, q, k, v, o, lse, dout, dlse, tensors, needed, scale)

    with _number_of(gradients) as number:
        dq, dk, dv, others = operator_backward_of_each(dout, dlse, number)
    learnt = [x for x, need in zip(tensors, needed) if need]
    parts = others.split([x.numel() for x in learnt], -1) if learnt else ()
    return [dq, dk, dv, *(part.reshape(x.shape).to(x.dtype) for part, x in zip(parts, learnt))]


def _output(q: Tensor, v: Tensor) -> Tensor:
    return empty_rows_like(q) if q.shape[-1] == v.shape[-1] else q.new_empty((*q.shape[:-1], v.shape[-1]))


@torch.library.custom_op(
    "saccade::flex_attention",
    mutates_args=(),
    device_types="cpu",
    schema="(Tensor q, Tensor k, Tensor v, Tensor[] tensors, float? scale, bool max_scores, int functions) "
    "-> (Tensor, Tensor, Tensor)",
)
def operator(q, k, v, tensors, scale, max_scores, functions):
    with torch.no_grad():
        return _forward(_functions(functions), q, k, v, tensors, scale, max_scores)


@torch.library.custom_op(
    "saccade::flex_attention_backward",
    mutates_args=(),
    device_types="cpu",
    schema="(Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor? dout, Tensor? dlse, Tensor[] tensors, "
    "bool[] needed, float? scale, int functions) -> Tensor[]",
)
def operator_backward(q, k, v, o, lse, dout, dlse, tensors, needed, scale, functions):
    with torch.no_grad():
        return _backward(_functions(functions), q, k, v, o, lse, dout, dlse, tensors, needed, scale)


@torch.library.custom_op(
    "saccade::flex_attention_backward_of_each",
    mutates_args=(),
    device_types="cpu",
    schema="(Tensor? dout, Tensor? dlse, int gradients) -> (Tensor, Tensor, Tensor, Tensor)",
)
def operator_backward_of_each(dout, dlse, gradients):
    """Without lists of tensors, which PyTorch's batches do not know: the last result has all numbers of the others."""
    with torch.no_grad():
        dq, dk, dv, *others = _functions(gradients)(dout, dlse)
    return dq, dk, dv, torch.cat([dq.new_empty(0, dtype=torch.float64), *(x.double().flatten() for x in others)])


# The floating-point operations that torch.utils.flop_counter counts: of all pairs of rows and keys.


@register_flop_formula(torch.ops.saccade.flex_attention, get_raw=True)
def _operations(q: Tensor, k: Tensor, v: Tensor, *others: Any, out_val: Any = None) -> int:
    return 2 * math.prod(q.shape[:-1]) * k.shape[-2] * (q.shape[-1] + v.shape[-1])


@register_flop_formula(torch.ops.saccade.flex_attention_backward, get_raw=True)
def _operations_backward(q: Tensor, k: Tensor, v: Tensor, *others: Any, out_val: Any = None) -> int:
    return 2 * math.prod(q.shape[:-1]) * k.shape[-2] * (3 * q.shape[-1] + 2 * v.shape[-1])
