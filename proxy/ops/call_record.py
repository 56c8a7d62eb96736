"""The record of a client call, and the id that its errors carry.

A call that fails is written down, and one that ends a statement: streams its last row, is left by its client,
changes the session. Planning that succeeds and browsing are not. Who writes, and where, is not known here.
"""

from __future__ import annotations

import hashlib
import secrets
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from planner.errors import FederationError
from planner.schema import size_of
from proxy.session import Session, TicketSummary

OK = "ok"
#: The client left, or took only a part of the answer.
ABANDONED = "Abandoned"
#: A fault of ours: its class is in the log under the call's id, nowhere else.
INTERNAL = "Internal"
_ID_DIGITS = 16


def outcome_of(error: BaseException) -> str:
    """Return the name of our error class for metrics and audit; never a foreign one."""
    return type(error).__name__ if isinstance(error, FederationError) else INTERNAL


class CallRecord:
    """One call, filled in while it runs. Used by one thread at a time.

    ``outcome`` is None as long as there is nothing to write down. ``claimed`` is the user a refused login named.
    """

    def __init__(self, method: str) -> None:
        self.method = method
        self._id: str | None = None
        self.session: Session | None = None
        self.peer: str | None = None
        self.claimed: str | None = None
        self.rows = 0
        self.bytes = 0
        self.outcome: str | None = None
        #: Seconds of what was done for a statement, by name: prepare, plan, first (until rows can be read), stream.
        self.steps: dict[str, float] = {}
        #: Whether a statement was executed or described, with any outcome.
        self.is_executed = False
        #: The table that an Iceberg engine loads.
        self.table: str | None = None
        #: The statement it cancels.
        self.cancels: str | None = None
        #: Bytes of the statement's text, or of its ticket: what the record holds on to.
        self.size = 0
        self._began_s = time.monotonic()
        self._ended_s: float | None = None
        self._streaming_since_s: float | None = None
        self._sql: str | None = None
        self._about: Callable[[], TicketSummary] | None = None

    @property
    def id(self) -> str:
        """Names the call, or the statement once its ticket is known: any replica names it alike."""
        if self._id is None:
            self._id = secrets.token_hex(_ID_DIGITS // 2)
        return self._id

    @property
    def is_statement(self) -> bool:
        return self._sql is not None or self._about is not None

    @property
    def state(self) -> str:
        """What a call of a statement does: ``planning``, ``running`` (until rows can be read) or ``streaming``."""
        if self._about is None:
            return "planning"
        return "streaming" if self.is_streaming else "running"

    @property
    def seconds(self) -> float:
        """Time that the call took, or takes so far."""
        return (time.monotonic() if self._ended_s is None else self._ended_s) - self._began_s

    @property
    def age_s(self) -> float:
        """Time since the call came."""
        return time.monotonic() - self._began_s

    def entered(self, session: Session, peer: str) -> None:
        self.session, self.peer = session, peer

    def asks(self, sql: str) -> None:
        self._sql, self.size = sql, sys.getsizeof(sql)

    def redeems(self, ticket: bytes, about: Callable[[], TicketSummary]) -> None:
        """Note the ticket a call came with; ``about`` opens it, once the call is over."""
        self._id = hashlib.sha256(ticket).hexdigest()[:_ID_DIGITS]
        # Of a prepared statement, the text as well.
        self._about, self._sql, self.size = about, None, len(ticket)

    def streams(self) -> None:
        """Note that rows can be read: from here on a client may leave them."""
        self.outcome = ABANDONED
        self._streaming_since_s = time.monotonic()

    @property
    def has_failed(self) -> bool:
        return self.outcome not in (None, OK, ABANDONED)

    @property
    def is_streaming(self) -> bool:
        return self._streaming_since_s is not None

    def over(self) -> None:
        if self._ended_s is None:
            self._ended_s = time.monotonic()
        if self._streaming_since_s is not None:
            self.steps["stream"] = time.monotonic() - self._streaming_since_s
            self._streaming_since_s = None

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step that succeeds."""
        self.is_executed = True
        began_s = time.monotonic()
        yield
        self.steps[name] = time.monotonic() - began_s

    def sent(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows
        self.bytes += size_of(batch)

    def ended(self) -> None:
        self.outcome = OK

    def failed(self, error: BaseException) -> None:
        self.outcome = outcome_of(error)
        if isinstance(error, FederationError):
            claimed = error.facts.get("user")
            self.claimed = None if claimed is None else str(claimed)

    def about(self) -> TicketSummary | None:
        """Say what was asked; None where there was no statement, or its ticket was not one.

        Raises:
            FederationError: the ticket cannot be opened.
        """
        if self._about is not None:
            return self._about()
        return None if self._sql is None else TicketSummary(self._sql, {})


class EndedRecords:
    """Records of statements that ended lately, until they are taken. Thread-safe."""

    def __init__(self, most: int, max_bytes: int) -> None:
        """``max_bytes`` of texts and tickets; the oldest go first."""
        self._most, self._max_bytes = most, max_bytes
        self._lock = threading.Lock()
        self._records: deque[CallRecord] = deque()
        self._bytes = 0

    def note(self, record: CallRecord) -> None:
        """Keep a call that is over; a ``Journal``."""
        if record.outcome is None or record.session is None or not record.is_statement:
            return
        with self._lock:
            self._records.append(record)
            self._bytes += record.size
            while len(self._records) > self._most or self._bytes > self._max_bytes:
                self._bytes -= self._records.popleft().size

    def take(self) -> list[CallRecord]:
        """Return them, oldest first, and forget them."""
        with self._lock:
            records = list(self._records)
            self._records.clear()
            self._bytes = 0
        return records


#: Where a record goes when its call is over.
Journal = Callable[[CallRecord], None]
