"""The attention of transformers' models."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..torch import attention as torch_attention
from ..torch import attention_varlen, scaled_dot_product_attention
from ..torch._tensors import autocast
from ._documents import Documents
from ._mask import Mask


def attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    dropout: float = 0.0,
    scaling: float | None = None,
    softcap: float | None = None,
    is_causal: bool | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    output_attentions: bool | None = None,
    cu_seq_lens_q: Tensor | None = None,
    cu_seq_lens_k: Tensor | None = None,
    cache: Any = None,
    **_: Any,
) -> tuple[Tensor, Tensor | None]:
    """What a model of transformers calls as its attention: with the arguments of its "sdpa" and "flash_attention_2".

    :param query: [batch, heads, queries, head_dim]; key and value have as many heads or fewer, and `keys` rows.
    :param attention_mask: what :func:`mask` returned; or a tensor that is broadcast to [batch, heads, queries, keys],
        bool (True: seen) or added; or None, which hides later keys if `is_causal` says so.
    :param is_causal: default: that of the module. Counts without a mask and with more than one query only.
    :param s_aux: a logit of each head that takes part in the denominator only.
    :param position_bias: added to the scores, broadcast to [batch, heads, queries, keys]; may require grad.
    :param cu_seq_lens_q: where packed sequences begin in a batch of one, and the total, as for FlashAttention.
    :returns: the output, [batch, queries, heads, head_dim of value]; with `output_attentions` the weights after
        dropout, [batch, heads, queries, keys], else None.
    :raises ValueError: for what saccade does not compute; nothing is passed on.
    """
    if cache is not None:
        raise ValueError("cache: continuous batching keeps keys in pages, which attn_implementation='saccade' does not")
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    scale = None if scaling is None else float(scaling)
    is_plain = attention_mask is None and softcap is None and s_aux is None and position_bias is None
    if is_plain and cu_seq_lens_q is None and not output_attentions:
        o = scaled_dot_product_attention(
            query,
            key,
            value,
            None,
            dropout,
            is_causal and query.shape[2] > 1,
            scale,
            query.shape[1] != key.shape[1],
        )
        return o.transpose(1, 2).contiguous(), None
    query, key, value = autocast(query, key, value)
    options: dict[str, Any] = {}
    if softcap is not None:
        options["softcap"] = softcap
    if s_aux is not None:
        options["sinks"] = s_aux
    documents = None
    if isinstance(attention_mask, Mask):
        _require_lengths(attention_mask, query, key)
        documents = attention_mask.documents
        if documents is not None and (output_attentions or position_bias is not None):
            attention_mask, documents = attention_mask.dense(), None  # as large as the weights and the bias
        else:
            options.update(attention_mask.options)
    if isinstance(attention_mask, Tensor):
        options["mask"] = attention_mask[..., : key.shape[2]]
    elif cu_seq_lens_q is not None and (documents is None or documents.are_chunks):
        if documents is not None:
            raise ValueError("cu_seq_lens_q: chunked attention wants packed sequences by position_ids, without a cache")
        documents = _given_documents(cu_seq_lens_q, cu_seq_lens_k, options)
        if attention_mask is None and is_causal:
            options["causal"] = "bottom_right"
    elif attention_mask is None and is_causal and query.shape[2] > 1:
        options["causal"] = "top_left"
    if documents is not None:
        if output_attentions:
            raise ValueError("output_attentions: wanted none with cu_seq_lens_q; give position_ids instead")
        options.update(scale=scale, dropout_p=dropout)
        return _of_documents(query, key, value, documents, options), None
    if position_bias is not None:
        options["mask"] = _biased(position_bias, options.get("mask"))
    if output_attentions:
        options.update(scale=scale, dropout_p=dropout, weights_after_dropout=True, return_weights=True)
        o, weights = torch_attention(query, key, value, **options)
        return o.transpose(1, 2).contiguous(), weights.to(query.dtype)
    if options.keys() <= _OF_PYTORCH and not ("causal" in options and "mask" in options):
        o = scaled_dot_product_attention(
            query,
            key,
            value,
            options.get("mask"),
            dropout,
            "causal" in options,
            scale,
            query.shape[1] != key.shape[1],
        )
    else:
        o = torch_attention(query, key, value, scale=scale, dropout_p=dropout, **options)
    return o.transpose(1, 2).contiguous(), None


_OF_PYTORCH = frozenset(("mask", "causal"))  # what PyTorch's function has too; causal is then always top_left


def _require_lengths(mask: Mask, query: Tensor, key: Tensor) -> None:
    _, _, queries, keys = mask.shape
    by_position = "query_offset" in mask.options or mask.documents is not None
    if keys != key.shape[2] or (by_position and queries != query.shape[2]):
        raise ValueError(
            f"attention_mask: wanted one for {query.shape[2]} queries and {key.shape[2]} keys, got one for {queries} "
            f"and {keys}"
        )


def _given_documents(cu_seqlens_q: Tensor, cu_seqlens_k: Tensor | None, options: dict[str, Any]) -> Documents:
    """Those of FlashAttention's arguments. Their positions count from the last key of each, not from the mask's."""
    if "kv_starts" in options:
        raise ValueError("cu_seq_lens_q: wanted no padding beside packed sequences")
    if options.pop("query_offset", None) is not None and "causal" in options:
        options["causal"] = "bottom_right"
    return Documents(cu_seqlens_q, cu_seqlens_q if cu_seqlens_k is None else cu_seqlens_k, {})


def _of_documents(q: Tensor, k: Tensor, v: Tensor, documents: Documents, options: dict[str, Any]) -> Tensor:
    q_rows, k_rows, v_rows = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v))
    o = attention_varlen(q_rows, k_rows, v_rows, documents.cu_seqlens_q, documents.cu_seqlens_k, **options)
    return o.unflatten(0, (q.shape[0], q.shape[2]))


def _biased(bias: Tensor, mask: Tensor | None) -> Tensor:
    if mask is None:
        return bias
    return bias.masked_fill(~mask, float("-inf")) if mask.dtype is torch.bool else bias + mask
