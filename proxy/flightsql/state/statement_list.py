"""``system.statements`` and ``system.sessions``: what runs and what ran, as those may see it who ask.

A statement that ends costs an entry here and no more: what it read is looked up when the list is asked for. Those that
read no table, as the list itself, are left out then.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial

import pyarrow as pa

from planner.errors import FederationError
from proxy.access.limits import ServerPolicy
from proxy.catalog.system_tables import SYSTEM_SCHEMAS, Maker
from proxy.flightsql.state.calls import Call, Calls
from proxy.flightsql.state.sessions import Sessions
from proxy.ops.call_record import CallRecord, EndedRecords
from proxy.session import Deadline, Session, TicketSummary

#: Statements that are over, of all users.
_MAX_ENDED = 1_000
#: Bytes of texts and tickets that wait to be looked up.
_MAX_WAITING_BYTES = 16 * 1024 * 1024
_MAX_TEXT_CHARS = 4_096

_Row = dict[str, object]


class EndedStatements:
    """The last statements that ended and read a table, or failed. Thread-safe."""

    def __init__(self, *, with_text: bool) -> None:
        """``with_text``: rows have the statements' texts, as lines of the audit log do."""
        self.with_text = with_text
        self.records = EndedRecords(_MAX_ENDED, _MAX_WAITING_BYTES)
        self._lock = threading.Lock()
        self._rows: deque[tuple[Session, _Row]] = deque(maxlen=_MAX_ENDED)

    def rows(self) -> list[tuple[Session, _Row]]:
        """Return who asked, and the row of each, oldest first."""
        with self._lock:
            for record in self.records.take():
                about = _about(record)
                if record.session is not None and (about.cuts or record.has_failed):
                    row = _statement_row(record, about, with_text=self.with_text)
                    self._rows.append((record.session, row))
            return list(self._rows)


class StatementList:
    """The makers of both relations, and what cancels by id. Thread-safe."""

    def __init__(
        self, calls: Calls, sessions: Sessions, policy: ServerPolicy, ended: EndedStatements
    ) -> None:
        self._calls = calls
        self._sessions = sessions
        self._policy = policy
        self._ended = ended

    def makers(self) -> dict[str, Maker]:
        return {"statements": self._statements, "sessions": self._session_rows}

    def cancel(self, asker: Session, statement_id: str) -> bool:
        """Give up the calls of a running statement; False: none of that id that the session may cancel runs."""
        calls = [call for call in self._running(asker) if call.record.id == statement_id]
        for call in calls:
            call.cancellation.request()
        return bool(calls)

    def _statements(self, asker: Session, _: Deadline) -> pa.Table:
        sees = self._sees(asker)
        rows = [row for owner, row in self._ended.rows() if sees(owner)]
        rows += [self._running_row(call) for call in self._running(asker)]
        return pa.Table.from_pylist(rows, SYSTEM_SCHEMAS["statements"])

    def _running_row(self, call: Call) -> _Row:
        record = call.record
        row = _statement_row(record, _about(record), with_text=self._ended.with_text)
        return row | {"state": record.state, "outcome": None, "waits_for": call.waits_for}

    def _running(self, asker: Session) -> Iterable[Call]:
        sees = self._sees(asker)
        return (
            call
            for call in self._calls.live()
            if call.record.is_statement
            and call.record.session is not None
            and sees(call.record.session)
        )

    def _session_rows(self, asker: Session, _: Deadline) -> pa.Table:
        sees, now = self._sees(asker), datetime.now(UTC)
        rows = [
            {
                "id": session.id,
                "user": session.user,
                "is_own": session.id == asker.id,
                "opened": now - timedelta(seconds=state.open_s),
                "idle_s": state.idle_s,
                "calls": state.calls,
                "catalog": session.catalog,
                "schema": session.schema,
                "time_zone": session.zone,
                "freshness": session.freshness,
                "profile": session.options.get("profile"),
            }
            for state in self._sessions.states()
            if sees(session := state.session)
        ]
        return pa.Table.from_pylist(rows, SYSTEM_SCHEMAS["sessions"])

    def _sees(self, asker: Session) -> Callable[[Session], bool]:
        if self._policy.admins.have(asker.user, asker.groups):
            return lambda _: True
        return partial(_is_own, asker)


def _is_own(asker: Session, owner: Session) -> bool:
    """Whether both are of one user; an anonymous caller has nothing but the session."""
    return owner.id == asker.id if asker.user is None else owner.user == asker.user


def _statement_row(record: CallRecord, about: TicketSummary, *, with_text: bool) -> _Row:
    """Describe the statement of a call as one that is over."""
    session = record.session
    return {
        "id": record.id,
        "user": None if session is None else session.user,
        "session": None if session is None else session.id,
        "state": "ended",
        "outcome": record.outcome,
        "waits_for": None,
        "started": datetime.fromtimestamp(time.time() - record.age_s, UTC),
        "elapsed_s": record.seconds,
        "rows": record.rows,
        "bytes": record.bytes,
        "tables": list(about.cuts),
        "sql": about.sql[:_MAX_TEXT_CHARS] if with_text else None,
        "sha256": hashlib.sha256(about.sql.encode("utf-8", "surrogatepass")).hexdigest(),
    }


def _about(record: CallRecord) -> TicketSummary:
    about = None
    with suppress(FederationError):
        about = record.about()
    return TicketSummary("", {}) if about is None else about
