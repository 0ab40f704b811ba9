"""Gradients: against finite differences of the reference in f64, and against f64 for the other types."""

import numpy as np
import pytest
import saccade

import reference
from reference import random, visible


def loss(dout, *operands, **options):
    return float((reference.attention(*operands, **options)[0] * dout).sum())


def difference(function, x, direction, step=1e-5):
    return (function(x + step * direction) - function(x - step * direction)) / (2 * step)


@pytest.mark.parametrize(
    "given, meaning",
    [
        ({}, {}),
        ({"causal": "bottom_right"}, {"seen": visible(5, 9, causal="bottom_right")}),
        ({"window": (2, 1)}, {"seen": visible(5, 9, window=(2, 1))}),
        ({"softcap": 1.3, "scale": 0.7}, {"softcap": 1.3, "scale": 0.7}),
    ],
)
def test_gradients_are_slopes(given, meaning):
    rng = np.random.default_rng(0)
    q, k, v = (random(rng, 2, h, n, d, dtype=np.float64) for h, n, d in ((4, 5, 6), (2, 9, 6), (2, 9, 3)))
    dout = random(rng, 2, 4, 5, 3, dtype=np.float64)
    o, lse = saccade.attention(q, k, v, return_lse=True, **given)
    gradients = saccade.attention_backward(q, k, v, o, lse, dout, **given)
    for index, gradient in enumerate(gradients[:3]):
        direction = random(rng, *gradient.shape, dtype=np.float64)

        def along(x, index=index):
            operands = [q, k, v]
            operands[index] = x
            return loss(dout, *operands, **meaning)

        slope = difference(along, (q, k, v)[index], direction)
        assert (gradient * direction).sum() == pytest.approx(slope, rel=1e-6)


def test_gradients_of_mask_sinks_and_slopes():
    rng = np.random.default_rng(1)
    q, k, v = (random(rng, 2, 3, n, 4, dtype=np.float64) for n in (5, 6, 6))
    dout = random(rng, 2, 3, 5, 4, dtype=np.float64)
    bias, sinks = random(rng, 3, 1, 6, dtype=np.float64), random(rng, 3)
    slopes = saccade.alibi_slopes(3)
    distance = np.abs(np.arange(5)[:, None] - np.arange(6)[None, :])
    options = {"mask": bias, "sinks": sinks, "alibi_slopes": slopes}
    o, lse = saccade.attention(q, k, v, return_lse=True, **options)
    found = saccade.attention_backward(
        q, k, v, o, lse, dout, return_dmask=True, return_dsinks=True, return_dalibi_slopes=True, **options
    )
    assert found.dmask.shape == (3, 1, 6) and found.dsinks.shape == found.dalibi_slopes.shape == (3,)

    def value(bias, sinks, slopes):
        return loss(dout, q, k, v, bias=bias - slopes[:, None, None] * distance, sinks=sinks)

    for index, gradient in enumerate((found.dmask, found.dsinks, found.dalibi_slopes)):
        inputs = [bias, sinks.astype(np.float64), slopes.astype(np.float64)]
        direction = random(rng, *gradient.shape, dtype=np.float64)

        def along(x, index=index, inputs=inputs):
            return value(*(x if at == index else other for at, other in enumerate(inputs)))

        assert (gradient * direction).sum() == pytest.approx(difference(along, inputs[index], direction), rel=1e-6)
    assert saccade.attention_backward(q, k, v, o, lse, dout, **options).dmask is None


def test_a_loss_may_read_lse():
    rng = np.random.default_rng(7)
    q, k, v = (random(rng, 2, 3, n, 4, dtype=np.float64) for n in (5, 6, 6))
    dout, dlse, sinks = (
        random(rng, 2, 3, 5, 4, dtype=np.float64),
        random(rng, 2, 3, 5, dtype=np.float64),
        random(rng, 3),
    )
    o, lse = saccade.attention(q, k, v, return_lse=True, sinks=sinks)
    found = saccade.attention_backward(q, k, v, o, lse, dout, dlse=dlse, return_dsinks=True, sinks=sinks)
    inputs = [q, k, v, sinks.astype(np.float64)]
    for index, gradient in enumerate((found.dq, found.dk, found.dv, found.dsinks)):
        direction = random(rng, *gradient.shape, dtype=np.float64)

        def along(x, index=index):
            *operands, logits = (x if at == index else other for at, other in enumerate(inputs))
            o, _, lse = reference.attention(*operands, sinks=logits)
            return float((o * dout).sum() + (lse * dlse).sum())

        assert (gradient * direction).sum() == pytest.approx(difference(along, inputs[index], direction), rel=1e-6)
    with pytest.raises(ValueError, match="dlse must have shape"):
        saccade.attention_backward(q, k, v, o, lse, dout, dlse=dlse[0], sinks=sinks)


