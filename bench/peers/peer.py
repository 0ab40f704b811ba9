"""What a file ``NAME_peer.py`` has: a library, and the ways in which it can do a problem.

    TITLE = "PyTorch"                  # as the tables call it
    DISTRIBUTIONS = ("torch",)         # whose versions are reported

    def start(threads: int) -> None: ...                   # makes it use so many threads from now on
    def ways(problem: Problem) -> list[Way]: ...           # how it can do the problem; raises Unsupported
    def release() -> None: ...                             # optional: frees what it keeps between calls

Of several ways the fastest counts: put in whatever a user who knows the library well would try. Whatever can be done
before the call (other layouts and dtypes of the inputs, masks, compilation, memory for results) is not timed.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, NamedTuple

import numpy as np

from .inputs import Inputs


class Unsupported(Exception):
    """A library cannot do a problem; says why."""


class Call(NamedTuple):
    """A problem made ready."""

    run: Callable[[], Any]
    """Does it once, to the end, and returns what it gives."""
    results: Callable[[Any], dict[str, np.ndarray]]
    """What ``run`` has returned, by the names of :func:`peers.reference.expected_results`."""
    context: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext
    """What ``run`` is called in, any number of times."""


class Way(NamedTuple):
    """One way to do a problem."""

    name: str
    prepare: Callable[[Any], Call]
    """Takes :class:`peers.inputs.Inputs` or what else is drawn for the problem; raises Unsupported."""


def rows_of_group(inputs: Inputs) -> np.ndarray:
    """q with the query heads that share keys as rows of one head, [batch, num_kv_heads, group, head_dim]: the same
    products, with k and v read once, for libraries that do not see to it themselves.

    :raises Unsupported: where the heads do not see all keys of their batch entry.
    """
    p = inputs.problem
    if p.num_heads == p.num_kv_heads or p.seqlen_q != 1 or p.causal == "top_left" or p.has_window or p.mask:
        raise Unsupported("query heads cannot be rows")
    return inputs.q.reshape(p.batch, p.num_kv_heads, p.num_heads // p.num_kv_heads, p.head_dim)
