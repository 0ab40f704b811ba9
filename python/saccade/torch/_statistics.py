"""What happened to the calls of PyTorch's functions under a patch: computed here, or passed on and why."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from types import FrameType
from typing import Any, NamedTuple

import torch
import torch.overrides
from torch.utils import _device


class CallSite(NamedTuple):
    """Where a function of PyTorch was called."""

    function: str
    """The function of PyTorch, such as ``scaled_dot_product_attention``."""
    file: str
    """The file of the caller."""
    line: int
    """The line of the call in that file."""

    def __str__(self) -> str:
        return f"{self.function} at {self.file}:{self.line}"


class Statistics(NamedTuple):
    """How often what happened. ``print()`` shows it as a table."""

    taken: dict[CallSite, int]
    """How many calls saccade computed, by where they were made."""
    passed_on: dict[tuple[CallSite, str], int]
    """How many calls went to PyTorch, by where they were made and the reason."""

    def since(self, earlier: Statistics) -> Statistics:
        """What is in these statistics and not in earlier ones.

        :param earlier: what :func:`statistics` returned before.
        """
        return Statistics(_difference(self.taken, earlier.taken), _difference(self.passed_on, earlier.passed_on))

    def __str__(self) -> str:
        taken, passed_on = sum(self.taken.values()), sum(self.passed_on.values())
        lines = [f"saccade.torch: {_calls(taken)} computed, {_calls(passed_on)} passed on to PyTorch"]
        lines += [f"{n:9}  computed   {site}" for site, n in _by_number(self.taken)]
        lines += [f"{n:9}  passed on  {site}: {why}" for (site, why), n in _by_number(self.passed_on)]
        return "\n".join(lines)


def statistics() -> Statistics:
    """The calls of patched functions since the program began, of all patches. A handle's
    :meth:`~saccade.torch.Patch.statistics` counts from when it came into force.

    What a function of ``torch.compile`` calls is not counted. With ``SACCADE_LOG=1`` in the environment the statistics
    are printed to standard error when the program ends.
    """
    return Statistics(_read(_taken), _read(_passed_on))


# By function, file and line of the caller, and the reason where it was passed on. (Not by the caller's code object: it
# would be kept alive, and two files with the same lines have equal ones.)
_Key = tuple[str, str, int, str]
_taken: dict[_Key, int] = {}
_passed_on: dict[_Key, int] = {}
_lock = threading.Lock()

# The files that hand a call on to itself, under modes and for subclasses, and the folder with context_parallel().
_PATCH = os.path.join(os.path.dirname(__file__), "_patch.py")
_INNER = frozenset((torch.overrides.__file__, torch._tensor.__file__, _device.__file__, _PATCH))
_EXPERIMENTAL = os.path.join(os.path.dirname(torch.__file__), "distributed", "tensor", "experimental", "")


def count(function: str, reason: str | None = None) -> None:
    """Counts a call of a patched function, which calls this one: as passed on if there is a reason."""
    file, line = "no Python", 0
    try:
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and _is_inner(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is not None:
            file, line = frame.f_code.co_filename, frame.f_lineno
    except ValueError:  # called by a thread without a Python function
        pass
    key = (function, file, line, reason or "")
    counters = _passed_on if reason else _taken
    with _lock:
        counters[key] = counters.get(key, 0) + 1


def _is_inner(file: str) -> bool:
    return file in _INNER or file.startswith(_EXPERIMENTAL)


def _read(counters: dict[_Key, int]) -> Any:
    with _lock:
        items = list(counters.items())
    return {
        ((CallSite(function, file, line), reason) if reason else CallSite(function, file, line)): n
        for (function, file, line, reason), n in items
    }


def _difference(later: dict[Any, int], earlier: dict[Any, int]) -> Any:
    return {key: n - earlier.get(key, 0) for key, n in later.items() if n > earlier.get(key, 0)}


def _by_number(numbers: dict[Any, int]) -> list[tuple[Any, int]]:
    return sorted(numbers.items(), key=lambda item: -item[1])


def _calls(n: int) -> str:
    return f"{n} call" if n == 1 else f"{n} calls"


if os.environ.get("SACCADE_LOG", "0") not in ("", "0"):
    atexit.register(lambda: print(statistics(), file=sys.stderr))
