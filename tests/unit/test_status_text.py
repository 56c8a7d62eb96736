"""What ``status`` prints of tables, and what it asks a server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from connectors.table_standings import PartitionStanding, TableStatus, TailReading
from planner.maintenance.standing import CareStanding
from planner.names import TableName
from planner.seam.watermark import Outcomes
from proxy.catalog.system_tables import TAILS
from thermocline.client import Client
from thermocline.commands.status import _document, _show
from thermocline.served_standings import standings_of

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
    """Stands for a client: answers each statement with these rows."""

    def __init__(self, *rows: dict[str, Any]) -> None:
        self._rows = rows

    def rows(self, _sql: str) -> Iterator[dict[str, Any]]:
        yield from self._rows


#: The same table as a row of a server's.
SERVED = dict.fromkeys(TAILS.names) | {
    "table_catalog": "lake",
    "table_schema": "net",
    "table_name": "flows",
    "state": "ok",
    "topic": "flows",
    "snapshot_id": 7,
    "kafka_partition": 0,
    "log_start": 5,
    "watermark": 10,
    "log_end": 40,
    "lag": 30,
    "headroom": 5,
    "tail_read_offsets": 12,
    "tail_rest_s": 8.0,
    "table_lag": 30,
    "table_lag_bytes": 6_000,
    "lag_s": 90.0,
    "retention_s": 3_600.0,
    "headroom_s": 3_510.0,
    "is_kept_by_size": False,
    "accepted_gap_offsets": 2,
    "skipped_records": 0,
    "accepted_snapshots": 0,
    "published_rows": 10,
    "published_dead": 1,
    "published_skipped": 0,
    "published_tombstones": 0,
    "published_expired": 0,
    "published_superseded": 0,
    "published_deletes": 0,
}
NAME = TableName("lake", ("net",), "flows")


def served(*rows: dict[str, Any], names: tuple[TableName, ...] = ()) -> list[TableStatus]:
    return standings_of(cast("Client", Answers(*rows)), names)


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
    care = CareStanding(
        *(1_200, 3 * 1024**3, 4, 77, 86_400.0, 0.5, 2_048, 60.0),
        *("2026-10-28", "kafka_timestamp", 3_600.0),
    )
    dropped = replace(care, expired_by=None)
    new = CareStanding(0, 0, 0, 1, 0.0, None, None, None)
    tables = [replace(FLOWS, care=each) for each in (care, dropped)]
    tables.append(replace(FLOWS, table="lake.net.new", care=new))
    lines = printed(capsys, *tables)
    assert [" ".join(line.split()) for line in lines[5:11] if "─" not in line] == [
        "",
        "TABLE TO COMPACT BYTES COMPACTED/PUBLISHED SNAPSHOTS OLDEST ORPHANS LAST RUN AGED OUT",
        "lake.net.flows 1,200 3.0 GiB 0.50 77 1d 0h 2.0 KiB 1m 0s ago kafka_timestamp before 2026-10-28, 1h 0m ago",
        "lake.net.flows 1,200 3.0 GiB 0.50 77 1d 0h 2.0 KiB 1m 0s ago before 2026-10-28, 1h 0m ago",
        "lake.net.new 0 0 B - 1 0.0s - never -",
    ]


def test_no_table_says_how_to_make_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys) == ["no bound tables; make one with `thermocline create`"]


@pytest.mark.parametrize(
    ("tail", "text"),
    [
        (TailReading(30, 12, 8.0), "40 %, 8.0s left"),
        (TailReading(30, 30, 0.0), "100 %"),
        (TailReading(0, 0), "-"),
    ],
)
def test_the_share_in_memory_stands_before_the_notes(
    tail: TailReading, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = replace(FLOWS, tail=tail)
    titles, _, line, *_ = printed(capsys, status)
    assert titles.split()[-4:] == ["HEADROOM", "IN", "MEMORY", "NOTES"]
    assert f"  {text}  2 offsets" in line


def test_a_servers_rows_are_what_catalog_and_broker_would_say() -> None:
    publish = dict.fromkeys(Outcomes.__dataclass_fields__, 0) | {"rows": 10, "dead": 1}
    expected = replace(FLOWS, tail=TailReading(30, 12, 8.0), last_publish=publish)
    second = SERVED | {"kafka_partition": 1, "lag": 0, "tail_read_offsets": 0}
    assert served(SERVED) == [expected]
    [status] = served(SERVED, second, SERVED | {"table_name": "hosts"}, names=(NAME,))
    assert (len(status.partitions), status.lag, status.tail) == (2, 30, expected.tail)


@pytest.mark.parametrize(
    ("row", "kind", "text"),
    [
        (
            {"state": "failing", "error": "TailGap", "error_text": "lake.net.flows: lost."},
            "TailGap",
            "lake.net.flows: lost.",
        ),
        (
            {"state": "closed", "advice": "Read the table itself."},
            "NotAllowed",
            "lake.net.flows: Read the table itself.",
        ),
    ],
)
def test_a_table_without_numbers_is_an_error_with_its_class(
    row: dict[str, Any], kind: str, text: str
) -> None:
    bare = {name: value for name, value in SERVED.items() if name.startswith("table_")}
    [status] = served(dict.fromkeys(TAILS.names) | bare | row)
    assert (status.error_class, status.error, status.partitions) == (kind, text, ())


def test_a_server_of_before_an_outcome_counts_none_of_it() -> None:
    [status] = served({name: SERVED[name] for name in SERVED if name != "published_expired"})
    assert [status] == served(SERVED)


def test_a_table_that_a_server_does_not_show_is_named() -> None:
    [status] = served(names=(NAME,))
    assert (status.table, status.error_class) == ("lake.net.flows", "UnknownTable")


@pytest.mark.parametrize(("lag", "text"), [(30, "?"), (0, "1h 0m")])
def test_headroom_is_unknown_where_the_age_of_what_waits_is(
    lag: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is no less than all of retention only where nothing waits."""
    status = replace(
        FLOWS, lag=lag, lag_s=None, headroom_s=None, gap_offsets=0, last_publish={}
    )
    assert printed(capsys, status)[2].rstrip().endswith(f"  {text}")


@pytest.mark.parametrize("state", ["stopped", "full"])
def test_what_has_stopped_a_tail_is_a_note(
    state: str, capsys: pytest.CaptureFixture[str]
) -> None:
    [status] = served(SERVED | {"state": state, "advice": "Reading its tail has stopped."})
    assert status.tail is not None
    assert status.tail.error == "Reading its tail has stopped."
    assert "; the server" in printed(capsys, status)[2]


def test_names_of_the_document_are_promised() -> None:
    document = _document(FLOWS)
    assert document["is_kept_by_size"] is False
    assert document["partitions"][0]["watermark"] == 10
    assert document["tail"] is None
