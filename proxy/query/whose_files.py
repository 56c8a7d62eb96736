"""Adds to errors of files the tables that they may belong to: neither engine nor store says which."""

from __future__ import annotations

from collections.abc import Collection

from planner.errors import FederationError
from planner.names import TableName

_MAX_LISTED = 5


def of_tables(error: FederationError, names: Collection[TableName]) -> FederationError:
    """Return the error with the table that a statement reads, or those it may be about; as it is where it names one."""
    if not names or error.facts.keys() & {"table", "topic"}:
        return error
    listed = sorted(map(str, names))
    if len(listed) == 1:
        return type(error)(f"{listed[0]}: {error.message}", **error.facts, table=listed[0])
    return type(error)(
        f"one of {', '.join(listed[:_MAX_LISTED])}: {error.message}", **error.facts
    )
