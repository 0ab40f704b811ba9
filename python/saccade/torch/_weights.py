"""The weights of attention in PyTorch's own operations, which torch.func differentiates as often as one likes."""

from __future__ import annotations

import torch
from torch import Tensor

from ._tensors import precision


def weights_of(q: Tensor, k: Tensor, mask: Tensor | None, causal: str | None, scale: float | None) -> Tensor:
    """softmax(scale q k^T + mask), [..., seqlen_q, seqlen_k], in f32 (f64 for f64 inputs). Rows that see no key are 0.

    :param k: with as many heads as q.
    :param mask: bool, True where a key is seen, or floating, which is added.
    """
    dtype = precision(q)
    scores = q.to(dtype) @ k.to(dtype).mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    hidden = torch.zeros(scores.shape[-2:], dtype=torch.bool)
    if causal is not None:
        last = 0 if causal == "top_left" else k.shape[-2] - q.shape[-2]
        hidden = torch.ones_like(hidden).triu(last + 1)
    if mask is not None and mask.dtype is torch.bool:
        hidden = hidden | ~mask
    elif mask is not None:
        scores = scores + mask.to(dtype)
        hidden = hidden | (mask == -torch.inf)
    scores = scores.masked_fill(hidden, -torch.inf)
    # softmax of a row of -inf, and its gradient, is NaN
    scores = scores.masked_fill(hidden.all(-1, keepdim=True), 0.0)
    return scores.softmax(-1).masked_fill(hidden, 0.0)
