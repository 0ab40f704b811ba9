"""Times the peers: alternately, in one run. Results are medians."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
import pickle
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from .inputs import draw
from .problem import Problem
from .process import Failed, PeerProcess
from .reference import expected_results


class Effort(NamedTuple):
    """How long each peer is timed: at least this many seconds, and at least this many turns."""

    seconds: float
    turns: int


USUAL, QUICK = Effort(0.6, 5), Effort(0.15, 3)
TURN = 0.05  # seconds of a turn: shorter calls are repeated that long, after a warm-up call
CLOSE = 1.2  # all ways of a peer are timed that take at most this times as long as its fastest


@dataclasses.dataclass
class Cell:
    """The results of one peer for one problem."""

    seconds: float | None = None  # the median; None: it does not take part
    low: float | None = None  # the quartiles
    high: float | None = None
    way: str = ""
    ways: dict[str, float] = dataclasses.field(default_factory=dict)  # the medians of all that were timed
    reasons: dict[str, str] = dataclasses.field(default_factory=dict)  # why a way or ("") the peer was left out
    bytes: int | None = None  # in a problem of memory


@dataclasses.dataclass
class Line:
    """The results of a problem with one number of threads."""

    problem: Problem
    threads: int
    cells: dict[str, Cell]  # by the peer's name, "saccade" among them
    limits: dict[str, float] | None = None  # peak_gflops, bf16_peak_gflops, read_gbytes, loops_per_second in C++

    def best_rival(self) -> str | None:
        """The peer other than saccade that takes the least time, or memory."""
        amounts = {name: self.amount(name) for name in self.cells if name != "saccade"}
        known = {name: amount for name, amount in amounts.items() if amount is not None}
        return min(known, key=known.__getitem__) if known else None

    def amount(self, name: str) -> float | None:
        """Seconds, or bytes in a problem of memory."""
        cell = self.cells.get(name)
        return None if cell is None else cell.bytes if self.problem.memory else cell.seconds

    def ratio(self) -> float | None:
        """How many times as fast (or as frugal) as the best rival saccade is."""
        rival, own = self.best_rival(), self.amount("saccade")
        return self.amount(rival) / own if rival and own else None

    def share(self, name: str) -> float | None:
        """The share of the peak of multiply-adds of the dtype or, for decode, of the memory bandwidth."""
        seconds = self.cells[name].seconds if name in self.cells else None
        if not seconds or not self.limits or self.problem.kind == "loop":
            return None
        if self.problem.decode:
            return self.problem.kv_bytes() / seconds / (self.limits["read_gbytes"] * 1e9)
        peak = self.limits["peak_gflops"]
        if self.problem.dtype == "bf16":
            peak = self.limits.get("bf16_peak_gflops") or peak
        return self.problem.flops() / seconds / (peak * 1e9)


def compare(problem: Problem, peers: Mapping[str, PeerProcess], effort: Effort) -> dict[str, Cell]:
    """Checks the results of every peer for a problem, then times the peers alternately."""
    cells = {name: Cell() for name in peers}
    seconds = _prepare(problem, peers, cells)
    times: dict[tuple[str, str], list[float]] = {key: [] for key in seconds}
    spent = dict.fromkeys(seconds, 0.0)
    waiting = list(seconds)
    for turn in range(10_000):
        if not waiting:
            break
        for name, way in waiting[turn % len(waiting) :] + waiting[: turn % len(waiting)]:
            estimate = seconds[name, way]
            calls = max(1, math.ceil(TURN / estimate))
            try:
                taken = peers[name].ask("time", way=way, calls=calls, warm=estimate < TURN)["seconds"]
            except Failed as error:
                cells[name].reasons[way] = str(error)
                times.pop((name, way), None)
                spent[name, way] = math.inf
                continue
            times[name, way].append(taken)
            spent[name, way] += taken * calls
        waiting = [key for key in waiting if spent[key] < effort.seconds or turn + 1 < effort.turns and key in times]
    for (name, way), values in times.items():
        median = cells[name].ways[way] = statistics.median(values)
        if cells[name].seconds is None or median < cells[name].seconds:
            low, _, high = statistics.quantiles(values, n=4)
            cells[name].seconds, cells[name].low, cells[name].high, cells[name].way = median, low, high, way
    return cells


def _prepare(
    problem: Problem, peers: Mapping[str, PeerProcess], cells: dict[str, Cell]
) -> dict[tuple[str, str], float]:
    """The ways that are worth timing, and about how long a call takes. Reasons go into the cells of the others."""
    worth: dict[tuple[str, str], float] = {}
    expected = list(expected_results(draw(problem.but(dropout_p=0.0))))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "expected"
        path.write_bytes(pickle.dumps(expected))
        for name, peer in peers.items():
            try:
                answer = peer.ask("prepare", problem=dataclasses.asdict(problem), expected=str(path))
                cells[name].reasons.update(answer["left_out"])
                seconds = {way: _trial(peer, way) for way in answer["ways"]}
                slowest = CLOSE * min(seconds.values(), default=0)
                if problem.kind == "loop":  # the page shows every way
                    slowest = math.inf
                best = {way: value for way, value in seconds.items() if value <= slowest}
                peer.ask("keep", ways=list(best))
                worth.update({(name, way): value for way, value in best.items()})
            except Failed as error:
                cells[name].reasons[""] = str(error)
    return worth


def _trial(peer: PeerProcess, way: str) -> float:
    """About how long a call takes."""
    seconds = peer.ask("time", way=way, calls=1)["seconds"]
    return seconds if seconds > TURN else min(peer.ask("time", way=way, calls=3)["seconds"] for _ in range(3))


def memory(problem: Problem, peers: Mapping[str, PeerProcess]) -> dict[str, Cell]:
    """The peak memory of each peer, in a new process."""
    cells = {}
    for name, peer in peers.items():
        peer.stop()
        try:
            answer = peer.ask("memory", problem=dataclasses.asdict(problem))
            cells[name] = Cell(bytes=answer.get("bytes"), reasons=answer.get("left_out", {}))
        except Failed as error:
            cells[name] = Cell(reasons={"": str(error)})
        peer.stop()
    return cells


def measured_limits(command: str | None, threads: int, processors: Sequence[int]) -> dict[str, float] | None:
    """The machine's limits as ``saccade bench`` measures them now, and its loops per second in C++; None without
    the command."""
    if not command:
        return None

    def stay() -> None:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, set(processors))

    arguments = [command, "bench", "--only", "loop", "--quick", "--json", "--threads", str(threads)]
    outcome = subprocess.run(arguments, check=True, capture_output=True, text=True, preexec_fn=stay)
    measured = json.loads(outcome.stdout)
    return {**measured["limits"][0], "loops_per_second": 1 / measured["sections"][0]["lines"][0]["seconds"]}
