"""What ``status`` prints of tables, and what it asks a server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from connectors.flight_server import NoServer
from planner.errors import UnknownTable
from planner.maintenance.standing import CareStanding
from thermocline.client import Client
from thermocline.commands.status import _document, _show, _with_tail
from thermocline.table_status import PartitionStanding, TableStatus, TailReading

PART = PartitionStanding(0, log_start=5, watermark=10, log_end=40, lag=30, headroom=5)
FLOWS = TableStatus(
    table="lake.net.flows",
    topic="flows",
    snapshot_id=7,
    lag=30,
    partitions=(PART,),
    lag_bytes=6_000,
    lag_s=90.0,
    retention_s=3_600.0,
    headroom_s=3_510.0,
    gap_offsets=2,
    last_publish={"rows": 10, "dead": 1, "skipped": 0},
)


class Answers:
    """Stands for a client: answers each statement with these rows, or fails."""

    def __init__(self, *rows: dict[str, Any], error: Exception | None = None) -> None:
        self._rows, self._error = rows, error
        self.statements: list[str] = []

    def rows(self, sql: str) -> Iterator[dict[str, Any]]:
        self.statements.append(sql)
        if self._error is not None:
            raise self._error
        yield from self._rows


def read(answers: Answers) -> TailReading:
    tail = _with_tail(FLOWS, cast("Client", answers)).tail
    assert tail is not None
    return tail


def printed(capsys: pytest.CaptureFixture[str], *tables: TableStatus) -> list[str]:
    _show(tables, partitions=True)
    return capsys.readouterr().out.splitlines()


def test_a_table_is_a_line_and_its_partitions_follow(
    capsys: pytest.CaptureFixture[str],
) -> None:
    titles, _, line, _, name, *partitions = printed(capsys, FLOWS)
    assert titles.split() == ["TABLE", "TOPIC", "LAG", "BYTES", "OLDEST", "HEADROOM", "NOTES"]
    assert "lake.net.flows" in line
    assert "2 offsets lost to accepted gaps; 1 dead letters in the last publish" in line
    assert name == "lake.net.flows  snapshot 7"
    assert partitions[-1].split() == ["0", "5", "10", "40", "30", "5"]


def test_how_well_tables_are_looked_after_stands_below(
    capsys: pytest.CaptureFixture[str],
) -> None:
    care = CareStanding(1_200, 3 * 1024**3, 4, 77, 86_400.0, 0.5, 2_048, 1_000, 60.0)
    new = CareStanding(0, 0, 0, 1, 0.0, None, None, None, None)
    tables = replace(FLOWS, care=care), replace(FLOWS, table="lake.net.new", care=new)
    lines = printed(capsys, *tables)
    assert [" ".join(line.split()) for line in lines[4:9] if "─" not in line] == [
        "",
        "TABLE TO COMPACT BYTES COMPACTED/PUBLISHED SNAPSHOTS OLDEST ORPHANS LAST RUN",
        "lake.net.flows 1,200 3.0 GiB 0.50 77 1d 0h 2.0 KiB 1m 0s ago",
        "lake.net.new 0 0 B - 1 0.0s - never",
    ]


def test_no_table_says_how_to_make_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys) == ["no bound tables; make one with `thermocline create`"]


@pytest.mark.parametrize(
    ("tail", "text"),
    [
        (TailReading(30, 12, 8.0), "40 %, 8.0s left"),
        (TailReading(30, 30, 0.0), "100 %"),
        (TailReading(0, 0), "-"),
        (TailReading(30, None), "?"),
    ],
)
def test_the_share_in_memory_stands_before_the_notes(
    tail: TailReading, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = _with_tail(FLOWS, cast("Client", Answers(vars_of(tail))))
    titles, _, line, *_ = printed(capsys, status)
    assert titles.split()[-4:] == ["HEADROOM", "IN", "MEMORY", "NOTES"]
    assert f"  {text}  2 offsets" in line


def vars_of(tail: TailReading) -> dict[str, Any]:
    return {
        "offsets": tail.offsets,
        "read_offsets": tail.read_offsets,
        "rest_s": tail.rest_s,
    }


def test_a_server_is_asked_for_the_seam_by_its_quoted_name() -> None:
    answers = Answers({"offsets": 30, "read_offsets": 12, "rest_s": 8.0})
    assert read(answers) == TailReading(30, 12, 8.0)
    assert answers.statements[0].endswith('FROM "lake"."net"."flows$seam"')


def test_a_server_that_does_not_tell_is_a_note_and_one_that_is_gone_an_end(
    capsys: pytest.CaptureFixture[str],
) -> None:
    refused = UnknownTable("there is no table lake.net.flows.", table="lake.net.flows")
    assert read(Answers(error=refused)).error == refused.message
    status = _with_tail(FLOWS, cast("Client", Answers(error=refused)))
    assert "; the server" in printed(capsys, status)[2]
    with pytest.raises(NoServer):
        read(Answers(error=NoServer("nobody")))


def test_names_of_the_document_are_promised() -> None:
    document = _document(FLOWS)
    assert document["is_kept_by_size"] is False
    assert document["partitions"][0]["watermark"] == 10
    assert document["tail"] is None
