"""A backend that answers on time, whatever the engine does.

DuckDB looks for interrupts between chunks of 2,048 rows, and not at all while it binds and optimizes: of lists of
10,000 elements, sorted, one chunk takes 5 s; a condition of 15,000 parts 3 s of optimizing (1.5.5). So what
asks the engine runs on threads of its own, and who waits for it answers its client by the statement's deadline and
``GRACE_S``. What is left behind ends by itself, or by the watchdog with the process.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

import pyarrow as pa

from planner.errors import DeadlineExceeded
from proxy.deadline import Cancellation
from proxy.engine.planning import planning_until
from proxy.engine.thread_pool import Abandoned, ThreadPool
from proxy.flightsql.backend import Backend, Browsing
from proxy.query.turns import Turns
from proxy.session import Planned, Prepared, Renewed, Session, Stream, TicketSummary

T = TypeVar("T")

#: An interrupt works in milliseconds, unless the machine is busy or the engine ignores it.
GRACE_S = 0.5
MAX_LATE = 8
#: Of those, one user's.
MAX_LATE_EACH = 4
_SMALL_BYTES = 64 * 1024


class Prompt(Backend, Protocol):
    """A backend that says what it can answer without asking anybody: nothing of that is late or left behind."""

    def plan_at_once(
        self,
        session: Session,
        sql: str,
        parameters: pa.RecordBatch | None,
        cancellation: Cancellation,
    ) -> Planned | None:
        """As ``plan``. None if engine, catalog or broker are needed."""

    def open_at_once(self, session: Session, ticket: bytes) -> Stream | None:
        """As ``open``, for rows in memory. None if engine, catalog or broker are needed."""


class Punctual:
    """Wraps a backend so that no call outlives the statement timeout, ``limit_of`` the session, in seconds.

    A switch to another thread and back costs as much as a small statement. So what needs no engine runs on the caller's.
    """

    def __init__(self, inner: Prompt, limit_of: Callable[[Session], float]) -> None:
        self._inner = inner
        self._limit_of = limit_of
        self._workers = ThreadPool(max_late=MAX_LATE, max_late_each=MAX_LATE_EACH)
        self._turns = Turns()

    def close(self) -> None:
        """End the threads, without waiting for abandoned work."""
        self._workers.close()

    @property
    def browsing(self) -> Browsing:
        return self._inner.browsing

    def prepare(self, session: Session, sql: str, cancellation: Cancellation) -> Prepared:
        timed = self._timed(session, cancellation)

        def prepared() -> Prepared:
            with self._turns.one(session.user, sql, cancellation.check, timed.left_s):
                return self._inner.prepare(session, sql, cancellation)

        return timed.call(prepared)

    def plan(
        self,
        session: Session,
        sql: str,
        parameters: pa.RecordBatch | None,
        cancellation: Cancellation,
    ) -> Planned:
        planned = self._inner.plan_at_once(session, sql, parameters, cancellation)
        if planned is not None:
            return planned
        timed = self._timed(session, cancellation)

        def made() -> Planned:
            with self._turns.one(session.user, sql, cancellation.check, timed.left_s):
                return self._inner.plan(session, sql, parameters, cancellation)

        return timed.call(made)

    def update(
        self,
        session: Session,
        sql: str,
        rows: Iterable[pa.RecordBatch],
        cancellation: Cancellation,
    ) -> int:
        return self._inner.update(session, sql, rows, cancellation)

    def open(self, session: Session, ticket: bytes, cancellation: Cancellation) -> Stream:
        cancellation.check()
        ready = self._inner.open_at_once(session, ticket)
        if ready is not None:
            return ready
        timed = self._timed(session, cancellation)

        def opened() -> _PunctualStream:
            stream = _PunctualStream(self._inner.open(session, ticket, cancellation), timed)
            try:
                stream.read()
            except BaseException:
                stream.close()
                raise
            return stream

        return timed.call(opened, _close)

    def renew(self, session: Session, ticket: bytes) -> Renewed:
        return self._inner.renew(session, ticket)

    def about(self, session: Session, ticket: bytes) -> TicketSummary:
        return self._inner.about(session, ticket)

    def _timed(self, session: Session, cancellation: Cancellation) -> _Timed:
        return _Timed(
            self._workers, cancellation, self._limit_of(session), user=session.user or ""
        )


class _Timed:
    """The calls that one statement makes in turn, and the time they have together."""

    def __init__(
        self, workers: ThreadPool, cancellation: Cancellation, limit_s: float, *, user: str
    ) -> None:
        self._workers = workers
        self._user = user
        self._cancellation = cancellation
        self._limit_s = self.left_s = limit_s

    def call(
        self, work: Callable[[], T], afterwards: Callable[[T | None], None] = lambda _: None
    ) -> T:
        """Return what ``work`` does.

        Raises:
            DeadlineExceeded: it was left behind; ``afterwards`` is called when it has ended.
        """
        began = time.monotonic()
        deadline = began + self.left_s

        def worked() -> T:
            with planning_until(deadline):
                return work()

        try:
            return self._workers.run(
                worked,
                cancellation=self._cancellation,
                left_s=self.left_s,
                grace_s=GRACE_S,
                afterwards=afterwards,
                user=self._user,
            )
        except Abandoned:
            raise DeadlineExceeded(
                f"the statement ran longer than {self._limit_s:g} s, in a part that cannot be interrupted; narrow it, "
                f"or raise its limit.",
                timeout_s=self._limit_s,
            ) from None
        finally:
            self.left_s = max(0.0, self.left_s - (time.monotonic() - began))


class _PunctualStream:
    """One execution. It is closed once nothing runs in it."""

    def __init__(self, inner: Stream, timed: _Timed) -> None:
        self._inner = inner
        self._timed = timed
        self._lock = threading.Lock()
        self._is_busy = self._is_closed = self._has_ended = False
        self._batches = iter(inner)
        self._read: deque[pa.RecordBatch] = deque()

    @property
    def schema(self) -> pa.Schema:
        return self._inner.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while True:
            while self._read:
                yield self._read.popleft()
            if self._has_ended:
                return
            self._timed.call(self.read)

    def read(self) -> None:
        """Read the next batch, and one more behind a small one: that is most likely the end.

        A small statement is opened, read and ended in one switch to another thread.
        """
        with self._lock:
            if self._is_closed:
                self._has_ended = True
                return
            self._is_busy = True
        try:
            for _ in range(2):
                batch = next(self._batches, None)
                if batch is None:
                    self._has_ended = True
                    return
                self._read.append(batch)
                if batch.nbytes > _SMALL_BYTES:
                    return
        finally:
            self._rest()

    def _rest(self) -> None:
        with self._lock:
            self._is_busy = False
            if not self._is_closed:
                return
        self._inner.close()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            if self._is_busy:
                return
        self._inner.close()


def _close(stream: Stream | None) -> None:
    if stream is not None:
        stream.close()
