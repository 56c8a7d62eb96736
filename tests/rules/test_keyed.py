"""The rules of docs/seam-rules.md about keyed tables, as a statement meets them: real statements over the doubles."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow.compute as pc
import pytest

from planner.errors import ForeignCommit, KeyInTwoPartitions
from tests.doubles.log import MemoryRecord
from tests.harness.keyed import partition_of
from tests.harness.keyed_lake import DEVICES, PARTITIONS, KeyedLake

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


REGION = pc.field("region")


def restart(lake: KeyedLake) -> None:
    """A server that knows no snapshot of before."""
    lake.stop_server()
    lake.start_server()


def test_a_key_that_another_writer_gave_two_rows_is_an_error_until_it_is_undone(
    lake: KeyedLake,
) -> None:
    lake.change((2, "eu"), "open")
    lake.tier()
    before = lake.store.facts(DEVICES).head
    assert before is not None
    lake.store.update(DEVICES, REGION == "us-east", "status", "seen")
    restart(lake)
    assert rows(lake, ROWS)[1] == (1, "us-east", "seen")
    snapshot_id = lake.store.update(DEVICES, pc.field("id") == 1, "region", "eu")
    message = (
        f"lake.net.devices: snapshot {snapshot_id} was committed by another writer above the watermark and a key has two rows "
        f"since; roll the table back to a snapshot before it, and write such rows to the topic; where none is left, create the "
        f"table again from its topic."
    )
    restart(lake)
    for act in (lambda: rows(lake), lambda: rows(lake, "SELECT id FROM devices"), lake.tier):
        with pytest.raises(ForeignCommit) as caught:
            act()
        assert caught.value.message == message
    # Neither does a rewrite of its files hide it, nor a delete of other rows.
    lake.compact()
    lake.store.delete(DEVICES, pc.field("id") == 2)
    restart(lake)
    with pytest.raises(ForeignCommit, match="a key has two rows since"):
        rows(lake)
    lake.store.rollback(DEVICES, before)
    restart(lake)
    assert len(rows(lake)) == 3


def test_a_key_of_which_another_writer_leaves_one_row_has_one(lake: KeyedLake) -> None:
    lake.store.update(DEVICES, pc.field("id") == 1, "region", "eu")
    lake.store.delete(DEVICES, pc.field("n") == 2)
    restart(lake)
    assert rows(lake) == [(1, "eu", "open")]
    lake.change((1, "eu"), "done")
    lake.tier()
    assert rows(lake) == [(1, "eu", "done")]
