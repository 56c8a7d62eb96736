"""A day since 1970 as year, month and day of the proleptic Gregorian calendar: of any year, Python's end with 9999."""

from __future__ import annotations

import datetime as dt

_EPOCH = dt.date(1970, 1, 1)
#: After which the calendar begins again.
_CYCLE_YEARS, _CYCLE_DAYS = 400, 146_097


def civil(days: int) -> tuple[int, int, int]:
    """Return year, month and day. Year 0 is the one before year 1."""
    cycles, rest = divmod(days, _CYCLE_DAYS)
    date = _EPOCH + dt.timedelta(rest)
    return date.year + _CYCLE_YEARS * cycles, date.month, date.day
