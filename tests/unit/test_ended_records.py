"""What is held of statements that ended, until the list is asked for: bounded by number and by bytes."""

from __future__ import annotations

import sys

from proxy.ops.call_record import CallRecord, EndedRecords
from proxy.session import Session, TicketSummary

MAX_BYTES = 1_000_000


def ended(sql: str) -> CallRecord:
    record = CallRecord("DO_GET")
    record.entered(Session("s", user="ada"), "peer")
    record.asks(sql)
    record.ended()
    return record


def test_the_oldest_go_where_texts_take_more_than_their_bytes() -> None:
    """Letters of most languages take two bytes each, some four."""
    for letter in "a字😀":
        records = EndedRecords(1_000, MAX_BYTES)
        made = [ended(f"SELECT '{letter * 100_000}', {number}") for number in range(20)]
        for record in made:
            records.note(record)
        left = records.take()
        assert left == made[-len(left) :]
        size = sum(sys.getsizeof(about.sql) for record in left if (about := record.about()))
        assert MAX_BYTES / 2 < size <= MAX_BYTES
        assert records.take() == []


def test_no_more_than_so_many_are_held() -> None:
    records = EndedRecords(3, MAX_BYTES)
    made = [ended(f"SELECT {number}") for number in range(10)]
    for record in made:
        records.note(record)
    assert records.take() == made[-3:]


def test_a_prepared_statement_is_held_as_its_ticket_alone() -> None:
    record = ended("SELECT 1")
    record.redeems(b"ticket", lambda: TicketSummary("SELECT 2", {}))
    assert record.about() == TicketSummary("SELECT 2", {})
    assert (record.size, record.is_statement, record._sql) == (6, True, None)
