"""The operators behind saccade.torch.attention, which torch.compile, torch.export and dispatch modes record as single
nodes and torch.func transforms."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from .. import _core
from ._attend import LastGradients, or_empty
from ._tensors import empty_rows_like, precision, readable

# The options that are tensors, in the order of the operator's arguments. The first have gradients.
LEARNT = ("mask", "sinks", "alibi_slopes")
GIVEN = ("kv_lengths", "kv_starts", "query_offset", "block_mask", "cu_seqlens_q", "cu_seqlens_k", "block_table")
TENSORS = (*LEARNT, *GIVEN)


class Call(NamedTuple):
    """The options that are not tensors, in the order of the operator's arguments."""

    causal: str | None
    query_offset: int | None
    window_left: int
    window_right: int
    scale: float | None
    softcap: float
    dropout_p: float
    block_mask_q: int
    block_mask_k: int
    layout: str
    weights_after_dropout: bool
    return_weights: bool


def forward(
    q: Tensor, k: Tensor, v: Tensor, tensors: Any, seed: Tensor | None, call: Call, with_lse: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    o = _output(q, v)
    lse = q.new_empty(_rows(q, call, tensors), dtype=precision(q)) if with_lse else None
    weights = q.new_empty((*_rows(q, call, tensors), _keys(k, call, tensors)), dtype=precision(q))
    weights = weights if call.return_weights else None
    _core.attention(readable(q), readable(k), readable(v), o, lse, weights, _options(tensors, seed, call))
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
        _options(tensors, seed, call._replace(return_weights=False, weights_after_dropout=False)),
    )
    return (dq, dk, dv, *(None if d is None else d.to(x.dtype) for x, d in zip(tensors, others)))


def _options(tensors: Any, seed: Tensor | None, call: Call) -> dict[str, Any]:
    options: dict[str, Any] = {
        "num_threads": torch.get_num_threads(),
        "causal": call.causal,
        "query_offset": call.query_offset,
        "window": (call.window_left, call.window_right),
        "scale": call.scale,
        "softcap": call.softcap,
        "block_mask_size": (call.block_mask_q, call.block_mask_k),
        "layout": call.layout,
    }
    options.update((name, readable(x.detach())) for name, x in zip(TENSORS, tensors) if x is not None)
    if call.dropout_p:
        assert seed is not None
        options.update(dropout_p=call.dropout_p, seed=int(seed))
    if call.return_weights:
        options["weights_after_dropout"] = call.weights_after_dropout
    return options


def _is_packed(tensors: Any) -> bool:
    return tensors[TENSORS.index("cu_seqlens_q")] is not None


def _rows(q: Tensor, call: Call, tensors: Any) -> tuple[Any, ...]:
    """The shape of lse: [batch, heads, seqlen_q] as far as q has these, packed [heads, total_q]."""
    shape = q.shape[:-1]
    if len(shape) > 1 and (_is_packed(tensors) or call.layout == "blhd"):
        return (*shape[:-2], shape[-1], shape[-2])
    return tuple(shape)


def _keys(k: Tensor, call: Call, tensors: Any) -> Any:
    """seqlen_k, the last dimension of the weights."""
    axis = -3 if call.layout == "blhd" and k.dim() > 2 else -2
    table = tensors[TENSORS.index("block_table")]
    return k.shape[axis] if table is None else table.shape[-1] * k.shape[axis]


def _output(q: Tensor, v: Tensor) -> Tensor:
    return empty_rows_like(q) if q.shape[-1] == v.shape[-1] else q.new_empty((*q.shape[:-1], v.shape[-1]))


# The operators.

_OPTIONS = ", ".join(
    (
        *(f"Tensor? {name if name != 'query_offset' else 'query_offsets'}" for name in TENSORS),
        "Tensor? seed, str? causal, SymInt? query_offset, SymInt window_left, SymInt window_right, float? scale",
        "float softcap, float dropout_p, int block_mask_q, int block_mask_k, str layout, bool weights_after_dropout",
        "bool return_weights",
    )
)


@torch.library.custom_op(
    "saccade::attention_with_options",
    mutates_args=(),
    device_types="cpu",
    schema=f"(Tensor q, Tensor k, Tensor v, {_OPTIONS}) -> (Tensor, Tensor, Tensor)",
)
def operator(q, k, v, *options):
    tensors, seed, call = _split(options)
    with torch.no_grad():
        return tuple(or_empty(result, q) for result in forward(q, k, v, tensors, seed, call, True))


