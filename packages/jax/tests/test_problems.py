"""saccade_jax.attention: random problems against NumPy in f64, with gradients, under jit and vmap."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from saccade_jax import attention, attention_varlen  # noqa: E402

from reference import Rules, outcome  # noqa: E402

TYPES = ("float32", "float32", "bfloat16", "float16", "float64")


class Problem(NamedTuple):
    arrays: dict[str, Any]  # q, k, v of rank 4 (bhsd), with a dimension in front if mapped
    rules: Rules
    dtype: Any
    mapped: dict[str, bool]  # the arrays that vmap maps; empty: no vmap
    layout: str
    count: int  # the length of the mapped dimension
    jitted: bool


def widths() -> Any:
    """A context in which JAX has 64-bit types."""
    return jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64()


def problem_of(seed: int) -> Problem:
    rng = np.random.default_rng(seed)
    dtype = jnp.dtype(str(rng.choice(TYPES)))
    batch, kv_heads, group = (int(n) for n in rng.integers(1, 4, 3))
    heads = kv_heads * group
    rows, keys = int(rng.choice([1, 2, 5, 17, 70])), int(rng.choice([1, 3, 16, 65, 150]))
    dim, dim_v = int(rng.choice([1, 8, 40, 64])), int(rng.choice([1, 8, 24, 64]))
    count = int(rng.integers(2, 4)) if rng.random() < 0.4 else 0

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape)

    drawn = {"q": (batch, heads, rows, dim), "k": (batch, kv_heads, keys, dim), "v": (batch, kv_heads, keys, dim_v)}
    kind = rng.choice(["none", "none", "bool", "float"])
    full = (batch, heads, rows, keys)
    if kind != "none":
        rank = int(rng.integers(1, 5))
        drawn["mask"] = tuple(1 if rng.random() < 0.3 else n for n in full[4 - rank :])
    if rng.random() < 0.3:
        drawn["sinks"] = (heads,)
    if rng.random() < 0.3:
        drawn["alibi_slopes"] = (heads,) if rng.random() < 0.5 else (batch, heads)
    mapped = {name: bool(rng.random() < 0.6) or name == "q" for name in drawn} if count else {}
    arrays = {name: normal(*([count] if mapped.get(name) else []), *shape) for name, shape in drawn.items()}
    for name in "qkv":
        arrays[name] = arrays[name].astype(dtype)
    if kind == "bool":
        arrays["mask"] = arrays["mask"] > -1
    elif kind == "float":
        arrays["mask"] = np.where(arrays["mask"] < -1, -np.inf, arrays["mask"]).astype(
            dtype if rng.random() < 0.5 else np.float32
        )
    for name in ("sinks", "alibi_slopes"):
        if name in arrays:
            arrays[name] = np.abs(arrays[name]).astype(np.float32)
    layout = str(rng.choice(["bhsd", "bshd"]))
    return Problem(arrays, rules_of(rng, *full), dtype, mapped, layout, count, bool(rng.random() < 0.9))


def rules_of(rng: Any, batch: int, heads: int, rows: int, keys: int) -> Rules:
    rules: dict[str, Any] = {"causal": rng.choice([None, None, "top_left", "bottom_right"])}
    if rng.random() < 0.3:
        rules["window"] = tuple(int(n) for n in rng.integers(-1, 40, 2))
    if rng.random() < 0.3:
        one = int(rng.integers(-5, keys + 5))
        rules["query_offset"] = one if rng.random() < 0.5 else rng.integers(-5, keys + 5, batch)
    if rng.random() < 0.3:
        rules["scale"] = float(rng.choice([0.05, 0.3, -0.2]))
    if rng.random() < 0.3:
        rules["softcap"] = float(rng.choice([0.7, 5.0]))
    if rng.random() < 0.3:
        rules["kv_lengths"] = rng.integers(0, keys + 1, batch)
    if rng.random() < 0.3:
        rules["kv_starts"] = rng.integers(0, keys // 2 + 1, batch)
    if rng.random() < 0.2:
        size = (16, 32)
        shape = [-(-rows // size[0]), -(-keys // size[1])]
        lead = [(), (heads,), (batch, 1), (batch, heads)][rng.integers(4)]
        rules.update(block_mask=rng.random((*lead, *shape)) < 0.7, block_mask_size=size)
    return Rules(**rules)


def options_of(rules: Rules) -> dict[str, Any]:
    arrays = ("kv_lengths", "kv_starts", "block_mask")
    options = {name: value for name, value in rules._asdict().items() if value is not None}
    return {name: jnp.asarray(value) if name in arrays else value for name, value in options.items()}


def got_of(problem: Problem, dout: Any, dlse: Any) -> dict[str, Any]:
    """o, lse and the gradients, computed by saccade_jax."""

    def swapped(x: Any) -> Any:
        return jnp.swapaxes(x, 1, 2) if problem.layout == "bshd" else x

    def call(arrays: dict[str, Any]) -> Any:
        q, k, v, options = *(swapped(arrays[name]) for name in "qkv"), {**arrays}
        for name in "qkv":
            del options[name]
        o, lse = attention(q, k, v, layout=problem.layout, return_lse=True, **options_of(problem.rules), **options)
        return swapped(o), lse

    def passes(arrays: dict[str, Any], cotangents: Any) -> dict[str, Any]:
        function = call
        if problem.mapped:
            function = jax.vmap(call, in_axes=({name: 0 if on else None for name, on in problem.mapped.items()},))
        fixed = {name: x for name, x in arrays.items() if x.dtype == bool}
        learnt = {name: x for name, x in arrays.items() if name not in fixed}
        (o, lse), pull = jax.vjp(lambda learnt: function({**fixed, **learnt}), learnt)
        return {"o": o, "lse": lse, **pull(cotangents)[0]}

    arrays = {name: jnp.asarray(x) for name, x in problem.arrays.items()}
    precise = jnp.float64 if problem.dtype == np.float64 else jnp.float32
    cotangents = (jnp.asarray(dout, problem.dtype), jnp.asarray(dlse, precise))
    found = (jax.jit(passes) if problem.jitted else passes)(arrays, cotangents)
    return {name: np.asarray(x) for name, x in found.items()}


def wanted_of(problem: Problem, dout: Any, dlse: Any, dtype: Any, absolute: bool = False) -> dict[str, Any]:
    """The same by the reference, one mapped call after the other."""
    if not problem.mapped:
        return outcome(problem.arrays, problem.rules, dout, dlse, dtype, absolute)
    parts = []
    for i in range(problem.count):
        arrays = {name: x[i] if problem.mapped[name] else x for name, x in problem.arrays.items()}
        parts.append(outcome(arrays, problem.rules, dout[i], dlse[i], dtype, absolute))
    stacked = {name: np.stack([part[name] for part in parts]) for name in parts[0]}
    return {name: x if problem.mapped.get(name, True) else x.sum(0) for name, x in stacked.items()}


def assert_agrees(problem: Problem) -> None:
    """max |got - exact| <= n max |unfused - exact| + m eps max |exact without cancellation|; n, m: 2, 8 (gradients:
    3, 16)."""
    rng = np.random.default_rng(0)
    q, v = problem.arrays["q"], problem.arrays["v"]
    dout = rng.standard_normal((*q.shape[:-1], v.shape[-1])).astype(problem.dtype)
    dlse = rng.standard_normal(q.shape[:-1])
    dlse = dlse.astype(np.float64 if problem.dtype == np.float64 else np.float32)
    with widths() if problem.dtype == np.float64 else contextlib.nullcontext():
        got = got_of(problem, dout, dlse)
    exact = wanted_of(problem, dout, dlse, np.longdouble if problem.dtype == np.float64 else np.float64)
    naive = wanted_of(problem, dout, dlse, np.float64 if problem.dtype == np.float64 else np.float32)
    bound = wanted_of(problem, dout, dlse, np.float64, absolute=True)
    assert got.keys() == exact.keys()
    for name, result in got.items():
        own = {"o": problem.dtype, "lse": dlse.dtype}.get(name) or problem.arrays[name].dtype
        assert result.dtype == own and result.shape == exact[name].shape, name
        finite = np.isfinite(exact[name])
        assert np.array_equal(result[~finite].astype(np.float64), exact[name][~finite]), name
        times, factor = (2, 8) if name in ("o", "lse") else (3, 16)
        narrow = dlse.dtype if name == "lse" else min(own, problem.dtype, key=lambda dtype: dtype.itemsize)
        eps = float(jnp.finfo(narrow).eps)
        if name in ("sinks", "alibi_slopes"):
            eps = max(eps, float(np.finfo(np.float32).eps))
        error, of_naive = (np.abs(x[finite].astype(np.float64) - exact[name][finite]) for x in (result, naive[name]))
        allowed = times * np.max(of_naive, initial=0) + factor * eps * np.max(bound[name][finite], initial=0)
        assert np.max(error, initial=0) <= allowed, (name, float(np.max(error)), float(allowed))


@pytest.mark.parametrize("seed", range(300))
def test_random_problems(seed):
    assert_agrees(problem_of(seed))


@pytest.mark.parametrize("seed", range(20))
def test_documents_are_computed_alone(seed):
    """A packed batch, forward and backward, is the same as one call for each document."""
    rng = np.random.default_rng(seed)
    lengths = [rng.integers(0, 30, 4) for _ in range(2)]
    begins = [np.concatenate([[0], np.cumsum(x)]) for x in lengths]
    q, k, v = (
        jnp.asarray(rng.standard_normal((begin[-1], heads, 8)), jnp.float32)
        for begin, heads in zip((begins[0], begins[1], begins[1]), (4, 2, 2))
    )
    sinks = jnp.asarray(rng.standard_normal(4), jnp.float32)
    options = {"causal": "bottom_right", "window": (int(rng.integers(0, 20)), 0), "return_lse": True}

    def packed(q, k, v, sinks):
        return attention_varlen(q, k, v, begins[0], begins[1], sinks=sinks, **options)

    def alone(q, k, v, sinks):
        parts = []
        for i in range(4):
            rows, keys = (slice(begin[i], begin[i + 1]) for begin in begins)
            parts.append(attention(q[rows], k[keys], v[keys], sinks=sinks, layout="bshd", **options))
        return jnp.concatenate([o for o, _ in parts]), jnp.concatenate([lse for _, lse in parts], 1)

    cotangents = tuple(jnp.asarray(rng.standard_normal(x.shape), x.dtype) for x in packed(q, k, v, sinks))
    (got, pull), (wanted, other_pull) = (jax.vjp(function, q, k, v, sinks) for function in (packed, alone))
    for a, b in zip(got, wanted):
        assert np.array_equal(a, b)
    for a, b in zip(jax.jit(pull)(cotangents), other_pull(cotangents)):
        np.testing.assert_allclose(a, b, atol=1e-5)
