"""Runs a function in several processes that are the ranks of a gloo group, with a deadline."""

from __future__ import annotations

import importlib
import os
import pickle
import subprocess
import sys
import tempfile
import time
from typing import Any, Callable


class Killed(Exception):
    """What a process gives that a signal ended."""


def run(ranks: int, function: Callable[..., Any], *arguments: Any, timeout: float = 60) -> list[Any]:
    """What function(*arguments) of a module in this folder returns, or the exception that it raises, in each of as many
    processes. A process that a signal ended gives `Killed`.

    Fails if any takes longer than `timeout` seconds."""
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "call"), "wb") as file:
            pickle.dump((function.__module__, function.__name__, arguments), file)
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([os.path.dirname(os.path.abspath(__file__)), *sys.path]),
        }
        command = [sys.executable, os.path.abspath(__file__), folder, str(ranks)]
        processes = [subprocess.Popen([*command, str(rank)], env=environment) for rank in range(ranks)]
        try:
            deadline = time.monotonic() + timeout
            for process in processes:
                process.wait(max(0.0, deadline - time.monotonic()))
        finally:
            for process in processes:
                process.kill()  # nothing, if it has ended
                process.wait()
        return [_result(folder, rank, process.returncode) for rank, process in enumerate(processes)]


def _result(folder: str, rank: int, status: int) -> Any:
    if status < 0:
        return Killed(f"by signal {-status}")
    with open(os.path.join(folder, f"result.{rank}"), "rb") as file:
        return pickle.load(file)


def _work(folder: str, ranks: int, rank: int) -> None:
    import torch.distributed as dist

    with open(os.path.join(folder, "call"), "rb") as file:
        module, name, arguments = pickle.load(file)
    store = dist.FileStore(os.path.join(folder, "store"), ranks)  # needs no port
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    try:
        result = getattr(importlib.import_module(module), name)(*arguments)
    except Exception as error:
        result = error
    with open(os.path.join(folder, f"result.{rank}"), "wb") as file:
        pickle.dump(result, file)
    if not isinstance(result, Exception):
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    _work(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
