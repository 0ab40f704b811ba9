"""The attention of transformers' models."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionMaskInterface

from ..torch import attention as torch_attention
from ..torch import attention_varlen, scaled_dot_product_attention
from ..torch._tensors import autocast
from ._documents import Documents
from ._mask import Mask, mask
from ._stored import StoredRows

try:  # what output_attentions=True asks for, by the hooks of transformers 5.2 and newer
    from transformers.utils.output_capturing import _active_collector as _collector
except ImportError:
    _collector = None


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
    sinks: Tensor | None = None,
    position_bias: Tensor | None = None,
    output_attentions: bool | None = None,
    cu_seq_lens_q: Tensor | None = None,
    cu_seq_lens_k: Tensor | None = None,
    cache: Any = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """What a model of transformers calls as its attention: with the arguments of its "sdpa" and "flash_attention_2".

    :param module: the module of the model that calls, of which the configuration and ``is_causal`` are read.
    :param query: [batch, heads, queries, head_dim].
    :param key: [batch, kv_heads, keys, head_dim], with as many heads as query or a divisor; or what
        :class:`QuantizedCache` returned, and value too.
    :param value: [batch, kv_heads, keys, head_dim_v].
    :param attention_mask: what :func:`mask` returned; or a tensor that is broadcast to [batch, heads, queries, keys],
        bool (True: seen) or added; or None, which hides later keys if `is_causal` says so.
    :param dropout: the probability of dropping a weight.
    :param scaling: factor of the dot products; default: 1 / sqrt(head_dim).
    :param softcap: bound of the logits; default: none.
    :param is_causal: counts without a mask and with more than one query only. Default: False if the model's masks are
        those of :func:`mask`, which is never None where a key is hidden; else that of the module, as for "sdpa".
    :param s_aux: a logit of each head that takes part in the denominator only, [heads].
    :param sinks: a logit of each query that does so, [batch, heads, queries, 1].
    :param position_bias: added to the scores, broadcast to [batch, heads, queries, keys]; may require grad.
    :param output_attentions: also return the weights; default: if transformers collects them.
    :param cu_seq_lens_q: where packed sequences begin in a batch of one, and the total, as for FlashAttention.
    :param cu_seq_lens_k: the same for keys; default: cu_seq_lens_q.
    :param cache: of continuous batching, which is refused.
    :param others: what else a model passes: positions have no influence, numbers and bool masks are refused.
    :returns: the output, [batch, queries, heads, head_dim of value]; with `output_attentions`, or where transformers
        collects them, the weights after dropout, [batch, heads, queries, keys], else None.
    :raises ValueError: for what saccade does not compute; nothing is passed on.
    """
    if cache is not None:
        raise ValueError("cache: continuous batching keeps keys in pages, which attn_implementation='saccade' does not")
    _refuse_numbers(others)
    if is_causal is None:
        is_causal = attention_mask is None and not _has_masks_of_ours(module) and getattr(module, "is_causal", True)
    scale = None if scaling is None else float(scaling)
    output_attentions = output_attentions or _are_collected()
    if isinstance(attention_mask, Mask):
        _require_lengths(attention_mask, query, key)
        if attention_mask.documents is None and attention_mask.options.keys() <= {"causal"}:  # no mask is needed
            attention_mask, is_causal = None, "causal" in attention_mask.options
    is_stored = isinstance(key, StoredRows)
    if is_stored:
        _require_for_stored(dropout, output_attentions, attention_mask, cu_seq_lens_q)
    is_plain = attention_mask is None and softcap is None and s_aux is None and sinks is None and position_bias is None
    if is_plain and cu_seq_lens_q is None and not output_attentions and not is_stored:
        return _as_pytorch(query, key, value, None, dropout, is_causal and query.shape[2] > 1, scale), None
    if is_stored:
        (query,) = autocast(query)
    else:
        query, key, value = autocast(query, key, value)
    options: dict[str, Any] = {}
    if softcap is not None:
        options["softcap"] = softcap
    if s_aux is not None:
        options["sinks"] = s_aux
    documents = None
    if isinstance(attention_mask, Mask):
        documents = attention_mask.documents
        if documents is not None and (output_attentions or position_bias is not None or sinks is not None):
            attention_mask, documents = attention_mask.dense(), None  # as large as the weights and the bias
        else:
            options.update(attention_mask.options)
    if isinstance(attention_mask, Tensor):
        options["mask"] = attention_mask[..., : key.shape[2]]
    elif cu_seq_lens_q is not None and (documents is None or documents.are_chunks):
        if documents is not None:
            raise ValueError("cu_seq_lens_q: chunked attention needs packed sequences by position_ids, without a cache")
        documents = _given_documents(cu_seq_lens_q, cu_seq_lens_k, options)
        if attention_mask is None and is_causal:
            options["causal"] = "bottom_right"
    elif attention_mask is None and is_causal and query.shape[2] > 1:
        options["causal"] = "top_left"
    if documents is not None:
        if output_attentions or sinks is not None:
            name = "output_attentions" if output_attentions else "sinks"
            raise ValueError(f"{name}: expected none with cu_seq_lens_q; give position_ids instead")
        options.update(scale=scale, dropout_p=dropout)
        return _of_documents(query, key, value, documents, options), None
    if position_bias is not None:
        options["mask"] = _biased(position_bias, options.get("mask"))
    if output_attentions or sinks is not None:
        options.update(scale=scale, dropout_p=dropout, weights_after_dropout=bool(output_attentions))
        return _with_weights(query, key, value, sinks, bool(output_attentions), options)
    if is_stored:
        return key.attention(query, value, {**options, "scale": scale}).transpose(1, 2).contiguous(), None
    if options.keys() <= _OF_PYTORCH and not ("causal" in options and "mask" in options):
        return _as_pytorch(query, key, value, options.get("mask"), dropout, "causal" in options, scale), None
    o = torch_attention(query, key, value, scale=scale, dropout_p=dropout, **options)
    return o.transpose(1, 2).contiguous(), None


def _as_pytorch(q: Tensor, k: Tensor, v: Tensor, mask: Any, dropout: float, is_causal: bool, scale: Any) -> Tensor:
    o = scaled_dot_product_attention(q, k, v, mask, dropout, is_causal, scale, q.shape[1] != k.shape[1])
    return o.transpose(1, 2).contiguous()


def _with_weights(
    q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, are_returned: bool, options: dict[str, Any]
) -> tuple[Tensor, Tensor | None]:
    if isinstance(k, StoredRows):
        o, lse = k.attention(q, v, options, return_lse=True)
        weights = None
    else:
        o, lse, *rest = torch_attention(q, k, v, return_lse=True, return_weights=are_returned, **options)
        weights = rest[0] if are_returned else None
    if sinks is not None:  # a further logit of each query is a factor of its row
        if sinks.shape != (*lse.shape, 1):
            raise ValueError(f"sinks: expected {[*lse.shape, 1]}, got {list(sinks.shape)}")
        share = (lse[..., None] - sinks.to(lse.dtype)).sigmoid()
        o, weights = o * share.to(o.dtype), None if weights is None else weights * share
    return o.transpose(1, 2).contiguous(), None if weights is None else weights.to(q.dtype)


def _require_for_stored(dropout: float, output_attentions: Any, attention_mask: Any, cu_seq_lens_q: Any) -> None:
    """Refuses what attention over a QuantizedCache does not compute."""
    if dropout:
        raise ValueError(f"dropout: expected 0 with a QuantizedCache, got {dropout}; call the model's eval()")
    if output_attentions:
        raise ValueError("output_attentions: expected False with a QuantizedCache; a DynamicCache gives weights")
    if cu_seq_lens_q is not None or (isinstance(attention_mask, Mask) and attention_mask.documents is not None):
        raise ValueError("attention_mask: packed sequences and chunks cannot be combined with a QuantizedCache")


def _refuse_numbers(others: dict[str, Any]) -> None:
    """Of what a model hands on besides the arguments, positions have no influence; numbers and masks would."""
    for name, value in others.items():
        if isinstance(value, Tensor) and (value.is_floating_point() or value.dtype is torch.bool):
            raise ValueError(f"saccade.transformers: {name}: this argument is not known; wanted it in attention_mask")


def _has_masks_of_ours(module: Any) -> bool:
    name = getattr(getattr(module, "config", None), "_attn_implementation", None)
    return AttentionMaskInterface._global_mapping.get(name) is mask


def _are_collected() -> bool:
    """Whether transformers collects weights of the model that is called. Such models do not pass the flag on."""
    collected = None if _collector is None else _collector.get()
    return collected is not None and any("attentions" in key for key in collected)


_OF_PYTORCH = frozenset(("mask", "causal"))  # what PyTorch's function has too; causal is then always top_left


def _require_lengths(given: Mask, query: Tensor, key: Tensor) -> None:
    _, _, queries, keys = given.shape
    if not given.is_by_position and not given.options:  # it hides nothing
        return
    if keys != key.shape[2] or (given.is_by_position and queries != query.shape[2]):
        raise ValueError(
            f"saccade.transformers: attention_mask: expected one for {query.shape[2]} queries and {key.shape[2]} keys, "
            f"got one for {queries} and {keys}"
        )


def _given_documents(cu_seqlens_q: Tensor, cu_seqlens_k: Tensor | None, options: dict[str, Any]) -> Documents:
    """Those of FlashAttention's arguments. Their positions count from the last key of each, not from the mask's."""
    if "kv_starts" in options:
        raise ValueError("cu_seq_lens_q: packed sequences cannot have padding")
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
