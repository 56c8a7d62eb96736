"""Through the stock driver, the server, and real Kafka, Iceberg and Spark: values, joins, freshness."""

from __future__ import annotations

import datetime as dt
import json
import threading
import time
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest

from planner.names import LEADING_COLUMNS, TableName
from planner.schema import METADATA_TYPES, Column, TableSchema
from planner.seam.binding import Binding
from planner.seam.watermark import Outcomes
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import SqlServer, TieredServer
from tests.harness.events import EVENT, TYPES, events
from tests.harness.oracle import oracle_rows, same

pytestmark = pytest.mark.kafka

NOW_MS = time.time_ns() // 1_000_000
LEADING = tuple(
    Column(number, name, METADATA_TYPES[name]) for number, name in enumerate(LEADING_COLUMNS)
)


def side(table: TableName, name: str) -> str:
    return f'{table.catalog}.{table.schema}."{table.name}${name}"'


@pytest.mark.spark
def test_every_type_has_one_value_in_the_log_in_the_tail_and_in_cold(
    kafka: Kafka, tiered_server: TieredServer
) -> None:
    topic = kafka.topic()
    columns = [Column(0, name, kind) for name, (kind, _, _) in TYPES.items()]
    table = tiered_server.bind(topic, columns)
    records = [{}, dict.fromkeys(TYPES)]
    records += [{name: value} for name, (_, _, items) in TYPES.items() for value in items]
    sent = [json.dumps(record).encode() for record in records]
    kafka.produce(topic, sent, timestamp_ms=NOW_MS)
    at = dt.datetime.fromtimestamp(NOW_MS / 1000, dt.UTC)
    raw = [
        {"kafka_partition": 0, "kafka_offset": n, "kafka_timestamp": at, "kafka_value": value}
        for n, value in enumerate(sent)
    ]
    expected = oracle_rows(TableSchema(0, (*LEADING, *columns)), Binding(topic), raw)
    arrives = pa.schema(
        [(column.name, column.type) for column in LEADING]
        + [(name, output) for name, (_, output, _) in TYPES.items()]
    )

    def check(source: str) -> None:
        answer = tiered_server.ask(f"SELECT * FROM {source} ORDER BY kafka_offset")
        assert answer.schema.equals(arrives), (answer.schema, arrives)
        for want, got in zip(expected, answer.to_pylist(), strict=True):
            want = {**want, "id": want["id"] and str(want["id"])}
            different = {
                name: (want[name], got[name])
                for name in want
                if not same(want[name], got[name])
            }
            assert not different

    check(str(table))
    check(side(table, "tail"))
    assert tiered_server.tier(table).outcomes == Outcomes(rows=len(records))
    check(str(table))  # by the pin of before
    tiered_server.refresh(table)
    check(str(table))
    check(side(table, "cold"))
    assert tiered_server.ask(f"SELECT * FROM {side(table, 'tail')}").num_rows == 0
    # Half and half, in one column.
    kafka.produce(topic, sent, timestamp_ms=NOW_MS)
    expected += [{**row, "kafka_offset": row["kafka_offset"] + len(sent)} for row in expected]
    check(str(table))


@pytest.mark.spark
def test_bound_and_unbound_tables_join(kafka: Kafka, tiered_server: TieredServer) -> None:
    topic = kafka.topic(2)
    flows = tiered_server.bind(topic, EVENT)
    names = tiered_server.create_plain(
        pa.table({"name": ["row 1", "row 3", "row 5"], "weight": [Decimal("1.5"), None, 2]})
    )
    kafka.produce(topic, events(0, 4), partition=0)
    tiered_server.tier(flows)
    tiered_server.refresh(flows)
    kafka.produce(topic, events(4, 6), partition=1)
    answer = tiered_server.ask(
        f"SELECT f.id, n.weight FROM {flows} f LEFT JOIN {names} n USING (name) ORDER BY f.id"
    )
    assert answer.to_pylist() == [
        {"id": n, "weight": {1: Decimal("1.5"), 5: Decimal(2)}.get(n)} for n in range(6)
    ]


def test_tables_of_several_topics_answer_in_one_statement(
    kafka: Kafka, server: SqlServer
) -> None:
    tables = []
    for number in range(3):
        topic = kafka.topic(number + 1)
        tables.append(server.bind(topic, EVENT))
        for partition in range(number + 1):
            kafka.produce(topic, events(number, 10), partition=partition)
    first, second, third = tables
    answer = server.ask(
        f"SELECT count(*) AS held, count(DISTINCT a.id) AS ids, (SELECT count(*) FROM {second}) AS b, "
        f"(SELECT count(*) FROM {side(third, 'seam')}) AS partitions "
        f"FROM {first} a JOIN {second} b USING (id) JOIN {third} c USING (id)"
    )
    assert answer.to_pylist() == [{"held": 8 * 2 * 3, "ids": 8, "b": 18, "partitions": 3}]


