"""scaled_dot_product_attention of nested tensors: packed batches, one document after the other."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import forward_ad
from torch.compiler import is_compiling

from .._sdpa import renamed
from ._attention import attention_varlen
from ._tensors import is_plain

_WANTED = "expected query, key and value nested alike, of rank 3 or 4, [batch, heads, lengths, dim]"


def is_nested(*tensors: Any) -> bool:
    return any(isinstance(tensor, Tensor) and tensor.is_nested for tensor in tensors)


def is_computable(tensors: tuple[Any, ...]) -> bool:
    """Whether nested tensors hold their numbers in main memory, as :func:`is_plain` says of others."""
    return all(_is_computable(tensor) for tensor in tensors)


def _is_computable(tensor: Any) -> bool:
    if not isinstance(tensor, Tensor) or not tensor.is_cpu:
        return False
    if is_compiling():
        return not tensor.is_nested or tensor.layout is torch.jagged
    if not tensor.is_nested:
        return is_plain(tensor)
    if tensor.layout is torch.jagged:
        return _is_jagged_class(tensor) and is_plain(tensor._values) and is_plain(tensor._offsets)
    return type(tensor) is Tensor or type(tensor) is torch.nn.Parameter


def _is_jagged_class(tensor: Tensor) -> bool:
    module = sys.modules.get("torch.nested._internal.nested_tensor")
    return module is not None and type(tensor) is module.NestedTensor


def attend_to_nested(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Tensor:
    """``scaled_dot_product_attention`` of nested tensors [batch, heads, lengths, dim], or [batch, lengths, dim] for one
    head.

    Jagged ones are packed batches, which are read in place; strided ones too if they are transposed from [batch,
    lengths, heads, dim], others are copied. Of jagged tensors with holes query is copied.

    :raises ValueError: for a mask, and for tensors of other layouts; names the argument.
    """
    if mask is not None:
        raise ValueError("attn_mask: nested tensors have no mask here; is_causal is possible")
    tensors = (query, key, value)
    if not all(is_nested(x) for x in tensors) or len({(x.layout, x.dim()) for x in tensors}) > 1:
        raise ValueError(f"query: {_WANTED}, got {', '.join(map(_described, tensors))}")
    if query.layout is torch.jagged and query.dim() == 4 and all(x._ragged_idx == 1 for x in tensors):
        return _of_ragged_batch(query, key, value, dropout_p, is_causal, scale, enable_gqa)
    q, k, v = (_Packed.of(x, name) for x, name in zip(tensors, ("query", "key", "value")))
    _check(query, key, value, q, k, v, enable_gqa)
    rows = q.rows if q.lengths is None else q.rows.index_select(0, q.places())
    starts = q.starts if q.lengths is None else F.pad(q.lengths.cumsum(0), (1, 0))
    try:
        o = attention_varlen(
            rows,
            k.rows,
            v.rows,
            starts,
            k.starts,
            causal="top_left" if is_causal else None,
            scale=scale,
            kv_lengths=k.lengths,
            dropout_p=0.0 if dropout_p == 1 else dropout_p,
        )
    except ValueError as error:
        raise renamed(error) from None
    if dropout_p == 1:
        o = o.masked_fill(torch.ones((), dtype=torch.bool, device="cpu"), 0.0)
    return q.nested(o, query)


def _of_ragged_batch(query: Tensor, key: Tensor, value: Tensor, *options: Any) -> Tensor:
    """Of [batch, ragged, rows, dim]: a dense batch, with the ragged dimension in front."""
    from ._functional import scaled_dot_product_attention

    o = scaled_dot_product_attention(query.values(), key.values(), value.values(), None, *options)
    return _jagged(o, query.offsets(), query.lengths())


def _jagged(rows: Tensor, offsets: Tensor, lengths: Tensor | None, shortest: Any = None, longest: Any = None) -> Tensor:
    """nested_tensor_from_jagged(), with gradients that can be differentiated again."""
    arguments = (rows, offsets, lengths, None, shortest, longest)
    if is_compiling() or forward_ad._current_level >= 0 or not rows.requires_grad:
        return torch.nested.nested_tensor_from_jagged(*arguments)
    return _Jagged.apply(*arguments)


class _Jagged(torch.autograd.Function):
    """PyTorch's own takes values() in C++, the derivative of which is that of strided nested tensors."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, *others: Any) -> Tensor:
        ctx.set_materialize_grads(False)
        return torch.nested.nested_tensor_from_jagged(rows, *others)

    @staticmethod
    def backward(ctx: Any, dout: Any) -> Any:
        return (None if dout is None else dout.values(), *(None,) * 5)


