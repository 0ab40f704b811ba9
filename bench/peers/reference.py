"""The expected results, computed plainly in f64, and the rule by which a peer's result agrees with them.

The rule is that of include/saccade/compare.h: the error of a result may be twice (gradients: three times) the
largest error of the same computation, unfused in the problem's own precision, plus 8 (16) eps of the dtype times
the same sum over absolute values. Results over caches are compared with attention over the numbers that were given
to the cache; CACHE_ERRORS says how far they may be off.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from .inputs import NUMPY_DTYPES, Inputs, LoopInputs, ModuleInputs

EPS = {"f32": 2.0**-23, "bf16": 2.0**-7, "f16": 2.0**-10}
ROWS_AT_A_TIME = 512
ROWS_CHECKED = 64  # of one head, of a forward pass

# What storing k and v in a cache may add to a result, as a share of its root mean square. Some three times what the
# formats of all libraries add to normally distributed numbers.
CACHE_ERRORS = {"bf16": 0.03, "int8": 0.05, "int4": 0.5}


class Expected(NamedTuple):
    """The expected values of a part of a result, and how exact it can be."""

    where: tuple  # indexes the result
    reference: np.ndarray  # f64
    naive: np.ndarray  # the same maths in the problem's precision
    bound: np.ndarray  # the sum of the terms' absolute values
    rounding: float = 0.0  # a share of the root mean square: the rule of caches, in place of that of compare.h


def difference(out: np.ndarray, expected: Expected, dtype: str, is_gradient: bool) -> float:
    """The largest error as a multiple of the allowed error: up to 1 the result agrees; inf for NaN."""
    if expected.rounding:
        return _cache_difference(out[expected.where].astype(np.float64), expected)
    naive_factor, eps_factor = (3, 16) if is_gradient else (2, 8)
    error = np.abs(out[expected.where].astype(np.float64) - expected.reference)
    naive_error = np.abs(expected.naive - expected.reference).max()
    allowed = naive_factor * naive_error + eps_factor * EPS[dtype] * expected.bound
    if not np.isfinite(error).all():
        return float("inf")
    return float(np.divide(error, allowed, out=np.zeros_like(error), where=error > 0).max(initial=0.0))


def _cache_difference(out: np.ndarray, expected: Expected) -> float:
    """The error of all numbers together, as a multiple of the allowed one."""
    if not np.isfinite(out).all():
        return float("inf")
    error = np.sqrt(np.square(out - expected.reference).mean() / np.square(expected.reference).mean())
    return float(error / expected.rounding)


def expected_results(inputs: Inputs | ModuleInputs | LoopInputs) -> Iterable[tuple[str, Expected]]:
    """Parts of the results by name: "o" of a forward pass, "dq", "dk" and "dv" for gradients; of a module "o", and
    for gradients also "dx" and "din_weight"."""
    if isinstance(inputs, LoopInputs):
        return _loop(inputs)
    if isinstance(inputs, ModuleInputs):
        return _module(inputs)
    return _gradients(inputs) if inputs.problem.needs_gradients else _forward(inputs)


class _Head:
    """One query head: the steps of attention for some of its rows, in one precision."""

    def __init__(self, inputs: Inputs, batch: int, head: int, dtype: type, rounding: np.dtype | None = None) -> None:
        p = inputs.problem
        kv_head = head // (p.num_heads // p.num_kv_heads)
        self.inputs, self.batch, self.dtype, self.rounding = inputs, batch, dtype, rounding
        self.q, self.k, self.v = (
            array[batch, index].astype(dtype)
            for array, index in ((inputs.q, head), (inputs.k, kv_head), (inputs.v, kv_head))
        )
        self.dout = inputs.dout[batch, head].astype(dtype) if inputs.dout is not None else None
        self.scale = dtype(p.head_dim**-0.5)
        rule = inputs.hidden_rule()
        self.visible = rule[batch, 0] if rule is not None and rule.ndim == 4 else rule

    def weights(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """softmax(scores) and d scores / d (scale q k^T): [rows, seqlen_k] each."""
        p, mask = self.inputs.problem, self.inputs.mask
        s = self.scale * (self.q[rows] @ self.k.T)
        slope = np.ones_like(s)
        if p.softcap:
            tanh = np.tanh(s / self.dtype(p.softcap))
            s, slope = self.dtype(p.softcap) * tanh, 1 - tanh * tanh
        if self.visible is not None:
            s = np.where(np.broadcast_to(self.visible, (p.seqlen_q, p.seqlen_k))[rows], s, self.dtype(-np.inf))
        if mask is not None and mask.dtype == bool:
            s = np.where(mask[rows], s, self.dtype(-np.inf))
        elif mask is not None:
            s = s + mask[rows].astype(self.dtype)
        largest = np.maximum(s.max(-1, keepdims=True), np.finfo(self.dtype).min)
        e = np.exp(s - largest)
        weights = e / np.maximum(e.sum(-1, keepdims=True), np.finfo(self.dtype).tiny)
        return self.rounded(weights), slope

    def rounded(self, array: np.ndarray) -> np.ndarray:
        return array if self.rounding is None else array.astype(self.rounding).astype(self.dtype)


def _heads(inputs: Inputs, batch: int, head: int) -> tuple[_Head, _Head]:
    """The exact head (f64) and the naive one (the problem's precision)."""
    dtype = inputs.problem.dtype
    rounding = None if dtype == "f32" else NUMPY_DTYPES[dtype]
    return _Head(inputs, batch, head, np.float64), _Head(inputs, batch, head, np.float32, rounding)


def _forward(inputs: Inputs) -> Iterable[tuple[str, Expected]]:
    """Some rows of the first head and of the last one."""
    p = inputs.problem
    rows = np.unique(np.linspace(0, p.seqlen_q - 1, ROWS_CHECKED).astype(int))
    for batch, head in {(0, 0), (p.batch - 1, p.num_heads - 1)}:
        exact, naive = _heads(inputs, batch, head)
        weights = exact.weights(rows)[0]
        o = naive.rounded(naive.weights(rows)[0] @ naive.v)
        rounding = CACHE_ERRORS[p.cache] if p.cache else 0.0
        yield "o", Expected((batch, head, rows), weights @ exact.v, o, weights @ np.abs(exact.v), rounding)


def _gradients(inputs: Inputs) -> Iterable[tuple[str, Expected]]:
    """dq, dk and dv of the first head of k and v and the query heads that share it."""
    p = inputs.problem
    group = p.num_heads // p.num_kv_heads
    results = [[np.zeros((p.seqlen_k, p.head_dim), dtype) for _ in "kv"] for dtype in (float, np.float32, float)]
    for head in range(group):
        exact, naive = _heads(inputs, 0, head)
        dq: list[list[np.ndarray]] = [[], [], []]
        for begin in range(0, p.seqlen_q, ROWS_AT_A_TIME):
            rows = np.arange(begin, min(begin + ROWS_AT_A_TIME, p.seqlen_q))
            for i, parts in enumerate((_row_gradients(exact, rows), _row_gradients(naive, rows), _bounds(exact, rows))):
                dq[i].append(parts[0])
                for sums, part in zip(results[i], parts[1:]):
                    sums += part
        rounded = naive.rounded(np.concatenate(dq[1]))
        yield "dq", Expected((0, head), np.concatenate(dq[0]), rounded, np.concatenate(dq[2]))
    for i, name in enumerate(("dk", "dv")):
        yield name, Expected((0, 0), results[0][i], naive.rounded(results[1][i]), results[2][i])


def _row_gradients(head: _Head, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """dq of some rows, and what they add to dk and dv."""
    weights, slope = head.weights(rows)
    dweights = head.dout[rows] @ head.v.T
    ds = weights * (dweights - (weights * dweights).sum(-1, keepdims=True)) * slope * head.scale
    return ds @ head.k, ds.T @ head.q[rows], weights.T @ head.dout[rows]


def _bounds(head: _Head, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same with absolute values of every term."""
    weights, slope = head.weights(rows)
    dweights = np.abs(head.dout[rows]) @ np.abs(head.v).T
    ds = weights * (dweights + (weights * dweights).sum(-1, keepdims=True)) * slope * head.scale
    return ds @ np.abs(head.k), ds.T @ np.abs(head.q[rows]), weights.T @ np.abs(head.dout[rows])


def _loop(inputs: LoopInputs) -> Iterable[tuple[str, Expected]]:
    def steps(dtype: type) -> tuple[np.ndarray, np.ndarray]:
        x = inputs.x.astype(dtype)
        q, k, v = (x @ weight.astype(dtype) for weight in (inputs.W_query, inputs.W_key, inputs.W_value))
        e = np.exp(q @ k.T * dtype(k.shape[-1] ** -0.5))
        weights = e / e.sum(-1, keepdims=True)
        return weights @ v, weights @ np.abs(v)

    (reference, bound), (naive, _) = steps(np.float64), steps(np.float32)
    yield "o", Expected((slice(None),), reference, naive, bound)


def _module(inputs: ModuleInputs) -> Iterable[tuple[str, Expected]]:
    exact, naive, bound = (_module_steps(inputs, *how) for how in ((np.float64,), (np.float32,), (np.float64, True)))
    for name in exact:
        yield name, Expected((slice(None),), exact[name], naive[name], bound[name])


def _module_steps(inputs: ModuleInputs, dtype: type, absolute: bool = False) -> dict[str, np.ndarray]:
    """Output and gradients; with ``absolute``, products and sums of absolute values, except in the weights."""
    p = inputs.problem
    sign = np.abs if absolute else np.asarray
    x, dout, in_weight, in_bias, out_weight, out_bias = (
        array.astype(dtype)
        for array in (inputs.x, inputs.dout, inputs.in_weight, inputs.in_bias, inputs.out_weight, inputs.out_bias)
    )
    scale = dtype(p.head_dim**-0.5)

    def split(tokens: np.ndarray) -> np.ndarray:  # [batch, heads, seqlen, head_dim]
        return tokens.reshape(p.batch, p.seqlen_q, p.num_heads, p.head_dim).transpose(0, 2, 1, 3)

    def joined(heads: np.ndarray) -> np.ndarray:
        return heads.transpose(0, 2, 1, 3).reshape(x.shape)

    q, k, v = (split(part) for part in np.split(x @ in_weight.T + in_bias, 3, axis=-1))
    s = scale * (q @ k.swapaxes(-1, -2))
    e = np.exp(s - s.max(-1, keepdims=True))
    weights = e / e.sum(-1, keepdims=True)
    if absolute:
        v = split(np.split(sign(x) @ sign(in_weight).T + sign(in_bias), 3, axis=-1)[2])
    context = joined(weights @ v)
    results = {"o": context @ sign(out_weight).T + sign(out_bias)}
    if not p.needs_gradients:
        return results
    dcontext = split(sign(dout) @ sign(out_weight))
    dweights = dcontext @ v.swapaxes(-1, -2)
    delta = (weights * dweights).sum(-1, keepdims=True)
    ds = weights * (dweights + delta if absolute else dweights - delta) * scale
    ds_t, weights_t = ds.swapaxes(-1, -2), weights.swapaxes(-1, -2)
    dqkv = np.concatenate([joined(part) for part in (ds @ sign(k), ds_t @ sign(q), weights_t @ dcontext)], -1)
    results["dx"] = dqkv @ sign(in_weight)
    results["din_weight"] = np.tensordot(dqkv, sign(x), axes=((0, 1), (0, 1)))
    return results
