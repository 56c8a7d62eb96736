"""Splits a statement that only looks at rows into parts of one cut, for as many readers as its client has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from planner.reading.needs import is_plain_scan, tells_time
from planner.reading.shares import NO_FILE, ScanPart, split_name, split_scan
from planner.seam.cut import TableCut
from planner.statement.references import CutKey
from planner.ticket import Ticket, padded
from proxy.query.file_pruning import StatementContext
from proxy.query.parsing import ParsedStatement
from proxy.query.relations import Relations
from proxy.session import Session


def in_parts(
    relations: Relations,
    session: Session,
    parsed: ParsedStatement,
    cuts: Mapping[CutKey, TableCut],
    context: StatementContext,
    ticket: Ticket,
    *,
    hides_count: bool,
) -> tuple[Ticket, ...]:
    """Return a ticket for each part of an answer, as many as the session asks for at most; none: it has but one part.

    To whom the number of records is not told, that of parts tells nothing either: it is what was asked for, and all their
    tickets are equally long.

    Raises:
        FederationError: as ``planner.ports.ColdStore.scan``.
    """
    count = session.max_endpoints
    if len(parsed.tables) != 1 or parsed.browsed:
        return ()
    [table] = parsed.tables
    if (
        table.virtual == "seam"
        or session.after is not None
        or not is_plain_scan(parsed.written)
    ):
        return ()
    cut = cuts[table.key]
    files, ranges = relations.pieces(session, parsed, cut, context)
    shares = split_scan(files, ranges, count)
    if hides_count:
        shares += ((NO_FILE, ()),) * (count - len(shares))
    elif len(shares) == 1:
        return ()
    cold = cut.cold
    when = ticket.statement_time_us if tells_time(parsed.written) else None
    name = split_name(shares, cut.table_uuid, cold.snapshot_id, cold.schema.schema_id, when)
    parts = tuple(
        replace(ticket, part=ScanPart(span, part, "" if hides_count else name))
        for span, part in shares
    )
    return padded(parts) if hides_count else parts
