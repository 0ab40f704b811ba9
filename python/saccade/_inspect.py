"""Statistics of attention weights, without storing their matrix."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from . import _core
from ._arrays import as_array, dtype_name, precision, returned
from ._options import AttentionOptions, require_known, takes
from ._sdpa import renamed

if sys.version_info >= (3, 11):
    from typing import Unpack
elif TYPE_CHECKING:
    from typing_extensions import Unpack


# The library has two arguments for pool.
_POOL = {"pool_rows and pool_keys": "the sizes of pool", "pool_rows": "pool", "pool_keys": "pool"}


@dataclass(frozen=True)
class Inspection:
    """The results of :func:`inspect`; those that were not requested are None. f32, or f64 for f64 inputs."""

    rows: Any = None
    """The weights of the requested rows: [batch, heads, rows, seqlen_k]."""
    top_keys: Any = None
    """[batch, heads, seqlen_q, top_k], largest weight first; -1 where a row has fewer keys of weight > 0."""
    top_weights: Any = None
    """The weights of ``top_keys``."""
    entropy: Any = None
    """[batch, heads, seqlen_q], in nats: ln n if n keys have equal weights, 0 if one key has all the weight."""
    max_weight: Any = None
    """The largest weight of each row: [batch, heads, seqlen_q]."""
    received: Any = None
    """The attention that each key receives, the sum of its column: [batch, heads, seqlen_k]."""
    distance: Any = None
    """The mean distance from each row to its keys, the sum of ``weight * |p - j|``: [batch, heads, seqlen_q]."""
    mean_distance: Any = None
    """The mean of ``distance`` over the rows of each head: [batch, heads]."""
    pooled: Any = None
    """A map of the whole matrix: ``[batch, heads, *pool]``."""


@takes(AttentionOptions)
def inspect(
    q: Any,
    k: Any,
    *,
    rows: Sequence[int] | None = None,
    top_k: int = 0,
    entropy: bool = False,
    max_weight: bool = False,
    received: bool = False,
    distance: bool = False,
    pool: tuple[int, int] | None = None,
    pooling: Literal["mean", "max"] = "mean",
    lse: Any = None,
    **options: Unpack[AttentionOptions],
) -> Inspection:
    """Statistics of the weights that :func:`saccade.attention` would use, at its speed and in memory proportional to
    the results: also for sequences whose matrix would not fit in memory.

    In the results, batch comes before heads for every layout, and axes that q does not have are left out.

    :param q: queries, [batch, heads, seqlen_q, head_dim], as for :func:`saccade.attention`.
    :param k: keys, [batch, kv_heads, seqlen_k, head_dim].
    :param rows: query rows whose weights are wanted in full.
    :param top_k: the number of keys with the largest weights to return for each row.
    :param entropy, max_weight, received, distance: whether these are wanted; see :class:`Inspection`.
    :param pool: the size (rows, keys) of a map of the whole matrix, whose cells pool the weights that fall into them.
    :param pooling: whether a cell is the "mean" or the "max" of its weights.
    :param lse: what attention() returned as lse for the same q, k and options; saves half of the work.
    :param options: those of :class:`saccade.AttentionOptions`. Dropout does not apply.
    :raises ValueError: for arguments that do not fit; names the argument.
    """
    require_known(options, "inspect")
    q, k = as_array(q, "q"), as_array(k, "k")
    wanted: dict[str, Any] = {
        "top_k": top_k,
        "entropy": entropy,
        "max_weight": max_weight,
        "received": received,
        "distance": distance,
        "pooling": pooling,
    }
    if rows is not None:
        wanted["rows"] = _numbers(rows, "rows")
    if lse is not None:
        wanted["lse"] = lse
    if pool is not None:
        sizes = _numbers(pool, "pool")
        if len(sizes) != 2:
            raise ValueError(f"pool: expected two sizes, (rows, keys), got {len(sizes)}")
        wanted["pool_rows"], wanted["pool_keys"] = sizes
    if precision(q) != precision(k):
        raise ValueError(f"q and k must both be float64 or neither, but they are {dtype_name(q)} and {dtype_name(k)}")
    try:
        found = _core.inspect(q, k, wanted, {**options})
    except ValueError as error:
        raise renamed(error, _POOL) from None
    return Inspection(**{name: returned(q, array) for name, array in found.items()})


def _numbers(values: Any, name: str) -> list[Any]:
    try:
        return list(values)
    except Exception as error:  # iterating over the values may raise anything
        raise ValueError(f"{name}: expected a list of integers, got {type(values).__name__}") from error
