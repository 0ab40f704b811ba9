"""The operators behind saccade.torch.attention, which torch.compile, torch.export and dispatch modes record as single
nodes."""

from __future__ import annotations

import math
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from .. import _core
from .._sdpa import group_of, kernel
from ._tangents import differentiate
from ._tensors import empty_rows_like, or_empty, precision, readable

# The options that are tensors, in the order of the operator's arguments. The first have gradients.
LEARNT = ("mask", "sinks", "alibi_slopes")
GIVEN = ("kv_lengths", "kv_starts", "query_offset", "block_mask", "cu_seqlens_q", "cu_seqlens_k", "block_table")
TENSORS = (*LEARNT, *GIVEN)


class Call(NamedTuple):
    """The options that are not tensors, in the order of the operator's arguments."""

    causal: str | None = None
    query_offset: int | None = None
    window_left: int = -1
    window_right: int = -1
    scale: float | None = None
    softcap: float = 0.0
    dropout_p: float = 0.0
    block_mask_q: int = 128
    block_mask_k: int = 128
    layout: str = "bhsd"
    weights_after_dropout: bool = False
    return_weights: bool = False


# The options that are two of them.
PAIRS = {"window": ("window_left", "window_right"), "block_mask_size": ("block_mask_q", "block_mask_k")}
_PARTS = {part for pair in PAIRS.values() for part in pair}
_SINGLE = tuple(name for name in Call._fields if name not in _PARTS and name != "return_weights")
# Faster than loops in Python.
_single_of = attrgetter(*_SINGLE)
_both_of = {name: attrgetter(*pair) for name, pair in PAIRS.items()}


def forward(
    q: Tensor, k: Tensor, v: Tensor, tensors: Any, seed: Tensor | None, call: Call, with_lse: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    o = output_like(q, v)
    lse = q.new_empty(rows_of(q, call, tensors), dtype=precision(q)) if with_lse else None
    weights = None
    if call.return_weights:
        weights = q.new_empty((*rows_of(q, call, tensors), _keys(k, call, tensors)), dtype=precision(q))
    compute = _core.attention
    if weights is None and not is_packed(tensors) and len(q.shape) > 1:
        heads = -2 if call.layout == "bshd" else -3
        compute = kernel(rows_of(q, call, tensors)[-1], _keys(k, call, tensors), group_of(q, k, heads))
    compute(readable(q), readable(k), readable(v), o, lse, weights, options_of(tensors, seed, call))
    return o, lse, weights


def backward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tensors: Any,
    o: Tensor,
    lse: Tensor,
    dout: Tensor | None,
    dlse: Tensor | None,
    seed: Tensor | None,
    call: Call,
    needed: Any,
) -> tuple[Tensor | None, ...]:
    """The gradients of q, k, v and of the options of LEARNT that are needed."""
    dq, dk, dv = empty_rows_like(q), empty_rows_like(k), empty_rows_like(v)
    others = [x.new_empty(x.shape, dtype=precision(q)) if need else None for x, need in zip(tensors, needed)]
    _core.attention_backward(
        readable(q),
        readable(k),
        readable(v),
        readable(o),
        readable(lse),
        torch.zeros_like(o) if dout is None else readable(dout),
        None if dlse is None else readable(dlse),
        dq,
        dk,
        dv,
        {f"d{name}": gradient for name, gradient in zip(LEARNT, others)},
        options_of(tensors, seed, call._replace(return_weights=False, weights_after_dropout=False)),
    )
    return (dq, dk, dv, *(None if d is None else d.to(x.dtype) for x, d in zip(tensors, others)))


