"""What a file ``NAME_peer.py`` defines: a library, and the ways in which it can compute a problem.

    TITLE = "PyTorch"                  # its name in the tables
    DISTRIBUTIONS = ("torch",)         # packages whose versions are reported

    def start(threads: int) -> None: ...                   # sets the number of threads
    def ways(problem: Problem) -> list[Way]: ...           # how it can compute the problem; raises Unsupported
    def release() -> None: ...                             # optional: frees memory kept between calls
    def details() -> dict[str, str]: ...                   # optional: facts for the page; saccade's "isa"

If there are several ways, the fastest counts: include each way that an experienced user of the library would try.
Everything that can be done before the call (other layouts and dtypes of the inputs, masks, compilation, memory for
results) is not timed.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterable
from typing import Any, Callable, NamedTuple

import numpy as np

from .inputs import Inputs
from .machine import last_level_cache
from .problem import Problem


class Unsupported(Exception):
    """A library cannot compute a problem; the message says why."""


class Call(NamedTuple):
    """A prepared problem."""

    run: Callable[[], Any]
    """Computes it once, waits for the end and returns the result."""
    results: Callable[[Any], dict[str, np.ndarray]]
    """The arrays in a result of ``run``, by the names of :func:`peers.reference.expected_results`."""
    context: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    """The context in which ``run`` is called, any number of times."""


class Way(NamedTuple):
    """One way to compute a problem."""

    name: str
    prepare: Callable[[Any], Call]
    """Takes the inputs from :func:`peers.inputs.draw`; raises Unsupported."""


MOST_BYTES = 2**30  # of the caches of one way


def cache_count(problem: Problem) -> int:
    """How many equal caches the calls of a problem with ``cache=`` read by turns, as a model with so many layers
    does: together at least four times the last-level cache, so that little of a cache is still there at its turn."""
    size = problem.kv_bytes()
    return max(2, math.ceil(min(4 * last_level_cache(), MOST_BYTES) / size))


def by_turns(runs: Iterable[Callable[[], Any]]) -> Callable[[], Any]:
    """Calls one of them each time, one after the other, and begins again."""
    turns = itertools.cycle(runs)
    return lambda: next(turns)()


def rows_of_group(inputs: Inputs) -> np.ndarray:
    """q with the query heads that share keys as rows of one head, [batch, num_kv_heads, group, head_dim]: the same
    products, with k and v read once, for libraries that do not do this themselves.

    :raises Unsupported: if the heads do not see all keys of their batch entry.
    """
    p = inputs.problem
    if p.num_heads == p.num_kv_heads or p.seqlen_q != 1 or p.causal == "top_left" or p.has_window or p.mask:
        raise Unsupported("query heads cannot be rows")
    return inputs.q.reshape(p.batch, p.num_kv_heads, p.num_heads // p.num_kv_heads, p.head_dim)
