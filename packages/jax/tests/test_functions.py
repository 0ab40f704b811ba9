"""saccade_jax: what random problems do not show."""

from __future__ import annotations

import functools
import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from saccade_jax import attention, attention_varlen, dot_product_attention  # noqa: E402
from saccade_jax._attention import _ARRAYS  # noqa: E402
from saccade_jax._options import DEFAULTS, JaxOptions, JaxPackedOptions  # noqa: E402


@pytest.mark.parametrize("function", [attention, attention_varlen])
def test_options_are_keywords_with_a_text(function):
    options = {attention: JaxOptions, attention_varlen: JaxPackedOptions}[function].__annotations__
    parameters = inspect.signature(function).parameters
    keywords = [name for name in parameters if parameters[name].kind is inspect.Parameter.KEYWORD_ONLY]
    assert keywords == [*options, "dropout_key", "return_lse"]
    arrays = {name for name, kind in options.items() if kind is Any} - {"query_offset"}
    assert arrays <= set(_ARRAYS)
    for name in options:
        assert parameters[name].default == DEFAULTS.get(name)
        assert function.__doc__.count(f":param {name}: ") == 1
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'score_mod'"):
        function(*[None] * (3 if function is attention else 4), score_mod=None)


def operands(*lead, rows=20, keys=30, dim=16, kv_heads=None, dtype=jnp.float32, seed=0):
    rng = np.random.default_rng(seed)
    batch, heads = lead
    shapes = [(batch, heads, rows, dim), *[(batch, kv_heads or heads, keys, dim)] * 2]
    return [jnp.asarray(rng.standard_normal(shape), dtype) for shape in shapes]


def tokens(*arrays):
    return [jnp.swapaxes(x, 1, 2) for x in arrays]


# jax.nn.dot_product_attention


def drawn_options(rng, batch, heads, rows, keys):
    """Options of jax.nn.dot_product_attention in which every row sees a key."""
    options = {}
    if rng.random() < 0.4:
        options["is_causal"] = True
    if rng.random() < 0.4:
        options["local_window_size"] = (rows + int(rng.integers(0, 9)), int(rng.integers(0, 9)))
    if rng.random() < 0.4:
        options["scale"] = float(rng.uniform(0.05, 0.5))
    if rng.random() < 0.4:
        shape = [1 if rng.random() < 0.4 else n for n in (batch, heads, rows, keys)]
        options["mask"] = jnp.asarray(rng.random(shape) < 0.8).at[..., 0].set(True)
    if rng.random() < 0.4:
        options["key_value_seq_lengths"] = jnp.asarray(rng.integers(1, keys + 1, batch), jnp.int32)
    if rng.random() < 0.3:
        options["query_seq_lengths"] = jnp.asarray(rng.integers(1, rows + 1, batch), jnp.int32)
    return options


@pytest.mark.parametrize("seed", range(40))
def test_it_is_the_function_of_jax(seed):
    rng = np.random.default_rng(seed)
    batch, kv_heads, group = (int(n) for n in rng.integers(1, 4, 3))
    heads, rows, keys = kv_heads * group, int(rng.integers(1, 40)), int(rng.integers(1, 40))
    q, k, v = tokens(*operands(batch, heads, rows=rows, keys=keys, kv_heads=kv_heads, seed=seed))
    options = drawn_options(rng, batch, heads, rows, keys)
    bias = jnp.asarray(rng.standard_normal((1, heads, rows, keys)), jnp.float32) if rng.random() < 0.5 else None
    dout = jnp.asarray(rng.standard_normal(q.shape), jnp.float32)

    def passes(function):
        def call(*operands):
            o, pull = jax.vjp(lambda *operands: function(*operands, **options), *operands)
            return [o, *pull(dout)]

        return jax.jit(call)(q, k, v, *([] if bias is None else [bias]))

    for got, wanted in zip(passes(dot_product_attention), passes(jax.nn.dot_product_attention), strict=True):
        np.testing.assert_allclose(got, wanted, atol=2e-5, rtol=1e-4)


