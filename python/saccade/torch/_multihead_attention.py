"""torch.nn.MultiheadAttention."""

from __future__ import annotations

import copy
from collections import OrderedDict
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.compiler import is_compiling

from ._attend import attend
from ._encoder import self_attention, takes_nested
from ._tensors import is_transformed, require_plain


class MultiheadAttention(torch.nn.MultiheadAttention):
    """``torch.nn.MultiheadAttention`` on the CPU: the same arguments, parameters, state dict and results, in linear
    memory unless weights are requested, and without a slower path for weights.

    The same seed gives the same parameters as PyTorch's class. What differs:

    - a row that sees no key has weights and output 0 (before the output projection), where PyTorch may have NaN;
    - ``is_causal=True`` is causal without an ``attn_mask``, and one that is given is not read;
    - which weights dropout drops;
    - ``nn.TransformerEncoderLayer`` calls this module in evaluation too, while it bypasses PyTorch's there.

    :param embed_dim: width of the queries and the output, a multiple of num_heads.
    :param num_heads: how many heads, each embed_dim / num_heads wide.
    :param dropout: the probability of dropping a weight in training mode.
    :param bias: the projections have a bias.
    :param add_bias_kv: append a trained key and value, which every query sees.
    :param add_zero_attn: append a key and value of zeros, which every query sees.
    :param kdim: width of the keys; default: embed_dim.
    :param vdim: width of the values; default: embed_dim.
    :param batch_first: inputs and output are [batch, seqlen, width]; else [seqlen, batch, width].
    :param device: where the parameters are made; default: PyTorch's, and it must be the CPU to compute.
    :param dtype: of the parameters; default: PyTorch's.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """:raises ValueError: for sizes below 1, and where num_heads does not divide embed_dim."""
        options = (dropout, bias, add_bias_kv, add_zero_attn, kdim, vdim, batch_first, device, dtype)
        try:
            super().__init__(embed_dim, num_heads, *options)
        except AssertionError:
            raise ValueError(f"num_heads: expected a divisor of embed_dim {embed_dim}, got {num_heads}") from None
        # A module with a hook is called by nn.TransformerEncoderLayer in evaluation too. Without one the layer reads
        # its weights and computes attention itself.
        self.register_forward_pre_hook(_must_be_called)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attention of query to key and value. With batch_first the first two dimensions are swapped; without batch all
        have rank 2. In evaluation, self-attention without weights and
        masks also takes nested tensors [N, lengths, embed_dim] (torch.strided), without copies.

        :param query: [L, N, embed_dim].
        :param key: [S, N, kdim].
        :param value: [S, N, vdim].
        :param key_padding_mask: bool, True where a key is hidden, or floating, which is added: [N, S]; without batch
            [S].
        :param need_weights: also return the weights after dropout. Gradients flow through them.
        :param attn_mask: bool, True where a key is hidden, or floating, which is added: [L, S] or [N * num_heads, L,
            S].
        :param average_attn_weights: weights [N, L, S] averaged over heads, instead of [N, num_heads, L, S].
        :param is_causal: row i sees keys 0 to i (and what add_bias_kv and add_zero_attn append); see the class.
        :returns: the output, like query, and the weights or None.
        :raises ValueError: for invalid arguments; names the argument, what was expected and what was given.
        """
        if getattr(query, "is_nested", False):
            is_masked = is_causal or key_padding_mask is not None or attn_mask is not None
            self._check_nested(query, key, value, is_masked, need_weights)
            projections = (self.in_proj_weight, self.in_proj_bias, self.out_proj.weight, self.out_proj.bias)
            return self_attention(query, key, value, self.embed_dim, self.num_heads, *projections, need_weights=False)
        self._check(query, key, value)
        q, k, v = self._heads(query, key, value)
        appended = (self.bias_k is not None) + self.add_zero_attn
        if is_causal:
            attn_mask = _later_keys(q, k) if appended else None
        mask = self._mask(q, k, key_padding_mask, attn_mask)
        if appended:
            k, v = self._with_appended(k, self.bias_k), self._with_appended(v, self.bias_v)
            mask = None if mask is None else F.pad(mask, (0, appended), value=mask.dtype is torch.bool)
        o, weights = attend(
            q,
            k,
            v,
            mask,
            causal="top_left" if is_causal and not appended else None,
            scale=None,
            dropout_p=self.dropout if self.training else 0.0,
            return_weights=need_weights,
        )
        o = o.permute(self._order(o.dim(), back=True)).flatten(-2)
        output = F.linear(o, self.out_proj.weight, self.out_proj.bias)
        if weights is None:
            return output, None
        weights = weights.mean(-3) if average_attn_weights else weights
        return output, weights.to(output.dtype)

    def __prepare_scriptable__(self) -> torch.nn.Module:
        """What torch.jit.script compiles: PyTorch's module with these parameters, for this one is no TorchScript."""
        module = copy.copy(self)
        module.__class__ = torch.nn.MultiheadAttention
        module._forward_pre_hooks = OrderedDict(
            (key, hook) for key, hook in self._forward_pre_hooks.items() if hook is not _must_be_called
        )
        return module

    def _check_nested(self, query: Tensor, key: Tensor, value: Tensor, is_masked: bool, need_weights: bool) -> None:
        if not takes_nested(query):
            raise ValueError(
                "query: expected a dense tensor or a contiguous nested one of layout torch.strided, of rank 3"
            )
        is_self_attention = key is query and value is query and self.in_proj_weight is not None and self.batch_first
        appends = self.bias_k is not None or self.add_zero_attn
        if not is_self_attention or appends or is_masked or need_weights or self.training:
            raise ValueError(
                "query: nested tensors are for self-attention in evaluation with batch_first, without weights, masks "
                "and appended keys"
            )
        if torch.is_grad_enabled() and any(x.requires_grad for x in (query, *self.parameters())):
            raise ValueError("query: nested tensors have no gradients here; call within torch.no_grad()")

    def _check(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        dtype = self.out_proj.weight.dtype
        widths = {"query": self.embed_dim, "key": self.kdim, "value": self.vdim}
        for (name, width), tensor in zip(widths.items(), (query, key, value)):
            if not is_compiling() and not is_transformed():
                require_plain(tensor, name)
            if tensor.dim() not in (2, 3) or tensor.dim() != query.dim():
                wanted = "rank 2 or 3" if tensor is query else f"rank {query.dim()}, as query has"
                raise ValueError(f"{name}: expected {wanted}, got shape {list(tensor.shape)}")
            if tensor.shape[-1] != width:
                raise ValueError(f"{name}: expected {width} in the last dimension, got shape {list(tensor.shape)}")
            if tensor.dtype is not dtype and not torch.is_autocast_enabled("cpu"):
                raise ValueError(f"{name}: expected {dtype}, as the parameters are, got {tensor.dtype}")
        batch = 0 if self.batch_first else 1
        if value.shape[:-1] != key.shape[:-1]:
            raise ValueError(f"value: expected {list(key.shape[:-1])} in front, as key has, got {list(value.shape)}")
        if query.dim() == 3 and key.shape[batch] != query.shape[batch]:
            raise ValueError(f"key: expected batch {query.shape[batch]}, as query has, got {key.shape[batch]}")

    def _heads(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """The projections as views [batch, heads, seqlen, head_dim], without batch [heads, seqlen, head_dim]."""
        weight, bias, width = self.in_proj_weight, self.in_proj_bias, self.embed_dim
        order = self._order(query.dim())

        def project(x: Tensor, weight: Tensor, first: int, count: int = 1) -> tuple[Tensor, ...]:
            rows = None if bias is None else bias[first * width : (first + count) * width]
            heads = F.linear(x, weight, rows).unflatten(-1, (count, self.num_heads, self.head_dim))
            return tuple(x.permute(order) for x in heads.unbind(-3))

        if weight is None:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
            return tuple(project(x, w, i)[0] for i, (x, w) in enumerate(zip((query, key, value), weights)))
        if query is key and key is value:
            return project(query, weight, 0, 3)
        q = project(query, weight[:width], 0)
        if key is value:
            return q + project(key, weight[width:], 1, 2)
        return q + project(key, weight[width : 2 * width], 1) + project(value, weight[2 * width :], 2)

    def _order(self, rank: int, back: bool = False) -> tuple[int, ...]:
        """The permutation from [..., seqlen, ..., heads, dim] to [..., heads, seqlen, dim], or its inverse."""
        if rank == (3 if back else 2):
            return (1, 0, 2)
        if self.batch_first:
            return (0, 2, 1, 3)
        return (2, 0, 1, 3) if back else (1, 2, 0, 3)

    def _mask(self, q: Tensor, k: Tensor, key_padding_mask: Tensor | None, attn_mask: Tensor | None) -> Tensor | None:
        """Both masks combined; if the result is bool, True means that a key is visible."""
        batch, seqlen_q, seqlen_k = q.shape[:-3], q.shape[-2], k.shape[-2]
        masks = []
        if key_padding_mask is not None:
            _require_mask(key_padding_mask, "key_padding_mask", (*batch, seqlen_k))
            masks.append(key_padding_mask.view(*batch, 1, 1, seqlen_k))
        if attn_mask is not None:
            heads = (*batch, self.num_heads)
            joined = (heads[0] * heads[-1] if batch else self.num_heads, seqlen_q, seqlen_k)
            _require_mask(attn_mask, "attn_mask", (seqlen_q, seqlen_k), joined)
            masks.append(attn_mask if attn_mask.dim() == 2 else attn_mask.unflatten(0, heads))
        if len(masks) == 2 and not all(mask.dtype is torch.bool for mask in masks):
            masks = [_additive(mask, q.dtype) for mask in masks]
            return masks[0] + masks[1]
        if len(masks) == 2:
            return ~(masks[0] | masks[1])
        mask = masks[0] if masks else None
        return ~mask if mask is not None and mask.dtype is torch.bool else mask

    def _with_appended(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Keys or values [..., heads, seqlen, head_dim], then the trained one and the one of zeros, if any."""
        rows = (*x.shape[:-2], 1, x.shape[-1])
        parts = [x]
        if bias is not None:
            parts.append(bias.view(self.num_heads, 1, self.head_dim).to(x.dtype).expand(rows))
        if self.add_zero_attn:
            parts.append(x.new_zeros(rows))
        return torch.cat(parts, -2)


def _must_be_called(module: torch.nn.Module, arguments: tuple[Any, ...]) -> None:
    pass


def _require_mask(mask: Tensor, name: str, *shapes: tuple[int, ...]) -> None:
    if not is_compiling() and not is_transformed():
        require_plain(mask, name, floating=False)
    if mask.dtype is not torch.bool and not mask.is_floating_point():
        raise ValueError(f"{name}: expected bool or floating, got {mask.dtype}")
    if mask.shape not in shapes:
        raise ValueError(
            f"{name}: expected {' or '.join(str(list(shape)) for shape in shapes)}, got {list(mask.shape)}"
        )


def _additive(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    if hidden.dtype is not torch.bool:
        return hidden
    return torch.zeros_like(hidden, dtype=dtype).masked_fill_(hidden, -torch.inf)


def _later_keys(q: Tensor, k: Tensor) -> Tensor:
    return torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device="cpu").triu_(1)
