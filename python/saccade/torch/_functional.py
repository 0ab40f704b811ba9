"""torch.nn.functional.scaled_dot_product_attention."""

from __future__ import annotations

import sys
from typing import Any

import torch.nn.functional as F
from torch import Tensor
from torch.compiler import is_compiling
from torch.overrides import handle_torch_function, has_torch_function

from .._arguments import flag
from .._sdpa import operands
from ._attend import attend, attend_plainly
from ._nested import attend_to_nested, is_computable, is_nested
from ._tensors import autocast, is_transformed, require_plain


class ArgumentError(ValueError, RuntimeError):
    """An argument that does not fit. saccade raises ValueError, PyTorch RuntimeError: code may expect either."""


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """``torch.nn.functional.scaled_dot_product_attention`` on the CPU, with gradients, in linear memory for all
    arguments: ``softmax(scale * query @ key.mT + attn_mask) @ value``.

    Each of query, key and value is float32, bfloat16 or float16, or all are float64. A tensor is not copied if its last
    dimension is contiguous and, with more than two leading dimensions, these can be viewed as two. Nested tensors
    [batch, heads, lengths, dim] are packed batches, without a mask.

    :param query: [..., heads, L, E], with any number of leading dimensions, which are broadcast.
    :param key: [..., kv_heads, S, E].
    :param value: [..., kv_heads, S, Ev].
    :param attn_mask: bool, True where a key is attended to, or floating, which is added and may require grad;
        broadcast to [..., heads, L, S], of any rank up to that. A ``torch.nn.attention.bias.CausalBias`` needs no
        matrix.
    :param dropout_p: as in PyTorch, weights are dropped whenever it is above 0. PyTorch's default generator gives
        the seed.
    :param is_causal: row i sees keys 0 to i. Excludes attn_mask.
    :param scale: default 1 / sqrt(E).
    :param enable_gqa: heads may be a multiple of kv_heads.
    :returns: [..., heads, L, Ev], of query's dtype.
    :raises ValueError: for invalid arguments, and for tensors that are sparse or not on the CPU; names the
        argument, what was expected and what was given. It is a RuntimeError too, PyTorch's type of error.

    query, key, value and a floating attn_mask get gradients, which can be differentiated again, and pass forward-mode
    tangents on; these are computed in PyTorch's operations, a few rows at a time. Rows that see no key are 0. Uses
    ``torch.get_num_threads()`` threads. With few rows, many keys and no gradients, computes as :func:`saccade.decode`
    does.
    """
    if attn_mask is None and not is_compiling():
        o = attend_plainly(query, key, value, dropout_p, is_causal, scale, enable_gqa)
        if o is not None:
            return o
    try:
        return _of_any(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    except ValueError as error:
        if isinstance(error, RuntimeError):
            raise
        raise ArgumentError(str(error)) from None


def _of_any(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Tensor:
    tensors = (query, key, value) if attn_mask is None else (query, key, value, attn_mask)
    is_causal, enable_gqa = flag(is_causal, "is_causal"), flag(enable_gqa, "enable_gqa")
    causal = "top_left" if is_causal else None
    if attn_mask is not None and is_causal_bias(attn_mask):
        causal, attn_mask, tensors = _causal_of(attn_mask, query, key, is_causal), None, tensors[:3]
    if is_nested(query, key, value) and is_computable(tensors):
        if causal == "bottom_right":
            raise ValueError("attn_mask: nested tensors have no CausalBias here; is_causal is possible")
        query, key, value = autocast(query, key, value)
        dropout_p, scale = _number(dropout_p, "dropout_p"), None if scale is None else _number(scale, "scale")
        return attend_to_nested(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if has_torch_function(tensors):
        return handle_torch_function(
            scaled_dot_product_attention,
            tensors,
            query,
            key,
            value,
            attn_mask,
            dropout_p,
            is_causal,
            scale,
            enable_gqa,
        )
    if not is_compiling() and not is_transformed():
        require_plain(query, "query")
        require_plain(key, "key")
        require_plain(value, "value")
        if attn_mask is not None:
            require_plain(attn_mask, "attn_mask", floating=False)
    query, key, value = autocast(query, key, value)
    if attn_mask is not None:
        (attn_mask,) = autocast(attn_mask)
    of = operands(query, key, value, attn_mask, is_causal, enable_gqa, Tensor.expand)
    scale = None if scale is None else _number(scale, "scale")
    q, k, v = of.q, of.k, of.v
    if q.shape[-1] == 0 and k.shape[-1] == 0:  # all products are 0
        q, k, scale = F.pad(q, (0, 1)), F.pad(k, (0, 1)), 1.0
    if v.shape[-1] == 0:
        v = F.pad(v, (0, 1))
    o, _ = attend(q, k, v, of.mask, causal, scale, _number(dropout_p, "dropout_p"))
    o = o if v is of.v else o[..., :0]
    return o if len(of.shape) <= 4 else o.reshape(of.shape)


def _number(value: Any, name: str) -> float:
    try:
        return float(value)
    except (OverflowError, RuntimeError, TypeError, ValueError):
        raise ValueError(f"{name}: expected a number, got a {type(value).__name__}") from None


def is_causal_bias(mask: Tensor) -> bool:
    """Whether a mask is a CausalBias of torch.nn.attention.bias, which describes a mask without storing it."""
    module = sys.modules.get("torch.nn.attention.bias")
    return module is not None and isinstance(mask, module.CausalBias)


def _causal_of(bias: Any, query: Tensor, key: Tensor, is_causal: bool) -> str:
    """The value of ``causal`` that corresponds to a CausalBias."""
    if is_causal:
        raise ValueError("attn_mask: CausalBias should not be used with causal=True")  # PyTorch's words
    wanted, got = (query.shape[-2], key.shape[-2]), (bias.seq_len_q, bias.seq_len_kv)
    if wanted != got:
        raise ValueError(f"attn_mask: expected a CausalBias of {wanted[0]} x {wanted[1]}, got {got[0]} x {got[1]}")
    return "top_left" if bias.variant.name == "UPPER_LEFT" else "bottom_right"