def test_residual_and_rank_3():
    q, k, v = tokens(*operands(1, 4))
    o, residual = dot_product_attention(q, k, v, return_residual=True)
    wanted, other = jax.nn.dot_product_attention(q, k, v, return_residual=True)
    np.testing.assert_allclose(o, wanted, atol=1e-5)
    np.testing.assert_allclose(residual, other, atol=1e-5)
    assert np.array_equal(dot_product_attention(q[0], k[0], v[0]), o[0])


def test_rows_without_keys_are_0_and_hidden_keys_have_no_influence():
    q, k, v = operands(2, 2)
    lengths = jnp.array([0, 12])
    o, lse = attention(q, k, v, kv_lengths=lengths, return_lse=True)
    assert not o[0].any() and jnp.isneginf(lse[0]).all()
    k, v = k.at[:, :, 12:].set(jnp.nan), v.at[:, :, 12:].set(jnp.inf)
    assert np.array_equal(attention(q, k, v, kv_lengths=lengths)[1], o[1])
    gradients = jax.grad(lambda *x: attention(*x, kv_lengths=lengths).sum(), (0, 1, 2))(q, k, v)
    assert all(jnp.isfinite(x).all() for x in gradients)


# Transformations


def test_ranks_and_layouts():
    q, k, v = operands(1, 4, kv_heads=2)
    o, lse = attention(q, k, v, return_lse=True)
    three = attention(q[0], k[0], v[0], return_lse=True)
    assert all(np.array_equal(a, b[0]) for a, b in zip(three, (o, lse)))
    two = attention(q[0, 1], k[0, 0], v[0, 0], return_lse=True)
    assert all(np.array_equal(a, b[0, 1]) for a, b in zip(two, (o, lse)))
    other = attention(*tokens(q, k, v), layout="bshd")
    assert np.array_equal(*tokens(o, jnp.swapaxes(other, 1, 2)))


def test_traced_numbers_of_keys():
    """A cache of fixed size with a growing number of keys is compiled once."""
    q, k, v = operands(1, 4, rows=1, keys=3000)
    compiled = []

    @jax.jit
    def step(q, length):
        compiled.append(1)
        return attention(q, k, v, kv_lengths=length, query_offset=length - 1, causal="top_left", window=(50, 0))

    for length in (1, 40, 2999):
        wanted = attention(q, k[:, :, :length], v[:, :, :length], causal="bottom_right", window=(50, 0))
        np.testing.assert_allclose(step(q, jnp.int32(length)), wanted, atol=1e-5)
    assert len(compiled) == 1


def test_nested_vmap():
    q, k, v = operands(2, 4)
    queries = jnp.stack([jnp.stack([q * i + j for j in range(3)]) for i in range(2)])
    keys = jnp.stack([k, -k])
    mapped = jax.vmap(jax.vmap(attention, (0, None, None)), (0, 0, None))(queries, keys, v)
    for i in range(2):
        for j in range(3):
            assert np.array_equal(mapped[i, j], attention(queries[i, j], keys[i], v))


def test_vmap_of_another_axis():
    q, k, v = operands(3, 4)
    mapped = jax.vmap(lambda q, k, v: attention(q, k, v, causal="top_left"), (1, 1, 1), 1)(q, k, v)
    assert np.array_equal(mapped, attention(q, k, v, causal="top_left"))


def test_scan_and_checkpoint():
    q, k, v = operands(1, 2, rows=20, keys=20)

    def loss(x, keep):
        block = keep(lambda x, _: (x + attention(x, k, v, causal="top_left"), None))
        return jax.lax.scan(block, x, None, length=3)[0].sum()

    plain = jax.jit(jax.grad(lambda x: loss(x, lambda block: block)))(q)
    np.testing.assert_allclose(jax.jit(jax.grad(lambda x: loss(x, jax.checkpoint)))(q), plain, atol=1e-5)


