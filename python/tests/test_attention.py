"""saccade.attention and related functions on NumPy arrays, compared with attention in plain NumPy."""

import itertools

import numpy as np
import pytest
import saccade

import reference
from reference import assert_close, random, visible


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize(
    "seqlen_q, seqlen_k, head_dim, head_dim_v",
    [(1, 1, 1, 1), (7, 7, 3, 5), (64, 65, 64, 64), (33, 129, 40, 80), (130, 3, 8, 16)],
)
@pytest.mark.parametrize("causal", [None, "top_left", "bottom_right"])
def test_agrees_with_numpy(dtype, seqlen_q, seqlen_k, head_dim, head_dim_v, causal):
    rng = np.random.default_rng(seqlen_q)
    q = random(rng, 2, 4, seqlen_q, head_dim, dtype=dtype)
    k = random(rng, 2, 2, seqlen_k, head_dim, dtype=dtype)
    v = random(rng, 2, 2, seqlen_k, head_dim_v, dtype=dtype)
    o = saccade.attention(q, k, v, causal=causal)
    assert o.dtype == dtype
    assert_close(o, q, k, v, seen=visible(seqlen_q, seqlen_k, causal=causal))


def operands(seed=0, batch=2, heads=4, kv_heads=2, seqlen_q=20, seqlen_k=30, dim=16):
    rng = np.random.default_rng(seed)
    shape = (batch, kv_heads, seqlen_k, dim)
    return random(rng, batch, heads, seqlen_q, dim), random(rng, *shape), random(rng, *shape)


def test_operations_are_those_of_the_pairs_that_are_seen():
    q, k, v = operands(dim=16)
    assert saccade.attention_flops(q, k, v) == 2 * 4 * 20 * 30 * 2 * (16 + 16)
    lengths, mask = np.array([30, 7]), np.zeros((20, 30), bool)
    options = {"causal": "bottom_right", "window": (5, -1), "kv_lengths": lengths, "mask": mask, "dropout_p": 0.5}
    pairs = sum(visible(20, n, causal="bottom_right", window=(5, -1)).sum() for n in lengths)
    assert saccade.attention_flops(q, k, v, **options) == 4 * pairs * 2 * (16 + 16)
    x = q[0].swapaxes(0, 1)  # [20, 4, 16]
    documents = {"cu_seqlens_q": [0, 5, 20], "cu_seqlens_k": [0, 5, 20], "causal": "top_left"}
    assert saccade.attention_flops(x, x, x, **documents) == 4 * (15 + 120) * 2 * (16 + 16)
    with pytest.raises(ValueError, match=r"\[attention_flops\] k has head_dim 8"):
        saccade.attention_flops(q, k[..., :8], v)
    with pytest.raises(TypeError, match="causual"):
        saccade.attention_flops(q, k, v, causual="top_left")


def test_options_mean_what_they_say():
    q, k, v = operands()
    rng = np.random.default_rng(1)
    j, i = np.arange(30)[None, :], np.arange(20)[:, None]
    slopes = saccade.alibi_slopes(4)
    bias = rng.standard_normal((4, 1, 30))
    keep = rng.random((20, 30)) < 0.7
    blocks = np.array([[True, False], [True, True]])
    lengths = np.array([30, 11])
    cases = [
        (dict(window=(3, 2)), dict(seen=visible(20, 30, window=(3, 2)))),
        (dict(window=4), dict(seen=visible(20, 30, window=(4, 4)))),
        (dict(query_offset=-3, causal="top_left"), dict(seen=visible(20, 30, causal="top_left", offset=-3))),
        (dict(query_offset=[5, 5], window=(2, 0)), dict(seen=visible(20, 30, window=(2, 0), offset=5))),
        (dict(scale=0.3, softcap=1.5), dict(scale=0.3, softcap=1.5)),
        (dict(alibi_slopes=slopes), dict(bias=-slopes[:, None, None] * np.abs(i - j))),
        (dict(sinks=[0.1, 2.0, -1.0, 0.0]), dict(sinks=np.array([0.1, 2.0, -1.0, 0.0]))),
        (dict(mask=keep), dict(seen=keep)),
        (dict(mask=bias.astype(np.float32)), dict(bias=bias.astype(np.float32))),
        (dict(mask=bias), dict(bias=bias)),
        (dict(mask=bias.astype(np.float16)), dict(bias=bias.astype(np.float16))),
        (dict(kv_lengths=lengths), dict(seen=(j < lengths[:, None])[:, None, None, :])),
        (dict(block_mask=blocks, block_mask_size=(10, 15)), dict(seen=np.kron(blocks, np.ones((10, 15))) > 0)),
        (dict(mask=keep, causal="bottom_right"), dict(seen=keep & visible(20, 30, causal="bottom_right"))),
    ]
    for given, meaning in cases:
        assert_close(saccade.attention(q, k, v, **given), q, k, v, **meaning)
        assert_close(saccade.decode(q, k, v, **given), q, k, v, **meaning)


