"""What a ticket stands for, in the words of the audit log."""

from __future__ import annotations

import hashlib

from planner.ticket import Ticket, TicketTable
from proxy.flightsql.backend import About

#: Partitions told one by one; a topic of thousands must not make a line of kilobytes.
_MAX_PARTITIONS = 16


def about(ticket: Ticket) -> About:
    return About(ticket.sql, {_name(held): _cut(held) for held in ticket.tables})


def _name(held: TicketTable) -> str:
    """The table; of the past, with what the statement says of it."""
    if held.at is None:
        return str(held.table)
    digest = hashlib.sha256(held.at.expression.encode()).hexdigest()[:8]
    return f"{held.table} {held.at} {digest}"


def _cut(held: TicketTable) -> str:
    """``snapshot 7, flows 0:10-20 1:5-9``: offsets of the tail, half-open."""
    snapshot = "empty" if held.snapshot_id is None else f"snapshot {held.snapshot_id}"
    if held.topic is None:
        return snapshot
    ranges = [f"{part.partition}:{part.start}-{part.stop}" for part in held.ranges]
    more = len(ranges) - _MAX_PARTITIONS
    told = ranges[:_MAX_PARTITIONS] + ([f"and {more} more"] if more > 0 else [])
    told += [] if held.until is None else ["of a cut that ends earlier"]
    return f"{snapshot}, {' '.join([held.topic, *told])}"
