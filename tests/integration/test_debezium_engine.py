"""Debezium's engine over PostgreSQL, as it is: random changes of a table, and restarts between them, come to its rows."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from planner.errors import ValueUnavailable
from planner.schema import Column
from tests.fixtures.debezium import Debezium, Source
from tests.harness.changes import decoded, keyed_binding, keyed_schema

pytestmark = pytest.mark.soak

COLUMNS = (
    Column(4, "id", pa.int32(), required=True),
    Column(5, "name", pa.string(), required=True),
    Column(6, "balance", pa.decimal128(12, 2)),
    Column(7, "visits", pa.int64()),
    Column(8, "tags", pa.list_(pa.field("element", pa.string()))),
    Column(9, "big", pa.string()),
)
SCHEMA = keyed_schema(*COLUMNS)
TABLE = (
    "CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, balance numeric(12, 2), visits bigint DEFAULT 7, "
    "tags text[], big text)"
)
#: Large values lie outside of their row, and an update that leaves one as it is does not send it.
LARGE = "ALTER TABLE customers ALTER COLUMN big SET STORAGE EXTERNAL"
SIGNALS = "CREATE TABLE signals (id text PRIMARY KEY, type text NOT NULL, data text)"
SNAPSHOT = (
    "INSERT INTO signals VALUES ('1', 'execute-snapshot', "
    """'{"data-collections": ["public.customers"], "type": "incremental"}')"""
)
#: Rows that no statement changes: only a snapshot sends them again.
STILL = range(1000, 1040)
UNWRAP = {
    "transforms": "unwrap",
    "transforms_unwrap_type": "io.debezium.transforms.ExtractNewRecordState",
    "transforms_unwrap_replace_null_with_default": "false",
}
FORMS = {
    "events": ("debezium", {"decimal_handling_mode": "string"}),
    "events with schemas": ("debezium", {"converter_schemas_enable": "true"}),
    "flat": ("debezium-flat", {"decimal_handling_mode": "string", **UNWRAP}),
    "flat with schemas": ("debezium-flat", {"converter_schemas_enable": "true", **UNWRAP}),
}


def statement(at: random.Random) -> str:
    key, other = at.randrange(12), at.randrange(12)
    value = at.choice(["NULL", "0", "1.10", "-99999.99"])
    return at.choice(
        [
            f"INSERT INTO customers (id, name) VALUES ({key}, 'new') ON CONFLICT (id) DO UPDATE SET name = 'again'",
            f"UPDATE customers SET balance = {value}, visits = NULL WHERE id = {key}",
            f"UPDATE customers SET tags = ARRAY['a', NULL, ''] WHERE id < {key}",
            f"UPDATE customers SET big = repeat('{key}', 5000) WHERE id = {other}",
            f"DELETE FROM customers WHERE id = {key}",
            f"UPDATE customers SET id = {other} WHERE id = {key} AND NOT EXISTS (SELECT FROM customers WHERE id = {other})",
            f"BEGIN; DELETE FROM customers WHERE id = {key}; INSERT INTO customers (id, name, visits) VALUES ({key}, 'back', 0); "
            "COMMIT",
            f"BEGIN; UPDATE customers SET name = 'gone' WHERE id < {key}; ROLLBACK",
        ]
    )


def check(source: Source, envelope: str) -> None:
    """Compare the changes so far with the table's rows now."""
    result = decoded(SCHEMA, keyed_binding(SCHEMA, envelope), *source.records)
    rows: dict[int, tuple[object, ...]] = {}
    for change in result.rows.to_pylist():
        if change["kafka_op"] == "u":
            rows[change["id"]] = tuple(change[column.name] for column in COLUMNS)
        else:
            rows.pop(change["id"], None)
    expected = source.select(
        "SELECT id, name, balance, visits, tags, big FROM customers ORDER BY id"
    )
    assert [rows[key] for key in sorted(rows)] == expected


def source_of(form: str, debezium: Debezium) -> Source:
    _, properties = FORMS[form]
    return debezium.source(
        "customers",
        **{
            "converter_schemas_enable": "false",
            "signal_data_collection": "public.signals",
            "incremental_snapshot_chunk_size": "7",
            **properties,
        },
    )


@pytest.mark.timeout(900)
@pytest.mark.parametrize("form", FORMS)
def test_what_a_connector_writes_comes_to_the_rows_of_its_table(
    form: str, debezium: Debezium
) -> None:
    source = source_of(form, debezium)
    whole = "ALTER TABLE customers REPLICA IDENTITY FULL"
    for sql in (TABLE, LARGE, whole, SIGNALS):
        source.execute(sql)
    at = random.Random(form)
    for key in (*range(6), *STILL):
        large = f"repeat('{key % 10}', 9000)"
        source.execute(
            f"INSERT INTO customers VALUES ({key}, 'first', {key}.5, NULL, '{{}}', {large})"
        )
    for turn in range(4):
        if turn == 2:
            source.remember()
        with source.connected():
            # The first time all rows as they are.
            source.await_text(f'"id":{STILL[-1]}')
            start = len(source.records)
            if turn == 1:
                # Changes go on while all rows are read again.
                source.execute(SNAPSHOT)
            for _ in range(25):
                source.execute(statement(at))
            source.execute(f"INSERT INTO customers VALUES ({500 + turn}, 'turn {turn}')")
            source.await_text(f"turn {turn}", start)
            if turn == 1:
                source.await_text(f'"id":{STILL[-1]}', start)
                assert source.having(f'"id":{STILL[0]}', start) == 1
            check(source, FORMS[form][0])
        if turn == 2:
            source.rewind()
        # Changes while it is away.
        for _ in range(5):
            source.execute(statement(at))
    # What it sent before its crash came once more.
    assert [source.having(f'"turn {turn}"') for turn in (2, 3)] == [2, 1]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("form", FORMS)
def test_a_large_value_that_is_left_out_is_an_error_by_name(
    form: str, debezium: Debezium
) -> None:
    """By PostgreSQL's default an update does not send the large values that it leaves as they are."""
    source = source_of(form, debezium)
    for sql in (TABLE, LARGE, SIGNALS):
        source.execute(sql)
    source.execute(
        "INSERT INTO customers (id, name, big) VALUES (1, 'first', repeat('x', 9000))"
    )
    with source.connected():
        source.await_text("first")
        check(source, FORMS[form][0])
        source.execute("UPDATE customers SET name = 'second'")
        source.await_text("second")
    with pytest.raises(ValueUnavailable, match="field big: an update did not touch the value"):
        check(source, FORMS[form][0])