def test_layouts_and_ranks_are_the_same_numbers():
    q, k, v = operands()
    o = saccade.attention(q, k, v)
    bshd = [x.swapaxes(1, 2) for x in (q, k, v)]
    for views in (bshd, [np.ascontiguousarray(x) for x in bshd]):
        np.testing.assert_array_equal(saccade.attention(*views, layout="bshd").swapaxes(1, 2), o)
    np.testing.assert_array_equal(saccade.attention(q[1], k[1], v[1]), o[1])
    np.testing.assert_array_equal(saccade.attention(q[1, 3], k[1, 1], v[1, 1]), o[1, 3])


def test_any_strides():
    q, k, v = operands()
    o = saccade.attention(q, k, v)
    reversed_rows = saccade.attention(q[:, :, ::-1], k, v)
    np.testing.assert_array_equal(reversed_rows, o[:, :, ::-1])
    spread = [np.repeat(x, 3, axis=-1)[..., ::3] for x in (q, k, v)]  # innermost stride 3
    out = np.zeros((2, 4, 20, 48), np.float32)
    assert saccade.attention(*spread, out=out[..., ::3]).base is out
    np.testing.assert_array_equal(out[..., ::3], o)
    assert not out[..., 1::3].any()
    np.testing.assert_array_equal(saccade.attention(*(np.asfortranarray(x) for x in (q, k, v))), o)


def test_returns_what_is_asked_for():
    q, k, v = operands()
    _, weights, lse = reference.attention(q, k, v, seen=visible(20, 30, causal="top_left"))
    o, got_lse, got_weights = saccade.attention(q, k, v, causal="top_left", return_lse=True, return_weights=True)
    eps = np.finfo(np.float32).eps
    np.testing.assert_allclose(got_lse, lse, atol=8 * eps * np.abs(lse).max())
    np.testing.assert_allclose(got_weights, weights, atol=16 * eps)
    assert saccade.attention(q, k, v, return_weights=True)[1].shape == (2, 4, 20, 30)
    bshd = [x.swapaxes(1, 2) for x in (q, k, v)]
    o, got_lse = saccade.attention(*bshd, causal="top_left", layout="bshd", return_lse=True)
    np.testing.assert_allclose(got_lse, lse, atol=8 * eps * np.abs(lse).max())
    out = np.empty((2, 4, 20, 16), np.float16)
    assert saccade.attention(q, k, v, causal="top_left", out=out) is out
    np.testing.assert_array_equal(out, np.float16(saccade.attention(q, k, v, causal="top_left")))


def test_rows_that_see_nothing_are_zero():
    q, k, v = operands()
    o, lse = saccade.attention(q, k, v, kv_lengths=[0, 30], return_lse=True)
    assert not o[0].any() and np.isneginf(lse[0]).all() and o[1].any()
    assert saccade.attention(q, k[:, :, :0], v[:, :, :0]).shape == q.shape
    assert saccade.attention(q[:, :, :0], k, v).shape == (2, 4, 0, 16)


def test_lists_are_arrays_too():
    x = [[0.43, 0.15, 0.89], [0.55, 0.87, 0.66], [0.57, 0.85, 0.64]]
    o = saccade.attention(x, x, x, scale=1.0)
    assert o.dtype == np.float64
    assert_close(o, x, x, x, scale=1.0)


def test_bfloat16_of_ml_dtypes():
    bfloat16 = pytest.importorskip("ml_dtypes", reason="ml_dtypes is not installed").bfloat16
    q, k, v = (x.astype(bfloat16) for x in operands())
    o = saccade.attention(q, k, v)
    assert o.dtype == bfloat16
    wanted = reference.attention(q, k, v)[0]
    # Weights and output are rounded to bf16, 2^-9 each at most.
    assert np.abs(o.astype(np.float64) - wanted).max() <= 2**-7 * np.abs(v.astype(np.float32)).max()


def test_score_mod_sees_every_tile_and_its_place():
    q, k, v = operands(seqlen_q=200, seqlen_k=300)
    bias = np.random.default_rng(3).standard_normal((2, 4, 200, 300))

    def add_bias(scores, batch, head, q_idx, kv_idx):
        assert scores.shape == (q_idx.shape[0], kv_idx.shape[1])
        return scores + bias[batch, head, q_idx, kv_idx]

    assert_close(saccade.attention(q, k, v, score_mod=add_bias), q, k, v, bias=bias)

    def causal(scores, batch, head, q_idx, kv_idx):
        scores[kv_idx > q_idx] = -np.inf
        return scores

    assert_close(saccade.attention(q, k, v, score_mod=causal), q, k, v, seen=visible(200, 300, causal="top_left"))


