"""Packed sequences and chunks as documents: they see only their own keys, and lie one after the other."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.compiler import is_compiling

from ._patterns import Pattern


class Documents(NamedTuple):
    """The documents of all batch entries, one after the other."""

    cu_seqlens_q: Tensor  #: where each begins in the queries, and the total: [documents + 1]
    cu_seqlens_k: Tensor
    options: dict[str, Any]  #: of attention_varlen, for each document
    are_chunks: bool = False


def documents_of_sequences(pattern: Pattern, batch: int, length: int) -> Documents:
    """The documents of packed sequences, which transformers recognises in position_ids."""
    assert pattern.sequences is not None
    begins = _changes(pattern.sequences.expand(batch, length))
    if pattern.chunk is not None:
        positions = torch.arange(length) if pattern.positions is None else pattern.positions
        begins = begins | _changes(positions.expand(batch, length) // pattern.chunk)
    total = batch * length
    if is_compiling():  # how many there are is not known: documents without rows follow
        at = torch.where(begins.flatten(), torch.arange(total), total).sort().values
    else:
        at = begins.flatten().nonzero().flatten()
    bounds = torch.cat((at, at.new_full((1,), total)))
    return Documents(bounds, bounds, {})


def documents_of_chunks(
    pattern: Pattern,
    shape: tuple[int, int, int, int],
    q_offset: Any,
    kv_offset: int,
    starts: Tensor | None,
    lengths: Tensor | None,
) -> Documents:
    """The documents of chunks, which are counted from the end of the padding on the left.

    :param shape: [batch, 1, queries, keys]; `q_offset` and `kv_offset`: the positions of the first of both.
    :param starts: the first key of each batch entry that counts, and `lengths` the last plus 1: [batch].
    """
    size, left = pattern.chunk, pattern.left_padding
    assert size is not None and left is not None
    batch, _, queries, keys = shape
    number = (kv_offset + keys) // size + 1
    borders = left.expand(batch)[:, None] + size * torch.arange(-number, number + 1)
    of_keys = (borders - kv_offset).clamp(0, keys)
    of_queries = (borders - q_offset).clamp(0, queries)
    first = of_keys[:, :-1]
    options = {"query_offset": (of_queries[:, :-1] + q_offset - first - kv_offset).flatten()}
    if starts is not None:
        assert lengths is not None
        count = of_keys[:, 1:] - first
        options["kv_starts"] = (starts[:, None] - first).clamp(min=0).minimum(count).flatten()
        options["kv_lengths"] = (lengths[:, None] - first).clamp(min=0).minimum(count).flatten()
    return Documents(_joined(of_queries, queries), _joined(of_keys, keys), options, are_chunks=True)


def _changes(values: Tensor) -> Tensor:
    """True where a value differs from the one before it, and at the beginning: [batch, length]."""
    return torch.cat((torch.ones_like(values[:, :1], dtype=torch.bool), values[:, 1:] != values[:, :-1]), 1)


def _joined(bounds: Tensor, length: int) -> Tensor:
    """The bounds of each batch entry, from 0 to `length`, as bounds in all entries one after the other."""
    batch = bounds.shape[0]
    begins = bounds[:, :-1] + length * torch.arange(batch)[:, None]
    return torch.cat((begins.flatten(), bounds.new_full((1,), batch * length)))
