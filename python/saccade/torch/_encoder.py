"""What PyTorch's encoder layers and modules call in evaluation: a whole layer, or self-attention with its projections,
as one function without gradients. Nested tensors are packed batches here."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import _core
from ._attend import attend


def encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """``torch._transformer_encoder_layer_fwd``; masks mean what they mean in training."""
    of = _Rows.of(src)
    x = of.rows

    def normalized(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return torch.layer_norm(x, (embed_dim,), weight, bias, eps)

    def attended(x: Tensor) -> Tensor:
        return _projected(of, x, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, mask_type)[0]

    def fed_forward(x: Tensor) -> Tensor:
        hidden = F.linear(x, ffn_weight_1, ffn_bias_1)
        return F.linear(F.gelu(hidden) if use_gelu else torch.relu_(hidden), ffn_weight_2, ffn_bias_2)

    if norm_first:
        x = attended(normalized(x, norm_weight_1, norm_bias_1)).add_(x)
        return of.shaped(fed_forward(normalized(x, norm_weight_2, norm_bias_2)).add_(x))
    x = normalized(attended(x).add_(x), norm_weight_1, norm_bias_1)
    return of.shaped(normalized(fed_forward(x).add_(x), norm_weight_2, norm_bias_2))


def self_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """``torch._native_multi_head_attention`` where key and value are query."""
    of = _Rows.of(query)
    o, weights = _projected(
        of, of.rows, num_head, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, mask_type, need_weights
    )
    if weights is not None:
        weights = (weights.mean(-3) if average_attn_weights else weights).to(o.dtype)
    return of.shaped(o), weights


def takes_nested(tensor: Tensor) -> bool:
    """Whether a nested tensor is a packed batch [entries, length, width] on the CPU: one entry after the other."""
    return (
        tensor.is_cpu
        and tensor.layout is torch.strided
        and type(tensor) is Tensor
        and tensor.dim() == 3
        and tensor.is_contiguous()
    )


class _Rows(NamedTuple):
    """The tokens of a batch: [batch, length, width], or of a nested tensor [all tokens, width]."""

    rows: Tensor
    nested: Tensor | None

    @staticmethod
    def of(tensor: Tensor) -> _Rows:
        if not tensor.is_nested:
            return _Rows(tensor, None)
        sizes = tensor._nested_tensor_size()
        width = int(sizes[0, 1]) if tensor.size(0) else 0
        return _Rows(tensor.values().view(int(sizes[:, 0].sum()) if tensor.size(0) else 0, width), tensor)

    def shaped(self, rows: Tensor) -> Tensor:
        if self.nested is None:
            return rows
        nested = self.nested
        return torch._nested_view_from_buffer(
            rows.flatten(),
            nested._nested_tensor_size(),
            nested._nested_tensor_strides(),
            nested._nested_tensor_storage_offsets(),
        )

    def starts(self) -> Tensor:
        """Where each entry of the nested tensor begins, and the total."""
        assert self.nested is not None
        return F.pad(self.nested._nested_tensor_size()[:, 0].cumsum(0), (1, 0))


def _projected(
    of: _Rows,
    x: Tensor,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None,
    mask_type: int | None,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Self-attention of the rows with both projections, and the weights of all heads if wanted."""
    rows = F.linear(x, qkv_weight, qkv_bias)
    if of.nested is None and mask is None and not need_weights and not torch.compiler.is_compiling():
        o = _core.plain_self_attention(rows, num_heads)
        if o is not None:
            return F.linear(o, proj_weight, proj_bias), None
    head_dim = qkv_weight.shape[0] // (3 * num_heads)
    heads = rows.view(*x.shape[:-1], 3, num_heads, head_dim)
    if of.nested is not None:
        q, k, v = heads.unbind(1)
        o, weights = _packed(q, k, v, of.starts()), None
    else:
        q, k, v = heads.permute(2, 0, 3, 1, 4).unbind()
        o, weights = attend(q, k, v, _visible(mask, mask_type), None, None, 0.0, need_weights)
        o = o.transpose(1, 2)
    return F.linear(o.flatten(-2), proj_weight, proj_bias), weights


def _packed(q: Tensor, k: Tensor, v: Tensor, starts: Tensor) -> Tensor:
    """Attention of entries one after the other, [tokens, heads, dim], without a gradient."""
    o = torch.empty(q.shape, dtype=q.dtype)
    options = {"num_threads": torch.get_num_threads(), "cu_seqlens_q": starts, "cu_seqlens_k": starts}
    _core.attention(q, k, v, o, None, None, options)
    return o


def _visible(mask: Tensor | None, mask_type: int | None) -> Tensor | None:
    """The mask in attention's form. Type 0 is [length, length], 1 [batch, length], 2 [batch, heads, length, length]; in
    a bool one True hides a key."""
    if mask is None:
        return None
    if mask_type == 1:
        mask = mask[:, None, None, :]
    return ~mask if mask.dtype is torch.bool else mask
