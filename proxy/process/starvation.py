"""What share of the processors' time that the threads of this process could use they did not get."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

#: Of each thread: nanoseconds on a processor, nanoseconds waiting for one (Linux, Documentation/scheduler/sched-stats).
ThreadTimes = Mapping[str, tuple[int, int]]


def thread_times(tasks: Path = Path("/proc/self/task")) -> ThreadTimes:
    """Return the times of all threads, by id; none where the kernel does not tell."""
    times = {}
    for schedstat in tasks.glob("*/schedstat"):
        try:
            ran, waited, _ = schedstat.read_text(encoding="ascii").split()
            times[schedstat.parent.name] = int(ran), int(waited)
        except (OSError, ValueError):
            continue  # it has ended
    return times


def starved_share(before: ThreadTimes, after: ThreadTimes) -> float:
    """Return what share of the time in which threads could run they waited for a processor, 0 to 1.

    0 where none could run: whoever waits for a lock or a store is not starved.
    """
    ran = waited = 0
    for thread, (ran_before, waited_before) in before.items():
        if thread in after:
            ran += after[thread][0] - ran_before
            waited += after[thread][1] - waited_before
    return waited / (ran + waited) if waited > 0 and ran >= 0 else 0.0