def test_what_score_mod_raises_arrives():
    q, k, v = operands(seqlen_q=300, seqlen_k=300)
    calls = itertools.count()

    def fail(*arguments):
        next(calls)
        raise LookupError("no such head")

    with pytest.raises(LookupError, match="no such head"):
        saccade.attention(q, k, v, score_mod=fail)
    assert next(calls) < 20  # score_mod does not get the other tiles
    with pytest.raises(ValueError):
        saccade.attention(q, k, v, score_mod=lambda scores, *rest: np.zeros((3, 3, 3)))
    with pytest.raises(ValueError, match="score_mod"):
        saccade.attention(q, k, v, score_mod="tanh")


def test_varlen_is_document_after_document():
    rng = np.random.default_rng(5)
    starts_q, starts_k = [0, 7, 7, 40], [0, 20, 30, 64]
    q, k, v = random(rng, 40, 4, 16), random(rng, 64, 2, 16), random(rng, 64, 2, 8)
    o, lse, weights = saccade.attention_varlen(
        q, k, v, starts_q, starts_k, causal="bottom_right", return_lse=True, return_weights=True
    )
    assert o.shape == (40, 4, 8) and lse.shape == (4, 40) and weights.shape == (4, 40, 34)
    for d in range(3):
        rows, keys = slice(*starts_q[d : d + 2]), slice(*starts_k[d : d + 2])
        alone = saccade.attention(q[rows], k[keys], v[keys], causal="bottom_right", layout="bshd")
        np.testing.assert_array_equal(o[rows], alone)
    same = saccade.attention_varlen(k, k, v, np.int32(starts_k))
    np.testing.assert_array_equal(same[20:30], saccade.attention(k[20:30], k[20:30], v[20:30], layout="bshd"))


def test_pages():
    q, k, v = operands(seqlen_q=1, seqlen_k=12)
    pages_k, pages_v = np.zeros((8, 2, 4, 16), np.float32), np.zeros((8, 2, 4, 16), np.float32)
    table = np.array([[5, 0, 3], [1, 7, 2]], np.int32)
    for b, p in itertools.product(range(2), range(3)):
        pages_k[table[b, p]], pages_v[table[b, p]] = k[b, :, 4 * p : 4 * p + 4], v[b, :, 4 * p : 4 * p + 4]
    paged = saccade.decode(q, pages_k, pages_v, block_table=table, kv_lengths=[12, 9])
    np.testing.assert_array_equal(paged, saccade.decode(q, k, v, kv_lengths=[12, 9]))


def test_merged_states_are_the_whole():
    q, k, v = operands()
    whole, lse = saccade.attention(q, k, v, return_lse=True)
    parts = [saccade.attention(q, k[:, :, s], v[:, :, s], return_lse=True) for s in (slice(0, 11), slice(11, 30))]
    o, merged_lse = saccade.merge_states(*parts[0], *parts[1])
    np.testing.assert_allclose(o, whole, atol=8e-7 * np.abs(v).max())
    np.testing.assert_allclose(merged_lse, lse, atol=8e-7 * np.abs(lse).max())


def test_dropout_follows_its_seed():
    q, k, v = operands(seqlen_q=64, seqlen_k=256)
    a, b, other = (saccade.attention(q, k, v, dropout_p=0.3, seed=s) for s in (1, 1, 2))
    np.testing.assert_array_equal(a, b)
    assert (a != other).any()
    _, weights = saccade.attention(q, k, v, dropout_p=0.3, seed=1, return_weights=True, weights_after_dropout=True)
    kept = (weights != 0).mean()
    assert abs(kept - 0.7) < 5 * (0.21 / weights.size) ** 0.5
    saccade.manual_seed(7)
    first, second = (saccade.attention(q, k, v, dropout_p=0.3) for _ in range(2))
    assert (first != second).any()
    saccade.manual_seed(7)
    np.testing.assert_array_equal(saccade.attention(q, k, v, dropout_p=0.3), first)


def test_results_do_not_depend_on_threads():
    q, k, v = operands(seqlen_q=300, seqlen_k=300, dim=64)
    one, many = (saccade.attention(q, k, v, num_threads=n) for n in (1, 5))
    np.testing.assert_array_equal(one, many)
    before = saccade.get_num_threads()
    saccade.set_num_threads(1)
    assert saccade.get_num_threads() == 1 == saccade.info()["num_threads"]
    saccade.set_num_threads(0)
    assert saccade.get_num_threads() == before
