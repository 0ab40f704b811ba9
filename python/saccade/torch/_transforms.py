"""saccade.torch.attention under torch.func: the operators as functions that it can differentiate, and vmap."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ._operators import (
    LEARNT,
    TENSORS,
    Call,
    gradients,
    gradients_of_gradients,
    gradients_of_tangents,
    is_packed,
    operator,
    operator_backward,
    operator_tangents,
    refuse_gradient_of_weights,
    save,
    save_backward,
    save_tangents,
    split,
)
from ._operators import tangents as eager_tangents
from ._tensors import are_batched, is_recorded, is_transformed


class TransformedAttention(torch.autograd.Function):
    """operator(), the rules of which torch.func does not know."""

    generate_vmap_rule = True
    setup_context = staticmethod(save)

    @staticmethod
    def forward(*arguments: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*arguments)

    @staticmethod
    def backward(ctx: Any, dout: Tensor | None, dlse: Tensor | None, dweights: Tensor | None) -> Any:
        refuse_gradient_of_weights(dweights)
        return gradients(ctx, dout, dlse, None, TransformedGradients.apply)

    @staticmethod
    def jvp(ctx: Any, *moved: Any) -> Any:
        q, k, v, _, _, *options = ctx.saved_tensors
        found = _TransformedTangents.apply(q, k, v, *moved[: 3 + len(LEARNT)], None, None, None, *options, *ctx.call)
        return found[:3]


class TransformedGradients(torch.autograd.Function):
    """operator_backward(), differentiable too."""

    generate_vmap_rule = True
    setup_context = staticmethod(save_backward)

    @staticmethod
    def forward(*arguments: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return operator_backward(*arguments)

    @staticmethod
    def backward(ctx: Any, *moved: Any) -> Any:
        return gradients_of_gradients(ctx, *moved, tangents=tangents)

    @staticmethod
    def jvp(ctx: Any, *moved: Any) -> Any:
        q, k, v, o, lse, dout, dlse, *options = ctx.saved_tensors
        moved_dout, moved_dlse = moved[5:7]
        moves = (*moved[:3], *moved[10 : 10 + len(LEARNT)])
        found = tangents(q, k, v, *moves, dout, dlse, None, *options, *ctx.call)[3:]
        own = (torch.zeros_like(x) if move is None else move for x, move in zip((q, k, v), found))
        found = (*own, *(x if need else q.new_empty(0) for x, need in zip(found[3:], ctx.needed)))
        if moved_dout is None and moved_dlse is None:
            return found
        backward = operator_backward if are_batched(moved_dout, moved_dlse) else TransformedGradients.apply
        linear = backward(q, k, v, o, lse, moved_dout, moved_dlse, *ctx.needed, *options, *ctx.call)
        return tuple(map(torch.add, found, linear))


class _TransformedTangents(torch.autograd.Function):
    """operator_tangents(), differentiable if these are tangents of o and lse alone."""

    generate_vmap_rule = True
    setup_context = staticmethod(save_tangents)

    @staticmethod
    def forward(*arguments: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            return operator_tangents(*arguments)

    @staticmethod
    def jvp(ctx: Any, *_: Any) -> Any:
        raise RuntimeError(
            "saccade.torch: forward-mode tangents of tangents are not supported: take them of a gradient"
        )

    @staticmethod
    def backward(ctx: Any, *found: Tensor | None) -> Any:
        operators = (TransformedAttention.apply, TransformedGradients.apply, _TransformedTangents.apply)
        return gradients_of_tangents(ctx, *found, operators=operators)


def tangents(q: Tensor, k: Tensor, v: Tensor, *others: Any) -> Any:
    """operator_tangents(), with None for what there is not. PyTorch's own operations, which autograd differentiates as
    often as one likes, unless a transform, a record or batches need an operator."""
    moves, results, options = others[:6], others[6:9], others[9:]
    of_batches = are_batched(*moves, *results)
    if of_batches or is_recorded() or is_transformed():
        found = (operator_tangents if of_batches else _TransformedTangents.apply)(q, k, v, *others)
        return [x if x.numel() else None for x in found]
    tensors, seed, call = split(options)
    return eager_tangents(q, k, v, tensors, seed, call, moves, *results)


# vmap: a batch dimension, if all that depends on it can be one.


@operator.register_vmap
def _operator_of_many(info: Any, in_dims: Any, *arguments: Any) -> Any:
    many = _Many(info.batch_size, in_dims, arguments)
    merged = many.merged(3)
    if merged is None:
        results = [operator(*one) for one in many.each()]
        return tuple(torch.stack(parts) for parts in zip(*results)), (0, 0, 0)
    o, lse, weights = operator(*merged)
    call = split(arguments[3:])[2]
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
        tensors, _, call = split(tuple(options))
        of = dict(zip(TENSORS, tensors))
        sinks_differ = self.is_many[first_option + TENSORS.index("sinks")]
        if call.dropout_p or sinks_differ or is_packed(tensors) or of["block_table"] is not None or self.rank > 4:
            return None
        heads_go_last = call.layout == "bshd"
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
        call = split(tuple(self.arguments[-(len(TENSORS) + 1 + len(Call._fields)) :]))[2]
        return x.squeeze(1 if head_axis or call.layout == "bhsd" else -2)


@operator_tangents.register_vmap
def _operator_tangents_of_many(info: Any, in_dims: Any, *arguments: Any) -> Any:
    results = [operator_tangents(*one) for one in _Many(info.batch_size, in_dims, arguments).each()]
    return tuple(torch.stack(parts) for parts in zip(*results)), (0,) * 9