def tangents(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    tensors: Any,
    seed: Tensor | None,
    call: Call,
    moves: Any,
    dout: Tensor | None = None,
    dlse: Tensor | None = None,
    dweights: Tensor | None = None,
) -> list[Tensor | None]:
    """The tangents of o, lse and weights in the direction of `moves`, which are tangents of q, k, v and LEARNT; with
    gradients of o, lse or weights also those of the gradients of q, k, v and LEARNT."""
    if tensors[TENSORS.index("block_table")] is not None:
        raise ValueError("block_table: pages have no gradients")
    learnt = dict(zip(("q", "k", "v", *LEARNT), (q, k, v, *tensors)))
    given = {**learnt, **dict(zip(TENSORS, tensors)), "dout": dout, "dlse": dlse, "dweights": dweights}
    moves = {name: x for name, x in zip(learnt, moves) if x is not None}
    given = {name: x for name, x in given.items() if x is not None}
    found = differentiate(given, moves, call, seed)
    own = {"o": q.dtype, "lse": precision(q), "weights": precision(q)}
    results = [found[name].to(dtype) if name in found else None for name, dtype in own.items()]
    return results + [found[name].to(x.dtype) if name in found else None for name, x in learnt.items()]


def options_of(tensors: Any, seed: Tensor | None, call: Call) -> dict[str, Any]:
    options: dict[str, Any] = dict(zip(_SINGLE, _single_of(call)))
    for name, both_of in _both_of.items():
        options[name] = both_of(call)
    options["num_threads"] = torch.get_num_threads()
    for name, x in zip(TENSORS, tensors):
        if x is not None:
            options[name] = readable(x.detach())
    if call.dropout_p:
        assert seed is not None
        options["seed"] = int(seed)
    return options


def is_packed(tensors: Any) -> bool:
    return tensors[TENSORS.index("cu_seqlens_q")] is not None


def rows_of(q: Tensor, call: Call, tensors: Any) -> tuple[Any, ...]:
    """The shape of lse: [batch, heads, seqlen_q] as far as q has these, packed [heads, total_q]."""
    shape = q.shape[:-1]
    if len(shape) > 1 and (is_packed(tensors) or call.layout == "bshd"):
        return (*shape[:-2], shape[-1], shape[-2])
    return tuple(shape)


def _keys(k: Tensor, call: Call, tensors: Any) -> Any:
    """seqlen_k, the last dimension of the weights."""
    axis = -3 if call.layout == "bshd" and k.dim() > 2 else -2
    table = tensors[TENSORS.index("block_table")]
    return k.shape[axis] if table is None else table.shape[-1] * k.shape[axis]


def output_like(q: Tensor, v: Tensor) -> Tensor:
    return empty_rows_like(q) if q.shape[-1] == v.shape[-1] else q.new_empty((*q.shape[:-1], v.shape[-1]))


# The operators.


def _schema(name: str, annotation: Any) -> str:
    kind = annotation.__forward_arg__.replace(" | None", "?")
    return f"{kind.replace('int', 'SymInt') if name in _SYMBOLIC else kind} {name}"


_SYMBOLIC = ("query_offset", "window_left", "window_right")
_OPTIONS = ", ".join(
    (
        *(f"Tensor? {name if name != 'query_offset' else 'query_offsets'}" for name in TENSORS),
        "Tensor? seed",
        *(_schema(name, annotation) for name, annotation in Call.__annotations__.items()),
    )
)


@torch.library.custom_op(
    "saccade::attention_with_options",
    mutates_args=(),
    device_types="cpu",
    schema=f"(Tensor q, Tensor k, Tensor v, {_OPTIONS}) -> (Tensor, Tensor, Tensor)",
)
def operator(q, k, v, *options):
    tensors, seed, call = split(options)
    with torch.no_grad():
        return tuple(or_empty(result, q) for result in forward(q, k, v, tensors, seed, call, True))


def split(options: Any) -> tuple[Any, Tensor | None, Call]:
    count = len(TENSORS)
    return options[:count], options[count], Call(*options[count + 1 :])


@operator.register_fake
def _operator_shapes(q, k, v, *options):
    tensors, _, call = split(options)
    rows = rows_of(q, call, tensors)
    weights = (*rows, _keys(k, call, tensors)) if call.return_weights else (0,)
    return output_like(q, v), q.new_empty(rows, dtype=precision(q)), q.new_empty(weights, dtype=precision(q))


