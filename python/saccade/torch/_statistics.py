"""What happened to the calls of PyTorch's functions under a patch: computed here, or passed on and why."""

from __future__ import annotations

import atexit
import itertools
import os
import sys
from types import CodeType
from typing import Any, NamedTuple


class CallSite(NamedTuple):
    """Where a function of PyTorch was called."""

    function: str  #: the function of PyTorch, such as ``scaled_dot_product_attention``
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.function} at {self.file}:{self.line}"


class Statistics(NamedTuple):
    """How often what happened. ``print()`` shows it as a table."""

    taken: dict[CallSite, int]  #: calls that saccade computed
    passed_on: dict[tuple[CallSite, str], int]  #: calls that went to PyTorch, with the reason

    def since(self, earlier: Statistics) -> Statistics:
        """What is in these statistics and not in earlier ones."""
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


# The key of a call: function, code and line of the caller, and the reason where it was passed on. A counter's next()
# cannot lose a call of another thread.
_Key = tuple[str, CodeType, int, str]
_taken: dict[_Key, Any] = {}
_passed_on: dict[_Key, Any] = {}


def count_taken(function: str) -> None:
    """Counts a call of a patched function, which calls this one, as computed here."""
    frame = sys._getframe(2)
    key = (function, frame.f_code, frame.f_lineno, "")
    try:
        next(_taken[key])
    except KeyError:
        next(_taken.setdefault(key, itertools.count()))


def count(function: str, reason: str | None) -> None:
    """The same, as passed on if there is a reason."""
    frame = sys._getframe(2)
    counters = _passed_on if reason else _taken
    next(counters.setdefault((function, frame.f_code, frame.f_lineno, reason or ""), itertools.count()))


def _read(counters: dict[_Key, Any]) -> Any:
    result: dict[Any, int] = {}
    for (function, code, line, reason), counter in list(counters.items()):
        site = CallSite(function, code.co_filename, line)
        key = (site, reason) if reason else site
        result[key] = result.get(key, 0) + counter.__reduce__()[1][0]
    return result


def _difference(later: dict[Any, int], earlier: dict[Any, int]) -> Any:
    return {key: n - earlier.get(key, 0) for key, n in later.items() if n > earlier.get(key, 0)}


def _by_number(numbers: dict[Any, int]) -> list[tuple[Any, int]]:
    return sorted(numbers.items(), key=lambda item: -item[1])


def _calls(n: int) -> str:
    return f"{n} call" if n == 1 else f"{n} calls"


if os.environ.get("SACCADE_LOG", "0") not in ("", "0"):
    atexit.register(lambda: print(statistics(), file=sys.stderr))