def test_only_wanted_gradients_are_computed():
    q, k, v = operands(1, 2)
    mask = jnp.zeros((20, 30))
    jaxpr = str(jax.make_jaxpr(jax.grad(lambda q: attention(q, k, v, mask=mask).sum()))(q))
    assert "dmask" not in jaxpr
    jaxpr = str(jax.make_jaxpr(jax.grad(lambda m: attention(q, k, v, mask=m).sum()))(mask))
    assert "dmask" in jaxpr


def test_forward_tangents_and_second_gradients_are_refused():
    q, k, v = operands(1, 2)
    with pytest.raises(TypeError, match="can't apply forward-mode autodiff"):
        jax.jvp(lambda q: attention(q, k, v), (q,), (q,))
    with pytest.raises(ValueError, match="cannot be differentiated"):
        jax.grad(lambda q: (jax.grad(lambda q: attention(q, k, v).sum())(q) ** 2).sum())(q)


def test_threads_do_not_change_results():
    q, k, v = operands(2, 4, rows=300, keys=300)
    wanted = attention(q, k, v, num_threads=1)
    assert np.array_equal(attention(q, k, v, num_threads=3), wanted)
    start, compiled = threading.Barrier(4), jax.jit(attention)

    def repeat(_):
        start.wait()
        return all(np.array_equal(compiled(q, k, v), wanted) for _ in range(5))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(repeat, range(4)))


# Quantized keys and values


QUANTIZED = (jnp.int8, jnp.float8_e4m3fn)
# One scale for the tensor, or for each head, token, channel, or token of a head and batch entry.
SCALES = ((), (2, 1, 1), (30, 1), (16,), (2, 2, 30, 1))


def quantized(dtype, shape=(2, 2, 30, 16), seed=3):
    rng = np.random.default_rng(seed)
    if dtype == jnp.int8:
        return jnp.asarray(rng.integers(-127, 128, shape), jnp.int8)
    return jnp.asarray(rng.standard_normal(shape) * 50, dtype)


def scale_of(shape, seed=4):
    return jnp.asarray(np.random.default_rng(seed).uniform(0.005, 0.03, shape), jnp.float32)


def widened(stored, scale):
    return stored.astype(jnp.float32) * scale


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit])
@pytest.mark.parametrize("rows", [1, 20])
@pytest.mark.parametrize("shape", SCALES)
@pytest.mark.parametrize("dtype", QUANTIZED)
def test_quantized_keys_and_values(dtype, shape, rows, transform):
    q = operands(2, 4, rows=rows)[0]
    k, v, k_scale, v_scale = quantized(dtype), quantized(dtype, seed=5), scale_of(shape), scale_of(shape, seed=6)
    wanted = jax.nn.dot_product_attention(*tokens(q, widened(k, k_scale), widened(v, v_scale)))

    def call(layout, q, k, v, k_scale, v_scale):
        return attention(q, k, v, k_scale=k_scale, v_scale=v_scale, layout=layout)

    o = transform(functools.partial(call, "bhsd"))(q, k, v, k_scale, v_scale)
    np.testing.assert_allclose(tokens(o)[0], wanted, atol=2e-5)
    other = transform(functools.partial(call, "bshd"))(*tokens(q, k, v), k_scale, v_scale)
    np.testing.assert_allclose(other, wanted, atol=2e-5)


def test_types_of_quantized_calls():
    """Only values are quantized, q is narrow, e4m3 needs no scale, and lse is that of the stored numbers."""
    q, k, _ = operands(2, 4, kv_heads=2)
    v = quantized(jnp.float8_e4m3fn)
    o, lse = attention(q.astype(jnp.bfloat16), k, v, return_lse=True)
    assert o.dtype == jnp.bfloat16 and lse.dtype == jnp.float32
    wanted, other = attention(q.astype(jnp.bfloat16).astype(jnp.float32), k, widened(v, 1.0), return_lse=True)
    np.testing.assert_allclose(o, wanted, rtol=0.01, atol=0.2)
    np.testing.assert_allclose(lse, other, atol=1e-5)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("mapped", [("k",), ("k_scale",), ("q", "v_scale"), ("q", "k", "v", "k_scale", "v_scale")])