def test_dropout_drops_the_same_again():
    rng = np.random.default_rng(2)
    q, k, v, dout = (random(rng, 1, 2, 40, 8, dtype=np.float64) for _ in range(4))
    options = {"dropout_p": 0.4, "seed": 11}
    o, lse, weights = saccade.attention(
        q, k, v, return_lse=True, return_weights=True, weights_after_dropout=True, **options
    )
    np.testing.assert_allclose(weights @ v, o, atol=1e-14)
    gradients = saccade.attention_backward(q, k, v, o, lse, dout, **options)
    np.testing.assert_allclose(gradients.dv, weights.swapaxes(-1, -2) @ dout, atol=1e-13)
    with pytest.raises(ValueError, match="seed"):
        saccade.attention_backward(q, k, v, o, lse, dout, dropout_p=0.4)


def test_score_mod_has_a_derivative():
    rng = np.random.default_rng(3)
    q, k, v, dout = (random(rng, 1, 1, 70, 8, dtype=np.float64) for _ in range(4))

    def cap(scores, batch, head, q_idx, kv_idx):
        return 0.8 * np.tanh(scores / 0.8)

    def cap_backward(scores, gradients, batch, head, q_idx, kv_idx):
        return gradients * (1 - np.tanh(scores / 0.8) ** 2)

    o, lse = saccade.attention(q, k, v, return_lse=True, score_mod=cap)
    got = saccade.attention_backward(q, k, v, o, lse, dout, score_mod=cap, score_mod_backward=cap_backward)
    wanted = saccade.attention_backward(q, k, v, o, lse, dout, softcap=0.8)
    for a, b in zip(got[:3], wanted[:3]):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_packed_documents():
    rng = np.random.default_rng(4)
    q, k, v, dout = (random(rng, 30, 2, 8, dtype=np.float64) for _ in range(4))
    starts = [0, 12, 30]
    o, lse = saccade.attention_varlen(q, k, v, starts, causal="top_left", return_lse=True)
    packed = saccade.attention_backward(
        q, k, v, o, lse, dout, causal="top_left", cu_seqlens_q=starts, cu_seqlens_k=starts
    )
    for rows in (slice(0, 12), slice(12, 30)):
        one = {"causal": "top_left", "layout": "bshd"}
        alone = saccade.attention_backward(
            q[rows], k[rows], v[rows], o[rows], np.ascontiguousarray(lse[:, rows]), dout[rows], **one
        )
        for a, b in zip(packed[:3], alone[:3]):
            np.testing.assert_array_equal(a[rows], b)


def test_halves_have_the_bits_of_the_whole():
    rng = np.random.default_rng(9)
    q, k, v, dout = (random(rng, 2, h, n, 8) for h, n in ((4, 150), (2, 300), (2, 300), (4, 150)))
    sinks = random(rng, 4)
    options = {"causal": "bottom_right", "sinks": sinks, "return_dsinks": True}
    o, lse = saccade.attention(q, k, v, causal="bottom_right", sinks=sinks, return_lse=True)
    whole = saccade.attention_backward(q, k, v, o, lse, dout, **options)
    rows = saccade.attention_backward(q, k, v, o, lse, dout, return_dk_dv=False, **options)
    keys = saccade.attention_backward(q, k, v, o, lse, dout, return_dq=False, **options)
    assert rows.dk is None and rows.dv is None and keys.dq is None
    for half, names in ((rows, ("dq", "dsinks")), (keys, ("dk", "dv", "dsinks"))):
        for name in names:
            np.testing.assert_array_equal(getattr(half, name), getattr(whole, name))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_narrow_types_are_near_f64(dtype):
    rng = np.random.default_rng(6)
    q, k, v, dout = (random(rng, 2, 2, 50, 16, dtype=dtype) for _ in range(4))
    o, lse = saccade.attention(q, k, v, causal="top_left", return_lse=True)
    got = saccade.attention_backward(q, k, v, o, lse, dout, causal="top_left")
    wide = [x.astype(np.float64) for x in (q, k, v, dout)]
    wide_o, wide_lse = saccade.attention(*wide[:3], causal="top_left", return_lse=True)
    wanted = saccade.attention_backward(*wide[:3], wide_o, wide_lse, wide[3], causal="top_left")
    for a, b in zip(got[:3], wanted[:3]):
        assert a.dtype == dtype
        assert np.abs(a - b).max() <= 16 * np.finfo(dtype).eps * np.abs(b).max()
