"""The state of a bound table in one word, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

from planner.errors import TailTooLarge
from planner.tiering.triggers import PRESSURE_SHARE, URGENT_S

#: A tail that is whole sooner is not worth a word.
_SOON_S = 1.0

CLOSED = (
    "closed",
    "You see some of its rows only, so its numbers are closed; read the table itself.",
)
UNREAD = "unread", "The server has not read its metadata yet; ask again in some seconds."


@dataclass(frozen=True, slots=True)
class TableFigures:
    """What the word is decided by.

    ``error``: a statement on the table fails with it now. ``catalog_error``: its catalog did not answer the last time.
    ``follower_error`` stopped the reading of its tail. All are names of classes. ``rows`` and ``size`` are the tail's,
    known or estimated, ``max_rows`` and ``max_size`` its budget.
    """

    rows: int
    size: int
    max_rows: int
    max_size: int
    error: str | None = None
    catalog_error: str | None = None
    follower_error: str | None = None
    lag_s: float | None = None
    retention_s: float | None = None
    rest_s: float | None = None


def state_of(table: TableFigures) -> tuple[str, str | None]:
    """Return the worst that is true of a table, in one word, and what to do; nothing where all is well."""
    retention_s = table.retention_s
    left_s = None if retention_s is None or table.lag_s is None else retention_s - table.lag_s
    fullness = max(table.rows / table.max_rows, table.size / table.max_size)
    if table.error is not None:
        return "failing", f"Statements on it fail ({table.error}); do as the error's text says."
    if fullness > 1 or table.follower_error == TailTooLarge.__name__:
        return (
            "full",
            "Its tail is larger than its budget, so statements on it are refused; tier it, or raise the budget.",
        )
    if left_s is not None and left_s <= URGENT_S:
        return (
            "expiring",
            "Retention is about to remove records that are not tiered; tier it now, or keep records longer.",
        )
    if table.catalog_error is not None:
        return (
            "stale",
            f"Its catalog does not answer ({table.catalog_error}); it is served from the last snapshot known.",
        )
    if table.follower_error is not None:
        return (
            "stopped",
            f"Reading its tail has stopped ({table.follower_error}); the server's log says where.",
        )
    old = 0.0 if retention_s is None or table.lag_s is None else table.lag_s / retention_s
    if max(fullness, old) > PRESSURE_SHARE:
        return (
            "late",
            "More waits than a tierer leaves; see whether one runs, and what it says of the table.",
        )
    if table.rest_s is not None and table.rest_s >= _SOON_S:
        return "loading", "Its tail is being read; statements on it wait until then."
    return "ok", None
