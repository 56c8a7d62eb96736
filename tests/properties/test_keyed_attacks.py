"""What was tried against keyed tables, over the doubles: each is an answer that must be right, or an error by name."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pytest

from planner.errors import BadBinding, KeyInTwoPartitions, ShapeMismatch
from planner.names import KAFKA_OP
from planner.schema import Column
from planner.seam.keys import KEY_FORMAT, UPSERT_OPTIONS
from tests.doubles.log import MemoryRecord
from tests.harness.keyed_lake import DEVICES, KeyedLake

KEY = b'{"id": 1, "region": "eu"}'
ANSWER = "SELECT id, status FROM devices ORDER BY id"


@pytest.fixture
def lake() -> Iterator[KeyedLake]:
    value = KeyedLake()
    yield value
    value.stop_server()


def write(lake: KeyedLake, partition: int, status: str | None, *, key: bytes = KEY) -> None:
    value = None if status is None else json.dumps({"status": status}).encode()
    lake.log.append("devices", partition, MemoryRecord(value, key))


def tier_all(lake: KeyedLake) -> None:
    while lake.mark.next != lake.end:
        lake.tier(max_rows=8)


def answer(lake: KeyedLake, sql: str = ANSWER) -> list[dict[str, object]]:
    lake.board.refresh(DEVICES)
    return lake.ask(sql).to_pylist()


def refusal(lake: KeyedLake) -> str:
    """Return what a server says that has just started."""
    lake.stop_server()
    lake.start_server()
    with pytest.raises(BadBinding) as caught:
        lake.ask(ANSWER)
    return caught.value.message


def test_a_delete_in_a_new_partition_is_not_tiered_before_the_row_that_it_deletes(
    lake: KeyedLake,
) -> None:
    """Partitions grew: the row's change is in the backlog of an old partition, its delete the first of a new one (R10)."""
    for number in range(20):
        write(lake, 0, "other", key=json.dumps({"id": 100 + number, "region": "eu"}).encode())
    write(lake, 0, "deleted")
    lake.log.add_partitions("devices", 3)
    write(lake, 2, None)
    with pytest.raises(KeyInTwoPartitions):
        tier_all(lake)
    with pytest.raises(KeyInTwoPartitions):
        answer(lake)


def test_an_older_change_in_another_partition_does_not_replace_a_newer_row_of_cold(
    lake: KeyedLake,
) -> None:
    """Which is the newer one no offset says, so neither may be the answer (R11)."""
    for number in range(6):
        write(lake, 1, "other", key=json.dumps({"id": 100 + number, "region": "eu"}).encode())
    write(lake, 1, "old")
    write(lake, 0, "new")
    lake.tier(max_rows=2)
    assert lake.mark.next.get(0) == 1
    with pytest.raises(KeyInTwoPartitions):
        answer(lake)


@pytest.mark.parametrize("name", [KAFKA_OP, "kafka_previous", "KAFKA_OP"])
def test_a_column_named_as_one_of_changes_is_refused(lake: KeyedLake, name: str) -> None:
    write(lake, 0, "new")
    lake.store.set_columns(DEVICES, lambda columns: (*columns, Column(8, name, pa.string())))
    assert refusal(lake) == (
        f"lake.net.devices: column {name} has a name that changes of a keyed table use; give it another one."
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"thermocline.retention_days": "30"},
            "property thermocline.retention_days is not for a keyed table, whose rows do not age out: each stays until its key "
            "is deleted; unset it.",
        ),
        (
            {"thermocline.on_error": "null"},
            "error policy null is not for a keyed table: a row of NULLs would replace the good one of its key; choose policy "
            "fail or skip.",
        ),
        (
            {"thermocline.key_fields": "4"},
            "the table's identifier fields are id, region, and it was bound with the key id, which its rows are one each of; "
            "set the identifier fields back, or make another table for another key.",
        ),
        (
            dict.fromkeys(("thermocline.mode", KEY_FORMAT, *UPSERT_OPTIONS)),
            "property thermocline.mode is append, but the table's rows were tiered as upsert, by its watermark, and a table "
            "never changes its mode; set it back, and make another table of the topic for the other mode (`thermocline "
            "create`).",
        ),
    ],
)
def test_properties_under_which_rows_would_be_wrong_stop_statements(
    lake: KeyedLake, changes: dict[str, str | None], message: str
) -> None:
    write(lake, 0, "old")
    lake.tier()
    write(lake, 0, "new")
    lake.store.set_properties(DEVICES, changes)
    assert refusal(lake) == f"lake.net.devices: {message}"


def test_keys_that_are_read_in_another_way_are_refused(lake: KeyedLake) -> None:
    """Keys of cold and of the tail would be no longer equal, and a key have two rows."""
    write(lake, 0, "old")
    lake.tier()
    write(lake, 0, "new")
    for changed in ({"thermocline.key_from": "value"}, {"thermocline.envelope": "debezium"}):
        lake.store.set_properties(DEVICES, changed)
        with pytest.raises(ShapeMismatch, match="thermocline rebuild"):
            answer(lake)
        lake.store.set_properties(
            DEVICES, {"thermocline.key_from": "key", "thermocline.envelope": "none"}
        )
    assert answer(lake) == [{"id": 1, "status": "new"}]
