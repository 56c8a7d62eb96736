"""The audit log: a line of JSON for each statement that ended and each call that failed.

The line names who asked, what and what came of it. It holds the statement's SHA-256 and not its text, unless
settings ask for it: texts hold what people look for. One thread writes the lines, so no statement waits for a disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import threading
from collections.abc import Callable
from datetime import datetime

from planner.errors import FederationError
from proxy.ops.call_record import CallRecord
from proxy.session import TicketSummary

_log = logging.getLogger(__name__)

#: The lines of so long are written at once: what a killed process loses.
FLUSH_S = 0.05
#: Lines wait to be written up to so many characters; then the calls that end wait.
MAX_CHARS = 16 << 20
#: After a write that failed, so that a full disk is told once a second.
_FAILED_S = 1.0
#: A disk that does not answer keeps the end of the process waiting for so long.
_DRAIN_S = 10.0
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode
#: A name or an address from outside is cut to this in a line.
_MAX_CHARS = 200


class AuditLog:
    """Makes one line of each record, without an end. Thread-safe. ``now`` is the time with its zone."""

    def __init__(
        self, put: Callable[[str], None], *, with_text: bool, now: Callable[[], datetime]
    ) -> None:
        self._put = put
        self._with_text = with_text
        self._now = now

    def write(self, record: CallRecord) -> None:
        """Write a call down that is over; a ``Journal``."""
        if record.outcome is None:
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
        self._put(_ENCODE(line))

    def _what(self, about: TicketSummary) -> dict[str, object]:
        fields: dict[str, object] = {
            "sha256": hashlib.sha256(about.sql.encode("utf-8", "surrogatepass")).hexdigest()
        }
        if self._with_text:
            fields["sql"] = about.sql
        if about.cuts:
            fields["cut"] = dict(about.cuts)
        return fields


class LineWriter(logging.Handler):
    """Has one thread write lines, in the order they came. Thread-safe; ``close`` writes what is left.

    A handler of ``logging``, so that ``logging.shutdown``, by which the process ends itself, writes what is left, too.
    """

    def __init__(self, write: Callable[[str], None], target: str) -> None:
        """``write`` takes whole lines, and raises OSError or ValueError; ``target`` says in messages where they go."""
        super().__init__()
        self._write = write
        self._target = target
        self._changed = threading.Condition(threading.Lock())
        self._lines: list[str] = []
        self._chars = 0
        #: Lines that came and are neither written nor given up.
        self._pending = 0
        self._pause_s = FLUSH_S
        #: Calls wait for the disk, and the log says so.
        self._is_late = False
        self._is_ending = self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="audit-log", daemon=True)
        self._thread.start()

    def createLock(self) -> None:
        """Have none: ``logging.shutdown`` must not wait for a line that waits for a disk."""
        self.lock = None

    def put(self, line: str) -> None:
        """Have a line written soon. Waits where too many wait already. Raises OSError: the log is closed."""
        if self._chars >= MAX_CHARS and not self._is_late:
            self._is_late = True
            _log.error(
                "server.audit_log: %s is too slow; calls that end wait for it", self._target
            )
        with self._changed:
            while self._chars >= MAX_CHARS and not self._is_closed:
                self._changed.wait()
            if self._is_closed:
                raise OSError(f"the audit log {self._target} is closed")
            self._lines.append(line)
            self._chars += len(line)
            self._pending += 1
            if len(self._lines) == 1 or self._chars >= MAX_CHARS:
                self._changed.notify_all()

    def close(self) -> None:
        """Write what came, and take no more; give up on a disk that does not answer. Idempotent."""
        with self._changed:
            if self._is_ending:
                return
            self._is_ending = True
            self._changed.notify_all()
            is_written = self._changed.wait_for(lambda: not self._pending, _DRAIN_S)
            self._is_closed = True
            self._changed.notify_all()
            pending = self._pending
        if not is_written:
            self._tell("it does not answer", pending)
        self._thread.join(_FAILED_S)
        super().close()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines or self._is_closed)
                self._changed.wait_for(self._is_due, self._pause_s)
                lines, self._lines, self._chars = self._lines, [], 0
                self._is_late = False
                self._changed.notify_all()
            if not lines:
                return
            try:
                self._write("\n".join([*lines, ""]))
                self._pause_s = FLUSH_S
            except (OSError, ValueError) as error:
                self._pause_s = _FAILED_S
                self._tell(getattr(error, "strerror", None) or str(error), len(lines))
            with self._changed:
                self._pending -= len(lines)
                self._changed.notify_all()

    def _is_due(self) -> bool:
        return self._is_ending or self._chars >= MAX_CHARS

    def _tell(self, why: str, lines: int) -> None:
        _log.error(
            "server.audit_log: %s cannot be written (%s); lines lost: %d",
            *(self._target, why, lines),
        )


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
