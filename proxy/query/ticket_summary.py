"""What a ticket stands for, in the words of the audit log."""

from __future__ import annotations

import hashlib

from planner.ticket import Ticket, TicketTable
from proxy.session import TicketSummary

#: Partitions told one by one; a topic of thousands must not make a line of kilobytes.
_MAX_PARTITIONS = 16


def about(ticket: Ticket) -> TicketSummary:
    return TicketSummary(ticket.sql, {_name(table): _cut(table) for table in ticket.tables})


def _name(table: TicketTable) -> str:
    """The table; of the past, with what the statement says of it."""
    if table.at is None:
        return str(table.table)
    digest = hashlib.sha256(table.at.expression.encode()).hexdigest()[:8]
    return f"{table.table} {table.at} {digest}"


def _cut(table: TicketTable) -> str:
    """``snapshot 7, flows 0:10-20 1:5-9``: offsets of the tail, half-open."""
    snapshot = "empty" if table.snapshot_id is None else f"snapshot {table.snapshot_id}"
    if table.topic is None:
        return snapshot
    ranges = [f"{part.partition}:{part.start}-{part.stop}" for part in table.ranges]
    more = len(ranges) - _MAX_PARTITIONS
    shortened = ranges[:_MAX_PARTITIONS] + ([f"and {more} more"] if more > 0 else [])
    shortened += [] if table.until is None else ["of a cut that ends earlier"]
    return f"{snapshot}, {' '.join([table.topic, *shortened])}"
