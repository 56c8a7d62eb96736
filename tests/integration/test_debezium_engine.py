"""Debezium's engine over PostgreSQL, as it is: random changes of a table, and restarts between them, come to its rows."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

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
)
SCHEMA = keyed_schema(*COLUMNS)
TABLE = (
    "CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, balance numeric(12, 2), visits bigint DEFAULT 7, "
    "tags text[])"
)
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
        "SELECT id, name, balance, visits, tags FROM customers ORDER BY id"
    )
    assert [rows[key] for key in sorted(rows)] == expected


@pytest.mark.timeout(900)
@pytest.mark.parametrize("form", FORMS)
def test_what_a_connector_writes_comes_to_the_rows_of_its_table(
    form: str, debezium: Debezium
) -> None:
    envelope, properties = FORMS[form]
    source = (
        debezium.source("customers", converter_schemas_enable="false", **properties)
        if ("converter_schemas_enable" not in properties)
        else debezium.source("customers", **properties)
    )
    source.execute(TABLE)
    at = random.Random(form)
    for key in range(6):
        source.execute(f"INSERT INTO customers VALUES ({key}, 'first', {key}.5, NULL, '{{}}')")
    for turn in range(4):
        source.start()
        for _ in range(25):
            source.execute(statement(at))
        source.execute(
            f"INSERT INTO customers VALUES (100, 'turn {turn}') ON CONFLICT (id) DO UPDATE SET name = 'turn {turn}'"
        )
        source.await_text(f"turn {turn}")
        check(source, envelope)
        source.stop()
        # Changes while it is away.
        for _ in range(5):
            source.execute(statement(at))