@torch.library.custom_op(
    "saccade::attention_with_options_backward",
    mutates_args=(),
    device_types="cpu",
    schema="(Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor? dout, Tensor? dlse, bool dmask, bool dsinks, "
    f"bool dalibi_slopes, {_OPTIONS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def operator_backward(q, k, v, o, lse, dout, dlse, dmask, dsinks, dalibi_slopes, *options):
    tensors, seed, call = split(options)
    with torch.no_grad():
        found = backward(q, k, v, tensors, o, lse, dout, dlse, seed, call, (dmask, dsinks, dalibi_slopes))
    return tuple(or_empty(gradient, q) for gradient in found)


@operator_backward.register_fake
def _operator_backward_shapes(q, k, v, o, lse, dout, dlse, dmask, dsinks, dalibi_slopes, *options):
    tensors, _, _ = split(options)
    others = (
        torch.empty_like(x, memory_format=torch.contiguous_format) if need else q.new_empty(0, dtype=precision(q))
        for x, need in zip(tensors, (dmask, dsinks, dalibi_slopes))
    )
    return (empty_rows_like(q), empty_rows_like(k), empty_rows_like(v), *others)


@torch.library.custom_op(
    "saccade::attention_with_options_tangents",
    mutates_args=(),
    device_types="cpu",
    schema="(Tensor q, Tensor k, Tensor v, Tensor? moved_q, Tensor? moved_k, Tensor? moved_v, Tensor? moved_mask, "
    f"Tensor? moved_sinks, Tensor? moved_alibi_slopes, Tensor? dout, Tensor? dlse, Tensor? dweights, {_OPTIONS}) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def operator_tangents(q, k, v, *others):
    moves, results, options = others[:6], others[6:9], others[9:]
    tensors, seed, call = split(options)
    with torch.no_grad():
        found = tangents(q, k, v, tensors, seed, call, moves, *results)
    return tuple(or_empty(x, q) for x in found)


@operator_tangents.register_fake
def _operator_tangents_shapes(q, k, v, *others):
    results, options = others[6:9], others[9:]
    tensors = split(options)[0]
    learnt = (q, k, v, *(x if x is not None and x.is_floating_point() else None for x in tensors[: len(LEARNT)]))
    if all(x is None for x in results):
        learnt = (None,) * len(learnt)
    gradients = (None if x is None else x.new_empty(x.shape) for x in learnt)
    return (*_operator_shapes(q, k, v, *options), *(or_empty(x, q) for x in gradients))


def save(ctx: Any, inputs: tuple, output: tuple) -> None:
    """Saves the arguments of operator() and its results for gradients()."""
    q, k, v, *options = inputs
    tensors, seed, ctx.call = split(tuple(options))
    _save(ctx, q, k, v, output[0], output[1], *tensors, seed)


def _save(ctx: Any, *tensors: Tensor | None) -> None:
    ctx.save_for_backward(*tensors)
    if hasattr(ctx, "save_for_forward"):  # not in the autograd rules of operators
        ctx.save_for_forward(*tensors)
    ctx.set_materialize_grads(False)


def gradients(
    ctx: Any, dout: Tensor | None, dlse: Tensor | None, _: Tensor | None, backward: Any = operator_backward
) -> tuple:
    q, k, v, o, lse, *options = ctx.saved_tensors
    needed = ctx.needs_input_grad[3 : 3 + len(LEARNT)]
    found = backward(q, k, v, o, lse, dout, dlse, *needed, *options, *ctx.call)
    learnt = (gradient if need else None for gradient, need in zip(found[3:], needed))
    return (*found[:3], *learnt, *(None for _ in range(len(GIVEN) + 1 + len(ctx.call))))


operator.register_autograd(gradients, setup_context=save)


def save_backward(ctx: Any, inputs: tuple, output: tuple) -> None:
    """Saves the arguments of operator_backward() for gradients_of_gradients()."""
    tensors, seed, ctx.call = split(inputs[10:])
    ctx.needed = inputs[7:10]
    _save(ctx, *inputs[:7], *tensors, seed)


def gradients_of_gradients(ctx: Any, *found: Tensor | None, tangents: Any = operator_tangents) -> tuple:
    q, k, v, _, _, dout, dlse, *options = ctx.saved_tensors
    o, lse, _, dq, dk, dv, *learnt = tangents(q, k, v, *found, dout, dlse, None, *options, *ctx.call)
    needed = ctx.needs_input_grad[10 : 10 + len(LEARNT)]
    return (
        *(dq, dk, dv, None, None),  # o and lse are functions of the others
        *(None if dout is None else o, None if dlse is None else lse, None, None, None),
        *(gradient if need else None for gradient, need in zip(learnt, needed)),
        *(None for _ in range(len(GIVEN) + 1 + len(ctx.call))),
    )


operator_backward.register_autograd(gradients_of_gradients, setup_context=save_backward)


def save_tangents(ctx: Any, inputs: tuple, output: tuple) -> None:
    """Saves the arguments of operator_tangents() for gradients_of_tangents()."""
    tensors, seed, ctx.call = split(inputs[12:])
    ctx.save_for_backward(*inputs[:12], *tensors, seed)
    ctx.set_materialize_grads(False)


def gradients_of_tangents(
    ctx: Any,
    dout: Tensor | None,
    dlse: Tensor | None,
    dweights: Tensor | None,
    *further: Tensor | None,
    operators: Any = (operator, operator_backward, operator_tangents),
) -> tuple:
    """The gradients of tangents of o and lse, which are what second derivatives are."""
    attend, backward, tangents = operators
    q, k, v, *others = ctx.saved_tensors
    moves, ours, options = others[:6], others[6:9], others[9:]
    if any(x is not None for x in (*ours, *further)):
        raise RuntimeError(
            "saccade.torch: within torch.func, dispatch modes and batches of gradients, attention can be "
            "differentiated twice, not three times"
        )
    refuse_gradient_of_weights(dweights)
    needed = [x is not None for x in moves[3:]]
    o, lse, _ = attend(q, k, v, *options, *ctx.call)
    of_moves = backward(q, k, v, o, lse, dout, dlse, *needed, *options, *ctx.call)
    found = tangents(q, k, v, *moves, dout, dlse, None, *options, *ctx.call)[3:]
    return (
        *found[:3],
        *(None if move is None else x for move, x in zip(moves, of_moves)),
        *(None, None, None),
        *(x if x.numel() else None for x in found[3:]),
        *(None for _ in range(len(GIVEN) + 1 + len(ctx.call))),
    )


def refuse_gradient_of_weights(dweights: Tensor | None) -> None:
    if dweights is not None and dweights.numel():
        raise RuntimeError("saccade.torch.attention: returned weights have no gradient")


operator_tangents.register_autograd(gradients_of_tangents, setup_context=save_tangents)


# The floating-point operations that torch.utils.flop_counter counts: of all pairs of rows and keys of a document.


@register_flop_formula(torch.ops.saccade.attention_with_options, get_raw=True)
def _operations(q: Tensor, k: Tensor, v: Tensor, *options: Any, out_val: Any = None) -> int:
    return 2 * _pairs(q, k, options) * (q.shape[-1] + v.shape[-1])


@register_flop_formula(torch.ops.saccade.attention_with_options_backward, get_raw=True)
def _operations_backward(q: Tensor, k: Tensor, v: Tensor, *others: Any, out_val: Any = None) -> int:
    return 2 * _pairs(q, k, others[7:]) * (3 * q.shape[-1] + 2 * v.shape[-1])


def _pairs(q: Tensor, k: Tensor, options: Any) -> int:
    tensors, _, call = split(options)
    if not is_packed(tensors):
        return math.prod(rows_of(q, call, tensors)) * int(_keys(k, call, tensors))
    of = dict(zip(TENSORS, tensors))
    return q.shape[-2] * int((of["cu_seqlens_q"].diff() * of["cu_seqlens_k"].diff()).sum())
