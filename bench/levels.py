"""Checks that no instruction set of this processor loses to a lower one; script/bench --levels calls it.

Times the lines of bench/levels.txt with bench/timer.cpp on every available level (SACCADE_ISA) in turns, and beside
PyTorch (bench/torch_timer.py) if a Python that has it is given. The highest level is the one that calls choose.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import pathlib
import statistics
import subprocess
import sys
from collections.abc import Iterator

from pairs import Clock, Judgement, Pair, judge, read_lines, timer

TORCH = "PyTorch"
ROUNDS, SAMPLES = 9, 3
LIMIT = 1.03  # a ratio to a lower level whose whole interval is above it fails
HOPELESS = 1.5  # a level this many times slower in the first round is not timed again

Times = dict[str, list[float]]  # seconds of a line by the name of the clock, one per round


def expand(line: str) -> list[str]:
    """A line for each combination of the values that its words list, separated by commas; windows are one value."""
    words = [
        [word] if "," not in word or word.startswith("window=") else [f"{key}={value}" for value in values.split(",")]
        for word in line.split()
        for key, _, values in [word.partition("=")]
    ]
    return [" ".join(choice) for choice in itertools.product(*words)]


@contextlib.contextmanager
def start(levels: list[str], program: str, python: str | None) -> Iterator[dict[str, Clock]]:
    """A timer for each level, and one for PyTorch."""
    with contextlib.ExitStack() as running:
        clocks = {level: running.enter_context(timer([program], {"SACCADE_ISA": level})) for level in levels}
        if python:
            other = str(pathlib.Path(__file__).with_name("torch_timer.py"))
            clocks[TORCH] = running.enter_context(timer([python, other], {"OMP_NUM_THREADS": "1"}))
        yield clocks


def measure(lines: list[str], levels: list[str], program: str, python: str | None, rounds: int) -> dict[str, Times]:
    """Every round times all lines, so that a slow minute of the machine affects each only a little."""
    found: dict[str, Times] = {line: {} for line in lines}
    for turn in range(rounds):
        print(f"round {turn + 1} of {rounds}", file=sys.stderr)
        with start(levels, program, python) as clocks:
            for line in lines:
                times = found[line]
                names = [name for name in clocks if turn == 0 or name in times and not is_hopeless(times, name)]
                for name, seconds in sample(line, {name: clocks[name] for name in names}).items():
                    times.setdefault(name, []).append(seconds)
    return found


def sample(line: str, clocks: dict[str, Clock]) -> dict[str, float]:
    """The best of some samples of each clock, which take turns. PyTorch needs infinite time for what it lacks."""
    best: dict[str, float] = {}
    for _ in range(SAMPLES):
        for name, clock in clocks.items():
            best[name] = min(clock(line), best.get(name, math.inf))
    return {name: seconds for name, seconds in best.items() if seconds < math.inf}


def is_hopeless(times: Times, name: str) -> bool:
    top, *_ = times
    return name not in (top, TORCH) and times[name][0] > HOPELESS * times[top][0]


def judge_lower(times: Times) -> dict[str, Judgement]:
    """The highest level's time in units of each lower one's, where a lower one was timed in all rounds."""
    top, *lower = (name for name in times if name != TORCH)
    full = [name for name in lower if len(times[name]) == len(times[top])]
    certainty = 1 - 2.01 * 0.5 ** len(times[top])  # the interval spans all ratios
    return {name: judge([Pair(*pair) for pair in zip(times[top], times[name])], certainty) for name in full}


def losses(times: Times) -> list[str]:
    return [name for name, of in judge_lower(times).items() if of.low > LIMIT]


def print_table(found: dict[str, Times], names: list[str]) -> None:
    width = max(len(line) for line in found)
    top = names[0]
    print("ms, best; PyTorch as a multiple of the highest level's time, by medians")
    print(f"{'line':{width}}" + "".join(f"{name:>12}" for name in names) + f"{'PyTorch/us':>12}")
    for line, times in found.items():
        cells = "".join(f"{1e3 * min(times[name]):12.4g}" if name in times else f"{'-':>12}" for name in names)
        ratio = ""
        if TORCH in times:
            ratio = f"{statistics.median(times[TORCH]) / statistics.median(times[top]):12.2f}"
        verdict = "".join(f"  SLOWER THAN {name}" for name in losses(times))
        print(f"{line:{width}}{cells}{ratio:>12}{verdict}")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="bench/levels.py")
    parser.add_argument("command", help="the command `saccade`, which names the levels")
    parser.add_argument("timer", help="bench/timer.cpp, compiled")
    parser.add_argument("--python", help="a Python that has PyTorch")
    parser.add_argument("--lines", default=str(pathlib.Path(__file__).with_name("levels.txt")))
    parser.add_argument("--only", default="", help="only lines with this text in them")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args(arguments)
    if given.rounds < 1:
        parser.error("--rounds: expected at least 1")
    lines = [line for listed in read_lines(given.lines) for line in expand(listed) if given.only in line]
    if not lines:
        print(f"{given.lines} has no line with '{given.only}' in it", file=sys.stderr)
        return 2
    info = json.loads(subprocess.run([given.command, "info", "--json"], stdout=subprocess.PIPE, check=True).stdout)
    levels = list(reversed(info["available_isas"]))
    try:
        found = measure(lines, levels, given.timer, given.python, given.rounds)
        again = [line for line in lines if losses(found[line])]
        if again:
            print(f"measuring {len(again)} of {len(lines)} again", file=sys.stderr)
            found.update(measure(again, levels, given.timer, given.python, given.rounds))
    except (RuntimeError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print_table(found, levels + ([TORCH] if given.python else []))
    slow = sum(bool(losses(times)) for times in found.values())
    print(f"slower than a lower level by more than {100 * (LIMIT - 1):.0f} %, beyond the noise: {slow} of {len(found)}")
    behind = sum(TORCH in t and statistics.median(t[TORCH]) < statistics.median(t[levels[0]]) for t in found.values())
    if given.python:
        print(f"slower than PyTorch: {behind} of {sum(TORCH in times for times in found.values())}")
    return int(slow > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