@pytest.fixture
def writing(kafka: Kafka) -> Iterator[str]:
    """A topic somebody writes to all the time."""
    topic = kafka.topic(2)
    stop = threading.Event()

    def write() -> None:
        producer = kafka.producer(linger_ms=0)
        number = 0
        while not stop.wait(0.001):
            producer.produce(topic, events(number, number + 1)[0], partition=number % 2)
            producer.poll(0)
            number += 1
        producer.flush(30)

    thread = threading.Thread(target=write)
    thread.start()
    yield topic
    stop.set()
    thread.join()


def test_one_statement_sees_one_moment_of_a_growing_log(
    writing: str, server: SqlServer
) -> None:
    one, other = server.bind(writing, EVENT), server.bind(writing, EVENT)
    sql = (
        f"WITH here AS (SELECT * FROM {one}) SELECT (SELECT count(*) FROM here) AS rows, "
        f"(SELECT count(*) FROM {other}) AS others, (SELECT count(*) FROM here a JOIN {one} b "
        f"USING (kafka_partition, kafka_offset)) AS pairs, "
        f"(SELECT sum(tail_offsets)::BIGINT FROM {side(one, 'seam')}) AS seam"
    )
    items: list[int] = []
    with server.cursor() as cursor:
        # As many as it takes the writer to be seen at work, and 25 at least.
        while len(items) < 25 or items[0] == items[-1]:
            cursor.execute(sql)
            [answer] = cursor.fetchall()
            assert len(set(answer)) == 1, answer
            items.append(answer[0])
    assert items == sorted(items)


def test_a_statement_holds_every_record_acknowledged_before_it(
    kafka: Kafka, server: SqlServer
) -> None:
    topic = kafka.topic(3)
    table = server.bind(topic, EVENT)
    with server.cursor() as cursor:
        for number in range(60):
            kafka.produce(topic, events(number, number + 1), partition=number % 3)
            cursor.execute(f"SELECT count(*), max(id) FROM {table}")
            assert cursor.fetchall() == [(number + 1, number)]


def test_a_prepared_statement_sees_new_rows_each_time(kafka: Kafka, server: SqlServer) -> None:
    topic = kafka.topic()
    table = server.bind(topic, EVENT)
    with server.cursor() as cursor:
        for number in range(4):
            kafka.produce(topic, events(number, number + 1))
            cursor.execute(f"SELECT count(*) FROM {table} WHERE id >= ?", [1])
            assert cursor.fetchall() == [(number,)]


def test_names_without_catalog_and_schema_are_those_of_the_session(
    kafka: Kafka, server: SqlServer
) -> None:
    topic = kafka.topic()
    table = server.bind(topic, EVENT)
    kafka.produce(topic, events(0, 2))
    with adbc.connect(server.uri, autocommit=True) as connection:
        connection.adbc_current_catalog = table.catalog
        connection.adbc_current_db_schema = table.schema
        with connection.cursor() as cursor:
            for name in (table.name, f"{table.schema}.{table.name}", table.name.upper()):
                cursor.execute(f"SELECT count(*) FROM {name}")
                assert cursor.fetchall() == [(2,)]


def test_tables_of_both_kinds_are_listed_with_their_columns(
    kafka: Kafka, server: SqlServer
) -> None:
    bound = server.bind(kafka.topic(), EVENT, comment="Events of the test")
    plain = server.create_plain(pa.table({"name": ["a"], "weight": [1.5]}))
    with adbc.connect(server.uri, autocommit=True) as connection:
        listed = connection.adbc_get_objects(
            depth="all", catalog_filter="lake", db_schema_filter=bound.schema
        )
        [catalog] = listed.read_all().to_pylist()
    [schema] = catalog["catalog_db_schemas"]
    tables = {table["table_name"]: table for table in schema["db_schema_tables"]}
    assert {name: _columns(tables[name]) for name in (bound.name, plain.name)} == {
        bound.name: [
            ("kafka_partition", "INTEGER"),
            ("kafka_offset", "BIGINT"),
            ("kafka_timestamp", "TIMESTAMP WITH TIME ZONE"),
            ("id", "BIGINT"),
            ("name", "VARCHAR"),
        ],
        plain.name: [("name", "VARCHAR"), ("weight", "DOUBLE")],
    }


def _columns(table: dict[str, Any]) -> Sequence[tuple[str, str]]:
    return [
        (column["column_name"], column["xdbc_type_name"]) for column in table["table_columns"]
    ]


@pytest.mark.spark
def test_an_old_pin_whose_files_are_gone_costs_one_try_and_no_wrong_answer(
    kafka: Kafka, tiered_server: TieredServer
) -> None:
    topic = kafka.topic()
    table = tiered_server.bind(topic, EVENT)
    for start in (0, 10):
        kafka.produce(topic, events(start, start + 10))
        tiered_server.tier(table)
    tiered_server.refresh(table)  # not asked: files that the engine has read it may still know
    kafka.produce(topic, events(20, 25))
    tiered_server.tier(table)
    somebody = tiered_server.spark(table)
    somebody.compact()
    somebody.expire_to_one()
    counted = f"SELECT count(*) AS held, sum(id)::BIGINT AS total FROM {table}"
    with pytest.raises(adbc.OperationalError, match="is gone"):
        tiered_server.ask(counted)
    assert tiered_server.ask(counted).to_pylist() == [{"held": 25, "total": 300}]
