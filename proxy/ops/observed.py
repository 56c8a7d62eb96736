"""A backend that counts what another one does. It changes nothing of it, and knows no statement's text."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator

import pyarrow as pa

from proxy.deadline import Cancellation
from proxy.flightsql.backend import Backend, Browsing
from proxy.ops.call_record import ABANDONED, OK, outcome_of
from proxy.ops.metrics import ServerMetrics
from proxy.session import Planned, Prepared, Renewed, Session, Stream, TicketSummary


class Observed:
    """``inner`` as seen by ``metrics``: a statement is counted once, where it fails or where it ends."""

    def __init__(self, inner: Backend, metrics: ServerMetrics) -> None:
        self._inner = inner
        self._metrics = metrics

    @property
    def browsing(self) -> Browsing:
        return self._inner.browsing

    def prepare(self, session: Session, sql: str, cancellation: Cancellation) -> Prepared:
        with self._step("prepare"):
            return self._inner.prepare(session, sql, cancellation)

    def plan(
        self,
        session: Session,
        sql: str,
        parameters: pa.RecordBatch | None,
        cancellation: Cancellation,
    ) -> Planned:
        with self._step("plan"):
            return self._inner.plan(session, sql, parameters, cancellation)

    def update(
        self,
        session: Session,
        sql: str,
        rows: Iterable[pa.RecordBatch],
        cancellation: Cancellation,
    ) -> int:
        with self._step("plan"):
            return self._inner.update(session, sql, rows, cancellation)

    def open(self, session: Session, ticket: bytes, cancellation: Cancellation) -> Stream:
        with self._step("first"):
            return _Counted(self._inner.open(session, ticket, cancellation), self._metrics)

    def renew(self, session: Session, ticket: bytes) -> Renewed:
        return self._inner.renew(session, ticket)

    def about(self, session: Session, ticket: bytes) -> TicketSummary:
        return self._inner.about(session, ticket)

    @contextlib.contextmanager
    def _step(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        except BaseException as error:
            self._metrics.ended(outcome_of(error))
            raise
        self._metrics.step(name, time.monotonic() - began)


class _Counted:
    """One execution: running until it is closed, which happens once in the count."""

    def __init__(self, inner: Stream, metrics: ServerMetrics) -> None:
        self._inner = inner
        self._metrics = metrics
        self._outcome = ABANDONED
        self._began = time.monotonic()
        self._open = True
        metrics.running(1)

    @property
    def schema(self) -> pa.Schema:
        return self._inner.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._inner:
                self._metrics.sent(batch.num_rows, batch.nbytes)
                yield batch
        except GeneratorExit:
            raise
        except BaseException as error:
            self._outcome = outcome_of(error)
            raise
        self._outcome = OK

    def close(self) -> None:
        if self._open:
            self._open = False
            self._metrics.running(-1)
            self._metrics.step("stream", time.monotonic() - self._began)
            self._metrics.ended(self._outcome)
        self._inner.close()
