"""Attention in plain NumPy, and a check that a fast result agrees with it."""

from __future__ import annotations

from typing import Any

import numpy as np


def visible(seqlen_q: int, seqlen_k: int, *, causal: Any = None, offset: int | None = None, window: Any = (-1, -1)):
    """Which keys (columns) each row sees."""
    if offset is None:
        offset = seqlen_k - seqlen_q if causal == "bottom_right" else 0
    position = np.arange(seqlen_q)[:, None] + offset
    key = np.arange(seqlen_k)[None, :]
    seen = np.ones((seqlen_q, seqlen_k), bool)
    if causal is not None:
        seen &= key <= position
    if window[0] >= 0:
        seen &= key >= position - window[0]
    if window[1] >= 0:
        seen &= key <= position + window[1]
    return seen


def attention(q, k, v, *, seen=None, bias=None, scale=None, softcap=0.0, sinks=None, absolute=False, dtype=np.float64):
    """Output, weights and lse of [..., heads, seqlen, dim] arrays, unfused, in ``dtype``.

    :param absolute: with |v| instead of v; rounding errors are proportional to this.
    """
    q, k, v = (np.asarray(x).astype(dtype) for x in (q, k, v))
    group = q.shape[-3] // k.shape[-3] if q.ndim > 2 else 1
    k, v = np.repeat(k, group, axis=-3) if group > 1 else k, np.repeat(v, group, axis=-3) if group > 1 else v
    scores = q @ np.swapaxes(k, -1, -2) * dtype(scale if scale is not None else q.shape[-1] ** -0.5)
    if softcap:
        scores = dtype(softcap) * np.tanh(scores / dtype(softcap))
    if bias is not None:
        scores = scores + np.asarray(bias).astype(dtype)
    if seen is not None:
        scores = np.where(seen, scores, -np.inf)
    logits = scores if sinks is None else np.concatenate([scores, _column(sinks, scores, dtype)], -1)
    top = logits.max(-1, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, 0)
    exponentials = np.exp(scores - top)
    total = np.exp(logits - top).sum(-1, keepdims=True)
    weights = exponentials / np.where(total == 0, 1, total)
    with np.errstate(divide="ignore"):
        lse = (top + np.log(total))[..., 0]
    return weights @ (np.abs(v) if absolute else v), weights, lse


def _column(sinks, scores, dtype):
    return np.broadcast_to(np.asarray(sinks).astype(dtype)[:, None, None], (*scores.shape[:-1], 1))


def assert_close(got, q, k, v, **options) -> None:
    """max |got - reference| <= 2 max |unfused in f32 - reference| + 8 eps max |reference of |v||."""
    got = np.asarray(got)
    precision = np.float64 if got.dtype == np.float64 else np.float32
    wanted = attention(q, k, v, **options)[0]
    naive = attention(q, k, v, dtype=precision, **options)[0]
    bound = attention(q, k, v, absolute=True, **options)[0]
    assert got.shape == wanted.shape
    if got.size == 0:
        return
    allowed = 2 * np.abs(naive - wanted).max() + 8 * np.finfo(got.dtype).eps * bound.max()
    error = np.abs(got.astype(np.float64) - wanted)
    worst = np.unravel_index(np.argmax(error), error.shape)
    assert np.isfinite(got).all() and error.max() <= allowed, (
        f"at {worst}: got {got[worst]}, expected {wanted[worst]}, error {error.max():.3g}, allowed {allowed:.3g}"
    )


def random(rng, *shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)
