"""The machine on which the figures are measured."""

from __future__ import annotations

import os
import pathlib
import platform
import resource
import time
from collections.abc import Sequence


def processors() -> list[int]:
    """Processors that this process may use: first one of each core, then the others."""
    if not hasattr(os, "sched_getaffinity"):
        return list(range(os.cpu_count() or 1))
    allowed = sorted(os.sched_getaffinity(0))
    first: dict[str, int] = {}
    for processor in allowed:
        first.setdefault(_core_of(processor), processor)
    return sorted(first.values()) + [processor for processor in allowed if processor not in first.values()]


def core_count(of: Sequence[int]) -> int:
    """How many cores the processors belong to."""
    return len({_core_of(processor) for processor in of})


def _core_of(processor: int) -> str:
    siblings = pathlib.Path(f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list")
    return siblings.read_text().strip() if siblings.exists() else str(processor)


def description() -> str:
    """Processor, cores, memory and system in one line."""
    count, cores = len(processors()), core_count(processors())
    parts = [_cpu_name(), f"{cores} core{'s' * (cores != 1)}" + (f", {count} threads" if count != cores else "")]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        parts.append(f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB of memory")
    system = platform.freedesktop_os_release()["PRETTY_NAME"] if hasattr(platform, "freedesktop_os_release") else ""
    return ", ".join([*parts, f"{system or platform.system()} ({platform.machine()})"])


def _cpu_name() -> str:
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


class Neighbours:
    """How much of the machine other processes use, from now on."""

    def __init__(self) -> None:
        self.begin = (time.monotonic(), _busy_seconds(), _own_seconds())

    def processors(self) -> float:
        """Processors that others have kept busy on average. This process must have waited for its children."""
        now = (time.monotonic(), _busy_seconds(), _own_seconds())
        wall, busy, own = (end - begin for end, begin in zip(now, self.begin))
        return max(busy - own, 0.0) / max(wall, 1e-9)


def _busy_seconds() -> float:
    """The busy time of all processors since the machine was started; 0 if the system does not provide it."""
    stat = pathlib.Path("/proc/stat")
    if not stat.exists():
        return 0.0
    user, nice, system, _, _, irq, softirq, *_ = map(int, stat.read_text().split("\n", 1)[0].split()[1:])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, whose))
