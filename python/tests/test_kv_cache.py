"""KvCache and Rope: the same as attention over plain arrays."""

import threading

import numpy as np
import pytest
import saccade

from reference import random


def tokens(n, seed=0, batch=2, heads=2, dim=16):
    rng = np.random.default_rng(seed)
    return random(rng, batch, heads, n, dim), random(rng, batch, heads, n, dim), random(rng, batch, 2 * heads, n, dim)


@pytest.mark.parametrize("page_size", [0, 4])
def test_token_by_token(page_size):
    k, v, q = tokens(11)
    cache = saccade.KvCache(num_kv_heads=2, head_dim=16, batch=2, page_size=page_size)
    cache.append(k[:, :, :8], v[:, :, :8])
    whole = saccade.attention(q, k, v, causal="top_left")
    np.testing.assert_array_equal(cache.attention(q[:, :, 3:8]), whole[:, :, 3:8])
    for i in range(8, 11):
        cache.append(k[:, :, i : i + 1], v[:, :, i : i + 1])
        o, lse = cache.decode(q[:, :, i : i + 1], return_lse=True)
        wanted, wanted_lse = saccade.decode(q[:, :, i : i + 1], k[:, :, : i + 1], v[:, :, : i + 1], return_lse=True)
        np.testing.assert_array_equal(o, wanted)
        np.testing.assert_array_equal(lse, wanted_lse)
    assert cache.lengths == [11, 11] and cache.nbytes > 0
    assert cache.pages_in_use == (6 if page_size else 0)


def test_sequences_of_their_own():
    k, v, q = tokens(5)
    cache = saccade.KvCache(num_kv_heads=2, head_dim=16, batch=2, page_size=2)
    cache.append(k[0], v[0], sequence=0)
    cache.share_prefix(0, 1, 3)
    assert cache.lengths == [5, 3]
    np.testing.assert_array_equal(cache.decode(q[:, :, :1])[1], saccade.decode(q[1, :, :1], k[0, :, :3], v[0, :, :3]))
    np.testing.assert_array_equal(cache.positions(2), [[3, 4], [1, 2]])
    cache.truncate(0, 4)
    cache.clear(1)
    assert cache.lengths == [4, 0]
    cache.append(k[1, :, :2].swapaxes(0, 1), v[1, :, :2].swapaxes(0, 1), sequence=1, layout="bshd")
    assert cache.lengths == [4, 2] and cache.first_kept(0) == 0


@pytest.mark.parametrize("page_size", [0, 4])
def test_padding_on_the_left(page_size):
    k, v, q = tokens(11)
    cache = saccade.KvCache(num_kv_heads=2, head_dim=16, batch=2, page_size=page_size)
    cache.append(k, v)
    cache.set_start(1, 6)
    assert cache.starts == [0, 6]
    wanted = saccade.decode(q[:, :, -1:], k, v, kv_starts=[0, 6])
    np.testing.assert_array_equal(cache.decode(q[:, :, -1:]), wanted)
    assert not np.array_equal(wanted, saccade.decode(q[:, :, -1:], k, v))
    with pytest.raises(ValueError, match="start must lie between 0 and the 11 tokens"):
        cache.set_start(1, 12)
    with pytest.raises(ValueError, match="kv_starts was given"):
        cache.decode(q[:, :, -1:], kv_starts=[0, 6])


def test_narrow_caches_round_once():
    k, v, q = tokens(9)
    cache = saccade.KvCache(num_kv_heads=2, head_dim=16, batch=2, dtype=np.float16)
    cache.append(k, v)
    wanted = saccade.decode(q[:, :, 8:], np.float16(k), np.float16(v))
    np.testing.assert_array_equal(cache.decode(q[:, :, 8:]), wanted)


def test_values_of_another_width():
    k, _, q = tokens(9)
    v, q = tokens(9, seed=1, dim=24)[1], q[:, :, -1:]
    cache = saccade.KvCache(num_kv_heads=2, head_dim=16, head_dim_v=24, batch=2)
    cache.append(k, v)
    expected = saccade.attention(q, k, v)
    np.testing.assert_array_equal(cache.attention(q), expected)
    out = np.empty((2, 4, 1, 24), np.float32)
    assert cache.decode(q, out=out) is out
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="out: expected .2, 4, 1, 24., got .2, 4, 1, 16."):
        cache.decode(q, out=np.empty(q.shape, np.float32))


def test_windows_and_rope():
    k, v, q = tokens(40)
    rope = saccade.Rope(16, theta=500.0)
    cache = saccade.KvCache(num_kv_heads=2, head_dim=16, batch=2, window=6, rope=rope)
    for i in range(40):
        cache.append(k[:, :, i : i + 1], v[:, :, i : i + 1])
    turned = rope.rotate(q[:, :, 39:], positions=cache.positions(1))
    wanted = saccade.attention(rope.rotate(q), rope.rotate(k), v, causal="top_left", window=(6, -1))
    np.testing.assert_allclose(cache.decode(turned), wanted[:, :, 39:], atol=1e-6 * np.abs(v).max())


