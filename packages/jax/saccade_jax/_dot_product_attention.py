"""JAX's own function."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from ._attention import attention


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    scale: float | None = None,
    is_causal: bool = False,
    query_seq_lengths: Any = None,
    key_value_seq_lengths: Any = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: None = None,
    return_residual: bool = False,
) -> Any:
    """``jax.nn.dot_product_attention``: the same arguments and the same meaning, in linear memory.

    Differences from JAX: a row that sees no key is 0, and its residual -inf; hidden keys have no influence, whatever
    their values; the dimension of values may be another than that of keys. ``bias`` together with ``mask`` is put
    together in one array of their common shape first.

    :param query: [batch, T, heads, dim], or without batch.
    :param key: [batch, S, kv_heads, dim]; heads is a multiple of kv_heads.
    :param value: [batch, S, kv_heads, dim].
    :param bias: added to the scores, broadcast to [batch, heads, T, S].
    :param mask: bool, True where a key takes part, broadcast to [batch, heads, T, S].
    :param scale: factor of the dot products; default: 1 / sqrt(dim).
    :param is_causal: row i sees keys 0 to i (aligned top left).
    :param query_seq_lengths: rows that count in each batch entry, integers [batch]; the others are 0.
    :param key_value_seq_lengths: keys that count in each batch entry, integers [batch].
    :param local_window_size: keys seen to the left and to the right of a row, two integers or one for both.
    :param implementation: None only; this is the implementation.
    :param return_residual: also return the logarithm of each row's softmax denominator, [batch, T, heads], f32 (f64).
    :returns: [batch, T, heads, dim], of query's dtype; with return_residual a tuple of it and that logarithm.
    :raises ValueError: for arguments that do not fit; names the argument.
    """
    if implementation is not None:
        raise ValueError(f"[dot_product_attention] implementation: expected None, got {implementation!r}")
    query, key, value = jnp.asarray(query), jnp.asarray(key), jnp.asarray(value)
    if query.ndim not in (3, 4):
        raise ValueError(f"[dot_product_attention] query: expected rank 3 or 4, got shape {query.shape}")
    o, lse = attention(
        query,
        key,
        value,
        causal="top_left" if is_causal else None,
        window=(-1, -1) if local_window_size is None else local_window_size,
        mask=_mask_of(bias, mask),
        scale=scale,
        kv_lengths=key_value_seq_lengths,
        layout="bshd",
        return_lse=True,
    )
    residual = jnp.swapaxes(lse, -1, -2)
    if query_seq_lengths is not None:
        counts = jnp.asarray(query_seq_lengths)
        rows = jnp.arange(query.shape[-3])
        counts = jnp.broadcast_to(counts, query.shape[:-3])[..., None] if query.ndim == 4 else counts.reshape(-1)
        counted = (rows < counts)[..., None]
        o = jnp.where(counted[..., None], o, 0)
        residual = jnp.where(counted, residual, -jnp.inf)
    return (o, residual) if return_residual else o


def _mask_of(bias: Any, mask: Any) -> Any:
    """Both as one mask."""
    if mask is not None:
        mask = jnp.asarray(mask)
        if mask.dtype != jnp.bool_:
            raise ValueError(f"[dot_product_attention] mask: expected bool, got {mask.dtype}; numbers are a bias")
    if bias is None or mask is None:
        return mask if bias is None else bias
    return jnp.where(mask, bias, -jnp.inf)
