"""Functions for flex_attention as people write them: name -> (score_mod, mask_mod, whether options of attention do it).

The functions take tensors of any shape that is broadcast, so that a dense computation can call them too.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn.attention.flex_attention import and_masks, or_masks


def gallery(
    seqlen: int, heads: int, batch: int, dtype: torch.dtype = torch.float64
) -> dict[str, tuple[Any, Any, bool]]:
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype)

    documents = torch.arange(seqlen) // max(1, seqlen // 5)
    documents_of_batch = torch.stack([torch.arange(seqlen) // max(1, seqlen // (3 + b)) for b in range(batch)])
    shuffled = torch.randint(0, 4, (seqlen,), generator=generator)
    lengths = torch.arange(1, batch + 1) * seqlen // batch
    bias, of_head, table = random(heads, seqlen, seqlen), random(heads), random(heads, 2 * seqlen - 1)
    important = torch.rand(seqlen, generator=generator) < 0.1
    side = max(2, math.isqrt(seqlen))
    window = max(2, seqlen // 8)

    def causal(b, h, q, k):
        return q >= k

    def sliding(b, h, q, k):
        return (q - k <= window) & (k <= q)

    def both_sides(b, h, q, k):
        return (q - k).abs() <= window

    def bidirectional(b, h, q, k):
        return (q - k < window) & (k - q < window)

    def prefix(b, h, q, k):
        return k < lengths[b] // 2

    def padding(b, h, q, k):
        return k < lengths[b]

    def same_document(b, h, q, k):
        return documents[q] == documents[k]

    def same_document_of_batch(b, h, q, k):
        return documents_of_batch[b, q] == documents_of_batch[b, k]

    def same_kind(b, h, q, k):
        return shuffled[q] == shuffled[k]

    def dilated(b, h, q, k):
        return ((q - k).abs() <= window) & ((q - k) % 2 == 0)

    def neighbourhood(b, h, q, k):
        row, column = (q // side).clamp(2, side - 3), (q % side).clamp(2, side - 3)
        return ((row - k // side).abs() <= 2) & ((column - k % side).abs() <= 2)

    def chunks(b, h, q, k):
        return (q // 16 == k // 16) & (q >= k)

    def global_tokens(b, h, q, k):
        return (k < 4) | (q < 4) | ((q - k).abs() <= window)

    def important_keys(b, h, q, k):
        return important[k] | (q == k)

    def of_parity(b, h, q, k):
        return torch.where(h % 2 == 0, q >= k, q <= k)

    def alibi(score, b, h, q, k):
        return score + (k - q) * torch.exp2(-((h + 1) * 8.0 / heads))

    def relative(score, b, h, q, k):
        return score + (q - k)

    def softcap(score, b, h, q, k):
        return 3.0 * torch.tanh(score / 3.0)

    def hides(score, b, h, q, k):
        return torch.where(q >= k, score, -float("inf"))

    def added(score, b, h, q, k):
        return score + bias[h, q, k]

    def looked_up(score, b, h, q, k):
        return score + table[h, q - k + seqlen - 1]

    def scaled(score, b, h, q, k):
        return score * of_head[h].sigmoid()

    def distance_decay(score, b, h, q, k):
        return score * torch.exp(-(q - k).abs() / 40) - 0.1 * torch.log(1.0 + (q - k).abs())

    def bounded(score, b, h, q, k):
        return torch.clamp(score, -1.0, 1.0) + torch.relu(score) ** 2 / 8

    def capped_alibi(score, b, h, q, k):
        return 2 * torch.tanh(score / 2) - (q - k) * 0.125

    return {
        "causal": (None, causal, True),
        "sliding_window": (None, sliding, True),
        "both_sides": (None, both_sides, True),
        "bidirectional": (None, bidirectional, True),
        "prefix": (None, or_masks(prefix, causal), False),
        "padding": (None, padding, False),
        "documents": (None, same_document, True),
        "causal_documents": (None, and_masks(same_document, causal), True),
        "documents_of_batch": (None, and_masks(causal, same_document_of_batch), True),
        "unsorted_documents": (None, same_kind, False),
        "window_of_documents": (None, and_masks(sliding, same_document), True),
        "dilated": (None, dilated, False),
        "neighbourhood": (None, neighbourhood, False),
        "chunks": (None, chunks, False),
        "global_tokens": (None, global_tokens, False),
        "important_keys": (None, important_keys, False),
        "of_parity": (None, of_parity, False),
        "alibi": (alibi, causal, True),
        "relative": (relative, causal, True),
        "softcap": (softcap, causal, True),
        "causal_score": (hides, None, True),
        "bias": (added, causal, True),
        "bias_of_documents": (added, same_document, False),
        "looked_up": (looked_up, sliding, False),
        "scaled": (scaled, causal, False),
        "distance_decay": (distance_decay, None, False),
        "bounded": (bounded, padding, False),
        "capped_alibi": (capped_alibi, causal, True),
    }
