"""Which rows of a sequence each rank holds."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, Literal, Union

import numpy as np

from . import _core
from ._arguments import shown
from ._options import require_known


class Sharding:
    """Which rows (or keys) of a sequence each rank holds: for each rank runs ``(begin, end)`` of consecutive rows. A
    rank's array has its rows in the order of its runs, one run after the other; :meth:`indices` lists them.

    In a packed batch the sequence is all documents, one after the other; otherwise every batch entry is divided in the
    same way. Ranks may have different numbers of rows, or none.

    :param runs: for each rank a list of runs in ascending order; every row must be in one run.
    :raises ValueError: for runs that overlap or leave gaps, negative lengths and less than one rank.
    """

    def __init__(self, runs: Sequence[Sequence[tuple[int, int]]]) -> None:
        try:
            self._core = _core.Sharding([[(index(begin), index(end)) for begin, end in of_rank] for of_rank in runs])
        except TypeError:
            raise ValueError(f"runs: expected a list of (begin, end) for each rank, got {shown(runs)}") from None

    @classmethod
    def _of(cls, core: Any) -> Sharding:
        sharding = cls.__new__(cls)
        sharding._core = core
        return sharding

    @classmethod
    def contiguous(cls, length: int, ranks: int) -> Sharding:
        """One run for each rank, as equal as possible.

        :param length: rows of the sequence.
        :param ranks: how many ranks.
        :raises ValueError: for a negative length and less than one rank.
        """
        return cls._of(_core.Sharding.contiguous(length, ranks))

    @classmethod
    def zigzag(cls, length: int, ranks: int) -> Sharding:
        """2 * ranks runs, as equal as possible; rank r has the r-th and the r-th from the end. With a causal mask every
        rank has nearly the same work. PyTorch calls it head-tail.

        :param length: rows of the sequence.
        :param ranks: how many ranks.
        :raises ValueError: for a negative length and less than one rank.
        """
        return cls._of(_core.Sharding.zigzag(length, ranks))

    @classmethod
    def striped(cls, length: int, ranks: int, stripe: int = 512) -> Sharding:
        """Runs of as many rows, dealt out in turn.

        :param length: rows of the sequence.
        :param ranks: how many ranks.
        :param stripe: rows of a run, at least 1.
        :raises ValueError: for numbers out of their range.
        """
        return cls._of(_core.Sharding.striped(length, ranks, stripe))

    @classmethod
    def balanced(cls, seqlen_q: int, seqlen_k: int, ranks: int, **options: Any) -> Sharding:
        """One run for each rank, cut so that all have the same number of pairs of a row and a key that it sees.

        :param seqlen_q: rows of the whole problem.
        :param seqlen_k: its keys.
        :param ranks: how many ranks.
        :param options: those of the whole problem that hide keys: ``causal``, ``window``, ``query_offset``,
            ``kv_lengths``, ``kv_starts``, ``cu_seqlens_q`` and ``cu_seqlens_k``.
        """
        require_known(options, "Sharding.balanced")
        return cls._of(_core.Sharding.balanced(seqlen_q, seqlen_k, ranks, options))

    @classmethod
    def of_runs(cls, runs: Sequence[Sequence[tuple[int, int]]]) -> Sharding:
        """The same as ``Sharding(runs)``.

        :param runs: for each rank a list of runs ``(begin, end)`` in ascending order.
        """
        return cls(runs)

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return self._core.ranks()

    @property
    def length(self) -> int:
        """The number of rows of the sequence."""
        return self._core.length()

    @property
    def runs(self) -> list[list[tuple[int, int]]]:
        """The runs of each rank, in ascending order."""
        return self._core.runs()

    def rows(self, rank: int) -> int:
        """The number of rows of a rank.

        :param rank: its number, from 0 on.
        """
        return sum(end - begin for begin, end in self.runs[rank])

    def indices(self, rank: int) -> np.ndarray:
        """The rows of a rank in the order in which its array has them: ``x[..., sharding.indices(rank), :]`` is its
        part of x.

        :param rank: its number, from 0 on.
        :returns: int64 [rows].
        """
        return np.concatenate([np.arange(0), *(np.arange(begin, end) for begin, end in self.runs[rank])])

    def __eq__(self, other: object) -> bool:
        return self.runs == other.runs if isinstance(other, Sharding) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(map(tuple, self.runs)))

    def __reduce__(self) -> Any:
        return Sharding, (self.runs,)

    def __repr__(self) -> str:
        return f"<saccade.distributed.Sharding of {self.length} rows among {self.ranks} ranks>"


ShardingLike = Union[Sharding, Literal["contiguous", "zigzag"]]
Method = Literal["automatic", "gather", "heads", "grid", "stream", "ring", "pass_q"]


def require_sharding(given: Any, name: str) -> None:
    """Raises ValueError for what is no sharding."""
    if not isinstance(given, Sharding) and not (isinstance(given, str) and given in ("contiguous", "zigzag")):
        raise ValueError(f"{name}: expected 'contiguous', 'zigzag' or a Sharding, got {shown(given)}")


def sharding_of(given: ShardingLike, lengths: Sequence[int]) -> Any:
    """What the compiled module calls a sharding. ``lengths``: how many rows each rank has."""
    if isinstance(given, Sharding):
        return given._core
    if given == "zigzag":
        return _core.Sharding.zigzag(sum(lengths), len(lengths))
    ends = np.cumsum(lengths).tolist()
    return _core.Sharding([[(end - length, end)] if length else [] for end, length in zip(ends, lengths)])
