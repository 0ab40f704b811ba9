"""The processor, back ends, the number of threads and scratch memory."""

from __future__ import annotations

from typing import Any

from ._core import BackendScope as _BackendScope
from ._core import info as _info
from ._core import num_threads as _num_threads
from ._core import release_workspaces as _release_workspaces
from ._core import set_num_threads as _set_num_threads
from ._options import warn_deprecated


def info() -> dict[str, Any]:
    """The version and the machine: ``version``; ``cpu``, the processor's name, "" if it is unknown; the
    instruction sets ``built_isas``, ``available_isas`` (both slowest first) and ``active_isa``, of "scalar", "avx2",
    "avx512", "avx512bf16" and "avx512amx", on 64-bit Arm "scalar", "neon" and "neonbf16"; ``available_backends`` and
    ``active_backend``, which :class:`backend` chooses; ``num_threads``, as from :func:`get_num_threads`; and
    ``threading_layer``, what starts the threads of calls: "openmp", "std" or "none"."""
    return _info()


class backend:  # noqa: N801 (a context manager with a small name, as torch.no_grad)
    """Chooses what computes the calls inside a ``with``, in this thread::

        with saccade.backend("reference"):
            o = saccade.attention(q, k, v)  # in double precision: is that number right?

    :param names: "cpu", the processor's kernels; "reference", attention and matrix products in double precision, step
        by step; or a list in order, "reference,cpu": each call takes the first that supports it.
        Outside, the environment variable ``SACCADE_BACKEND`` decides; without it, "cpu".
    :raises ValueError: for a name that does not exist.
    """

    def __init__(self, names: str) -> None:
        if not isinstance(names, str):
            raise ValueError(f"names: expected a str, got {type(names).__name__}")
        self._scope = _BackendScope(names.encode("utf-8", "replace").decode())

    def __enter__(self) -> backend:
        self._scope.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._scope.__exit__(*exception)


def get_num_threads() -> int:
    """The default number of threads of a call: that of the last :func:`set_num_threads`, initially
    ``OMP_NUM_THREADS``, or one for each processor that the process may use."""
    return _num_threads()


def num_threads() -> int:
    """The old name of :func:`get_num_threads`."""
    warn_deprecated("saccade.num_threads is deprecated; use get_num_threads")
    return get_num_threads()


def set_num_threads(num_threads: int) -> None:
    """Sets the default number of threads of later calls, in all Python threads. Results do not depend on it.

    :param num_threads: 0: the number before the first call.
    :raises ValueError: for a negative number or a value that is not an integer.
    """
    _set_num_threads(num_threads)


def release_workspaces() -> None:
    """Frees the scratch memory that is kept between calls. Calls in progress keep theirs."""
    _release_workspaces()
