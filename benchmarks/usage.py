"""CPU and memory of this process and its children, by role."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import Self

import psutil

#: What no named root is above: this process and the producers and Python workers it starts.
HERE = "benchmark"


def cpu_s(roots: Mapping[str, int]) -> dict[str, float]:
    """Return user and system seconds used so far, by role.

    ``roots`` are the process ids of roles; what such a process started is "<role> workers". Children that ended are counted where
    their parent lives: the kernel adds their times to it when it waits for them.
    """
    used: defaultdict[str, float] = defaultdict(float)
    for role, process in _processes(roots):
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        used[role] += times.user + times.system + times.children_user + times.children_system
    return used


def resident_bytes(roots: Mapping[str, int]) -> Counter[str]:
    """Return resident memory by role; pages that processes share are counted in each."""
    counts: Counter[str] = Counter()
    for role, process in _processes(roots):
        try:
            counts[role] += process.memory_info().rss
        except psutil.Error:
            continue
    return counts


class PeakMemory:
    """Samples memory in the background between enter and exit; ``peak_bytes`` holds maxima by role."""

    def __init__(self, roots: Callable[[], Mapping[str, int]], *, every_s: float = 0.5) -> None:
        self.peak_bytes: dict[str, int] = {}
        self._roots = roots
        self._every_s = every_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.is_set():
            for role, size in resident_bytes(self._roots()).items():
                self.peak_bytes[role] = max(size, self.peak_bytes.get(role, 0))
            self._stopped.wait(self._every_s)


def below(pid: int) -> list[tuple[psutil.Process, int]]:
    """Return a process that may end any moment, and all below it, with their depth."""
    items: list[tuple[psutil.Process, int]] = []

    def walk(process: psutil.Process, depth: int) -> None:
        items.append((process, depth))
        for child in process.children():
            walk(child, depth + 1)

    with contextlib.suppress(psutil.Error):
        walk(psutil.Process(pid), 0)
    return items


def java_child(besides: Collection[int] = ()) -> int | None:
    """Return the process id of the JVM this process started directly: Spark's, if others are ``besides``."""
    for child in psutil.Process().children():
        try:
            if child.name() == "java" and child.pid not in besides:
                return child.pid
        except psutil.Error:
            continue
    return None


def _processes(roots: Mapping[str, int]) -> list[tuple[str, psutil.Process]]:
    named = {pid: role for role, pid in roots.items()}
    items: list[tuple[str, psutil.Process]] = []

    def walk(process: psutil.Process, role: str) -> None:
        role = named.get(process.pid, role)
        items.append((role, process))
        below = f"{role} workers" if process.pid in named else role
        try:
            children = process.children()
        except psutil.Error:
            return
        for child in children:
            walk(child, below)

    walk(psutil.Process(), HERE)
    return items
