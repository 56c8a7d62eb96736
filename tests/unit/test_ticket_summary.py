"""What the audit log says a statement read."""

from __future__ import annotations

from dataclasses import replace

from planner.names import TableName
from planner.offsets import OffsetRange
from planner.ticket import Ticket, TicketTable
from proxy.query.tickets import summary

PLAIN = TicketTable(TableName("lake", ("net",), "plain"), "uuid", "v1.metadata.json", 7, 0)
BOUND = replace(
    PLAIN,
    table=TableName("lake", ("net",), "flows"),
    topic="flows",
    topic_id="id",
    ranges=(OffsetRange(0, 10, 20), OffsetRange(1, 5, 9)),
)


def summary_of(*tables: TicketTable) -> dict[str, str]:
    ticket = Ticket("SELECT 1", tables, "ada", "UTC", (None, None), 0, 0)
    result = summary(ticket)
    assert result.sql == "SELECT 1"
    return dict(result.cuts)


def test_each_table_is_told_with_its_snapshot_and_the_offsets_of_its_tail() -> None:
    assert summary_of(PLAIN, BOUND) == {
        "lake.net.plain": "snapshot 7",
        "lake.net.flows": "snapshot 7, flows 0:10-20 1:5-9",
    }
    assert summary_of() == {}


def test_a_table_without_rows_and_a_tail_without_news() -> None:
    assert summary_of(replace(BOUND, snapshot_id=None, ranges=())) == {
        "lake.net.flows": "empty, flows"
    }


def test_thousands_of_partitions_are_cut_short() -> None:
    wide = replace(BOUND, ranges=tuple(OffsetRange(number, 0, 1) for number in range(1_000)))
    [line] = summary_of(wide).values()
    assert line.endswith("15:0-1 and 984 more")
