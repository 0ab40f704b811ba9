"""Runs each check with and without the patch; see :mod:`outside`."""

from __future__ import annotations

import argparse
import collections
import contextlib
import functools
import io
import logging
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import saccade.torch
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from .cases import Case, all_cases
from .checks import ALL_TYPES, CHECKS, Check
from .differences import Difference, Others, Permitted, Refusal, difference, undocumented
from .meant import PERMITTED


class Row(NamedTuple):
    """What one check found."""

    check: Check
    counts: collections.Counter[str]
    named: collections.Counter[str]
    unnamed: list[Difference]
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(prog="script/outside", description=__doc__)
    parser.add_argument("--only", default="", metavar="TEXT,...", help="the checks with one of these in their name")
    parser.add_argument("--samples", default="", metavar="TEXT", help="the samples with this in their name")
    parser.add_argument("--verbose", action="store_true", help="all differences, not three of each kind")
    arguments = parser.parse_args()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # the samples are small
    cases = {dtype: [case for case in all_cases(dtype) if arguments.samples in case.name] for dtype in ALL_TYPES}
    print(f"PyTorch {torch.__version__}, {sum(map(len, cases.values()))} calls of its samples", flush=True)
    heads = f"{'calls':>7}{'equal':>7}{'neither':>8}{'named':>7}{'differ':>7}{'computed':>10}{'passed on':>10}"
    print(f"{'check':28}{heads}", flush=True)
    rows = []
    for check in CHECKS:
        if any(text in check.name for text in arguments.only.split(",")):
            rows.append(_run(check, [case for dtype in check.dtypes for case in cases[dtype]]))
            print(_line(rows[-1]), flush=True)
    return _report(rows, arguments.verbose)


def _run(check: Check, cases: list[Case]) -> Row:
    row = Row(check, collections.Counter(), collections.Counter(), [], 0.0)
    start = time.monotonic()
    for case in _some([case for case in cases if check.takes(case)], check.at_most):
        got, found, now = _compared(check, case)
        row.counts.update(calls=1, computed=sum(now.taken.values()), passed_on=sum(now.passed_on.values()))
        if found is None:
            row.counts["neither" if isinstance(got, Refusal) else "equal"] += 1
            continue
        reason = _reason(check, found)
        row.counts["named" if reason else "differ"] += 1
        if reason:
            row.named[reason.name] += 1
        else:
            row.unnamed.append(found)
    return row._replace(seconds=time.monotonic() - start)


def _compared(check: Check, case: Case) -> tuple[Any, Difference | None, saccade.torch.Statistics]:
    """The result with the patch, how it differs, and what happened to the calls."""
    wanted = _outcome(check, case)
    with saccade.torch.patch() as patch:
        got = _outcome(check, case)
        now = patch.statistics()
    if isinstance(wanted, Refusal) and not isinstance(got, Refusal):
        wanted = _unfused(check, case)  # what PyTorch's fused kernel cannot do its other one may
    others = Others(functools.partial(_exact, check, case), functools.partial(_theirs, check, case))
    return got, difference(case, check.name, wanted, got, others), now


def _reason(check: Check, found: Difference) -> Permitted | None:
    for each in PERMITTED:
        if each.fits(found):
            if not each.of_dropout:
                return each
            without = _compared(check, found.case.without_dropout())[1]
            if without is None or _reason(check, without):
                return each
    return None


def _exact(check: Check, case: Case) -> Any:
    return _unfused(check, case.in_f64())


def _theirs(check: Check, case: Case) -> Iterator[Any]:
    yield _unfused(check, case)
    for seed in range(4):
        beside = case.beside(seed)
        yield _outcome(check, beside)
        yield _unfused(check, beside)


def _unfused(check: Check, case: Case) -> Any:
    with sdpa_kernel(SDPBackend.MATH):
        return _outcome(check, case)


def _some(cases: list[Case], at_most: int) -> list[Case]:
    """At most so many cases of each subject and type, evenly among them."""
    groups: dict[Any, list[Case]] = {}
    for case in cases:
        groups.setdefault((case.subject, case.dtype), []).append(case)
    chosen = []
    for group in groups.values():
        count = min(at_most, len(group))
        chosen += [group[i * len(group) // count] for i in range(count)]
    return chosen


def _outcome(check: Check, case: Case) -> Any:
    torch.manual_seed(0)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return check.run(case)
    except NameError:  # of the checks themselves
        raise
    except Exception as error:
        return Refusal(error)


def _line(row: Row) -> str:
    of = row.counts
    numbers = f"{of['calls']:7}{of['equal']:7}{of['neither']:8}{of['named']:7}{of['differ']:7}"
    return f"{row.check.name:28}{numbers}{of['computed']:10}{of['passed_on']:10}   {row.seconds:.1f} s"


def _report(rows: list[Row], verbose: bool) -> int:
    named = sum((row.named for row in rows), collections.Counter())
    print("\nDifferences that are meant:")
    for each in PERMITTED:
        print(f"{named[each.name]:6}  {each.name}: {each.why}")
    missing = undocumented(PERMITTED)
    for name in missing:
        print(f"docs/torch.md lacks the sentence of '{name}'")
    empty = [row.check.name for row in rows if row.counts["calls"] and row.counts["calls"] == row.counts["neither"]]
    for check in empty:
        print(f"'{check}' checks nothing: all its calls are errors")
    unnamed = [found for row in rows for found in row.unnamed]
    print(f"\nDifferences that are not: {len(unnamed)}")
    shown: collections.Counter[Any] = collections.Counter()
    for found in unnamed:
        kind = (found.check, found.case.subject, found.kind, found.text[:60])
        shown[kind] += 1
        if verbose or shown[kind] <= 3:
            print(f"  {found.check}: {found.case.subject} {found.case.name}\n      {found.kind}: {found.text}")
    return 1 if unnamed or missing or empty else 0


if __name__ == "__main__":
    sys.exit(main())