class _Packed(NamedTuple):
    """A nested tensor as a packed batch."""

    rows: Tensor  #: [all tokens, heads, dim]
    starts: Tensor  #: where each entry begins, from 0 on, then the total
    lengths: Tensor | None  #: of the entries, where they are shorter than from one start to the next
    first: int  #: how many tokens of the storage lie before the rows

    @staticmethod
    def of(tensor: Tensor, name: str) -> _Packed:
        if tensor.layout is torch.jagged:
            return _Packed._of_jagged(tensor, name)
        return _Packed._of_strided(tensor, name)

    @staticmethod
    def _of_jagged(tensor: Any, name: str) -> _Packed:
        if tensor._ragged_idx != tensor.dim() - 2:
            raise ValueError(f"{name}: {_WANTED}, got one whose dimension {tensor._ragged_idx} is ragged")
        rows, starts, lengths = tensor.values(), tensor.offsets(), tensor.lengths()
        rows = rows.unsqueeze(1) if tensor.dim() == 3 else rows.transpose(0, 1)
        if lengths is None:
            return _Packed(rows, starts, None, 0)
        first, last = int(starts[0]), int(starts[-1])
        return _Packed(rows[first:last], starts - first, lengths, first)

    @staticmethod
    def _of_strided(tensor: Tensor, name: str) -> _Packed:
        if tensor.dim() not in (3, 4):
            raise ValueError(f"{name}: {_WANTED}, got rank {tensor.dim()}")
        sizes = tensor._nested_tensor_size()
        lengths, others = sizes[:, -2], sizes[:, [*range(tensor.dim() - 3), -1]]
        if len(sizes) == 0 or bool((others != others[0]).any()):
            raise ValueError(f"{name}: expected entries, all with the same numbers of heads and dimensions")
        return _Packed(_unpacked(tensor), F.pad(lengths.cumsum(0), (1, 0)), None, 0)

    def places(self) -> Tensor:
        """The rows that are in an entry."""
        assert self.lengths is not None
        hole = (self.starts[:-1] - F.pad(self.lengths.cumsum(0)[:-1], (1, 0))).to(torch.int64)
        return torch.arange(int(self.lengths.sum())) + hole.repeat_interleave(self.lengths)

    def nested(self, o: Tensor, query: Any) -> Tensor:
        """The output [tokens, heads, dim] as a nested tensor like query."""
        if query.layout is not torch.jagged:
            return _packed(o, self.starts, query.dim())
        if self.lengths is not None:  # where query has holes there are zeros
            values = query.values()
            total = values.shape[query._ragged_idx - 1]
            o = o.new_zeros(total, *o.shape[1:]).index_copy(0, self.places() + self.first, o)
        o = o.squeeze(1) if query.dim() == 3 else o
        nested = _jagged(o, query.offsets(), query.lengths(), query._maybe_min_seqlen, query._maybe_max_seqlen)
        return nested if query.dim() == 3 else nested.transpose(1, 2)


def _unpacked(tensor: Tensor) -> Tensor:
    """[batch, heads, lengths, dim] or [batch, lengths, dim] as [all tokens, heads, dim]; a view if that is the order of
    the storage."""
    tensor = (tensor.transpose(1, 2) if tensor.dim() == 4 else tensor).contiguous()
    sizes = tensor._nested_tensor_size()
    heads, dim = (1, *sizes[0].tolist()[1:])[-2:]
    return tensor.values().view(int(sizes[:, 0].sum()), heads, dim)


def _packed(rows: Tensor, starts: Tensor, rank: int) -> Tensor:
    """The inverse: a view, or a copy if rows has a gradient (that of PyTorch's view takes the numbers of a transposed
    gradient in the order in which it is stored)."""
    heads, dim = rows.shape[1:]
    rows = rows if rank == 4 else rows.squeeze(1)
    if rows.requires_grad:
        nested = torch.nested.as_nested_tensor(list(rows.split(starts.diff().tolist())))
    else:
        entry = torch.tensor([heads, dim] if rank == 4 else [dim]).expand(len(starts) - 1, -1)
        sizes = torch.cat([starts.diff()[:, None], entry], 1)
        strides = torch.tensor([heads * dim, dim, 1] if rank == 4 else [dim, 1]).repeat(len(sizes), 1)
        nested = torch._nested_view_from_buffer(rows.flatten(), sizes, strides, starts[:-1] * heads * dim)
    return nested.transpose(1, 2) if rank == 4 else nested


def _check(query: Any, key: Any, value: Any, q: _Packed, k: _Packed, v: _Packed, enable_gqa: bool) -> None:
    for name, tensor in (("key", key), ("value", value)):
        if tensor.size(0) != query.size(0):
            raise ValueError(f"{name}: expected batch {query.size(0)}, as query has, got {tensor.size(0)}")
    heads, kv_heads = q.rows.shape[1], k.rows.shape[1]
    if heads != kv_heads and not enable_gqa:
        raise ValueError(f"key: expected {heads} heads, as query has, got {kv_heads}; enable_gqa=True permits fewer")
    if not is_compiling() and not _same_lengths(k, v):
        raise ValueError("value: expected the lengths of key, entry by entry")


def _same_lengths(k: _Packed, v: _Packed) -> bool:
    same = (x is y or (x is not None and y is not None and torch.equal(x, y)) for x, y in zip(k[1:3], v[1:3]))
    return k.rows.shape[0] == v.rows.shape[0] and all(same)


def _described(tensor: Any) -> str:
    if not isinstance(tensor, Tensor):
        return type(tensor).__name__
    kind = f"a nested one of layout {tensor.layout}" if tensor.is_nested else "a dense one"
    return f"{kind} of rank {tensor.dim()}"
