"""What the processor offers and how much of it is used."""

from __future__ import annotations

from typing import Any

from ._core import info as _info
from ._core import num_threads as _num_threads
from ._core import release_workspaces as _release_workspaces
from ._core import set_num_threads as _set_num_threads


def info() -> dict[str, Any]:
    """What this is and what it runs on: ``version``; ``cpu``, the processor's name, "" where it has none; the
    instruction sets ``built_isas``, ``available_isas`` (both slowest first) and ``active_isa``, of "scalar", "avx2",
    "avx512" and "avx512bf16"; and ``num_threads``, as :func:`num_threads` says."""
    return _info()


def num_threads() -> int:
    """The threads of a call that asks for none: those of the last :func:`set_num_threads`, by default OpenMP's
    (``OMP_NUM_THREADS``, or one a core)."""
    return _num_threads()


def set_num_threads(num_threads: int) -> None:
    """Sets the threads of further calls, in every thread of Python. Results do not depend on it.

    :param num_threads: 0: OpenMP's default.
    :raises ValueError: for a negative number, and for what is no integer.
    """
    _set_num_threads(num_threads)


def release_workspaces() -> None:
    """Frees the scratch memory that is kept between calls. Calls in progress keep theirs."""
    _release_workspaces()
