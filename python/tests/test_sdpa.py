"""scaled_dot_product_attention with NumPy arrays: PyTorch's meaning without PyTorch."""

import numpy as np
import pytest
import saccade

from reference import assert_close, random, visible

sdpa = saccade.scaled_dot_product_attention


def operands(lead, seqlen_q=9, seqlen_k=13, dim=8, kv_lead=None, seed=0):
    rng = np.random.default_rng(seed)
    kv = (*(lead if kv_lead is None else kv_lead), seqlen_k, dim)
    return random(rng, *lead, seqlen_q, dim), random(rng, *kv), random(rng, *kv)


@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (2, 2, 3), (2, 1, 2, 3)])
@pytest.mark.parametrize("is_causal", [False, True])
def test_any_number_of_leading_dimensions(lead, is_causal):
    q, k, v = operands(lead)
    o = sdpa(q, k, v, is_causal=is_causal, scale=0.4)
    assert_close(o, q, k, v, scale=0.4, seen=visible(9, 13, causal="top_left" if is_causal else None))


def test_leading_dimensions_broadcast():
    q, k, v = operands((2, 3), kv_lead=(1, 3))
    wide = [np.broadcast_to(x, (2, 3, 13, 8)) for x in (k, v)]
    assert_close(sdpa(q, k, v), q, *wide)
    q, k, v = operands((2, 2, 3), kv_lead=(3,))
    assert_close(sdpa(q, k, v), q, *(np.broadcast_to(x, (2, 2, 3, 13, 8)) for x in (k, v)))


@pytest.mark.parametrize("lead", [(0,), (2, 0), (2, 3, 0), (0, 2, 3), (2, 0, 1, 3)])
def test_nothing_along_a_leading_dimension(lead):
    q, k, v = operands(lead)
    assert sdpa(q, k, v).shape == q.shape


def test_gqa():
    q, k, v = operands((2, 6), kv_lead=(2, 2))
    assert_close(sdpa(q, k, v, enable_gqa=True), q, k, v)
    with pytest.raises(ValueError, match="key: batch and heads"):
        sdpa(q, k, v)


@pytest.mark.parametrize("shape", [(13,), (9, 13), (9, 1), (3, 9, 13), (2, 1, 9, 13), (2, 3, 1, 13), (1, 1, 1, 1)])
@pytest.mark.parametrize("floating", [False, True])
def test_masks_of_every_rank(shape, floating):
    q, k, v = operands((2, 3))
    rng = np.random.default_rng(1)
    if floating:
        mask = random(rng, *shape)
        assert_close(sdpa(q, k, v, mask), q, k, v, bias=mask)
    else:
        mask = rng.random(shape) < 0.8
        assert_close(sdpa(q, k, v, attn_mask=mask), q, k, v, seen=np.broadcast_to(mask, (2, 3, 9, 13)))


def test_mask_over_more_than_two_leading_dimensions():
    q, k, v = operands((2, 4, 3))
    mask = np.random.default_rng(2).random((4, 1, 9, 13)) < 0.7
    assert_close(sdpa(q, k, v, mask), q, k, v, seen=mask)


def test_few_rows_are_the_same():
    q, k, v = operands((2, 3), seqlen_q=1, seqlen_k=700, dim=64)
    assert_close(sdpa(q, k, v), q, k, v)


def test_dropout():
    q, k, v = operands((2, 3), seqlen_q=40, seqlen_k=200)
    saccade.manual_seed(3)
    a = sdpa(q, k, v, dropout_p=0.5)
    saccade.manual_seed(3)
    np.testing.assert_array_equal(sdpa(q, k, v, dropout_p=0.5), a)
    assert not sdpa(q, k, v, dropout_p=1.0).any()


@pytest.mark.parametrize(
    "change, text",
    [
        ({"attn_mask": np.ones((9, 13), bool), "is_causal": True}, "attn_mask: is_causal=True excludes a mask"),
        ({"attn_mask": np.ones((9, 13), int)}, "attn_mask: expected bool"),
        ({"attn_mask": np.ones((4, 13), bool)}, "attn_mask must broadcast"),
        ({"key": np.ones((2, 3, 13, 7), np.float32)}, "key has head_dim 7"),
        ({"key": None}, "key: expected an array, got None"),
        ({"query": np.float32([1, 2])}, "query: expected"),
        ({"dropout_p": -0.1}, "dropout_p"),
        ({"dropout_p": np.array([0.1, 0.2])}, "dropout_p: expected a number"),
        ({"dropout_p": 1.0, "value": np.ones((2, 3, 4, 8), np.float32)}, "value has seqlen 4"),
        ({"is_causal": np.zeros(2)}, "is_causal: expected True or False"),
        ({"enable_gqa": np.zeros(2)}, "enable_gqa: expected True or False"),
    ],
)
def test_refusals_name_the_argument(change, text):
    q, k, v = operands((2, 3))
    arguments = {"query": q, "key": k, "value": v, **change}
    with pytest.raises(ValueError, match=text):
        sdpa(**arguments)


def test_masks_that_do_not_broadcast():
    q, k, v = operands((2, 4, 3))
    with pytest.raises(ValueError, match=r"attn_mask: .* does not broadcast to \[2, 4, 3, seqlen_q, seqlen_k\]"):
        sdpa(q, k, v, np.ones((2, 2, 1, 9, 13), bool))
