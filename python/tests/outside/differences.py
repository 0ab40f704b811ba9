"""Compares what a check found with and without the patch, and names the differences that are meant."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Iterator
from typing import Any, Callable, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from .cases import Case

DOCUMENT = pathlib.Path(__file__).parents[3] / "docs" / "torch.md"


class Others(NamedTuple):
    """Further results of a check, computed when they are asked for."""

    exact: Callable[[], Any]  #: of the call in f64
    theirs: Callable[[], Iterator[Any]]  #: of PyTorch's unfused kernel, then of both for calls with other numbers


class Refusal(NamedTuple):
    """A check that ended with an exception."""

    error: BaseException

    def __str__(self) -> str:
        lines = [line for line in str(self.error).splitlines() if line.strip()]
        return f"{type(self.error).__name__}: {(lines or [''])[0][:300]}"


class Difference(NamedTuple):
    case: Case
    check: str
    kind: str  #: "values", "form" (shape, type, stride), "refused" or "error"
    text: str
    eps: float = 0.0  #: the error of values, in eps of the type times the largest number
    eps_of_all: float = 0.0  #: the same, times the largest number in all results


class Permitted(NamedTuple):
    """A difference that is meant."""

    name: str
    why: str
    documented: str  #: a sentence of docs/torch.md
    fits: Callable[[Difference], bool]
    of_dropout: bool = False  #: it must not be there if the same call drops nothing


def difference(case: Case, check: str, wanted: Any, got: Any, others: Others) -> Difference | None:
    """None where both are the same: equal results, or errors of the same kind.

    Equal is what ``torch.testing.assert_close`` takes for equal. In less than f64 that depends on how much cancels, so
    the errors decide then: the distances from the results of the same call in f64. Ours may be three times PyTorch's
    and 16 eps of the largest number. PyTorch's error is the largest of those of its two kernels and, since one of these
    may be small by chance, of the same kernels in calls with neighbours of the given numbers: roundings during the
    computation may have as much influence as those of what it begins with.
    """
    if isinstance(got, Refusal) and isinstance(wanted, Refusal):
        if isinstance(got.error, type(wanted.error)) or isinstance(wanted.error, NotImplementedError):
            return None  # what PyTorch has not implemented has no error of a kind to keep
        return Difference(case, check, "error", f"{got} in place of {wanted}")
    if isinstance(got, Refusal):
        return Difference(case, check, "refused", str(got))
    if isinstance(wanted, Refusal):
        return Difference(case, check, "taken", f"a result in place of {wanted}")
    ours, form = pytree.tree_flatten(got)
    theirs, other_form = pytree.tree_flatten(wanted)
    if form != other_form:
        return Difference(case, check, "form", f"{form} in place of {other_form}")
    for i, (x, y) in enumerate(zip(ours, theirs)):
        found = _of_leaves(x, y)
        if found and found[0] == "values" and isinstance(x, Tensor) and x.dtype is not torch.float64:
            exact = _leaf(others.exact(), i)
            more = (_leaf(z, i) for z in others.theirs())
            if isinstance(exact, Tensor):
                largest = max(_largest(z) for z in pytree.tree_leaves(others.exact()) if isinstance(z, Tensor))
                found = _of_errors(x, y, exact, more, largest)
        if found:
            return Difference(case, check, found[0], f"result {i}: {found[1]}", *found[2:])
    return None


def _of_leaves(got: Any, wanted: Any) -> tuple[Any, ...] | None:
    if not isinstance(wanted, Tensor):
        return None if got == wanted else ("values", f"{got} in place of {wanted}")
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        described = (f"{str(x.dtype)[6:]}{list(x.shape)}" for x in (got, wanted))
        return "form", " in place of ".join(described)
    try:
        torch.testing.assert_close(got, wanted, equal_nan=True)  # PyTorch's own tolerances of each type
    except AssertionError as error:
        return "values", " ".join(line for line in str(error).splitlines()[1:] if line.strip())
    return None


def _leaf(result: Any, i: int) -> Any:
    return None if isinstance(result, Refusal) else pytree.tree_leaves(result)[i]


def _of_errors(got: Tensor, wanted: Tensor, exact: Tensor, more: Iterator[Any], of_all: float) -> Any:
    ours, theirs = _error(got, exact), 0.0
    eps = torch.finfo(got.dtype).eps
    unit = eps * _largest(exact)
    for x in itertools.chain([wanted], more):
        if isinstance(x, Tensor):
            theirs = max(theirs, _error(x, exact))
        if ours <= 3 * theirs + 16 * unit:  # false for NaN
            return None
    text = f"error {ours:.3g}, PyTorch's {theirs:.3g}, allowed {3 * theirs + 16 * unit:.3g}"
    return "values", text, ours / unit if unit else torch.inf, ours / (eps * of_all) if of_all else torch.inf


def _largest(x: Tensor) -> float:
    return float(x.abs().max()) if x.numel() else 0.0


def _error(x: Tensor, exact: Tensor) -> float:
    return float((x.double() - exact.double()).abs().max())


def undocumented(permitted: tuple[Permitted, ...]) -> list[str]:
    """The permitted differences whose sentence is not in docs/torch.md."""
    text = " ".join(DOCUMENT.read_text(encoding="utf-8").split())
    return [each.name for each in permitted if " ".join(each.documented.split()) not in text]
