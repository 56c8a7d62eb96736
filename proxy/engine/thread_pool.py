"""Threads for work that is waited for no longer than its deadline.

A call into the engine cannot be ended from outside, only asked to end. DuckDB looks for interrupts between chunks of
2,048 rows, and not at all while it binds and optimizes: of lists of 10,000 elements, sorted, one chunk takes 5 s; a
condition of 15,000 parts 3 s of optimizing (1.5.5). So such a call runs on a thread of its own, and its caller goes
on when the time is up. Abandoned work ends by itself, or the watchdog ends it with the process.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar, cast

from planner.errors import Overloaded
from proxy.engine.running import ends_when_slow
from proxy.session import Deadline

T = TypeVar("T")
_log = logging.getLogger(__name__)

#: The priority threads begin with.
_NICE = os.getpriority(os.PRIO_PROCESS, 0)
#: End an idle thread after this time.
_IDLE_S = 5.0
#: An interrupt works in milliseconds, unless the machine is busy or the engine ignores it.
GRACE_S = 0.5
MAX_ABANDONED = 8
#: Of those, one user's.
MAX_ABANDONED_EACH = 4
UNINTERRUPTIBLE = "the statement ran longer than {:g} s, in a part that cannot be interrupted; narrow it, or raise its limit."


@dataclass(slots=True, eq=False)
class _Job(Generic[T]):
    """Work, its outcome, and a lock that is released once: at its end, or when it is given up."""

    work: Callable[[], T]
    afterwards: Callable[[T | None], None]
    user: str | None
    result: T | None = None
    error: BaseException | None = None
    is_done: bool = False
    is_abandoned: bool = False
    #: One lock instead of an event or a future, which have three: that was a tenth of `select 1`.
    _woken: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._woken.acquire()

    def wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # awake already
            self._woken.release()

    def wait(self, timeout_s: float) -> None:
        self._woken.acquire(timeout=timeout_s)


@dataclass(eq=False)
class ThreadPool:
    """Thread-safe. At most ``MAX_ABANDONED`` abandoned calls may run at a time: each keeps a core and memory busy.

    A user with ``MAX_ABANDONED_EACH`` of them gets no more work, and counts for no more than that: calls begun before
    any was late keep no other user out.
    """

    max_abandoned: int = MAX_ABANDONED
    max_abandoned_each: int = MAX_ABANDONED_EACH
    grace_s: float = GRACE_S

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        #: Idle threads' queues, last in first out.
        self._idle: list[SimpleQueue[_Job[Any] | None]] = []
        self._abandoned: Counter[str | None] = Counter()
        self._closed = False

    def run(
        self,
        work: Callable[[], T],
        deadline: Deadline,
        user: str | None = None,
        afterwards: Callable[[T | None], None] = lambda _: None,
    ) -> T:
        """Return what ``work`` does, by the deadline; what is given up or out of time gets ``GRACE_S`` more.

        ``afterwards`` is called when work that was abandoned has ended: with its result, None if it failed.

        Raises:
            FederationError: it was given up, and had not ended by then.
            DeadlineExceeded: it had not ended by then.
            Overloaded: too much was abandoned already, of all or of this user's.
        """
        self._admit(user)
        job = _Job(work, afterwards, user)
        with deadline.cancellation.interrupting(job.wake):
            self._give(job)
            job.wait(deadline.left_s)
        if not job.is_done:
            job.wait(self.grace_s)
        if not job.is_done and self._abandon(job):
            deadline.cancellation.check()
            raise deadline.exceeded(UNINTERRUPTIBLE)
        if job.error is not None:
            try:
                raise job.error
            finally:
                job.error = None  # or it would keep this frame, and the frame it
        return cast("T", job.result)

    def close(self) -> None:
        """End idle threads now, and busy ones after their work."""
        with self._lock:
            self._closed = True
            for queue in self._idle:
                queue.put(None)
            self._idle.clear()

    def _admit(self, user: str | None) -> None:
        with self._lock:
            own = self._abandoned[user]
            counts = self._abandoned.values()
            late = sum(min(count, self.max_abandoned_each) for count in counts)
        if own >= self.max_abandoned_each:
            raise Overloaded(
                f"{own} of your statements that cannot be interrupted are still running. Retry when they have ended."
            )
        if late >= self.max_abandoned:
            raise Overloaded(
                "Too many statements that cannot be interrupted are still running. Retry later, or elsewhere."
            )

    def _give(self, job: _Job[T]) -> None:
        with self._lock:
            queue = self._idle.pop() if self._idle else None
        if queue is None:
            queue = SimpleQueue()
            threading.Thread(
                target=self._serve, args=(queue,), name="engine-call", daemon=True
            ).start()
        queue.put(job)

    def _abandon(self, job: _Job[T]) -> bool:
        """Abandon a job. Returns False if it has just ended."""
        with self._lock:
            if job.is_done:
                return False
            job.is_abandoned = True
            self._abandoned[job.user] += 1
            return True

    def _serve(self, queue: SimpleQueue[_Job[Any] | None]) -> None:
        ends_when_slow.set(True)
        while True:
            try:
                job = queue.get(timeout=_IDLE_S)
            except Empty:
                # If it is not among the idle, a job is on its way to it.
                with self._lock, contextlib.suppress(ValueError):
                    self._idle.remove(queue)
                    return
                continue
            if job is None:
                return
            try:
                job.result = job.work()
            except BaseException as error:  # noqa: BLE001  raised where it is waited for
                job.error = error
            with self._lock:
                job.is_done = True
            job.wake()
            if job.is_abandoned:
                self._clean(job)
            del job  # what it holds must not live until the next
            with self._lock:
                if self._closed or _gives_way():
                    return
                self._idle.append(queue)

    def _clean(self, job: _Job[T]) -> None:
        try:
            job.afterwards(job.result)
        except Exception:  # noqa: BLE001  no caller is left to tell
            _log.exception("work that was left behind was not cleaned up")
        with self._lock:
            self._abandoned[job.user] -= 1
            if not self._abandoned[job.user]:
                del self._abandoned[job.user]


def _gives_way() -> bool:
    """Whether this thread has a lower priority: its work took long, and it may not raise it again."""
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) > _NICE
