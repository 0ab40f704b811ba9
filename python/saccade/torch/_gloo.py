"""Communicators over process groups of torch.distributed."""

from __future__ import annotations

import atexit
import re
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from .._communicators import Communicator

_of_group: dict[Any, Communicator] = {}
atexit.register(_of_group.clear)


class _Gloo:
    """Messages over a gloo group of their own, with the ranks of a given group. gloo moves them on its own threads."""

    def __init__(self, group: Any) -> None:
        self._ranks = dist.get_process_group_ranks(group)
        self._own = dist.new_group(self._ranks, backend="gloo", use_local_synchronization=True)
        self._wait = timedelta(seconds=300)

    def rank(self) -> int:
        return self._ranks.index(dist.get_rank())

    def size(self) -> int:
        return len(self._ranks)

    def send(self, to: int, data: memoryview) -> Any:
        return dist.isend(torch.frombuffer(data, dtype=torch.uint8), self._ranks[to], group=self._own)

    def receive(self, source: int, data: memoryview) -> Any:
        return dist.irecv(torch.frombuffer(data, dtype=torch.uint8), self._ranks[source], group=self._own)

    def is_finished(self, request: Any) -> bool:
        try:
            request.wait(self._wait)  # is_completed() is false until somebody waits
        except RuntimeError as error:
            raise RuntimeError(re.sub(r"\[\S*\.cc:\d+\] ", "", str(error))) from error
        return True

    def set_timeout(self, seconds: float) -> None:
        self._wait = timedelta(milliseconds=max(1, min(seconds, 1e9) * 1000))  # gloo takes 0 for its own timeout

    def abort(self) -> None:
        dist.destroy_process_group(self._own)  # ends the connections: the others need not wait

    def is_alive(self) -> bool:
        return self._own in dist.distributed_c10d._world.pg_map


def communicator(group: Any = None, *, timeout: float | None = None) -> Communicator:
    """The :class:`saccade.distributed.Communicator` of a process group, always the same one for the same group: for
    the functions of :mod:`saccade.distributed`. All ranks of the group call this together the first time, which makes
    a gloo group of the same ranks for saccade's messages alone.

    :param group: a process group of any backend, or a ``DeviceMesh`` of one dimension; default: all processes.
    :param timeout: seconds that a call waits for another rank, from now on; at first 300.
    :raises ValueError: for other objects, groups that this process is not in, and before ``init_process_group()``.
    """
    if isinstance(group, Communicator):
        found = group
    else:
        group = _process_group(group)
        if group not in _of_group or not _of_group[group].failure and not _of_group[group]._transport.is_alive():
            for other in [of for of in _of_group if of not in dist.distributed_c10d._world.pg_map]:
                del _of_group[other]
            _of_group[group] = Communicator(_Gloo(group))
        found = _of_group[group]
    if timeout is not None:
        found.timeout = timeout
    return found


def _process_group(group: Any) -> Any:
    if not dist.is_available() or not dist.is_initialized():
        raise ValueError("group: torch.distributed.init_process_group() was not called in this process")
    if group is None:
        return dist.group.WORLD
    if group is dist.GroupMember.NON_GROUP_MEMBER:
        raise ValueError("group: this process is not in it")
    if isinstance(group, dist.ProcessGroup):
        return group
    if isinstance(group, dist.device_mesh.DeviceMesh) and group.ndim == 1:
        return group.get_group()
    raise ValueError(f"group: expected a process group or a DeviceMesh of one dimension, got {_shown(group)}")


def _shown(group: Any) -> str:
    dimensions = getattr(group, "ndim", None)
    kind = type(group).__name__
    return f"a {kind} of {dimensions} dimensions" if kind == "DeviceMesh" else f"a {kind}"
