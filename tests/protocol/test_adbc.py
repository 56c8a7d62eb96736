"""The stock ADBC driver (Go) against the protocol layer."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest
from adbc_driver_manager import ProgrammingError

from tests.harness.canned import COLUMNS, TABLES, CannedServer


def test_a_query_is_prepared_planned_and_executed_exactly_once(
    canned_server: CannedServer, cursor: adbc.Cursor
) -> None:
    cursor.execute("SELECT 42 AS answer, 'text' AS t")
    assert cursor.fetchall() == [(42, "text")]
    assert {
        name: canned_server.backend.calls[name] for name in ("prepare", "plan", "open")
    } == {
        "prepare": 1,
        "plan": 1,
        "open": 1,
    }


def test_a_result_is_an_arrow_table_with_the_engine_s_types(cursor: adbc.Cursor) -> None:
    cursor.execute(
        "SELECT range AS n, range::VARCHAR AS s, [range] AS l, TIMESTAMPTZ '2024-01-02 03:04:05Z' AS at "
        "FROM range(25000)"
    )
    table = cursor.fetch_arrow_table()
    assert table.schema.types == [
        pa.int64(),
        pa.utf8(),
        pa.list_(pa.field("l", pa.int64())),
        pa.timestamp("us", tz="UTC"),
    ]
    assert table["n"].to_pylist() == list(range(25_000))


def test_an_empty_result_has_its_columns(cursor: adbc.Cursor) -> None:
    cursor.execute("SELECT 1 AS a WHERE false")
    table = cursor.fetch_arrow_table()
    assert (table.num_rows, table.column_names) == (0, ["a"])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("BIGINT", 2**62),
        ("DOUBLE", -0.5),
        ("VARCHAR", "é\u0000'\"; DROP"),
        ("BOOLEAN", True),
        ("TIMESTAMP", dt.datetime(2024, 2, 29, 12, 30, 15, 123456)),
        ("DATE", dt.date(1969, 12, 31)),
        ("TIME", dt.time(23, 59, 59, 999999)),
        ("DECIMAL", Decimal("-123.4500")),
        ("BLOB", b"\x00\xff"),
        ("VARCHAR", None),
        ("BIGINT", None),
    ],
)
def test_a_parameter_of_each_kind_comes_back_unchanged(
    cursor: adbc.Cursor, kind: str, value: Any
) -> None:
    target = "DECIMAL(18,4)" if kind == "DECIMAL" else kind
    cursor.execute(f"SELECT CAST(?::{kind} AS {target}) AS v", [value])
    [(result,)] = cursor.fetchall()
    assert result == value


def test_a_prepared_statement_takes_new_parameters_each_time(
    canned_server: CannedServer, cursor: adbc.Cursor
) -> None:
    for value in (1, 2, 3):
        cursor.execute("SELECT ?::BIGINT * 2", [value])
        assert cursor.fetchall() == [(value * 2,)]


def test_executemany_is_refused_with_a_reason(cursor: adbc.Cursor) -> None:
    with pytest.raises(ProgrammingError, match="no executemany"):
        cursor.executemany("SELECT ?::BIGINT", [(1,), (2,)])


def test_ingestion_is_refused_with_a_reason(cursor: adbc.Cursor) -> None:
    with pytest.raises(adbc.Error, match="read-only"):
        cursor.adbc_ingest("t", pa.table({"a": [1]}))


def test_the_schema_of_a_statement_is_known_without_executing_it(
    canned_server: CannedServer, cursor: adbc.Cursor
) -> None:
    schema = cursor.adbc_execute_schema("SELECT 1::BIGINT AS a")
    assert schema.names == ["a"]
    assert canned_server.backend.calls["plan"] == canned_server.backend.calls["open"] == 0


def test_the_parameter_schema_is_known_after_preparing(cursor: adbc.Cursor) -> None:
    schema = cursor.adbc_prepare("SELECT ?::BIGINT, ?::TIMESTAMP")
    assert schema is not None
    assert schema.types == [pa.int64(), pa.timestamp("ms")]


def test_low_level_statements_need_no_preparing(
    canned_server: CannedServer, cursor: adbc.Cursor
) -> None:
    statement = cursor.adbc_statement
    statement.set_sql_query("SELECT 7 AS a")
    stream, _ = statement.execute_query()
    assert pa.RecordBatchReader.from_stream(stream).read_all().to_pylist() == [{"a": 7}]
    assert canned_server.backend.calls["prepare"] == 0
    assert canned_server.backend.calls["open"] == 1


def test_two_cursors_of_a_connection_stream_at_the_same_time(
    canned_server: CannedServer,
) -> None:
    with (
        adbc.connect(canned_server.uri, autocommit=True) as connection,
        connection.cursor() as one,
        connection.cursor() as two,
    ):
        one.execute("SELECT range FROM range(50000)")
        two.execute("SELECT range + 1 FROM range(50000)")
        for left, right in zip(one.fetch_record_batch(), two.fetch_record_batch(), strict=True):
            assert right[0][0].as_py() == left[0][0].as_py() + 1


class TestBrowsing:
    @pytest.fixture
    def connection(self, canned_server: CannedServer) -> Any:
        with adbc.connect(canned_server.uri, autocommit=True) as connected:
            yield connected

    @pytest.mark.parametrize("depth", ["catalogs", "db_schemas", "tables", "columns", "all"])
    def test_objects_at_each_depth(self, connection: adbc.Connection, depth: Any) -> None:
        items = connection.adbc_get_objects(depth=depth).read_all().to_pylist()
        assert [row["catalog_name"] for row in items] == ["lake", "second"]
        if depth == "catalogs":
            return
        lake = {row["db_schema_name"]: row for row in items[0]["catalog_db_schemas"]}
        assert sorted(lake) == ["main", "other"]
        if depth == "db_schemas":
            return
        tables = {row["table_name"]: row for row in lake["main"]["db_schema_tables"]}
        assert sorted(tables) == sorted(
            table.name for table in TABLES if (table.catalog, table.schema) == ("lake", "main")
        )
        assert tables["v_flows"]["table_type"] == "VIEW"
        if depth == "tables":
            return
        columns = {row["column_name"]: row for row in tables["flows"]["table_columns"]}
        assert list(columns) == COLUMNS.names
        assert columns["price"]["xdbc_type_name"] == "DECIMAL(18,4)"
        assert columns["tag"]["xdbc_type_name"] == "UUID"

    def test_filters_reach_the_server(self, connection: adbc.Connection) -> None:
        table = connection.adbc_get_objects(
            depth="tables", db_schema_filter="oth%", table_name_filter="f_ows"
        ).read_all()
        [lake] = [row for row in table.to_pylist() if row["catalog_name"] == "lake"]
        [schema] = [row for row in lake["catalog_db_schemas"] if row["db_schema_tables"]]
        assert schema["db_schema_name"] == "other"

    def test_a_table_s_schema(self, connection: adbc.Connection) -> None:
        schema = connection.adbc_get_table_schema(
            "flows", catalog_filter="lake", db_schema_filter="main"
        )
        assert (schema.names, schema.types) == (COLUMNS.names, COLUMNS.types)
        assert not schema.field("id").nullable

    def test_table_types(self, connection: adbc.Connection) -> None:
        assert connection.adbc_get_table_types() == ["TABLE", "VIEW"]

    def test_catalog_and_schema_can_be_read_and_set(self, connection: adbc.Connection) -> None:
        assert connection.adbc_current_catalog == "lake"
        assert connection.adbc_current_db_schema == "main"
        connection.adbc_current_catalog = "second"
        connection.adbc_current_db_schema = "other"
        assert connection.adbc_current_catalog == "second"
        assert connection.adbc_current_db_schema == "other"

    def test_an_unknown_catalog_is_refused(self, connection: adbc.Connection) -> None:
        with pytest.raises(adbc.Error):
            connection.adbc_current_catalog = "nowhere"
        assert connection.adbc_current_catalog == "lake"

    def test_who_is_serving(self, connection: adbc.Connection) -> None:
        info = connection.adbc_get_info()
        assert (info["vendor_name"], info["vendor_version"]) == ("Thermocline", "1.2.3")


def test_one_that_wants_transactions_is_warned_and_served(canned_server: CannedServer) -> None:
    with pytest.warns(Warning, match="Cannot disable autocommit"):
        connection = adbc.connect(canned_server.uri)
    with connection, connection.cursor() as cur:
        cur.execute("SELECT 1")
        assert cur.fetchall() == [(1,)]
