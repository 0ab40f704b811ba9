"""saccade_jax: what random problems do not show."""

from __future__ import annotations

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
