"""Answers that differ by client: what DuckDB is answered, as its own rule reads it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyiceberg.table.metadata import TableMetadataUtil

from planner.live.client_answers import (
    CLIENTS,
    DUCKDB_SKEW_MS,
    client_of,
    for_clickhouse,
    for_duckdb,
)

MINUTE = 60_000
NOW = 100 * MINUTE
LATEST = NOW - DUCKDB_SKEW_MS


def snapshot(number: int, at_ms: int, parent: int | None) -> dict[str, Any]:
    below = {} if parent is None else {"parent-snapshot-id": parent}
    return {
        "snapshot-id": number, "timestamp-ms": at_ms, "sequence-number": number, "schema-id": 0,
        "manifest-list": f"file:///lists/{number}.avro", "summary": {"operation": "append"}, **below,
    }  # fmt: skip


def document(
    head: int | None, log: list[tuple[int, int]], *snapshots: tuple[int, int, int | None]
) -> dict[str, Any]:
    """``log``: (snapshot, time); ``snapshots``: (id, time, parent), of which the last is a branch's, too."""
    return {
        "format-version": 2,
        "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
        "location": "file:///warehouse/net/flows",
        "last-sequence-number": 99,
        "last-column-id": 1,
        "schemas": [{"type": "struct", "schema-id": 0, "fields": [
            {"id": 1, "name": "day", "type": "date", "required": False}]}],
        "current-schema-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "default-spec-id": 0,
        "last-partition-id": 999,
        "sort-orders": [{"order-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "current-snapshot-id": head,
        "last-updated-ms": NOW,
        "metadata-log": [{"timestamp-ms": 1, "metadata-file": "file:///old.metadata.json"}],
        "snapshots": [snapshot(*fields) for fields in snapshots],
        "snapshot-log": [{"snapshot-id": number, "timestamp-ms": at_ms} for number, at_ms in log],
        "refs": {
            "stage": {"snapshot-id": snapshots[-1][0], "type": "branch"},
            **({} if head is None else {"main": {"snapshot-id": head, "type": "branch"}}),
        },
    }  # fmt: skip


def read_by_log(answer: dict[str, Any], at_ms: int) -> int | None:
    """What DuckDB 1.5.5 reads: of the sorted log the last entry not later whose snapshot is listed."""
    ids = {entry["snapshot-id"] for entry in answer["snapshots"]}
    log = sorted(answer["snapshot-log"], key=lambda entry: entry["timestamp-ms"])
    return next(
        (
            entry["snapshot-id"]
            for entry in reversed(log)
            if entry["timestamp-ms"] <= at_ms and entry["snapshot-id"] in ids
        ),
        None,
    )


def read_by_snapshots(answer: dict[str, Any], at_ms: int) -> int | None:
    """What DuckDB 1.5.0 reads: of all listed snapshots the newest that is not later; which of two is open."""
    listed = [entry for entry in answer["snapshots"] if entry["timestamp-ms"] <= at_ms]
    newest_ms = max((entry["timestamp-ms"] for entry in listed), default=None)
    newest = [entry["snapshot-id"] for entry in listed if entry["timestamp-ms"] == newest_ms]
    assert len(newest) < 2
    return newest[0] if newest else None


def both(answer: dict[str, Any], at_ms: int) -> int | None:
    by_log = read_by_log(answer, at_ms)
    assert by_log == read_by_snapshots(answer, at_ms)
    return by_log


@pytest.mark.parametrize(
    ("head", "log", "snapshots"),
    [
        pytest.param(1, [(1, 5)], [(1, 5, None)], id="one"),
        pytest.param(1, [(1, 5)], [(1, 5, None), (2, 9, 1)], id="a newer branch"),
        pytest.param(99, [(1, 5)], [(1, 5, None), (2, 9, 1), (99, 6, 1)], id="live, a cut of the past"),
        pytest.param(1, [(1, 5), (2, 9), (1, 12)], [(1, 5, None), (2, 9, 1)], id="rolled back"),
        pytest.param(2, [(1, 5), (2, 5)], [(1, 5, None), (2, 5, 1)], id="one millisecond"),
        pytest.param(2, [(1, 9), (2, 5)], [(1, 9, None), (2, 5, 1)], id="time goes back"),
        pytest.param(2, [(2, NOW + MINUTE)], [(1, 5, None), (2, NOW + MINUTE, 1)], id="ahead"),
        pytest.param(
            3, [(1, 5), (2, NOW - MINUTE), (3, NOW)],
            [(1, 5, None), (2, NOW - MINUTE, 1), (3, NOW, 2)], id="young",
        ),
        pytest.param(1, [], [(1, 5, None), (2, 9, 1)], id="no log"),
    ],
)  # fmt: skip
def test_duckdb_reads_the_head(
    head: int, log: list[tuple[int, int]], snapshots: list[tuple[int, int, int | None]]
) -> None:
    before = document(head, log, *snapshots)
    copy = json.dumps(before)
    answer = for_duckdb(before, NOW)
    assert json.dumps(before) == copy
    for at_ms in (LATEST, NOW, NOW + MINUTE):
        assert both(answer, at_ms) == head
    assert answer["last-updated-ms"] == LATEST
    assert answer["metadata-log"] == []
    assert answer["refs"] == {"main": {"snapshot-id": head, "type": "branch"}}
    assert all(entry["timestamp-ms"] <= LATEST for entry in answer["snapshot-log"])
    TableMetadataUtil.parse_raw(json.dumps(answer))


def test_at_earlier_times_duckdb_reads_what_was_committed() -> None:
    young = NOW - MINUTE
    log = [(1, 5), (2, 50), (1, 90), (3, 200), (4, young)]
    snapshots = [(1, 5, None), (2, 50, 1), (3, 200, 1), (4, young, 3), (99, young + 1, 4), (7, 60, 1)]  # fmt: skip
    answer = for_duckdb(document(99, log, *snapshots), NOW)
    expected = {4: None, 5: 1, 49: 1, 50: 2, 89: 2, 90: 1, 199: 1, 200: 3, LATEST - 1: 3, LATEST: 99}  # fmt: skip
    assert {at_ms: read_by_log(answer, at_ms) for at_ms in expected} == expected
    # By its id each snapshot of the history of main, and none of a branch.
    assert {entry["snapshot-id"] for entry in answer["snapshots"]} == {1, 2, 3, 4, 99}


@pytest.mark.parametrize("head", [None, -1])
def test_without_a_head_duckdb_reads_nothing(head: int | None) -> None:
    answer = for_duckdb(document(head, [], (1, 5, None)) | {"refs": {}}, NOW)
    assert (answer["snapshots"], answer["snapshot-log"], answer["refs"]) == ([], [], {})
    assert both(answer, NOW) is None


def test_a_client_is_what_its_user_agent_begins_with() -> None:
    duckdb = client_of("duckdb/v1.5.5(linux_amd64) python")
    assert duckdb is not None
    assert duckdb.edit is for_duckdb
    for other in ("", "PyIceberg/0.12.0", "Apache Iceberg 1.12.0", "made with duckdb/1"):
        assert client_of(other) is None
    assert len({client.name for client in CLIENTS}) == len(CLIENTS)


@pytest.mark.parametrize(
    ("metadata", "location"),
    [
        ("file:///warehouse-live/r/t/00000-a.metadata.json", "file:///warehouse-live/r/t"),
        (
            "file:///warehouse/net/flows/metadata/v3.metadata.json",
            "file:///warehouse/net/flows",
        ),
        ("file:///warehouse/net/flows2/00000-a.metadata.json", "file:///warehouse/net/flows2"),
    ],
    ids=["live", "passed through", "another table's"],
)
def test_clickhouse_gets_a_location_that_the_metadata_file_is_below(
    metadata: str, location: str
) -> None:
    """Never one above the warehouse: all that is in it and not in the table's metadata would be orphans."""
    before = document(1, [(1, 5)], (1, 5, None))
    assert for_clickhouse(before, metadata) == before | {"location": location}
