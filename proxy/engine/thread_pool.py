"""Threads that do work somebody waits for no longer than its time.

A call into the engine cannot be ended from outside, only asked to end. So it runs on a thread of its own: who waits
goes on when the time is up, and the work is left behind, to end by itself.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import Counter
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar, cast

from planner.errors import Overloaded
from proxy.deadline import Cancellation

T = TypeVar("T")
_log = logging.getLogger(__name__)

#: The priority threads begin with.
_NICE = os.getpriority(os.PRIO_PROCESS, 0)
#: End an idle thread after this time.
_IDLE_S = 5.0


class Abandoned(Exception):
    """The work is out of time, and still runs."""


class _Job(Generic[T]):
    """Work, its outcome, and a lock that is released once: at its end, or when it is given up."""

    __slots__ = ("_woken", "afterwards", "error", "is_done", "result", "user", "work")

    def __init__(self, work: Callable[[], T]) -> None:
        self.work = work
        self.result: T | None = None
        self.error: BaseException | None = None
        self.is_done = False
        #: Whose work it is, once it was abandoned.
        self.user = ""
        self.afterwards: Callable[[T | None], None] | None = None
        # One lock instead of an event or a future, which have three: that was a tenth of `select 1`.
        self._woken = threading.Lock()
        self._woken.acquire()

    def wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # awake already
            self._woken.release()

    def wait(self, timeout_s: float) -> None:
        self._woken.acquire(timeout=timeout_s)


class ThreadPool:
    """Thread-safe. Of work left behind there may be ``max_late`` at one time: it keeps a core and memory busy.

    Of one user's, ``max_late_each`` is admitted, and no more of it counts: what he began before any of it was late
    keeps nobody else out.
    """

    def __init__(self, *, max_late: int, max_late_each: int | None = None) -> None:
        self._max_late = max_late
        self._max_late_each = max_late if max_late_each is None else max_late_each
        self._lock = threading.Lock()
        #: Idle threads' queues, last in first out.
        self._idle: list[SimpleQueue[_Job[Any] | None]] = []
        self._late: Counter[str] = Counter()
        self._closed = False

    def run(
        self,
        work: Callable[[], T],
        *,
        cancellation: Cancellation,
        left_s: float,
        grace_s: float,
        afterwards: Callable[[T | None], None],
        user: str = "",
    ) -> T:
        """Return what ``work`` does, within ``left_s``; what is given up or out of time gets ``grace_s`` more.

        ``afterwards`` is called when work that was left behind has ended: with its result, None if it failed.

        Raises:
            LeftBehind: it had not ended by then; only if it was not given up.
            Overloaded: too much was left behind already, of all or of this user's.
        """
        self._admit(user)
        job = _Job(work)
        with cancellation.interrupting(job.wake):
            self._give(job)
            job.wait(left_s)
        if not job.is_done:
            job.wait(grace_s)
        if not job.is_done and self._leave(job, afterwards, user):
            cancellation.check()
            raise Abandoned
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

    def _admit(self, user: str) -> None:
        with self._lock:
            own = self._late[user]
            late = sum(min(count, self._max_late_each) for count in self._late.values())
        if own >= self._max_late_each:
            raise Overloaded(
                f"{own} of your statements that cannot be interrupted are still running. Retry when they have ended."
            )
        if late >= self._max_late:
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

    def _leave(self, job: _Job[T], afterwards: Callable[[T | None], None], user: str) -> bool:
        """Abandon a job. Returns False if it has just ended."""
        with self._lock:
            if job.is_done:
                return False
            job.afterwards = afterwards
            job.user = user
            self._late[user] += 1
            return True

    def _serve(self, queue: SimpleQueue[_Job[Any] | None]) -> None:
        while True:
            try:
                job = queue.get(timeout=_IDLE_S)
            except Empty:
                # If it is not among the idle, work is on its way to it.
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
            if job.afterwards is not None:
                self._clean(job)
            del job  # what it holds must not live until the next
            with self._lock:
                if self._closed or _gives_way():
                    return
                self._idle.append(queue)

    def _clean(self, job: _Job[T]) -> None:
        assert job.afterwards is not None  # noqa: S101 - asked for those only
        try:
            job.afterwards(job.result)
        except Exception:  # noqa: BLE001  there is nobody left to tell
            _log.exception("work that was left behind was not cleaned up")
        with self._lock:
            self._late[job.user] -= 1
            if not self._late[job.user]:
                del self._late[job.user]


def _gives_way() -> bool:
    """Whether this thread has a lower priority: its work took long, and it may not raise it again."""
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) > _NICE
