"""saccade.backend(): which back end computes the calls of a block."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import saccade

X = np.random.default_rng(1).standard_normal((8, 64, 64)).astype(np.float32)


def test_a_block_computes_by_its_back_end() -> None:
    on_cpu = saccade.attention(X, X, X)
    with saccade.backend("reference") as entered:
        assert isinstance(entered, saccade.backend)
        assert saccade.info()["active_backend"] == "reference"
        exact = saccade.attention(X, X, X)
        with saccade.backend("cpu"):
            assert np.array_equal(saccade.attention(X, X, X), on_cpu)
        assert np.array_equal(saccade.attention(X, X, X), exact)
    assert saccade.info()["active_backend"] == "cpu"
    assert np.array_equal(saccade.attention(X, X, X), on_cpu)
    assert not np.array_equal(exact, on_cpu)


def test_other_threads_keep_theirs() -> None:
    found: list[str] = []
    with saccade.backend("reference"):
        thread = threading.Thread(target=lambda: found.append(saccade.info()["active_backend"]))
        thread.start()
        thread.join()
    assert found == ["cpu"]


def test_a_block_ends_with_its_exception() -> None:
    with pytest.raises(KeyError), saccade.backend("reference"):
        raise KeyError
    assert saccade.info()["active_backend"] == "cpu"


def test_back_ends_are_listed_and_others_refused() -> None:
    assert saccade.info()["available_backends"] == ["cpu", "reference"]
    with pytest.raises(ValueError, match="expected one of cpu, reference, .* got 'gpu'"):
        saccade.backend("gpu")