def test_rope_turns_pairs():
    x = random(np.random.default_rng(2), 3, 5, 8, dtype=np.float64)
    angle = np.arange(5)[:, None] * 10000.0 ** (-np.arange(4) / 4)
    a, b = x[..., :4], x[..., 4:]
    wanted = np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)
    np.testing.assert_allclose(saccade.Rope(8).rotate(x), wanted, atol=1e-14)
    np.testing.assert_allclose(saccade.Rope(8).rotate(x[:, 2:], start=2), wanted[:, 2:], atol=1e-14)
    out = x.copy()
    assert saccade.Rope(8).rotate(out, out=out) is out
    np.testing.assert_allclose(out, wanted, atol=1e-14)


def test_threads_may_share_a_cache():
    k, v, q = tokens(1)
    cache = saccade.KvCache(num_kv_heads=2, head_dim=16, batch=2)
    cache.append(k, v)

    def work(adds):
        for _ in range(200):
            cache.append(k, v) if adds else cache.decode(q)

    threads = [threading.Thread(target=work, args=(i % 2 == 0,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.lengths == [401, 401]


def test_outputs_of_any_strides():
    k, v, q = tokens(5)
    cache = saccade.KvCache(num_kv_heads=2, head_dim=16, batch=2)
    cache.append(k, v)
    out = np.zeros((2, 4, 5, 32), np.float32)
    assert cache.decode(q, out=out[..., ::2]).base is out
    np.testing.assert_array_equal(out[..., ::2], cache.decode(q))
    assert not out[..., 1::2].any()
    with pytest.raises(ValueError, match="out: shares memory with q"):
        cache.decode(q, out=q)


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda c, k: saccade.KvCache(num_kv_heads=2, head_dim=0), "head_dim"),
        (lambda c, k: saccade.KvCache(num_kv_heads=2, head_dim=8, dtype="int16"), "dtype"),
        (lambda c, k: saccade.KvCache(num_kv_heads=2, head_dim=8, dtype_v="int2"), "dtype_v"),
        (lambda c, k: saccade.KvCache(num_kv_heads=2, head_dim=8, rotate=True), "rotate"),
        (lambda c, k: c.decode(k, k_scale=np.ones(1, np.float32)), "k_scale"),
        (lambda c, k: c.append(k, k[..., :3]), "v"),
        (lambda c, k: c.append(k, k, sequence=7), "sequence"),
        (lambda c, k: c.truncate(0, -1), "length"),
        (lambda c, k: c.decode(k[:1]), "q"),
        (lambda c, k: c.decode(None), "q: expected an array"),
        (lambda c, k: c.decode(k, kv_lengths=[1, 1]), "kv_lengths"),
        (lambda c, k: c.attention(k, out=np.zeros(3, np.float32)), "o"),
        (lambda c, k: c.positions(-1), "count"),
        (lambda c, k: c.share_prefix(0, 9, 1), "sequence"),
        (lambda c, k: saccade.Rope(7, rotary_dim=3), "rotary_dim"),
        (lambda c, k: saccade.Rope(8, pairs="thirds"), "pairs"),
        (lambda c, k: saccade.Rope(8).rotate(k), "x"),
    ],
)
def test_refusals_name_the_argument(call, text):
    k = tokens(3)[0]
    cache = saccade.KvCache(num_kv_heads=2, head_dim=16, batch=2)
    cache.append(k, k)
    with pytest.raises(ValueError, match=text):
        call(cache, k)
    assert cache.lengths == [3, 3]


QUANTIZED = [("int8", None), ("int4", None), ("fp8", None), ("int8", "int4"), ("float8_e4m3fn", "bfloat16")]


@pytest.mark.parametrize("dtype, dtype_v", QUANTIZED)
@pytest.mark.parametrize("page_size", [0, 4])
def test_quantized_caches_are_exact_over_what_they_store(dtype, dtype_v, page_size):
    k, v, q = tokens(40)
    cache = saccade.KvCache(num_kv_heads=2, head_dim=16, batch=2, dtype=dtype, dtype_v=dtype_v, page_size=page_size)
    whole = saccade.KvCache(num_kv_heads=2, head_dim=16, batch=2, dtype=dtype, dtype_v=dtype_v)
    for i in range(0, 40, 8):
        cache.append(k[:, :, i : i + 8], v[:, :, i : i + 8])
    whole.append(k, v)
    kept_k, kept_v = cache.dequantize_k(), cache.dequantize_v()
    assert kept_k.shape == k.shape and kept_k.dtype == np.float32
    np.testing.assert_array_equal(kept_k, whole.dequantize_k())
    np.testing.assert_array_equal(kept_v, whole.dequantize_v())
    assert 0 < np.abs(kept_k - k).max() < 0.5
    q = q[:, :, -3:]
    wanted = saccade.attention(q, kept_k, kept_v, causal="bottom_right")
    np.testing.assert_allclose(cache.attention(q), wanted, atol=2e-6)
    np.testing.assert_allclose(cache.decode(q), wanted, atol=2e-6)


