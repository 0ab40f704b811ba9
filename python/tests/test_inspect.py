"""inspect: statistics of the weights, compared with the weights themselves."""

import numpy as np
import pytest
import saccade

import reference
from reference import random, visible


def test_statistics_are_those_of_the_weights():
    rng = np.random.default_rng(0)
    q, k = random(rng, 2, 4, 30, 16, dtype=np.float64), random(rng, 2, 2, 40, 16, dtype=np.float64)
    seen = visible(30, 40, causal="bottom_right")
    _, w, lse = reference.attention(q, k, k, seen=seen)
    found = saccade.inspect(
        q,
        k,
        causal="bottom_right",
        rows=[3, 0],
        top_k=2,
        entropy=True,
        max_weight=True,
        received=True,
        distance=True,
        pool=(3, 4),
    )
    close = {"atol": 1e-13}
    np.testing.assert_allclose(found.rows, w[:, :, [3, 0]], **close)
    np.testing.assert_array_equal(found.top_keys, np.argsort(-w, -1, kind="stable")[..., :2])
    np.testing.assert_allclose(found.top_weights, -np.sort(-w, -1)[..., :2], **close)
    np.testing.assert_allclose(found.entropy, -(w * np.log(np.where(w > 0, w, 1))).sum(-1), **close)
    np.testing.assert_allclose(found.max_weight, w.max(-1), **close)
    np.testing.assert_allclose(found.received, w.sum(-2), atol=1e-12)
    reach = np.abs(np.arange(30)[:, None] + 10 - np.arange(40))
    np.testing.assert_allclose(found.distance, (w * reach).sum(-1), atol=1e-12)
    np.testing.assert_allclose(found.mean_distance, (w * reach).sum(-1).mean(-1), atol=1e-12)
    np.testing.assert_allclose(found.pooled, w.reshape(2, 4, 3, 10, 4, 10).mean((3, 5)), **close)
    largest = saccade.inspect(q, k, causal="bottom_right", pool=(3, 4), pooling="max", lse=lse)
    np.testing.assert_allclose(largest.pooled, w.reshape(2, 4, 3, 10, 4, 10).max((3, 5)), **close)
    assert largest.entropy is None and largest.rows is None


def test_memory_is_that_of_the_answer():
    rng = np.random.default_rng(1)
    q, k = random(rng, 20000, 16), random(rng, 20000, 16)  # the matrix would take 1.6 GB
    found = saccade.inspect(q, k, received=True, pool=(8, 8), causal="top_left", window=(100, -1))
    assert found.received.sum() == pytest.approx(20000, rel=1e-5)
    assert found.pooled.shape == (8, 8)


@pytest.mark.parametrize(
    "wrong, text",
    [
        ({"rows": [30]}, "rows"),
        ({"rows": [0.5]}, "rows"),
        ({"rows": [1, 1]}, "rows"),
        ({"top_k": -1}, "top_k"),
        ({"pool": (3, 0)}, "^the sizes of pool must both be 0 or both be above, got 3 and 0"),
        ({"pool": (3, 0.5)}, "^pool: expected an integer"),
        ({"k": np.ones((30, 8))}, "^q and k must both be float64 or neither, but they are float32 and float64"),
        ({"pooling": "median"}, "pooling"),
        ({"lse": np.zeros(3)}, "lse"),
        ({"mask": np.zeros((2, 2))}, "mask"),
    ],
)
def test_refusals_name_the_argument(wrong, text):
    q = np.ones((30, 8), np.float32)
    with pytest.raises(ValueError, match=text):
        saccade.inspect(**{"q": q, "k": q, "entropy": True, **wrong})
