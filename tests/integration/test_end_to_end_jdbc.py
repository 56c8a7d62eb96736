"""The unmodified JDBC driver against the real server: browsing, statements, parameters."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from planner.names import TableName
from planner.schema import TIMESTAMPTZ, Column
from tests.fixtures.jdbc import Jdbc, again, metadata, prepared, query, values
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import SqlServer

pytestmark = pytest.mark.kafka

#: Column: its type, the value of row 1 in a record, and how JDBC asks for it; row 0 has nothing.
# 2024-02-29T12:30:15.123Z
AT_MS = 1_709_209_815_123
COLUMNS: dict[str, tuple[pa.DataType, Any, tuple[str, Any]]] = {
    "small": (pa.int32(), -7, ("Int", -7)),
    "large": (pa.int64(), 2**62, ("Long", 2**62)),
    "single": (pa.float32(), 0.5, ("Float", 0.5)),
    "double": (pa.float64(), -0.25, ("Double", -0.25)),
    "flag": (pa.bool_(), True, ("Boolean", True)),
    "money": (pa.decimal128(18, 4), "-123.4500", ("BigDecimal", "-123.4500")),
    "text": (pa.string(), "é'\";--", ("String", "é'\";--")),
    "raw": (pa.binary(), "616263", ("Bytes", "abc")),
    "day": (pa.date32(), "2024-02-29", ("Date", AT_MS)),
    "local": (pa.timestamp("us"), "2024-02-29T12:30:15.123", ("Timestamp", AT_MS)),
    "instant": (TIMESTAMPTZ, "2024-02-29T12:30:15.123Z", ("Timestamp", AT_MS)),
    "id": (
        pa.uuid(),
        "00112233-4455-6677-8899-aabbccddeeff",
        ("String", "00112233-4455-6677-8899-aabbccddeeff"),
    ),
}
#: What java.sql.DatabaseMetaData calls them.
TYPE_NAMES = {
    "kafka_partition": "INTEGER",
    "kafka_offset": "BIGINT",
    "kafka_timestamp": "TIMESTAMP WITH TIME ZONE",
    "small": "INTEGER",
    "large": "BIGINT",
    "single": "FLOAT",
    "double": "DOUBLE",
    "flag": "BOOLEAN",
    "money": "DECIMAL(18,4)",
    "text": "VARCHAR",
    "raw": "BLOB",
    "day": "DATE",
    "local": "TIMESTAMP",
    "instant": "TIMESTAMP WITH TIME ZONE",
    "id": "UUID",
}


@pytest.fixture(scope="module")
def bound(kafka: Kafka, server: SqlServer) -> TableName:
    topic = kafka.topic()
    columns = [Column(0, name, kind) for name, (kind, _, _) in COLUMNS.items()]
    table = server.bind(topic, columns, name=server.name("jdbc"), comment="of every kind")
    record = {name: value for name, (_, value, _) in COLUMNS.items()}
    kafka.produce(topic, [b"{}", json.dumps(record).encode()])
    return table


@pytest.fixture(scope="module")
def plain(server: SqlServer) -> TableName:
    rows = pa.table({"text": ["é'\";--"], "weight": [1.5]})
    return server.create_plain(rows, name=server.name("jdbc"))


def _ok(outcome: dict[str, Any]) -> Any:
    assert "ok" in outcome, outcome["error"]
    return outcome["ok"]


def test_bound_and_unbound_tables_are_listed_with_their_columns(
    jdbc: Jdbc, server: SqlServer, bound: TableName, plain: TableName
) -> None:
    _, catalogs, schemas, tables, columns, others, _ = jdbc.run(
        [
            metadata("getCatalogs"),
            metadata("getSchemas", "lake", "jd%"),
            metadata("getTables", "lake", "jdbc", "%", None),
            metadata("getColumns", "lake", "jdbc", bound.name, "%"),
            metadata("getColumns", "lake", "jdbc", plain.name, "%"),
        ],
        port=server.port,
    )
    assert [row["TABLE_CAT"] for row in _ok(catalogs)] == ["lake"]
    assert [row["TABLE_SCHEM"] for row in _ok(schemas)] == ["jdbc"]
    assert [(row["TABLE_NAME"], row["TABLE_TYPE"]) for row in _ok(tables)] == sorted(
        [(bound.name, "TABLE"), (plain.name, "TABLE")]
    )
    assert {row["COLUMN_NAME"]: row["TYPE_NAME"] for row in _ok(columns)} == TYPE_NAMES
    assert [(row["COLUMN_NAME"], row["TYPE_NAME"]) for row in _ok(others)] == [
        ("text", "VARCHAR"),
        ("weight", "DOUBLE"),
    ]


def test_a_prepared_parameter_of_each_kind_finds_its_row(
    jdbc: Jdbc, server: SqlServer, bound: TableName
) -> None:
    steps = [
        prepared(f"SELECT kafka_offset FROM {bound} WHERE {name} = ?", parameter)
        for name, (_, _, parameter) in COLUMNS.items()
    ]
    _, *outcomes, _ = jdbc.run(steps, port=server.port)
    result = {name: values(outcome) for name, outcome in zip(COLUMNS, outcomes, strict=True)}
    assert result == {name: [["1"]] for name in COLUMNS}


def test_a_prepared_statement_runs_again_and_sees_new_rows(
    jdbc: Jdbc, server: SqlServer, kafka: Kafka, bound: TableName, plain: TableName
) -> None:
    sql = f"SELECT count(*) FROM {bound} JOIN {plain} USING (text) WHERE weight > ?"
    _, *outcomes, _ = jdbc.run(
        [prepared(sql, ("Double", 1.0)), again(("Double", 2.0)), again(("Null", 8))],
        port=server.port,
    )
    assert [values(outcome) for outcome in outcomes] == [[["1"]], [["0"]], [["0"]]]


def test_views_of_the_two_sides_and_the_rows_between(
    jdbc: Jdbc, server: SqlServer, bound: TableName
) -> None:
    steps = [
        query(f'SELECT count(*) FROM {bound.catalog}.{bound.schema}."{bound.name}${side}"')
        for side in ("cold", "tail", "seam")
    ]
    steps.append(query(f"SELECT text, money FROM {bound} ORDER BY kafka_offset"))
    _, *counts, rows, _ = jdbc.run(steps, port=server.port)
    assert [values(outcome) for outcome in counts] == [[["0"]], [["2"]], [["1"]]]
    assert values(rows) == [[None, None], ["é'\";--", "-123.4500"]]


def test_a_refusal_reaches_jdbc_as_one_sentence(jdbc: Jdbc, server: SqlServer) -> None:
    _, refused, _ = jdbc.run(
        [query("SELECT * FROM lake.jdbc.nothing_at_all")], port=server.port
    )
    said = refused["error"]["message"]
    assert "there is no table lake.jdbc.nothing_at_all (statement " in said
    assert "Traceback" not in said
