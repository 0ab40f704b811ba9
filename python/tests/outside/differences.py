"""Compares what a check found with and without the patch, and names the differences that are meant."""

from __future__ import annotations

import pathlib
from typing import Any, Callable, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from .cases import Case

DOCUMENT = pathlib.Path(__file__).parents[3] / "docs" / "torch.md"


Others = Callable[[], "tuple[Any, Any]"]


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


class Permitted(NamedTuple):
    """A difference that is meant."""

    name: str
    why: str
    documented: str  #: a sentence of docs/torch.md
    fits: Callable[[Difference], bool]


def difference(case: Case, check: str, wanted: Any, got: Any, others: Others) -> Difference | None:
    """None where both are the same: equal results, or errors of the same kind.

    Equal is what ``torch.testing.assert_close`` takes for equal. In less than f64 that depends on how much cancels, so
    other results decide then: the exact ones (f64), and those of PyTorch's unfused kernel. The error may be three
    times that of PyTorch's two kernels and 16 eps of the largest number.

    :param others: gives the results of the exact and of the unfused call, or refusals.
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
            exact, unfused = (None if isinstance(z, Refusal) else pytree.tree_leaves(z)[i] for z in others())
            found = _of_errors(x, y, exact, unfused) if isinstance(exact, Tensor) else found
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


def _of_errors(got: Tensor, wanted: Tensor, exact: Tensor, unfused: Tensor | None) -> tuple[Any, ...] | None:
    ours, *theirs = (_error(x, exact) for x in (got, wanted, *(() if unfused is None else (unfused,))))
    unit = torch.finfo(got.dtype).eps * float(exact.abs().max())
    allowed = 3 * max(theirs) + 16 * unit
    if ours <= allowed:  # false for NaN
        return None
    text = f"error {ours:.3g}, PyTorch's {max(theirs):.3g}, allowed {allowed:.3g}"
    return "values", text, ours / unit if unit else torch.inf


def _error(x: Tensor, exact: Tensor) -> float:
    return float((x.double() - exact.double()).abs().max())


def undocumented(permitted: tuple[Permitted, ...]) -> list[str]:
    """The permitted differences whose sentence is not in docs/torch.md."""
    text = " ".join(DOCUMENT.read_text(encoding="utf-8").split())
    return [each.name for each in permitted if " ".join(each.documented.split()) not in text]
