"""The processes of the peers, and requests to them."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

FOLDER = pathlib.Path(__file__).resolve().parent
PATIENCE = 900.0  # seconds to wait for an answer; compilers can take long

# Variables from which libraries take their number of threads. The process is also bound to as many processors.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NPROC")


class Failed(Exception):
    """A peer's process gave no answer; the message says how it ended."""


class PeerProcess:
    """A :class:`peers.worker.Worker` and the pipes to it."""

    def __init__(
        self, name: str, threads: int, processors: Sequence[int], log: pathlib.Path, loop: pathlib.Path | None = None
    ) -> None:
        self.name, self.threads, self.processors, self.log, self.loop = name, threads, processors, log, loop
        self.process: subprocess.Popen[str] | None = None

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """The answer to a request; starts the process if there is none.

        :raises Failed: if the process ends or gives no answer for a long time; the next request starts a new one.
        """
        process = self.process or self._start()
        try:
            process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            process.stdin.flush()
            ready = select.select([process.stdout], [], [], PATIENCE)[0]
            answer = process.stdout.readline() if ready else ""
        except BrokenPipeError:
            ready, answer = [process.stdout], ""
        if not answer:
            self.stop()
            how = f"ended with status {process.returncode}" if ready else f"gave no answer in {PATIENCE:g} s"
            raise Failed(f"its process {how}; see {self.log}")
        return json.loads(answer)

    def stop(self) -> None:
        """Ends the process."""
        if self.process is None:
            return
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        self.process = None

    def _start(self) -> subprocess.Popen[str]:
        path = [str(FOLDER.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
        environment.update({variable: str(self.threads) for variable in THREAD_VARIABLES})
        processors = ",".join(map(str, self.processors))
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "peers.worker", self.name, str(self.threads), processors, str(self.loop or "")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment,
            )
        return self.process
