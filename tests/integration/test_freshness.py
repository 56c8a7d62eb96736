"""The past of a real table, and own writes: Kafka, Iceberg and Spark."""

from __future__ import annotations

import json

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest

from planner.schema import Column
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import SqlServer, TieredServer

pytestmark = pytest.mark.kafka

EVENT = [Column(1, "id", pa.int64())]
NOON_MS = 1_767_268_800_000
NOON = "'2026-01-01 12:00:00'"


def events(start: int, stop: int) -> list[bytes]:
    return [json.dumps({"id": n}).encode() for n in range(start, stop)]


def test_own_writes_are_in_the_answer(kafka: Kafka, server: SqlServer) -> None:
    topic = kafka.topic(2)
    table = server.bind(topic, EVENT)
    with server.cursor() as cursor:
        cursor.execute("SET freshness = 'max_staleness 1h'")
        for number in range(1, 4):
            kafka.produce(topic, events(number, number + 1), partition=1)
            cursor.execute(f"SET wait_for = '{topic}/1:{number - 1}'")
            cursor.execute(f"SELECT count(*) FROM {table}")
            assert cursor.fetchone() == (number,)
        cursor.execute("RESET wait_for")
        kafka.produce(topic, events(9, 10), partition=1)
        cursor.execute(f"SELECT count(*) FROM {table}")
        assert cursor.fetchone() == (3,)


@pytest.mark.spark
def test_a_table_is_read_as_it_was(kafka: Kafka, tiered_server: TieredServer) -> None:
    topic = kafka.topic()
    table = tiered_server.bind(topic, EVENT)

    def ids(of: str, **settings: str) -> list[int]:
        with tiered_server.cursor() as cursor:
            for name, value in settings.items():
                cursor.execute(f"SET {name} = '{value}'")
            cursor.execute(f"SELECT id FROM {of} ORDER BY id")
            return [row[0] for row in cursor.fetchall()]

    kafka.produce(topic, events(0, 4), timestamp_ms=NOON_MS - 60_000)
    tiered_server.tier(table)
    tiered_server.refresh(table)
    seam = tiered_server.ask(f'SELECT snapshot_id FROM {table.catalog}.net."{table.name}$seam"')
    version = seam["snapshot_id"][0].as_py()
    kafka.produce(topic, events(4, 6), timestamp_ms=NOON_MS)
    answer = tiered_server.ask(f"SELECT id, thermocline_cut() AS cut FROM {table}")
    cut = answer["cut"][0].as_py()
    assert answer.schema.metadata[b"thermocline.cut"].decode() == cut
    kafka.produce(topic, events(6, 9), timestamp_ms=NOON_MS + 60_000)

    def check() -> None:
        assert ids(f"{table} AT (VERSION => {version})") == [0, 1, 2, 3]
        assert ids(f"{table} AT (TIMESTAMP => {NOON})") == [0, 1, 2, 3]
        assert ids(f"{table} AT (TIMESTAMP => TIMESTAMP {NOON} + INTERVAL 1 SECOND)") == [
            *range(6)
        ]
        assert ids(f"{table} AT (VERSION => '{cut}')") == [*range(6)]
        assert ids(str(table), cut=cut) == [*range(6)]
        assert ids(str(table)) == [*range(9)]

    check()
    assert ids(str(table), freshness="cold") == [0, 1, 2, 3]
    assert ids(str(table), freshness="tail") == [4, 5, 6, 7, 8]
    tiered_server.tier(table)
    tiered_server.refresh(table)
    check()
    kafka.delete_records(topic, 0, 9)
    tiered_server.refresh(table)
    check()
    assert ids(str(table), freshness="tail") == []
    tiered_server.spark(table).expire_to_one()
    tiered_server.refresh(table)
    # Any snapshot with the log from its watermark can answer a cut; a version is gone with its snapshot.
    assert ids(str(table), cut=cut) == [*range(6)]
    with pytest.raises(adbc.ProgrammingError, match=f"snapshot {version} is not one of the"):
        ids(f"{table} AT (VERSION => {version})")
