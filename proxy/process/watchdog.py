"""Ends this process when a statement ignores its interrupt, memory runs away or the engine is broken.

The supervisor starts it again. DuckDB checks for interrupts between chunks only, and single-row work is outside its
memory limit (docs/internals/engine.md). Ending the process is the one thing that always works.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from proxy.access.limits import Blame
from proxy.engine.running import Watch

_log = logging.getLogger(__name__)

#: Exit codes, outside the range shells use for signals.
EXIT_STUCK, EXIT_MEMORY, EXIT_SICK = 70, 71, 72
_CHECK_S, _PULSE_S, _STOP_TIMEOUT_S = 0.25, 1.0, 5.0
#: An engine that is silent for this long is not busy but gone. A starved machine must not look like it.
_MAX_SILENCE_S = 60.0
#: A look that comes this much late: nothing ran, the machine was paused or the process stopped.
_STOOD_STILL_S = 2.0
#: Largest share of the time past a deadline that is excused where threads wait for a processor, even if this process has it: a long
#: statement has a low priority, and gets a tenth of a machine that others fill. What is stuck still ends, ten times as late.
_MAX_STARVED = 0.9
#: Shares of the process's limit at which one statement is stopped, then all of one user: the process need not end.
_SHORT, _VERY_SHORT = 0.75, 0.9
#: Time and memory for telling waiting clients that the process ends.
_FAREWELL_S, _FAREWELL_MEMORY = 1.0, 1.25


class Watchdog:
    """Watches the calls into the engine and the resident set of this process.

    A call may outlive its deadline by ``grace_s``, in which its interrupt must work. The time a slow client takes
    between two batches does not count.
    """

    def __init__(
        self,
        *,
        grace_s: float,
        max_process_bytes: int | None,
        healthy: Callable[[], bool] = lambda: True,
        statements: Watch | None = None,
        blame: Blame | None = None,
    ) -> None:
        """``healthy`` is called once a second and returns whether the engine still answers.

        Of ``statements`` one is stopped where memory is short, and again whenever there is even less, all of one user where
        it is very short. Who runs some for long is noted in ``blame``, in case the process ends.
        """
        self._statements = statements
        self._blame = blame or Blame()
        #: Tells waiting clients that the process ends, and why.
        self.farewell: Callable[[str], None] = lambda _why: None
        self._cancelled_at_bytes = 0
        self._healthy = healthy
        self._grace_s = grace_s
        self._max_process_bytes = max_process_bytes
        self._deadlines: dict[object, tuple[float, str | None]] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        #: How much of the clock's time this process stood still: no work went on then.
        self._lost_s = 0.0
        #: Of the last look at which a call was late.
        self._thread_times: ThreadTimes = {}
        self._answered_at = self._now()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        # On its own thread: a call into a hung engine does not return.
        self._pulse = threading.Thread(target=self._ask, name="watchdog-pulse", daemon=True)

    def start(self) -> None:
        self._answered_at = self._now()
        self._thread.start()
        self._pulse.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._pulse.join(_STOP_TIMEOUT_S)

    @property
    def silent_s(self) -> float:
        """Seconds since the engine last answered."""
        return self._now() - self._answered_at

    @contextlib.contextmanager
    def expecting(self, timeout_s: float, user: str | None = None) -> Iterator[None]:
        """Expect the work of this block, done for ``user``, to be over within ``timeout_s``."""
        key = object()
        with self._lock:
            self._deadlines[key] = (self._now() + timeout_s, user)
        try:
            yield
        finally:
            with self._lock:
                del self._deadlines[key]

    def _now(self) -> float:
        return time.monotonic() - self._lost_s

    def _run(self) -> None:
        looked_at = time.monotonic()
        while not self._stop.wait(_CHECK_S):
            late_s = time.monotonic() - looked_at - _CHECK_S
            if late_s > _STOOD_STILL_S:
                self._lost_s += late_s
                _log.warning("this process stood still for %.0f s", late_s)
            looked_at = time.monotonic()
            with self._lock:
                oldest = min(self._deadlines.values(), key=lambda item: item[0], default=None)
            self._excuse(is_late=oldest is not None and self._now() > oldest[0])
            if oldest is not None and self._now() > oldest[0] + self._grace_s:
                self._blame.assign(oldest[1])
                self._end(EXIT_STUCK, "a statement ignored its interrupt past its deadline")
            if self._statements is not None:
                self._blame.note(self._statements.long())
            resident = resident_bytes()
            if self._max_process_bytes is not None and resident > self._max_process_bytes:
                self._blame.assign_largest()
                self._end(
                    EXIT_MEMORY, f"the process holds {resident} bytes, over max_process_bytes"
                )
            self._spare(resident)
            if self.silent_s > _MAX_SILENCE_S:
                self._end(EXIT_SICK, f"the engine has not answered for {_MAX_SILENCE_S:g} s")

    def _excuse(self, *, is_late: bool) -> None:
        """Do not count the share of the time since the last look in which threads waited for a processor."""
        if not is_late:
            self._thread_times = {}
            return
        times = thread_times()
        fraction = starved_fraction(self._thread_times, times)
        self._thread_times = times
        self._lost_s += min(fraction, _MAX_STARVED) * _CHECK_S

    def _spare(self, resident: int) -> None:
        """Stop a statement before memory runs out. The memory it frees may show late."""
        most, statements = self._max_process_bytes, self._statements
        if statements is None or most is None or resident <= most * _SHORT:
            self._cancelled_at_bytes = 0
        elif resident > self._cancelled_at_bytes:
            self._cancelled_at_bytes = resident
            if resident > most * _VERY_SHORT and statements.cancel_largest_owner():
                _log.warning(
                    "the process holds %s bytes; a user's statements were stopped", resident
                )
            elif statements.cancel_newest_statement():
                _log.warning("the process holds %s bytes; a statement was stopped", resident)

    def _ask(self) -> None:
        while not self._stop.wait(_PULSE_S):
            if not self._healthy():
                self._blame.acquit()
                self._end(EXIT_SICK, "the engine refuses all work after an internal error")
            self._answered_at = self._now()

    def _end(self, code: int, why: str) -> None:
        _log.critical("%s; ending the process", why)
        # On a thread of its own: a delay here must not delay the end.
        threading.Thread(target=self.farewell, args=(why,), daemon=True).start()
        until = time.monotonic() + _FAREWELL_S
        most = (self._max_process_bytes or sys.maxsize) * _FAREWELL_MEMORY
        while time.monotonic() < until and resident_bytes() < most:
            time.sleep(_FAREWELL_S / 50)
        logging.shutdown()
        os._exit(code)


def resident_bytes() -> int:
    """Resident set size of this process in bytes (Linux); 0 where it cannot be read."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


#: Of each thread: nanoseconds on a processor, nanoseconds waiting for one (Linux, Documentation/scheduler/sched-stats).
ThreadTimes = Mapping[str, tuple[int, int]]


def thread_times(tasks: Path = Path("/proc/self/task")) -> ThreadTimes:
    """Return the times of all threads, by id; none where the kernel does not tell."""
    times = {}
    for schedstat in tasks.glob("*/schedstat"):
        with contextlib.suppress(OSError, ValueError):  # it has ended
            ran, waited, _ = schedstat.read_text(encoding="ascii").split()
            times[schedstat.parent.name] = int(ran), int(waited)
    return times


def starved_fraction(before: ThreadTimes, after: ThreadTimes) -> float:
    """Return what share of the time in which threads could run they waited for a processor, 0 to 1.

    0 where none could run: a thread that waits for a lock or a store is not starved.
    """
    ran = waited = 0
    for thread, (ran_before, waited_before) in before.items():
        if thread in after:
            ran += after[thread][0] - ran_before
            waited += after[thread][1] - waited_before
    return waited / (ran + waited) if waited > 0 and ran >= 0 else 0.0
