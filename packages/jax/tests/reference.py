"""Attention and its gradients in plain NumPy, with every matrix, and the bounds that rounding errors are proportional
to."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Arrays = dict[str, Any]


class Rules(NamedTuple):
    """What hides keys or changes scores and is no array with a gradient; see ``saccade_jax.attention``."""

    causal: str | None = None
    query_offset: Any = None
    window: tuple[int, int] = (-1, -1)
    scale: float | None = None
    softcap: float = 0.0
    kv_lengths: Any = None
    kv_starts: Any = None
    block_mask: Any = None
    block_mask_size: tuple[int, int] = (128, 128)


def positions(rules: Rules, batch: int, rows: int, keys: int) -> Any:
    """The position of each row: [batch, 1, rows, 1]."""
    offset = rules.query_offset
    if offset is None:
        last = np.full(batch, keys) if rules.kv_lengths is None else np.asarray(rules.kv_lengths)
        offset = last - rows if rules.causal == "bottom_right" else 0
    offset = np.broadcast_to(np.asarray(offset), (batch,))
    return (offset[:, None] + np.arange(rows))[:, None, :, None]


def seen(rules: Rules, batch: int, heads: int, rows: int, keys: int) -> Any:
    """Which keys each row sees but for the mask: bool [batch, heads, rows, keys]."""
    place, key = positions(rules, batch, rows, keys), np.arange(keys)
    visible = np.ones((batch, heads, rows, keys), bool)
    if rules.causal:
        visible &= key <= place
    if rules.window[0] >= 0:
        visible &= key >= place - rules.window[0]
    if rules.window[1] >= 0:
        visible &= key <= place + rules.window[1]
    for numbers, hidden in ((rules.kv_lengths, np.less_equal), (rules.kv_starts, np.greater)):
        if numbers is not None:
            visible &= ~hidden(np.asarray(numbers).reshape(-1, 1, 1, 1), key)
    if rules.block_mask is not None:
        blocks = rules.block_mask
        for axis, size in ((-2, rules.block_mask_size[0]), (-1, rules.block_mask_size[1])):
            if blocks.ndim >= -axis and blocks.shape[axis] > 1:
                blocks = np.repeat(blocks, size, axis)
        blocks = blocks[..., :rows, :keys] if blocks.ndim > 1 else blocks[:keys]
        visible &= blocks
    return visible


def outcome(arrays: Arrays, rules: Rules, dout: Any, dlse: Any, dtype: Any, absolute: bool = False) -> Arrays:
    """o, lse and the gradients of every array, computed in ``dtype``.

    :param arrays: q, k, v of rank 4 (bhsd), and mask, sinks, alibi_slopes if there are any.
    :param absolute: with absolute values under every sum: the bounds.
    """
    wide = {name: np.asarray(x) if x.dtype == bool else np.asarray(x).astype(dtype) for name, x in arrays.items()}
    q, k, v = (wide[name] for name in "qkv")
    group = q.shape[1] // k.shape[1] if k.shape[1] else 1
    kk, vv = (np.repeat(x, group, 1) for x in (k, v))
    scale = dtype(q.shape[-1] ** -0.5 if rules.scale is None else rules.scale)
    raw = q @ kk.swapaxes(-1, -2) * scale
    slope = np.ones_like(raw)
    scores = raw
    if rules.softcap:
        cap = dtype(rules.softcap)
        scores = cap * np.tanh(raw / cap)
        slope = 1 - (scores / cap) ** 2
    visible = seen(rules, *raw.shape)
    distance = np.abs(positions(rules, *(raw.shape[i] for i in (0, 2, 3))) - np.arange(raw.shape[3])).astype(dtype)
    if "alibi_slopes" in wide:
        scores = scores - wide["alibi_slopes"].reshape(-1, raw.shape[1], 1, 1) * distance
    if "mask" in wide:
        mask = wide["mask"]
        visible = visible & (mask if mask.dtype == bool else ~np.isneginf(mask))
        scores = scores if mask.dtype == bool else scores + np.where(np.isneginf(mask), 0, mask)
    scores = np.where(visible, scores, -np.inf)
    weights, sink_weights, lse = _softmax(scores, wide.get("sinks"))
    if absolute:
        q, kk, vv, dout, dlse = (np.abs(x) for x in (q, kk, vv, dout, dlse))
    sign = 1 if absolute else -1
    dout, dlse = dout.astype(dtype), np.where(visible.any(-1) | (sink_weights > 0), dlse, 0).astype(dtype)
    o = weights @ vv
    dweights = dout @ vv.swapaxes(-1, -2)
    delta = (weights * dweights).sum(-1)
    dscores = weights * (dweights + sign * delta[..., None] + dlse[..., None])
    draw = dscores * (np.abs(slope) if absolute else slope) * (np.abs(scale) if absolute else scale)
    shape = (k.shape[0], k.shape[1], group)
    found = {
        "o": o,
        "lse": np.abs(np.where(visible, raw, 0)).max(-1, initial=1) if absolute else lse,
        "q": draw @ kk,
        "k": (draw.swapaxes(-1, -2) @ q).reshape(*shape, *k.shape[2:]).sum(2),
        "v": (weights.swapaxes(-1, -2) @ dout).reshape(*shape, *v.shape[2:]).sum(2),
    }
    if "mask" in wide and wide["mask"].dtype != bool:
        found["mask"] = _summed(dscores, wide["mask"].shape)
    if "sinks" in wide:
        found["sinks"] = (sink_weights * (dlse + sign * delta)).sum((0, 2))
    if "alibi_slopes" in wide:
        terms = (dscores * distance).sum((2, 3)) * -sign * -1
        found["alibi_slopes"] = terms.sum(0) if wide["alibi_slopes"].ndim == 1 else terms
    return found


def _softmax(scores: Any, sinks: Any) -> tuple[Any, Any, Any]:
    top = scores.max(-1, initial=-np.inf)
    sink = np.full_like(top, -np.inf) if sinks is None else np.broadcast_to(sinks[:, None], top.shape)
    top = np.maximum(top, sink)
    top = np.where(np.isfinite(top), top, 0)
    exponentials, sink = np.exp(scores - top[..., None]), np.exp(sink - top)
    total = exponentials.sum(-1) + sink
    safe = np.where(total == 0, 1, total)
    with np.errstate(divide="ignore"):
        return exponentials / safe[..., None], sink / safe, top + np.log(total)


def _summed(full: Any, shape: tuple[int, ...]) -> Any:
    """Sums over the dimensions in which an array of this shape is broadcast."""
    full = full.sum(tuple(range(full.ndim - len(shape))))
    axes = tuple(axis for axis, length in enumerate(shape) if length == 1)
    return full.sum(axes, keepdims=True)
