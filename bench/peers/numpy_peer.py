"""NumPy: the published walk-through as it would be written without a framework."""

from __future__ import annotations

import functools

import numpy as np

from .inputs import LOOP_WIDTH, LoopInputs
from .peer import Call, Unsupported, Way
from .problem import Problem

TITLE = "NumPy"
DISTRIBUTIONS = ("numpy",)


def start(threads: int) -> None:
    """Does nothing: environment variables have set the number of threads."""


def ways(problem: Problem) -> list[Way]:
    if problem.kind != "loop":
        raise Unsupported("no attention; by hand it holds the whole matrix")
    return [Way("products, exp, sum", _loop)]


def _published(x: np.ndarray, W_query: np.ndarray, W_key: np.ndarray, W_value: np.ndarray) -> np.ndarray:
    queries, keys, values = x @ W_query, x @ W_key, x @ W_value
    scores = queries @ keys.T / LOOP_WIDTH**0.5
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True) @ values


def _loop(inputs: LoopInputs) -> Call:
    run = functools.partial(_published, inputs.x, inputs.W_query, inputs.W_key, inputs.W_value)
    return Call(run, lambda o: {"o": o})