def _split(options: Any) -> tuple[Any, Tensor | None, Call]:
    count = len(TENSORS)
    return options[:count], options[count], Call(*options[count + 1 :])


@operator.register_fake
def _operator_shapes(q, k, v, *options):
    tensors, _, call = _split(options)
    rows = _rows(q, call, tensors)
    weights = (*rows, _keys(k, call, tensors)) if call.return_weights else (0,)
    return _output(q, v), q.new_empty(rows, dtype=precision(q)), q.new_empty(weights, dtype=precision(q))


@torch.library.custom_op(
    "saccade::attention_with_options_backward",
    mutates_args=(),
    device_types="cpu",
    schema="(Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, Tensor? dout, Tensor? dlse, bool dmask, bool dsinks, "
    f"bool dalibi_slopes, {_OPTIONS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def operator_backward(q, k, v, o, lse, dout, dlse, dmask, dsinks, dalibi_slopes, *options):
    tensors, seed, call = _split(options)
    with torch.no_grad():
        found = backward(q, k, v, tensors, o, lse, dout, dlse, seed, call, (dmask, dsinks, dalibi_slopes))
    return tuple(or_empty(gradient, q) for gradient in found)


@operator_backward.register_fake
def _operator_backward_shapes(q, k, v, o, lse, dout, dlse, dmask, dsinks, dalibi_slopes, *options):
    tensors, _, _ = _split(options)
    others = (
        torch.empty_like(x, memory_format=torch.contiguous_format) if need else q.new_empty(0, dtype=precision(q))
        for x, need in zip(tensors, (dmask, dsinks, dalibi_slopes))
    )
    return (empty_rows_like(q), empty_rows_like(k), empty_rows_like(v), *others)


def _save(ctx: Any, inputs: tuple, output: tuple) -> None:
    q, k, v, *options = inputs
    tensors, seed, ctx.call = _split(tuple(options))
    ctx.save_for_backward(q, k, v, output[0], output[1], *tensors, seed)
    ctx.set_materialize_grads(False)


def _operator_gradients(
    ctx: Any, dout: Tensor | None, dlse: Tensor | None, _: Tensor | None, backward: Any = operator_backward
) -> tuple:
    q, k, v, o, lse, *options = ctx.saved_tensors
    needed = ctx.needs_input_grad[3 : 3 + len(LEARNT)]
    found = backward(q, k, v, o, lse, dout, dlse, *needed, *options, *ctx.call)
    learnt = (gradient if need else None for gradient, need in zip(found[3:], needed))
    return (*found[:3], *learnt, *(None for _ in range(len(GIVEN) + 1 + len(ctx.call))))


operator.register_autograd(_operator_gradients, setup_context=_save)


class _TransformedGradients(torch.autograd.Function):
    """The backward operator as torch.func transforms it. The autograd rules of operators are none that it knows."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*arguments: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return operator_backward(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        return LastGradients.backward(ctx)


class TransformedAttention(torch.autograd.Function):
    """The operators as torch.func transforms them: in a function of which it knows both passes."""

    generate_vmap_rule = True

    @staticmethod
    def forward(*arguments: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _save(ctx, inputs, output)
        ctx.mark_non_differentiable(output[2])

    @staticmethod
    def backward(ctx: Any, dout: Tensor | None, dlse: Tensor | None, dweights: Tensor | None) -> Any:
        return _operator_gradients(ctx, dout, dlse, dweights, _TransformedGradients.apply)


# vmap: a batch dimension, if all that depends on it can be one.


@operator.register_vmap
def _operator_of_many(info: Any, in_dims: Any, *arguments: Any) -> Any:
    many = _Many(info.batch_size, in_dims, arguments)
    merged = many.merged(3)
    if merged is None:
        results = [operator(*one) for one in many.each()]
        return tuple(torch.stack(parts) for parts in zip(*results)), (0, 0, 0)
    o, lse, weights = operator(*merged)
    call = _split(arguments[3:])[2]
    weights = many.split(weights, 1) if call.return_weights else weights.expand(info.batch_size, 0)
    return (many.split(o), many.split(lse, 1), weights), (0, 0, 0)


@operator_backward.register_vmap
def _operator_backward_of_many(info: Any, in_dims: Any, *arguments: Any) -> Any:
    many = _Many(info.batch_size, in_dims, arguments)
    merged = None if any(arguments[7:10]) else many.merged(10, rows=(4, 6))
    if merged is None:
        results = [operator_backward(*one) for one in many.each()]
        return tuple(torch.stack(parts) for parts in zip(*results)), (0,) * 6
    found = operator_backward(*merged)
    return (*map(many.split, found[:3]), *(x.expand(info.batch_size, 0) for x in found[3:])), (0,) * 6


class _Many:
    """The arguments of an operator for many calls: some have one more dimension, that of the calls."""

    def __init__(self, count: int, in_dims: Any, arguments: Any) -> None:
        self.count = count
        self.is_many = [isinstance(x, Tensor) and dim is not None for x, dim in zip(arguments, in_dims)]
        self.arguments = [x.movedim(dim, 0) if many else x for x, dim, many in zip(arguments, in_dims, self.is_many)]
        self.rank = self.arguments[0].dim() - self.is_many[0]  # of q in a call

    def each(self) -> Any:
        for i in range(self.count):
            yield [x[i] if many else x for x, many in zip(self.arguments, self.is_many)]

    def merged(self, first_option: int, rows: tuple[int, ...] = ()) -> list[Any] | None:
        """The arguments of one call for all, with batch entries for the calls, or None: with dropout, documents, pages,
        and sinks of each call. The arguments before the options have the axes of q, but `rows` those of lse."""
        options = self.arguments[first_option:]
        tensors, _, call = _split(tuple(options))
        of = dict(zip(TENSORS, tensors))
        sinks_differ = self.is_many[first_option + TENSORS.index("sinks")]
        if call.dropout_p or sinks_differ or _is_packed(tensors) or of["block_table"] is not None or self.rank > 4:
            return None
        heads_go_last = call.layout == "blhd"
        result = []
        for i, x in enumerate(self.arguments[:first_option]):
            if isinstance(x, Tensor):
                x = x if self.is_many[i] else x.expand(self.count, *x.shape)
                if self.rank == 2:  # one head
                    x = x.unsqueeze(-2 if heads_go_last and i not in rows else 1)
                x = x.flatten(0, 1) if self.rank == 4 else x
            result.append(x)
        return [*result, *self._options(first_option, of), *options[len(TENSORS) :]]

    def _options(self, first: int, of: dict[str, Any]) -> Any:
        batch = self.arguments[0].shape[int(self.is_many[0])] if self.rank == 4 else 1
        for i, (name, x) in enumerate(of.items()):
            if x is not None and name != "sinks":
                many = self.is_many[first + i]
                own = {"mask": 4, "block_mask": 4, "alibi_slopes": 2}.get(name, 1)  # dimensions with batch entries
                rank = x.dim() - many
                if many or (rank == own and (own < 4 or x.shape[0] != 1)):
                    x = x if many else x.expand(self.count, *x.shape)
                    x = x.reshape(self.count, *(1,) * (own - rank), *x.shape[1:])
                    x = x.expand(self.count, batch, *x.shape[2:]).flatten(0, 1)
            yield x

    def split(self, x: Tensor, head_axis: int | None = None) -> Tensor:
        """The results of each call, [count, ...]. `head_axis`: where the axis of heads is that rank 2 does not have; if
        not given, as in q."""
        if self.rank == 4:
            return x.unflatten(0, (self.count, -1))
        if self.rank == 3:
            return x
        call = _split(tuple(self.arguments[-(len(TENSORS) + 1 + len(Call._fields)) :]))[2]
        return x.squeeze(1 if head_axis or call.layout == "bhld" else -2)


# The floating-point operations that torch.utils.flop_counter counts: of all pairs of rows and keys of a document.


@register_flop_formula(torch.ops.saccade.attention_with_options, get_raw=True)
def _operations(q: Tensor, k: Tensor, v: Tensor, *options: Any, out_val: Any = None) -> int:
    return 2 * _pairs(q, k, options) * (q.shape[-1] + v.shape[-1])


@register_flop_formula(torch.ops.saccade.attention_with_options_backward, get_raw=True)
def _operations_backward(q: Tensor, k: Tensor, v: Tensor, *others: Any, out_val: Any = None) -> int:
    return 2 * _pairs(q, k, others[7:]) * (3 * q.shape[-1] + 2 * v.shape[-1])


def _pairs(q: Tensor, k: Tensor, options: Any) -> int:
    tensors, _, call = _split(options)
    if not _is_packed(tensors):
        return math.prod(_rows(q, call, tensors)) * int(_keys(k, call, tensors))
    of = dict(zip(TENSORS, tensors))
    return q.shape[-2] * int((of["cu_seqlens_q"].diff() * of["cu_seqlens_k"].diff()).sum())
