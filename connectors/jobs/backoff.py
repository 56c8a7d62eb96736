"""Failures in a row of one thing: how long it has failed, when it is tried again, and when that is worth a line."""

from __future__ import annotations

from dataclasses import dataclass

from connectors.jobs import events
from planner.errors import FederationError, Unavailable
from planner.names import TableName
from planner.tiering.schedule import backoff_s

#: An unchanged failure is reported again after this time: silence would look like an end.
TELL_AGAIN_S = 60.0


@dataclass
class Failing:
    """Times are of the service's own clock."""

    count: int = 0
    _since_s: float = 0.0
    _line: tuple[str, str] | None = None
    _line_s: float = 0.0

    def add(
        self,
        table: TableName | None,
        error: FederationError,
        clock_s: float,
        *,
        jitter: float = 1.0,
        retry_s: float | None = None,
    ) -> events.TableFailed:
        """Count one more. ``retry_s``: when it is tried again, if that does not depend on how often it has failed."""
        if not self.count:
            self._since_s = clock_s
        self.count += 1
        if retry_s is None:
            retry_s = backoff_s(self.count, jitter, passes=isinstance(error, Unavailable))
        what = type(error).__name__, error.message
        is_first = what != self._line or clock_s - self._line_s >= TELL_AGAIN_S
        if is_first:
            self._line, self._line_s = what, clock_s
        return events.TableFailed(
            table, error, retry_s, self.count, clock_s - self._since_s, is_first=is_first
        )

    def end(self) -> bool:
        """Note a success; return whether there were failures."""
        had = self.count > 0
        self.count, self._line = 0, None
        return had