@pytest.mark.parametrize("shape", [(16,), (2, 1, 1), "batch"])
def test_vmap_of_quantized_calls(shape, mapped, batch):
    shape = (batch, 2, 30, 1) if shape == "batch" else shape
    dims = {
        "q": (batch, 4, 20, 16),
        "k": (batch, 2, 30, 16),
        "v": (batch, 2, 30, 16),
        "k_scale": shape,
        "v_scale": shape,
    }
    drawn = {}
    for seed, (name, dim) in enumerate(dims.items()):
        full = (3, *dim) if name in mapped else dim
        if name in ("k", "v"):
            drawn[name] = quantized(jnp.int8, full, seed)
        else:
            drawn[name] = scale_of(full, seed) * (1 if "scale" in name else 50)

    def call(arrays):
        return attention(**arrays)

    axes = {name: 0 if name in mapped else None for name in drawn}
    got = jax.jit(jax.vmap(call, (axes,)))(drawn)
    assert not np.array_equal(got[0], got[1])
    for i in range(3):
        one = {name: x[i] if name in mapped else x for name, x in drawn.items()}
        assert np.array_equal(got[i], call(one))


def test_keys_of_8_bits_in_the_function_of_jax():
    q, *wide = tokens(*operands(2, 4, kv_heads=2))
    k, v = (x.astype(jnp.float8_e4m3fn) for x in wide)
    wanted = jax.nn.dot_product_attention(q, widened(k, 1.0), widened(v, 1.0))
    np.testing.assert_allclose(dot_product_attention(q, k, v), wanted, atol=2e-5)
    with pytest.raises(ValueError, match="k_scale: expected floating numbers, because k is int8"):
        dot_product_attention(q, k.astype(jnp.int8), v)


def test_transformed_keys_and_values():
    """Rows that hold Hadamard transforms."""
    q, k, v = operands(2, 4, kv_heads=2)
    transform = np.ones((1, 1))
    while len(transform) < 16:
        transform = np.block([[transform, transform], [transform, -transform]])
    transform = jnp.asarray(transform / 4, jnp.float32)
    turned = [jnp.matmul(x, transform, precision="highest") for x in (k, v)]
    stored = [jnp.round(x * 25).astype(jnp.int8) for x in turned]
    seen = [jnp.matmul(widened(x, 0.04), transform, precision="highest") for x in stored]
    scale = jnp.float32(0.04)
    o = attention(q, *stored, k_scale=scale, v_scale=scale, k_rotated=True, v_rotated=True)
    np.testing.assert_allclose(o, attention(q, *seen), atol=2e-5)
    assert not np.allclose(o, attention(q, *stored, k_scale=scale, v_scale=scale), atol=0.01)


def test_quantized_documents():
    q, k, v = (x.reshape(-1, *x.shape[2:]) for x in tokens(operands(2, 4)[0], *[quantized(jnp.int8)] * 2))
    scale, begins_q, begins_k = scale_of((2, 60, 1)), jnp.array([0, 7, 40]), jnp.array([0, 22, 60])
    o = attention_varlen(q, k, v, begins_q, begins_k, k_scale=scale, v_scale=scale, causal="bottom_right")
    wide = (x.astype(jnp.float32) * jnp.swapaxes(scale, 0, 1) for x in (k, v))
    wanted = attention_varlen(q, *wide, begins_q, begins_k, causal="bottom_right")
    np.testing.assert_allclose(o, wanted, atol=2e-5)


