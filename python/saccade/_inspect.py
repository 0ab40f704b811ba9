"""What attention looks at, without the matrix."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from . import _core
from ._arrays import as_array, dtype_name, precision, returned
from ._attention import AttentionOptions, require_known
from ._sdpa import renamed

if sys.version_info >= (3, 11):
    from typing import Unpack
elif TYPE_CHECKING:
    from typing_extensions import Unpack


# pool is two arguments for the library.
_POOL = {"pool_rows and pool_keys": "the sizes of pool", "pool_rows": "pool", "pool_keys": "pool"}


@dataclass(frozen=True)
class Inspection:
    """What :func:`inspect` has found; what was not asked for is None. f32, or f64 for f64 inputs."""

    rows: Any = None
    """The weights of the rows asked for: [batch, heads, rows, seqlen_k]."""
    top_keys: Any = None
    """[batch, heads, seqlen_q, top_k], largest weight first; -1 where a row has fewer keys of weight > 0."""
    top_weights: Any = None
    """The weights of ``top_keys``."""
    entropy: Any = None
    """[batch, heads, seqlen_q], in nats: ln n where n keys share the row evenly, 0 where one has it all."""
    max_weight: Any = None
    """The largest weight of each row: [batch, heads, seqlen_q]."""
    received: Any = None
    """The attention that each key receives, its column's sum: [batch, heads, seqlen_k]."""
    distance: Any = None
    """How far each row looks, the sum of weight * |p - j|: [batch, heads, seqlen_q]."""
    mean_distance: Any = None
    """Its mean over each head's rows: [batch, heads]."""
    pooled: Any = None
    """A map of the whole matrix: [batch, heads, *pool]."""


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
    what is asked for: also for sequences whose matrix fits nowhere.

    Shapes of q and k as for :func:`saccade.attention`; batch comes before heads in the results whatever the layout, and
    axes that q does not have are left out.

    :param rows: query rows whose weights are wanted in full.
    :param top_k: that many keys with the largest weights of each row.
    :param entropy, max_weight, received, distance: whether these are wanted; see :class:`Inspection`.
    :param pool: the size (rows, keys) of a map of the whole matrix, whose cells pool the weights that fall into them.
    :param pooling: how: their "mean" or their "max".
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
            raise ValueError(f"pool: wanted two sizes, (rows, keys), got {len(sizes)}")
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
    except Exception as error:  # whatever it raises instead of handing out its items
        raise ValueError(f"{name}: wanted a list of integers, got {type(values).__name__}") from error
