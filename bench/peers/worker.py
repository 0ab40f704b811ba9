"""The process of one peer, so that threads, memory and crashes of a library do not affect the others.

    python -m peers.worker PEER THREADS PROCESSORS LOOP

(LOOP: the library of fixed_loop.cpp, or "")

reads requests as lines of JSON from its standard input and answers each with a line; see :class:`Worker`.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.metadata
import json
import os
import pickle
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any


class FixedLoop:
    """The loops of fixed_loop.cpp on each of these processors at the same time.

    :param library: where it is; without it, every loop takes 0 seconds.
    """

    def __init__(self, library: str, processors: Sequence[int]) -> None:
        self.processors = processors if library else []
        if library:
            loaded = ctypes.CDLL(library)
            self.multiply_adds, self.clock = loaded.seconds_of_multiply_adds, loaded.clock_rate
            self.multiply_adds.restype = self.clock.restype = ctypes.c_double

    def run(self) -> tuple[float, float]:
        """The seconds on the slowest processor, and the lowest clock rate in hertz; 0 if unknown."""
        found: list[tuple[float, float]] = []

        def on(processor: int) -> None:
            if hasattr(os, "sched_setaffinity"):
                os.sched_setaffinity(0, {processor})  # 0 is this thread, not the process
            found.append((self.multiply_adds(), self.clock()))

        threads = [threading.Thread(target=on, args=(processor,)) for processor in self.processors]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return (max(seconds for seconds, _ in found), min(clock for _, clock in found)) if found else (0.0, 0.0)


class Worker:
    """The requests to a peer's process. Every method is a request; its arguments and results are JSON.

    :param processors: those that the process may use.
    """

    def __init__(self, peer: Any, processors: Sequence[int] = (), library: str = "") -> None:
        self.peer = peer
        self.processors = processors
        self.loop = FixedLoop(library, processors)
        self.calls: dict[str, Any] = {}

    def about(self) -> dict[str, Any]:
        """The peer's name, the versions of its packages, and what else it says about itself."""
        versions = {}
        for name in self.peer.DISTRIBUTIONS:
            try:
                versions[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                versions[name] = getattr(sys.modules.get(name), "__version__", "?")
        details = getattr(self.peer, "details", dict)()
        return {"title": self.peer.TITLE, "versions": versions, "details": details}

    def prepare(self, problem: dict[str, Any], expected: str, beside: bool = False) -> dict[str, Any]:
        """Prepares every way to compute a problem and compares its results with those in the file ``expected``:
        {"ways": [name, ...], "left_out": {name: reason}}. ``beside``: keeps those of earlier problems, whose ways
        have other names."""
        from .inputs import draw

        if not beside:
            self.calls.clear()
        of = _problem(problem)
        inputs = draw(of)
        # Every library drops other weights, so results are compared without dropout.
        compared = draw(of.but(dropout_p=0.0)) if of.dropout_p else inputs
        with open(expected, "rb") as file:
            expectations = pickle.load(file)
        ways, left_out = self._ways(of)
        found = []
        for way in ways:
            try:
                call = way.prepare(compared)
                worst = _worst(call, compared.problem, expectations)
                if not worst <= 1:
                    left_out[way.name] = f"its results are off by {worst:.3g} times what is allowed"
                    continue
                self.calls[way.name] = way.prepare(inputs) if of.dropout_p else call
                found.append(way.name)
            except Exception as error:
                left_out[way.name] = _reason(error)
        _come_to_rest()
        return {"ways": found, "left_out": left_out}

    def forget(self, ways: list[str]) -> None:
        """Frees what these ways hold."""
        for way in ways:
            del self.calls[way]

    def time(self, way: str, calls: int, warm: bool = False) -> dict[str, float]:
        """Mean seconds of ``calls`` consecutive calls; ``warm``: after a warm-up call. Answers when the process is
        idle, so that it does not slow down the next peer. In addition, what tells whether something disturbed the
        calls: the seconds of a fixed ``loop``, the longer one of before and after, the lower ``clock`` of both, how
        many processors were ``running`` this process, and for how many seconds its processors ran ``others``."""
        from .machine import busy_seconds

        call = self.calls[way]
        run = call.run
        before = self.loop.run()
        with call.context():
            if warm:
                run()
            busy, own, start = busy_seconds(self.processors), time.process_time(), time.perf_counter()
            for _ in range(calls):
                run()
            seconds, own = time.perf_counter() - start, time.process_time() - own
            busy = busy_seconds(self.processors) - busy
        _come_to_rest()  # threads of the library that still wait for work would take the loop's processors
        after = self.loop.run()
        return {
            "seconds": seconds / calls,
            "running": own / seconds,
            "others": max(busy - own, 0.0),
            "loop": max(before[0], after[0]),
            "clock": min(before[1], after[1]),
        }

    def memory(self, problem: dict[str, Any]) -> dict[str, Any]:
        """The peak memory of a first call, less the memory before it, of the way that takes least: {"bytes": ...}
        or {"left_out": ...}. A small problem runs first, so that the library has loaded what it loads on
        demand."""
        from .inputs import draw

        of = _problem(problem)
        small = of.but(seqlen_q=min(of.seqlen_q, 64), seqlen_k=min(of.seqlen_k, 64))
        ways, left_out = self._ways(of)
        most = []
        for way in ways:
            try:
                call = way.prepare(draw(small))
                with call.context():
                    call.run()
                call = way.prepare(draw(of))
                getattr(self.peer, "release", lambda: None)()
                with call.context():
                    most.append(_extra_memory(call.run))
            except Exception as error:
                left_out[way.name] = _reason(error)
        return {"bytes": min(most)} if most else {"left_out": left_out}

    def _ways(self, problem: Any) -> tuple[list[Any], dict[str, str]]:
        from .peer import Unsupported

        own = self.peer.__name__.rpartition(".")[2].removesuffix("_peer")
        if problem.inside and own not in ("saccade", problem.inside):
            return [], {"": "not this library"}
        try:
            return self.peer.ways(problem), {}
        except Unsupported as error:
            return [], {"": str(error)}


def _worst(call: Any, problem: Any, expectations: list[Any]) -> float:
    """The largest error of any result as a multiple of the allowed error."""
    from .reference import difference

    with call.context():
        results = call.results(call.run())
    return max(
        difference(results[name], expected, problem.dtype, problem.needs_gradients)
        for name, expected in expectations
        if name in results
    )


def _problem(fields: dict[str, Any]) -> Any:
    from .problem import Problem

    return Problem(**{**fields, "window": tuple(fields["window"])})


def _reason(error: Exception) -> str:
    """The error in one line."""
    lines = str(error).strip().splitlines()
    kind = type(error).__name__
    if not lines:
        return kind
    return lines[0] if kind == "Unsupported" else f"{kind}: {lines[0]}"


def _come_to_rest() -> None:
    """Waits until no thread of the process computes. Threads that wait for work spin for a while (40 ms in ONNX
    Runtime), and JAX frees gigabytes after a call has returned (200 ms)."""
    for _ in range(100):
        before = time.process_time()
        time.sleep(0.02)
        if time.process_time() - before < 0.002:
            return


def _extra_memory(run: Any) -> int:
    """The peak memory of the process during a call, less its memory before (VmHWM and VmRSS of Linux)."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # else the call could reuse freed memory uncounted
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # sets the peak to the current memory: proc(5)
    before = _status("VmRSS")
    result = run()
    most = _status("VmHWM")
    del result
    return most - before


def _status(name: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(f"{name}:"))


def main() -> None:
    peer, threads, library = sys.argv[1], int(sys.argv[2]), sys.argv[4]
    processors = [int(processor) for processor in sys.argv[3].split(",")]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, processors)
    # Libraries may print: their output goes to standard error, and answers to the original standard output.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    module = importlib.import_module(f"peers.{peer}_peer")
    module.start(threads)
    worker = Worker(module, processors, library)
    for line in sys.stdin:
        request = json.loads(line)
        answer = getattr(worker, request.pop("do"))(**request)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
