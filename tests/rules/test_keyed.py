"""The rules of docs/seam-rules.md about keyed tables, as a statement meets them: real statements over the doubles."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from planner.errors import KeyInTwoPartitions
from tests.doubles.log import MemoryRecord
from tests.harness.keyed import partition_of
from tests.harness.keyed_lake import PARTITIONS, KeyedLake

ROWS = "SELECT id, region, status FROM devices ORDER BY ALL"


@pytest.fixture
def lake() -> Iterator[KeyedLake]:
    """Two rows in cold, of one id."""
    value = KeyedLake()
    value.change((1, "eu"), "open")
    value.change((1, "us-east"), "open")
    value.tier()
    yield value
    value.stop_server()


def rows(lake: KeyedLake, sql: str = ROWS) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in lake.ask(sql).to_pylist()]


def test_a_delete_in_the_tail_hides_the_row_in_cold(lake: KeyedLake) -> None:
    lake.change((1, "eu"), None)
    assert rows(lake) == [(1, "us-east", "open")]


def test_a_newer_row_hides_the_older_one_that_a_statement_looks_for(lake: KeyedLake) -> None:
    lake.change((1, "eu"), "done")
    assert rows(lake, "SELECT region FROM devices WHERE status = 'open'") == [("us-east",)]


def test_a_row_is_known_by_all_columns_of_its_key(lake: KeyedLake) -> None:
    lake.change((1, "eu"), "done")
    assert rows(lake) == [(1, "eu", "done"), (1, "us-east", "open")]


def test_a_key_in_two_partitions_is_an_error_also_where_cold_has_it(lake: KeyedLake) -> None:
    other = 1 - partition_of((1, "eu"), PARTITIONS)
    record = MemoryRecord(b'{"status": "elsewhere"}', b'{"id": 1, "region": "eu"}')
    lake.log.append("devices", other, record)
    with pytest.raises(KeyInTwoPartitions) as caught:
        rows(lake)
    assert caught.value.message == (
        "lake.net.devices: a key has a row in partition 1 and a change in partition 0, so which is the newer is not known; have "
        "producers choose the partition by the key alone, and bind a new table to a topic that was written so."
    )


def test_of_the_changes_below_the_end_the_newest_decides(lake: KeyedLake) -> None:
    """A change beyond the cut hides nothing, and one in it hides those before."""
    lake.change((1, "eu"), "second")
    lake.change((1, "eu"), "third")
    ticket, _ = lake.plan(ROWS)
    lake.change((1, "eu"), "fourth")
    assert rows(lake) == [(1, "eu", "fourth"), (1, "us-east", "open")]
    then = lake.open(ticket).to_pylist()
    assert [row["status"] for row in then] == ["third", "open"]


def test_a_tail_is_read_whole_by_a_condition_on_offsets(lake: KeyedLake) -> None:
    lake.change((1, "eu"), "done")
    partition = partition_of((1, "eu"), PARTITIONS)
    below = lake.mark.offset(partition)
    sql = f"SELECT count(*) FROM devices WHERE kafka_partition = {partition} AND kafka_offset < {below}"
    assert rows(lake, sql) == [(0,)]