def test_quantized_calls_have_no_gradients():
    q, k, v = operands(2, 2)
    k8, scale = quantized(jnp.int8), jnp.float32(0.02)
    with pytest.raises(ValueError, match="k is int8: a call with quantized keys or values has no gradients"):
        jax.grad(lambda q: attention(q, k8, v, k_scale=scale).sum())(q)
    with pytest.raises(ValueError, match="v is float8_e4m3fn: a call with quantized"):
        jax.grad(lambda k: attention(q, k, k8.astype(jnp.float8_e4m3fn)).sum())(k)
    with pytest.raises(ValueError, match="v_rotated: a call with transformed"):
        jax.grad(lambda k: attention(q, k, v, v_rotated=True).sum())(k)


QUANTIZED_REFUSED = {
    "no scale": ({}, "k_scale: expected floating numbers, because k is int8, got None"),
    "integers": ({"k_scale": jnp.ones((), int)}, "k_scale: expected floating numbers, got int32"),
    "heads": ({"k_scale": jnp.ones((3, 1, 1))}, r"k_scale: expected a shape that broadcasts to \(2, 2, 30, 16\)"),
    "rank": ({"k_scale": jnp.ones((1, 1, 1, 1, 1))}, "k_scale: expected a shape that broadcasts"),
    "both": ({"k_scale": jnp.ones((30, 16))}, "for each token or for each channel, not for both, got shape"),
    "floats": ({"k_scale": 0.1, "v_scale": 0.1}, "v_scale: expected None, because v is float32, which has no scales"),
    "flag": ({"k_scale": 0.1, "k_rotated": 1}, "k_rotated: expected True or False, got 1"),
}


@pytest.mark.parametrize("what", QUANTIZED_REFUSED)
def test_quantized_calls_refused(what):
    options, message = QUANTIZED_REFUSED[what]
    q, _, v = operands(2, 2)
    with pytest.raises(ValueError, match=message):
        attention(q, quantized(jnp.int8), v, **options)


# Dropout


def test_dropout():
    q, k, _ = operands(1, 2, rows=100, keys=100)
    v = jnp.broadcast_to(jnp.eye(100), (1, 2, 100, 100))
    key = jax.random.key(5)

    def weights(key):
        return attention(q, k, v, dropout_p=0.25, dropout_key=key)

    plain, dropped = attention(q, k, v), weights(key)
    kept = dropped != 0
    assert 0.72 < kept.mean() < 0.78
    np.testing.assert_allclose(dropped[kept] * 0.75, plain[kept], rtol=1e-5)
    assert np.array_equal(jax.jit(weights)(jax.random.PRNGKey(5)), dropped)
    assert not np.array_equal(weights(jax.random.key(6)) != 0, kept)
    keys = jax.random.split(key, 3)
    for i, mapped in enumerate(jax.vmap(weights)(keys)):
        assert np.array_equal(mapped, weights(keys[i]))
    gradient = jax.grad(lambda v: (attention(q, k, v, dropout_p=0.25, dropout_key=key) * v).sum())(v)
    np.testing.assert_allclose(gradient, dropped + dropped.swapaxes(-1, -2), atol=1e-6)


# Errors


