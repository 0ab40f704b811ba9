"""The machine on which the figures are measured."""

from __future__ import annotations

import os
import pathlib
import platform
import resource
import subprocess
import time
from collections.abc import Iterable, Sequence

# What the times of saccade from Python depend on.
_SOURCES = ("CMakeLists.txt", "cmake", "include", "python/saccade", "python/src", "src")


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


def last_level_cache() -> int:
    """The bytes of the first processor's largest cache; 32 MiB where the system does not say."""
    found = pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    sizes = [int(text[:-1]) * 1024 for text in (path.read_text().strip() for path in found) if text.endswith("K")]
    return max(sizes, default=32 * 2**20)


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


def commit() -> str:
    """The last commit that changed the library or its Python package, "+" after it if the files differ from it; ""
    outside a repository."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(pathlib.Path(__file__).parents[2]), *arguments, "--", *_SOURCES]
        try:
            return subprocess.run(command, capture_output=True, text=True).stdout.strip()
        except OSError:
            return ""

    last = git("log", "-1", "--format=%h")
    return last + "+" if last and git("status", "--porcelain") else last


class Neighbours:
    """How much of the machine other processes use, from now on.

    :param own: the processes that do not count, in addition to this one and those that it has waited for.
    """

    def __init__(self, own: Iterable[int] = ()) -> None:
        self.own = list(own)
        self.begin = self._now()

    def seconds(self) -> tuple[float, float]:
        """Seconds since the beginning, and processor seconds of others."""
        wall, busy, own = (end - begin for end, begin in zip(self._now(), self.begin))
        return wall, max(busy - own, 0.0)

    def _now(self) -> tuple[float, float, float]:
        return time.monotonic(), busy_seconds(), _own_seconds() + sum(map(_seconds_of, self.own))


def busy_seconds(of: Sequence[int] | None = None) -> float:
    """The busy time of these processors, or of all, since the machine was started; 0 if the system does not provide
    it. Its unit is a tick of 10 ms."""
    stat = pathlib.Path("/proc/stat")
    if not stat.exists():
        return 0.0
    names = {"cpu"} if of is None else {f"cpu{processor}" for processor in of}
    ticks = 0
    for line in stat.read_text().splitlines():
        name, *numbers = line.split()
        if name in names:
            user, nice, system, _, _, irq, softirq, *_ = map(int, numbers)
            ticks += user + nice + system + irq + softirq
    return ticks / os.sysconf("SC_CLK_TCK")


def _seconds_of(process: int) -> float:
    """The processor time of a process; 0 if it has ended."""
    try:
        fields = pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    whose = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in map(resource.getrusage, whose))
