"""Calls that the ranks of a communicator make together: they agree first, and an error of one is an error of all."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from operator import index
from typing import Any, Callable, NamedTuple

from . import _core
from ._arguments import flag
from ._communicators import Communicator
from ._sharding import Method, ShardingLike, require_sharding, sharding_of


class ParallelConfig(NamedTuple):
    """How a call is divided, as the caller says it."""

    sharding: ShardingLike = "contiguous"
    kv_sharding: ShardingLike | None = None
    method: Method = "automatic"
    head_groups: int = 0
    chunk: int = 16384
    exact: bool = False

    def checked(self) -> Any:
        """The part of it that does not depend on lengths, for the compiled module."""
        require_sharding(self.sharding, "sharding")
        if self.kv_sharding is not None:
            require_sharding(self.kv_sharding, "kv_sharding")
        return _core.ParallelConfig(self.method, self.head_groups, self.chunk, flag(self.exact, "exact"))


class Prepared(NamedTuple):
    """What a rank brings to a call."""

    arguments: Any  # a _core.DistributedForward or _core.DistributedBackward
    rows: int  # of this rank
    keys: int
    seed: int | None = None  # of dropout; that of rank 0 is used where `draws`
    draws: bool = False
    may_fail: bool = False  # while computing: there is a score_mod
    computes: str = "run"  # the method of `arguments`
    flags: int = 0  # a bit for each of a function's `facts`: must be the same on every rank


_PREFACE = struct.Struct("<6q208s")  # kind of error, rows, keys, seed, flags, and whether rank 0's seed is used
_KINDS = (None, ValueError, TypeError, MemoryError, RuntimeError)
_NONE = Prepared(None, 0, 0)


def compute(
    communicator: Communicator,
    function: str,
    division: ParallelConfig,
    prepare: Callable[[], Prepared],
    facts: tuple[str, ...] = (),
) -> int | None:
    """Computes what `prepare` returns; the ranks call this together. Raises the same on every rank. Returns the seed of
    the dropout."""
    try:
        return _compute(communicator, function, division, prepare, facts)
    except BaseException as raised:
        if not isinstance(raised, Exception):  # Ctrl-C comes to one rank, and the others wait for it
            communicator._core.fail(type(raised).__name__)
        if communicator.failure:
            communicator.abort()
        raise


def _compute(
    communicator: Communicator,
    function: str,
    division: ParallelConfig,
    prepare: Callable[[], Prepared],
    facts: tuple[str, ...],
) -> int | None:
    own, error = _NONE, None
    try:
        core = division.checked()
        own = prepare()
    except Exception as raised:
        error = raised
    all_ranks = _agree(communicator, function, error, own)
    with _alone(communicator):
        _require_same(function, [of_rank[3] for of_rank in all_ranks], facts)
        lengths, key_lengths = ([of_rank[i] for of_rank in all_ranks] for i in (0, 1))
        rows = sharding_of(division.sharding, lengths)
        if division.kv_sharding is not None:
            keys = sharding_of(division.kv_sharding, key_lengths)
        else:
            keys = None if not isinstance(division.sharding, str) else sharding_of(division.sharding, key_lengths)
        seed = all_ranks[0][2] % 2**64 if own.draws else None
    getattr(own.arguments, own.computes)(communicator._core, core, rows, keys, seed)
    if own.may_fail:
        error = None
        try:
            own.arguments.rethrow()
        except Exception as raised:
            error = raised
        _agree(communicator, function, error, own)
    return own.seed if seed is None else seed


@contextmanager
def _alone(communicator: Communicator) -> Iterator[None]:
    """Marks the communicator as failed if memory runs out in the block, which the other ranks cannot know."""
    try:
        yield
    except MemoryError:
        communicator._core.fail("memory ran out")
        raise


def _agree(
    communicator: Communicator, function: str, error: Exception | None, own: Prepared
) -> list[tuple[int, int, int, int]]:
    """Rows, keys, seed and flags of every rank. Raises the error of the first rank that has one."""
    if communicator.size == 1 and error is not None:
        raise error
    with _alone(communicator):
        preface = _preface(error, own)
    found = communicator._core.exchange(preface)
    with _alone(communicator):
        all_ranks = [_PREFACE.unpack(of_rank) for of_rank in found]
    for rank, (kind, *_, message) in enumerate(all_ranks):
        if kind:
            words = message.rstrip(b"\0").decode(errors="ignore")
            raise (_KINDS[kind] or RuntimeError)(f"[{function}] rank {rank}: {words}") from error
    return [of_rank[1:5] for of_rank in all_ranks]


def _preface(error: Exception | None, own: Prepared) -> bytes:
    kind = 0
    if error is not None:
        kind = next((i for i, of in enumerate(_KINDS) if of is not None and isinstance(error, of)), len(_KINDS) - 1)
    text = "" if error is None else str(error)
    if error is not None and type(error) is not _KINDS[kind] and not isinstance(error, ValueError):
        text = f"{type(error).__name__}: {text}"
    text = re.sub(r"^\[[\w:]+\] ", "", text)
    seed = index(own.seed or 0) % 2**64
    signed = seed - 2**64 if seed >= 2**63 else seed
    return _PREFACE.pack(kind, own.rows, own.keys, signed, own.flags, own.draws, text.encode()[:208])


def _require_same(function: str, flags: list[int], facts: tuple[str, ...]) -> None:
    for rank, found in enumerate(flags):
        for bit, fact in enumerate(facts):
            if (found ^ flags[0]) >> bit & 1:
                raise ValueError(
                    f"[{function}] {fact} must be the same on every rank, but it is {bool(found >> bit & 1)} on rank "
                    f"{rank} and {bool(flags[0] >> bit & 1)} on rank 0"
                )