REFUSED = {
    "dim": (lambda q, k, v: attention(q, k[..., :5], v), r"\[attention\] k has head_dim 5 but q has 16"),
    "seqlen": (lambda q, k, v: attention(q, k, v[:, :, :5]), "v has seqlen 5 but k has 30"),
    "heads": (lambda q, k, v: attention(q[:, :3], k, v), "q has 3 heads, which is no multiple of the 4 heads of k"),
    "batch": (lambda q, k, v: attention(q[:1], k, v), "k has batch 2 but q has 1"),
    "rank": (lambda q, k, v: attention(q[0], k, v), "q, k and v: expected the same rank, 2, 3 or 4, got shapes"),
    "type": (lambda q, k, v: attention(q.astype(int), k, v), "q: expected float32, .*, got int32"),
    "causal": (lambda q, k, v: attention(q, k, v, causal=True), "causal: expected None or 'top_left' or .*, got True"),
    "layout": (lambda q, k, v: attention(q, k, v, layout="sbhd"), "layout: expected 'bhsd' or 'bshd', got 'sbhd'"),
    "mask": (
        lambda q, k, v: attention(q, k, v, mask=jnp.zeros((3, 30))),
        "mask: expected rank 1 to 4 and a shape that",
    ),
    "mask of integers": (lambda q, k, v: attention(q, k, v, mask=jnp.zeros(30, int)), "mask: expected bool"),
    "sinks": (
        lambda q, k, v: attention(q, k, v, sinks=jnp.zeros(3)),
        r"sinks: expected shape \(4,\), got shape \(3,\)",
    ),
    "slopes": (lambda q, k, v: attention(q, k, v, alibi_slopes=jnp.zeros((4, 2))), "alibi_slopes: expected shape"),
    "lengths": (lambda q, k, v: attention(q, k, v, kv_lengths=jnp.zeros(3, int)), r"kv_lengths: expected shape \(2,\)"),
    "starts": (lambda q, k, v: attention(q, k, v, kv_starts=jnp.zeros(2)), "kv_starts: expected integers, got float32"),
    "offset": (lambda q, k, v: attention(q, k, v, query_offset=0.5), "query_offset: expected integers, got float32"),
    "window": (lambda q, k, v: attention(q, k, v, window=(-2, 0)), "window: expected integers of at least -1"),
    "scale": (lambda q, k, v: attention(q, k, v, scale=float("nan")), "scale: expected a finite number, got nan"),
    "traced scale": (
        lambda q, k, v: jax.jit(lambda s: attention(q, k, v, scale=s))(1.0),
        "scale: expected a number, which is a part of the compiled program",
    ),
    "softcap": (lambda q, k, v: attention(q, k, v, softcap=-1), "softcap: expected 0 .* or a positive number, got -1"),
    "dropout": (lambda q, k, v: attention(q, k, v, dropout_p=0.1), "dropout_key: dropout_p was given without"),
    "dropout_p": (lambda q, k, v: attention(q, k, v, dropout_p=1.0), "dropout_p: expected at least 0 and below 1"),
    "threads": (lambda q, k, v: attention(q, k, v, num_threads=-1), "num_threads: expected 0 or more, got -1"),
    "documents": (lambda q, k, v: attention_varlen(q[0], q[0], q[0], jnp.zeros((2, 2), int)), "cu_seqlens_q: expected"),
    "implementation": (
        lambda q, k, v: dot_product_attention(q, k, v, implementation="xla"),
        "implementation: expected None, got 'xla'",
    ),
    "a mask of numbers": (lambda q, k, v: dot_product_attention(q, k, v, mask=jnp.zeros(30)), "mask: expected bool"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused(what):
    call, message = REFUSED[what]
    with pytest.raises(ValueError, match=message):
        call(*operands(2, 4))


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit])
def test_values_are_refused_when_they_are_read(transform):
    q, k, v = operands(2, 4)
    with pytest.raises(
        Exception, match=r"\[attention\] kv_lengths must lie between 0 and seqlen_k = 30, but one is 99"
    ):
        transform(lambda n: attention(q, k, v, kv_lengths=n))(jnp.array([3, 99])).block_until_ready()
    with pytest.raises(Exception, match="cu_seqlens_q must begin with 0 and end with the 20 rows of q"):
        transform(lambda n: attention_varlen(*(x[0].swapaxes(0, 1) for x in (q, k, v)), n, jnp.array([0, 30])))(
            jnp.array([0, 19])
        ).block_until_ready()


def test_memory_is_linear():
    """The compiled program needs no matrix of scores."""
    q, k, v = operands(1, 1, rows=4096, keys=4096, dim=32)
    gradients = jax.jit(jax.grad(lambda q, k, v: attention(q, k, v, causal="top_left").sum(), (0, 1, 2)))
    analysis = gradients.lower(q, k, v).compile().memory_analysis()
    assert analysis.temp_size_in_bytes < 4 * 4096 * 4096 / 8
