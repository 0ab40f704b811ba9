"""Old names work and give a DeprecationWarning at the caller's line; causal=True is refused where it is ambiguous."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import saccade
from saccade import _options, distributed

RNG = np.random.default_rng(7)
X = RNG.standard_normal((2, 3, 4, 8), dtype=np.float32)
ROWS_FIRST = np.ascontiguousarray(X.swapaxes(1, 2))


def cache(k, layout):
    result = saccade.KvCache(batch=2, num_kv_heads=3, head_dim=8)
    result.append(k, k, layout=layout)
    return result.nbytes


OLD_AND_NEW = {
    "layout of attention": lambda old: saccade.attention(
        *(ROWS_FIRST,) * 3, return_lse=True, layout="blhd" if old else "bshd"
    )[1],
    "layout of decode": lambda old: saccade.decode(X, X, X, layout="bhld" if old else "bhsd"),
    "layout of inspect": lambda old: (
        saccade.inspect(ROWS_FIRST, ROWS_FIRST, entropy=True, layout="blhd" if old else "bshd").entropy
    ),
    "layout of merge_states": lambda old: saccade.merge_states(
        *(ROWS_FIRST, np.zeros((2, 3, 4), np.float32)) * 2, layout="blhd" if old else "bshd"
    )[0],
    "layout of rotate": lambda old: saccade.Rope(8).rotate(ROWS_FIRST, layout="blhd" if old else "bshd"),
    "layout of append": lambda old: cache(ROWS_FIRST, "blhd" if old else "bshd"),
    "layout of distributed": lambda old: distributed.attention(
        *(ROWS_FIRST,) * 3, comm=distributed.local_communicators(1)[0], layout="blhd" if old else "bshd"
    ),
    "base": lambda old: saccade.Rope(8, **{"base" if old else "theta": 500.0}).rotate(X),
    "num_threads": lambda old: saccade.num_threads() if old else saccade.get_num_threads(),
    "attention_operations": lambda old: (
        saccade.attention_operations(X, X, X, causal="top_left")
        if old
        else saccade.attention_flops(X, X, X, causal="top_left")
    ),
}


@pytest.mark.parametrize("name", OLD_AND_NEW)
def test_old_names_work_and_warn_at_the_caller(name):
    call = OLD_AND_NEW[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wanted = call(False)
    with pytest.warns(DeprecationWarning, match="deprecated; use ") as caught:
        found = call(True)
    np.testing.assert_array_equal(found, wanted)
    assert [warning.filename for warning in caught] == [__file__]


def test_dir_has_public_names_only():
    names = set(dir(saccade))
    assert set(saccade.__all__) <= names
    assert {"distributed", "__version__"} <= names
    assert not {"num_threads", "attention_operations", "annotations", "importlib", "Any"} & names
    assert [name for name in names if name.startswith("_")] == ["__version__"]


def test_rope_refuses_other_keywords_and_names_theta():
    with pytest.raises(TypeError, match="unexpected keyword argument 'bases'"):
        saccade.Rope(8, bases=3.0)
    with pytest.raises(ValueError, match="theta"):
        saccade.Rope(8, theta=-1.0)


def test_the_old_name_of_audio_warns():
    with pytest.warns(DeprecationWarning, match="use audio"), pytest.raises((ValueError, RuntimeError)):
        saccade.look("nowhere", sound=[0.0])
    with pytest.raises(TypeError, match="unexpected keyword argument 'noise'"):
        saccade.look("nowhere", noise=[0.0])


# ---- causal ----------------------------------------------------------------------------------------------------------


def refused():
    return pytest.raises(ValueError, match="causal: .*'top_left'.*PyTorch.*'bottom_right'.*flash-attn")


def test_causal_true_is_refused():
    assert "top_left" in _options.CAUSAL_CHOICES
    for function in (saccade.attention, saccade.decode, saccade.attention_flops):
        with refused():
            function(X, X, X, causal=True)
    with refused():
        saccade.KvCache(num_kv_heads=3, head_dim=8, causal="top_left")
    full = saccade.KvCache(batch=2, num_kv_heads=3, head_dim=8)
    full.append(X, X)
    with refused():
        full.attention(X, causal=True)


def test_the_compiled_module_says_the_same():
    with pytest.raises(ValueError) as caught:
        saccade.attention(X, X, X, causal=True)
    assert str(caught.value).endswith(_options.CAUSAL_CHOICES)


@pytest.mark.parametrize("causal", [True, "bottom_right"])
def test_a_cache_is_aligned_at_the_last_key(causal):
    made = saccade.KvCache(batch=2, num_kv_heads=3, head_dim=8, causal=causal)
    made.append(X, X)
    wanted = saccade.attention(X[:, :, -1:], X, X, causal="bottom_right")
    np.testing.assert_array_equal(made.attention(X[:, :, -1:]), wanted)


@pytest.mark.parametrize("causal", [False, None])
def test_a_cache_without_causal_shows_all_keys(causal):
    made = saccade.KvCache(batch=2, num_kv_heads=3, head_dim=8, causal=causal)
    made.append(X, X)
    np.testing.assert_array_equal(made.attention(X[:, :, :1]), saccade.attention(X[:, :, :1], X, X))


@pytest.mark.parametrize("by_itself", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_modules_refuse_to_guess_the_alignment(by_itself, batch_first):
    layer = saccade.nn.MultiHeadAttention(8, 8, num_heads=2, causal=by_itself, batch_first=batch_first, seed=1)
    x = RNG.standard_normal((2, 5, 8), dtype=np.float32)
    query = x[:, :3]
    if not batch_first:
        x, query = x.swapaxes(0, 1), query.swapaxes(0, 1)
    given = {} if by_itself else {"causal": True}
    with refused():
        layer(query, x, x, **given)
    with refused():
        layer.steps(query, x, x, **given)
    layer(query, query, query, **given)  # as many keys as queries
    for alignment, offset in {"top_left": 0, "bottom_right": 2}.items():
        _, weights = layer(query, x, x, causal=alignment, return_weights=True)
        np.testing.assert_array_equal(weights[0, 0] > 0, np.tri(3, 5, offset, dtype=bool))
    with pytest.raises(ValueError, match="causal: expected True, False, 'top_left' or 'bottom_right', got 'left'"):
        layer(query, x, x, causal="left")


def test_the_alignment_counts_padding_as_keys():
    layer = saccade.nn.MultiHeadAttention(8, 8, num_heads=2, seed=1)
    x = RNG.standard_normal((1, 5, 8), dtype=np.float32)
    ends = np.arange(5)[None] < 4  # the last key is padding
    _, weights = layer(x[:, :3], x, x, key_mask=ends, causal="bottom_right", return_weights=True)
    np.testing.assert_array_equal(weights[0, 0] > 0, np.tri(3, 5, 2, dtype=bool) & ends)


def test_backward_follows_the_alignment():
    layer = saccade.nn.MultiHeadAttention(8, 8, num_heads=2, seed=1)
    x = RNG.standard_normal((1, 5, 8), dtype=np.float32)
    out = layer(x[:, :3], x, x, causal="bottom_right")
    gradients = layer.backward(np.ones_like(out))
    hidden = layer(x[:, :3], x, x, mask=np.tri(3, 5, 2, dtype=bool))
    np.testing.assert_allclose(out, hidden, atol=1e-6)
    wanted = layer.backward(np.ones_like(out))
    np.testing.assert_allclose(gradients.key, wanted.key, atol=1e-5)
