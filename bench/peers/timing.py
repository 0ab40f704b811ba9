"""Times the peers: alternately, in one run. Results are medians of the samples that nothing disturbed."""

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

    def is_met(self, samples: Sequence[Sample]) -> bool:
        spent = sum(sample.seconds * sample.calls for sample in samples)
        return spent >= self.seconds and len(samples) >= self.turns


USUAL, QUICK = Effort(0.6, 5), Effort(0.15, 3)
TURN = 0.05  # seconds of a turn: shorter calls are repeated that long, after a warm-up call
CLOSE = 1.2  # all ways of a peer are timed that take at most this times as long as its fastest
PATIENCE = 2  # so many times the effort is spent while samples are disturbed; then all of them count

# A sample is disturbed if the fixed loop took more than this times its best, or if the process had less than this
# share of the processor. `saccade bench` has the same limits.
SLOW_LOOP, RUNNING = 1.1, 0.95
# Or if others ran on its processors for more than this share of the time, and the ticks by which that is counted.
OTHERS, TICKS = 0.05, 0.03


class Sample(NamedTuple):
    """One turn of a way of a peer."""

    seconds: float  # the mean of its calls
    calls: int
    running: float = 1.0  # processors that ran the process meanwhile
    others: float = 0.0  # processor seconds of other processes on its processors
    loop: float = 0.0  # seconds of a fixed loop, the longer one of before and after; 0: unknown
    clock: float = 0.0  # hertz, the lower one of before and after; 0: unknown


class Quiet:
    """Tells disturbed samples from the others. One for each number of threads, because more cores together may have a
    lower clock."""

    def __init__(self, threads: int) -> None:
        self.threads, self.fastest = threads, math.inf

    def see(self, loop: float) -> None:
        """Another loop has taken so many seconds."""
        self.fastest = min(self.fastest, loop)

    def undisturbed(self, samples: Sequence[Sample]) -> list[Sample]:
        """Those of the samples of one way that nothing disturbed. Several threads may wait for each other, so only
        one must have run all the time, as far as that way ever does."""
        runs = RUNNING * max((sample.running for sample in samples), default=0.0) if self.threads == 1 else 0.0
        return [
            of
            for of in samples
            if of.loop <= SLOW_LOOP * self.fastest
            and of.running >= runs
            and of.others <= OTHERS * of.seconds * of.calls + TICKS
        ]


@dataclasses.dataclass
class Cell:
    """The results of one peer for one problem."""

    seconds: float | None = None  # the median; None: it does not take part
    best: float | None = None
    low: float | None = None  # the quartiles
    high: float | None = None
    way: str = ""
    ways: dict[str, float] = dataclasses.field(default_factory=dict)  # the medians of all that were timed
    reasons: dict[str, str] = dataclasses.field(default_factory=dict)  # why a way or ("") the peer was left out
    bytes: int | None = None  # in a problem of memory
    samples: int = 0  # of all ways
    disturbed: int = 0  # that many of them
    is_noisy: bool = False  # too few of the way were undisturbed, so all count


@dataclasses.dataclass
class Line:
    """The results of a problem with one number of threads."""

    problem: Problem
    threads: int
    cells: dict[str, Cell]  # by the peer's name, "saccade" among them
    limits: dict[str, float] | None = None  # peak_gflops, bf16_peak_gflops, read_gbytes, loops_per_second in C++
    loops: list[float] = dataclasses.field(default_factory=list)  # seconds of the fixed loop at each sample
    clocks: list[float] = dataclasses.field(default_factory=list)  # hertz, the same

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


class Prepared(NamedTuple):
    """What :func:`prepare` has found: the ways that are worth timing, and about how long a call takes."""

    cells: dict[str, Cell]
    ways: dict[tuple[str, str], float]  # by the names of the peer and of the way


def take_turns(
    prepared: Sequence[Prepared], peers: Mapping[str, PeerProcess], effort: Effort, quiet: Quiet
) -> list[list[Sample]]:
    """Times the ways of the peers alternately, those of several problems together, fills in their cells and returns
    the samples of each problem."""
    cells = {(name, way): of.cells[name] for of in prepared for name, way in of.ways}
    seconds = {key: estimate for of in prepared for key, estimate in of.ways.items()}
    samples: dict[tuple[str, str], list[Sample]] = {key: [] for key in seconds}
    waiting = list(seconds)
    for turn in range(10_000):
        if not waiting:
            break
        for name, way in waiting[turn % len(waiting) :] + waiting[: turn % len(waiting)]:
            estimate = seconds[name, way]
            calls = max(1, math.ceil(TURN / estimate))
            try:
                sample = Sample(calls=calls, **peers[name].ask("time", way=way, calls=calls, warm=estimate < TURN))
            except Failed as error:
                cells[name, way].reasons[way] = str(error)
                del samples[name, way]
                continue
            samples[name, way].append(sample)
            quiet.see(sample.loop)
        waiting = [key for key in waiting if key in samples and _wants_more(samples[key], effort, quiet)]
    for (name, way), of in samples.items():
        _fill(cells[name, way], way, of, quiet.undisturbed(of), effort)
    return [[sample for key in of.ways for sample in samples.get(key, ())] for of in prepared]


def _wants_more(samples: Sequence[Sample], effort: Effort, quiet: Quiet) -> bool:
    return not effort.is_met(quiet.undisturbed(samples)) and not effort.is_met(samples[: len(samples) // PATIENCE])


def _fill(cell: Cell, way: str, samples: Sequence[Sample], quiet: Sequence[Sample], effort: Effort) -> None:
    """Adds the results of one way."""
    is_noisy = len(quiet) < effort.turns
    values = [sample.seconds for sample in (samples if is_noisy else quiet)]
    median = cell.ways[way] = statistics.median(values)
    cell.samples += len(samples)
    cell.disturbed += len(samples) - len(quiet)
    if cell.seconds is None or median < cell.seconds:
        low, _, high = statistics.quantiles(values, n=4)
        cell.seconds, cell.low, cell.high, cell.way, cell.is_noisy = median, low, high, way, is_noisy
        cell.best = min(values)


def prepare(problem: Problem, peers: Mapping[str, PeerProcess], beside: bool = False) -> Prepared:
    """Checks the results of every peer for a problem. Reasons go into the cells of those that are not timed.

    :param beside: keep what the peers have prepared for earlier problems.
    """
    cells = {name: Cell() for name in peers}
    worth: dict[tuple[str, str], float] = {}
    expected = list(expected_results(draw(problem.but(dropout_p=0.0))))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "expected"
        path.write_bytes(pickle.dumps(expected))
        for name, peer in peers.items():
            try:
                answer = peer.ask("prepare", problem=dataclasses.asdict(problem), expected=str(path), beside=beside)
                cells[name].reasons.update(answer["left_out"])
                seconds = {way: _trial(peer, way) for way in answer["ways"]}
                slowest = CLOSE * min(seconds.values(), default=0)
                if problem.kind == "loop":  # the page shows every way
                    slowest = math.inf
                best = {way: value for way, value in seconds.items() if value <= slowest}
                peer.ask("forget", ways=[way for way in seconds if way not in best])
                worth.update({(name, way): value for way, value in best.items()})
            except Failed as error:
                cells[name].reasons[""] = str(error)
    return Prepared(cells, worth)


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