def test_quantized_caches_are_small():
    def size(dtype):
        return saccade.KvCache(num_kv_heads=8, head_dim=128, dtype=dtype, capacity=1024).nbytes

    assert size("int8") <= 0.52 * size("bfloat16") and size("fp8") <= 0.52 * size("bfloat16")
    assert size("int4") <= 0.30 * size("bfloat16")


def test_plain_tensors_with_scales():
    rng = np.random.default_rng(3)
    k, v = (rng.integers(-127, 128, (2, 2, 30, 16), dtype=np.int8) for _ in range(2))
    q = random(rng, 2, 4, 3, 16)
    for shape in [(1,), (2, 1, 1), (2, 30, 1), (2, 1, 16)]:
        scale = rng.uniform(0.01, 0.02, shape)
        wanted = saccade.attention(q, (k * scale).astype(np.float32), (v * scale).astype(np.float32))
        for call in (saccade.attention, saccade.decode):
            np.testing.assert_allclose(call(q, k, v, k_scale=scale, v_scale=scale), wanted, atol=1e-5)
    with pytest.raises(ValueError, match="k is i8, which needs k_scale"):
        saccade.attention(q, k, v)


def test_e4m3_of_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    rng = np.random.default_rng(4)
    k, v = (random(rng, 2, 30, 16).astype(ml_dtypes.float8_e4m3fn) for _ in range(2))
    q = random(rng, 4, 3, 16)
    wanted = saccade.attention(q, k.astype(np.float32), v.astype(np.float32))
    np.testing.assert_allclose(saccade.attention(q, k, v), wanted, atol=1e-6)
    np.testing.assert_allclose(saccade.decode(q, k, v), wanted, atol=1e-6)


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
@pytest.mark.parametrize("dtype", ["int8", "int4", "fp8", "bfloat16"])
def test_tensors_of_pytorch(dtype, name):
    torch = pytest.importorskip("torch")
    k, v, q = (torch.from_numpy(x).to(getattr(torch, name)) for x in tokens(9))
    cache = saccade.KvCache(num_kv_heads=2, head_dim=16, batch=2, dtype=dtype)
    assert isinstance(cache.dequantize_k(), np.ndarray)
    cache.append(k, v)
    kept = cache.dequantize_k(), cache.dequantize_v()
    assert all(isinstance(x, torch.Tensor) and x.dtype == torch.float32 and x.shape == k.shape for x in kept)
    wanted = saccade.attention(q.float(), *kept, causal="bottom_right")
    for call in (cache.attention, cache.decode):
        o, lse = call(q, return_lse=True)
        assert o.dtype == q.dtype and lse.dtype == torch.float32
        np.testing.assert_allclose(o.float(), wanted, atol=0.02 if name == "bfloat16" else 5e-6)
    cache.append(*(x.float().numpy() for x in (k, v)))
    assert isinstance(cache.dequantize_v(), np.ndarray)


def grown(cache, seed, dtype):
    for count in (5, 1):
        k, v, q = tokens(count, seed)
        cache.append(k, v)
    return cache.decode(q.astype(dtype))


@pytest.mark.parametrize("page_size", [0, 4])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float16", "int8", "int4", "fp8"])
def test_files(tmp_path, dtype, page_size):
    rope = saccade.Rope(16, theta=500.0, pairs="interleaved")
    cache = saccade.KvCache(num_kv_heads=2, head_dim=16, batch=2, dtype=dtype, page_size=page_size, window=8, rope=rope)
    of_rows = np.float64 if dtype == "float64" else np.float32
    grown(cache, 1, of_rows)
    cache.truncate(1, 5)
    cache.set_start(1, 2)
    path = tmp_path / "cache.safetensors"
    cache.save(path)
    loaded = saccade.KvCache.load(str(path))
    assert loaded.lengths == cache.lengths == [6, 5] and loaded.starts == [0, 2]
    assert loaded.pages_in_use == cache.pages_in_use
    np.testing.assert_array_equal(loaded.dequantize_k(), cache.dequantize_k())
    assert [file.name for file in tmp_path.iterdir()] == ["cache.safetensors"]
    np.testing.assert_array_equal(grown(loaded, 2, of_rows), grown(cache, 2, of_rows))


def test_files_that_hold_no_cache(tmp_path):
    path = tmp_path / "cache.safetensors"
    with pytest.raises(RuntimeError, match="cache.safetensors"):
        saccade.KvCache.load(path)
    path.write_bytes(b"\2\0\0\0\0\0\0\0{}")
    with pytest.raises(RuntimeError, match="cache.safetensors: this is not the state of a cache"):
        saccade.KvCache.load(path)
    cache = saccade.KvCache(num_kv_heads=2, head_dim=16)
    cache.save(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RuntimeError, match="cache.safetensors"):
        saccade.KvCache.load(path)
    with pytest.raises(RuntimeError, match="nowhere"):
        cache.save(tmp_path / "nowhere" / "cache.safetensors")
    with pytest.raises(ValueError, match="path: expected a file name, got int"):
        cache.save(7)
