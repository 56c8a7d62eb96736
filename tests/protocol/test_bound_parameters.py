"""Ordinary statements with parameters, through stock drivers and the real server: what is told is what comes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest
from pyarrow import flight

from tests.fixtures.jdbc import Jdbc, prepared, query, values
from tests.fixtures.server import SqlServer
from tests.harness.wire import command, prepare

#: Of ``lake.net.flows``, its first row: 1, 'a', 1.5000, 2024-02-29.
ORDINARY: list[tuple[str, Any, Any]] = [
    ("?", 1, 1),
    ("?", "x", "x"),
    ("?", None, None),
    ("?", dt.date(2024, 2, 29), dt.date(2024, 2, 29)),
    ("?::INT", 7, 7),
    ("id + ?", 1, 2),
    ("id - ?", 2**40, 1 - 2**40),
    ("id * ?", 2, 2),
    ("id * ?", 0.5, 0.5),
    ("id * ?", None, None),
    ("id % ?", 2, 1),
    ("id / ?", 2, 0.5),
    ("id // ?", 1, 1),
    ("-id + ?", 1, 0),
    ("price * ?", 2, Decimal(3)),
    ("price + ?", Decimal("0.25"), Decimal("1.75")),
    ("price > ?", 1, True),
    ("coalesce(id, ?)", 0, 1),
    ("coalesce(name, ?)", "?", "a"),
    ("greatest(id, ?)", 2**40, 2**40),
    ("least(id, ?)", 0, 0),
    ("nullif(id, ?)", 1, None),
    ("CASE WHEN id = 1 THEN ? ELSE 0 END", 1.5, 1.5),
    ("CASE WHEN id = 1 THEN ? ELSE 'no' END", "yes", "yes"),
    ("name || ?", "!", "a!"),
    ("upper(?)", "b", "B"),
    ("round(price, ?)", 1, Decimal("1.5")),
    ("round(price::DOUBLE, ?)", 0, 2.0),
    ("lpad(name, ?, 'x')", 3, "xxa"),
    ("left(name, ?)", 1, "a"),
    ("substr(name, ?)", 1, "a"),
    ("chr(?)", 66, "B"),
    ("ts::DATE + ?", 1, dt.date(2024, 3, 1)),
    ("(ts + to_days(?))::DATE", 1, dt.date(2024, 3, 1)),
    ("(ts - to_months(?))::DATE", 1, dt.date(2024, 1, 29)),
    ("date_trunc(?, ts)::DATE", "month", dt.date(2024, 2, 1)),
    ("strptime('2024-02-29', ?)", "%Y-%m-%d", dt.datetime(2024, 2, 29)),
    ("id IN (?, 9)", 1, True),
    ("[id, ?]", 2, [1, 2]),
    ("(SELECT count(*) * ? FROM lake.net.flows)", 2, 6),
    ("sum(id) OVER () + ?", 1, Decimal(2)),
]


@pytest.fixture
def cursor(iceberg_server: SqlServer) -> Iterator[adbc.Cursor]:
    with iceberg_server.cursor() as opened:
        yield opened


def test_ordinary_statements_work(cursor: adbc.Cursor) -> None:
    for expression, value, expected in ORDINARY:
        sql = f'SELECT {expression} AS v FROM (SELECT *, "at" AS ts FROM lake.net.flows) WHERE id = 1'
        cursor.execute(sql, [value])
        assert cursor.fetchall() == [(expected,)], (expression, value)


def test_what_sqlalchemy_sends_works(cursor: adbc.Cursor) -> None:
    sql = (
        "SELECT lake.net.flows.id + ? AS anon_1, coalesce(lake.net.flows.price, ?) AS coalesce_1, "
        "round(lake.net.flows.price, ?) AS round_1, ? AS run_id "
        "FROM lake.net.flows WHERE lake.net.flows.id > ? ORDER BY lake.net.flows.id + ? LIMIT ? OFFSET ?"
    )
    cursor.execute(sql, [1, 0, 1, "r", 0, 1, 2, 1])
    assert cursor.fetchall() == [(3, 0, None, "r"), (4, -2, -2, "r")]


def test_one_statement_takes_other_types_each_time(cursor: adbc.Cursor) -> None:
    sql = "SELECT ? AS v"
    for value in (1, "x", 2.5, None, Decimal("1.5"), True, b"y", 2**40):
        cursor.execute(sql, [value])
        assert cursor.fetchall() == [(value,)]


def test_a_session_s_time_zone_is_in_the_schema_told(iceberg_server: SqlServer) -> None:
    with iceberg_server.cursor(
        **{"adbc.flight.sql.rpc.call_header.time_zone": "Europe/Zurich"}
    ) as cursor:
        cursor.execute('SELECT "at", now() AS n, ? AS v FROM lake.net.flows', [1])
        schema = cursor.fetch_arrow_table().schema
    assert schema.types == [pa.timestamp("us", "Europe/Zurich")] * 2 + [pa.int64()]


def test_a_schema_asked_for_after_binding_is_that_of_the_rows(
    iceberg_server: SqlServer,
) -> None:
    with closing(flight.connect(iceberg_server.uri)) as client:
        handle = prepare(client, "SELECT ? AS v").prepared_statement_handle
        statement = command("CommandPreparedStatementQuery", prepared_statement_handle=handle)
        assert client.get_schema(statement).schema.types == [pa.string()]
        for value, kind in ((1, pa.int64()), (1.5, pa.float64()), ("x", pa.string())):
            writer, _ = client.do_put(statement, pa.schema([("1", kind)]))
            writer.write_batch(pa.record_batch({"1": pa.array([value], kind)}))
            writer.close()
            assert client.get_schema(statement).schema.types == [kind]
            info = client.get_flight_info(statement)
            assert info.schema.types == [kind]
            assert client.do_get(info.endpoints[0].ticket).read_all()["v"].to_pylist() == [
                value
            ]


def test_several_rows_are_refused_by_name(cursor: adbc.Cursor) -> None:
    statement = cursor.adbc_statement
    statement.set_sql_query("SELECT ? AS v")
    statement.prepare()
    statement.bind(pa.record_batch({"1": [1, 2]}))
    with pytest.raises(adbc.Error, match="more than one was bound"):
        statement.execute_query()


def test_enums_bins_and_bare_parts_reach_a_driver(cursor: adbc.Cursor) -> None:
    cursor.execute(
        "SELECT 'a'::ENUM('a', 'b') AS e, ['b'::ENUM('a', 'b')] AS l, date_diff(month, \"at\", "
        "TIMESTAMPTZ '2024-05-01 00:00:00Z') AS months, "
        "date_bin(INTERVAL '15 minutes', TIMESTAMP '2024-02-29 10:07:00', TIMESTAMP '1970-01-01T00:00:00Z') AS b "
        "FROM lake.net.flows WHERE id = 1"
    )
    assert cursor.fetchall() == [("a", ["b"], 3, dt.datetime(2024, 2, 29, 10))]


def test_what_tools_write_for_postgres_is_answered(cursor: adbc.Cursor) -> None:
    cursor.execute("SET time_zone = 'America/New_York'")
    cursor.execute(
        "SELECT pg_catalog.version() = version() AS v, current_setting('TimeZone') AS z, count(*) AS c "
        "FROM lake.net.flows WHERE \"at\" >= TO_TIMESTAMP('2024-02-28 19:00:00.000000', 'YYYY-MM-DD HH24:MI:SS.US') "
        "AND id = 1"
    )
    assert cursor.fetchall() == [(True, "America/New_York", 1)]


def test_jdbc_binds_whole_numbers_and_reads_times_as_objects(
    jdbc: Jdbc, iceberg_server: SqlServer
) -> None:
    sql = (
        "SELECT id * ? AS product, round(price, ?) AS r, lpad(name, ?, 'x') AS l, "
        '"at"::DATE + ? AS next, ("at" + to_days(?))::DATE AS d, (to_months(?))::VARCHAR AS m '
        "FROM lake.net.flows WHERE id = ?"
    )
    numbers = [("Int", number) for number in (2, 1, 3, 1, 1, 2, 1)]
    steps = [prepared(sql, *numbers), query("SELECT * FROM lake.net.flows WHERE id = 1")]
    _, bound, plain, _ = jdbc.run(steps, port=iceberg_server.port, properties={"profile": "bi"})
    day = "2024-03-01"
    assert [list(map(str, row)) for row in values(bound)] == [
        ["2.0", "1.5", "xxa", day, day, "2 months"]
    ]
    assert values(plain) == [["1", "a", "1.5000", "2024-02-29 00:00:00.0"]]
    assert plain["ok"]["classes"] == ["Long", "String", "BigDecimal", "Timestamp"]
