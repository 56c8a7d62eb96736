"""The audit log: a line of JSON for each statement that ended and each call that failed.

The line names who asked, what and what came of it. It holds the statement's SHA-256 and not its text, unless
that is wanted: texts hold what people look for.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Callable
from datetime import datetime

from planner.errors import FederationError
from proxy.ops.call_record import CallRecord
from proxy.session import TicketSummary

#: Where the lines go; who starts the server gives it a handler.
LOGGER = "thermocline.audit"
#: A record of the log as it is before it says anything: making one asks for process, thread and caller.
_EMPTY = logging.LogRecord(LOGGER, logging.INFO, "", 0, "", None, None)
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode
#: A name or an address from outside is cut to this in a line.
_MAX_CHARS = 200


class AuditLog:
    """Writes one line for each record. Thread-safe. ``now`` is the time with its zone."""

    def __init__(
        self, logger: logging.Logger, *, with_text: bool, now: Callable[[], datetime]
    ) -> None:
        self._logger = logger
        self._with_text = with_text
        self._now = now

    def write(self, record: CallRecord) -> None:
        """Write a call down that is over; a ``Journal``."""
        if record.outcome is None or not self._logger.isEnabledFor(logging.INFO):
            return
        about = None
        with contextlib.suppress(FederationError):
            about = record.about()
        line = {
            "time": self._now().isoformat(timespec="milliseconds"),
            "id": record.id,
            "call": record.method,
            **_who(record),
            **({} if about is None else self._what(about)),
            **({} if record.table is None else {"table": record.table[:_MAX_CHARS]}),
            **({} if record.cancels is None else {"cancels": record.cancels[:_MAX_CHARS]}),
            "rows": record.rows,
            "bytes": record.bytes,
            "seconds": round(record.seconds, 6),
            "outcome": record.outcome,
        }
        self._logger.handle(_Line(_ENCODE(line)))

    def _what(self, about: TicketSummary) -> dict[str, object]:
        fields: dict[str, object] = {
            "sha256": hashlib.sha256(about.sql.encode("utf-8", "surrogatepass")).hexdigest()
        }
        if self._with_text:
            fields["sql"] = about.sql
        if about.cuts:
            fields["cut"] = dict(about.cuts)
        return fields


class _Line(logging.LogRecord):
    """A line that is its own message; of all else a record may have, no handler of the audit log makes use."""

    def __init__(self, text: str) -> None:
        self.__dict__.update(_EMPTY.__dict__, msg=text)


def _who(record: CallRecord) -> dict[str, object]:
    session = record.session
    if session is None:
        claimed = record.claimed
        return {} if claimed is None else {"claimed_user": claimed[:_MAX_CHARS]}
    user = session.user
    return {
        "user": None if user is None else user[:_MAX_CHARS],
        "session": session.id,
        "peer": record.peer,
    }
