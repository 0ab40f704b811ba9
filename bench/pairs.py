"""Checks whether this tree is slower than another revision. Times both alternately; script/bench calls it.

`pairs.py compare THIS OTHER` runs the command `saccade` of both for every sample, on problems of a file.
`pairs.py gate THIS OTHER` times the lines of bench/gate.txt with bench/timer.cpp, built against both libraries.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Callable, NamedTuple

Clock = Callable[[str], float]
"""Times the call of a line now and returns its seconds."""


class Pair(NamedTuple):
    """Seconds of the same line in both revisions, one right after the other."""

    this: float
    other: float


@dataclasses.dataclass(frozen=True)
class Rule:
    """How pairs are measured and judged. The limits are ratios of this tree to the other."""

    rounds: int  # every line is timed in each round
    samples: int  # of each revision in a round; the fastest counts, because noise only adds time
    certainty: float  # probability that the interval contains the true median
    notice: float  # an interval above it is reported
    limit: float  # an interval above it fails


COMPARE = Rule(rounds=9, samples=1, certainty=0.95, notice=1.0, limit=1.02)
# With intervals of 95 %, one or two of sixty lines would look slower by chance in every run.
GATE = Rule(rounds=20, samples=3, certainty=0.999, notice=1.01, limit=1.03)


class Judgement(NamedTuple):
    this: float  # median seconds
    other: float
    ratio: float  # the median of the pairs' ratios, between `low` and `high`
    low: float
    high: float

    def verdict(self, rule: Rule) -> str:
        if self.low > rule.limit:
            return "SLOWER"
        if self.low > rule.notice:
            return "a little slower"
        return "faster" if self.high < 1 else "same"


def rank(n: int, certainty: float) -> int:
    """The largest k for which the interval from the k-th smallest to the k-th largest of n ratios has this
    certainty: it misses the true median with a probability of 2 P(fewer than k of n fair coins show heads). 0: none."""
    k, term, tail = 0, 0.5**n, 0.0
    while 2 * (tail + term) <= 1 - certainty:
        tail += term
        k += 1
        term *= (n - k + 1) / k
    return k


def judge(pairs: list[Pair], certainty: float) -> Judgement:
    ratios = sorted(pair.this / pair.other for pair in pairs)
    k = rank(len(ratios), certainty)
    if k == 0:
        raise ValueError(f"{len(ratios)} pairs are too few for an interval of {100 * certainty:g} %")
    here, there = (statistics.median(side) for side in zip(*pairs))
    return Judgement(here, there, statistics.median(ratios), ratios[k - 1], ratios[-k])


def take_pairs(
    lines: list[str], start: Callable[[], AbstractContextManager[tuple[Clock, Clock]]], rule: Rule
) -> dict[str, list[Pair]]:
    """The pairs of each line, one per round. Every round times all lines, so that a slow minute of the machine
    affects each only a little, with new clocks from `start`; the two revisions take turns to go first."""
    pairs: dict[str, list[Pair]] = {line: [] for line in lines}
    for turn in range(rule.rounds):
        print(f"round {turn + 1} of {rule.rounds}", file=sys.stderr)
        with start() as clocks:
            for line in lines:
                samples: tuple[list[float], list[float]] = ([], [])
                for sample in range(rule.samples):
                    first = (turn + sample) % 2
                    for side in (first, 1 - first):
                        samples[side].append(clocks[side](line))
                pairs[line].append(Pair(min(samples[0]), min(samples[1])))
    return pairs


def print_table(found: dict[str, Judgement], rule: Rule, revision: str) -> None:
    width = max(len("problem"), *(len(line) for line in found))
    interval = f"{100 * rule.certainty:g} % interval"
    print(f"{'problem':{width}} {'this, ms':>10} {revision[:6] + ', ms':>10} {'ratio':>7}  {interval}")
    for line, of in found.items():
        print(
            f"{line:{width}} {1e3 * of.this:10.4g} {1e3 * of.other:10.4g} {of.ratio:7.3f}"
            f"  {of.low:.3f} to {of.high:.3f}  {of.verdict(rule)}"
        )


def report(found: dict[str, Judgement], rule: Rule, revision: str) -> int:
    """Prints the results and returns the exit status."""
    print_table(found, rule, revision)
    for floor in sorted({rule.notice, rule.limit}):
        count = sum(of.low > floor for of in found.values())
        by = f" by more than {100 * (floor - 1):.0f} %" if floor > 1 else ""
        print(f"slower than {revision}{by}, beyond the noise: {count} of {len(found)}")
    return int(any(of.low > rule.limit for of in found.values()))


def compare(lines: list[str], this: str, other: str, threads: int, rule: Rule) -> dict[str, Judgement]:
    """Times the command of each revision, with one process per sample."""
    with tempfile.TemporaryDirectory() as folder:
        shapes = pathlib.Path(folder) / "shapes.txt"

        def clock(command: str) -> Clock:
            def seconds(line: str) -> float:
                shapes.write_text(line + "\n")
                arguments = [command, "bench", "--shapes", str(shapes), "--threads", str(threads), "--quick", "--json"]
                done = subprocess.run(arguments, stdout=subprocess.PIPE)
                if done.returncode != 0:
                    raise RuntimeError(f"{command} bench failed on {line}")
                return float(json.loads(done.stdout)["sections"][0]["lines"][0]["seconds"])

            return seconds

        clocks = clock(this), clock(other)
        taken = take_pairs(lines, lambda: contextlib.nullcontext(clocks), rule)
    return {line: judge(pairs, rule.certainty) for line, pairs in taken.items()}


@contextlib.contextmanager
def timer(command: list[str], environment: dict[str, str] | None = None) -> Iterator[Clock]:
    """A process of bench/timer.cpp, or of another program that answers as it does."""
    variables = {**os.environ, **(environment or {})}
    with subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        requests, answers = process.stdin, process.stdout
        assert requests and answers

        def seconds(line: str) -> float:
            print(line, file=requests, flush=True)
            answer = answers.readline()
            try:
                return float(answer)
            except ValueError:
                raise RuntimeError(f"{command[-1]} on '{line}': {answer.strip() or 'no answer'}") from None

        yield seconds


def gate(lines: list[str], this: str, other: str, rule: Rule) -> dict[str, Judgement]:
    """Times with timers. Lines that look slower are measured again, and the new numbers count."""

    @contextlib.contextmanager
    def start() -> Iterator[tuple[Clock, Clock]]:
        with timer([this]) as here, timer([other]) as there:
            yield here, there

    def measure(these: list[str]) -> dict[str, Judgement]:
        return {line: judge(pairs, rule.certainty) for line, pairs in take_pairs(these, start, rule).items()}

    found = measure(lines)
    again = [line for line in lines if found[line].low > rule.notice]
    if again:
        print(f"measuring {len(again)} of {len(lines)} again", file=sys.stderr)
        found.update(measure(again))
    return found


def read_lines(path: str) -> list[str]:
    """The lines of a file without comments, each once."""
    lines = [line.split("#")[0].strip() for line in pathlib.Path(path).read_text().splitlines()]
    return list(dict.fromkeys(line for line in lines if line))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench/pairs.py")
    parser.add_argument("mode", choices=["compare", "gate"])
    parser.add_argument("this")
    parser.add_argument("other")
    parser.add_argument("--revision", required=True, help="the name of OTHER in what is printed")
    parser.add_argument("--lines", required=True, help="the file of problems")
    parser.add_argument("--only", default="", help="only lines with this text in them")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args(arguments)
    rule = COMPARE if given.mode == "compare" else GATE
    rule = dataclasses.replace(rule, rounds=given.rounds or rule.rounds)
    try:
        lines = [line for line in read_lines(given.lines) if given.only in line]
        if not lines:
            raise RuntimeError(f"{given.lines} has no problem in it" + (f" with '{given.only}'" if given.only else ""))
        if given.mode == "compare":
            found = compare(lines, given.this, given.other, given.threads, rule)
        else:
            found = gate(lines, given.this, given.other, rule)
    except (RuntimeError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    return report(found, rule, given.revision)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
