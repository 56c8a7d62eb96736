"""Time filters as tools and people write them prune files, and row groups within them."""

from __future__ import annotations

import datetime as dt
import random
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from connectors import file_conditions
from planner.reading.filters import EVERYTHING
from planner.schema import Column, TableSchema
from planner.statement.ast import Node
from planner.statement.conditions import conjuncts
from planner.statement.references import references
from planner.statement.rewrite import quote_date_parts
from proxy.engine import macros
from proxy.engine.engine import Engine
from proxy.engine.macros import When
from proxy.query.relations import StatementContext, scan_filter

NOW = dt.datetime(2026, 4, 1, 12, 30, tzinfo=dt.UTC)
#: Rows of ten days before ``NOW``, one a minute.
FIRST = NOW - dt.timedelta(days=10)
ZONED = pa.timestamp("us", "UTC")
#: (who writes it, the filter, the first moment that it lets through)
FORMS = [
    ("people", "ts > now() - INTERVAL 1 DAY", "2026-03-31 12:30"),
    ("people", "ts > now() - INTERVAL '15 minutes'", "2026-04-01 12:15"),
    ("people", "ts > now() - INTERVAL (2) HOURS", "2026-04-01 10:30"),
    ("people", "now() - INTERVAL 1 DAY < ts", "2026-03-31 12:30"),
    ("people", "ts > current_timestamp - INTERVAL 1 HOUR", "2026-04-01 11:30"),
    ("people", "ts > CURRENT_TIMESTAMP - 7 * INTERVAL '1 day'", "2026-03-25 12:30"),
    ("people", "ts > localtimestamp - INTERVAL 1 HOUR", "2026-04-01 11:30"),
    ("people", "ts > get_current_timestamp() - INTERVAL 1 HOUR", "2026-04-01 11:30"),
    ("people", "ts >= current_date", "2026-04-01 00:00"),
    ("people", "ts >= today()", "2026-04-01 00:00"),
    ("people", "ts >= today() - 7", "2026-03-25 00:00"),
    ("people", "ts >= current_date - INTERVAL 7 DAY", "2026-03-25 00:00"),
    ("people", "ts >= date_trunc('day', now())", "2026-04-01 00:00"),
    ("people", "ts >= date_trunc('hour', current_timestamp)", "2026-04-01 12:00"),
    ("people", "ts >= date_add(now(), -INTERVAL 1 DAY)", "2026-03-31 12:30"),
    ("people", "ts >= now()::DATE", "2026-04-01 00:00"),
    ("people", "ts >= now() AT TIME ZONE 'UTC' - INTERVAL 1 HOUR", "2026-04-01 11:30"),
    ("Grafana", "ts BETWEEN '2026-04-01T10:00:00Z' AND '2026-04-01T11:00:00Z'", "2026-04-01 10:00"),
    ("Grafana", "ts >= to_timestamp(1775037600) AND ts < to_timestamp(1775041200)", "2026-04-01 10:00"),
    ("Grafana", "ts >= epoch_ms(1775037600000)", "2026-04-01 10:00"),
    ("Superset", "ts >= TIMESTAMP '2026-04-01 10:00:00.000000'", "2026-04-01 10:00"),
    # As planner.statement.postgres_forms makes it of TO_TIMESTAMP('2026-04-01 10', 'YYYY-MM-DD HH24').
    ("Superset", "ts >= CAST(strptime('2026-04-01 10', '%Y-%m-%d %H') AS TIMESTAMP WITH TIME ZONE)", "2026-04-01 10:00"),
    ("Superset", "ts >= CAST('2026-04-01 10:00:00' AS TIMESTAMP)", "2026-04-01 10:00"),
    ("Metabase", "ts >= timestamp with time zone '2026-04-01 10:00:00.000Z'", "2026-04-01 10:00"),
    ("Power BI", "ts >= TIMESTAMP '2026-04-01 10:00:00'", "2026-04-01 10:00"),
    ("Tableau", "ts >= DATE '2026-04-01'", "2026-04-01 00:00"),
]  # fmt: skip


@pytest.fixture(scope="module")
def minutes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    moments = [FIRST + dt.timedelta(minutes=number) for number in range(10 * 24 * 60)]
    path = tmp_path_factory.mktemp("minutes") / "minutes.parquet"
    table = pa.table({"ts": pa.array(moments, ZONED)})
    pq.write_table(table, path, row_group_size=600)
    return path


@pytest.mark.parametrize(("who", "condition", "first"), FORMS, ids=[form[1] for form in FORMS])
def test_files_and_row_groups_are_pruned(
    engine: Engine, minutes: Path, who: str, condition: str, first: str
) -> None:
    document = engine.parse(f"SELECT * FROM a.b.c WHERE {condition}")
    (reference,) = references(document)
    context = StatementContext(document, (), When(NOW))
    schema = TableSchema(0, (Column(1, "ts", ZONED),))
    (conditions,) = scan_filter(engine, context, conjuncts(document)[reference], schema)
    lower = next(each for each in conditions if each.operator in (">", ">=", "between"))
    assert lower.values[0].as_py() == dt.datetime.fromisoformat(f"{first}+00:00"), who
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for macro in macros.STATEMENTS:
            connection.execute(macro)
        sql = f"SELECT ts FROM read_parquet('{minutes}') WHERE {condition}"
        macros.set_time(connection, sql, NOW)
        plan = connection.execute(f"EXPLAIN {sql}").fetchall()[0][1]
        assert "FILTER" not in plan, plan
        assert "Filters" in plan


#: Times so long ago, and whether they are worked out without the engine.
AGO = [
    ("now()", True),
    ("current_timestamp", True),
    ("now() - INTERVAL 10 MINUTE", True),
    ("current_timestamp - INTERVAL 36 HOUR", True),
    ("get_current_timestamp() + INTERVAL 90 SECONDS", True),
    ("transaction_timestamp() - INTERVAL 250 MILLISECONDS", True),
    ("now() - to_minutes(10)", True),
    ("now() - INTERVAL 0 HOUR", True),
    ("now() - INTERVAL 1 DAY", False),
    ("now() - INTERVAL 2 MONTHS", False),
    ("now() - INTERVAL '90 minutes'", False),
    ("now() - INTERVAL (1.5) HOUR", False),
    ("now() - to_minutes(trunc(15, -1)::BIGINT)", False),
    ("now() - INTERVAL 5000000 HOUR", False),
    ("now() - INTERVAL 1 HOUR - INTERVAL 1 MINUTE", False),
    ("now()::TIMESTAMP - INTERVAL 10 MINUTE", False),
]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kathmandu"])
@pytest.mark.parametrize(("time", "is_plain"), AGO, ids=[time for time, _ in AGO])
def test_a_time_so_long_ago_is_what_the_engine_says(
    engine: Engine, time: str, zone: str, *, is_plain: bool
) -> None:
    # Two hours after clocks went forward in Berlin.
    when = When(dt.datetime(2026, 3, 29, 3, 0, 0, 123_457, tzinfo=dt.UTC), zone)
    document = engine.parse(f"SELECT * FROM a.b.c WHERE ts > {time}")
    (reference,) = references(document)
    positions = conjuncts(document)[reference]
    schema = TableSchema(0, (Column(1, "ts", ZONED),))
    calls = []

    def evaluate(constants: Node, columns: str) -> pa.Table:
        calls.append(columns)
        return engine.evaluate(constants, columns, {}, when)

    by_engine = file_conditions.scan_filter(evaluate, positions, schema)
    calls.clear()
    ours = file_conditions.scan_filter(evaluate, positions, schema, {}, when.microseconds)
    assert ours == by_engine
    assert (not calls) is is_plain


def test_a_column_of_that_name_is_no_clock(engine: Engine) -> None:
    document = engine.parse("SELECT * FROM a.b.c WHERE ts >= current_date")
    (reference,) = references(document)
    context = StatementContext(document, (), When(NOW))
    schema = TableSchema(0, (Column(1, "ts", ZONED), Column(2, "Current_Date", pa.date32())))
    assert scan_filter(engine, context, conjuncts(document)[reference], schema) == EVERYTHING


#: (who writes it, the filter, the first and the last day that it lets through, with what it may read beside)
ROUNDED = [
    ("Tableau", "date_trunc('day', ts) = TIMESTAMP '2026-03-30 00:00:00'", "2026-03-29", "2026-04-02"),
    ("Tableau", "date_trunc('MONTH', ts) = DATE '2026-03-01'", "2026-02-28", "2026-04-03"),
    ("Superset", "date_trunc('week', ts) >= '2026-03-30'", "2026-03-29", None),
    ("Metabase", "CAST(ts AS date) BETWEEN DATE '2026-03-28' AND DATE '2026-03-29'", "2026-03-27", "2026-03-31"),
    ("Power BI", "CAST(ts AS DATE) >= CAST(now() AS DATE)", "2026-03-31", None),
    ("people", "ts::DATE = '2026-03-30 17:00'", "2026-03-29", "2026-04-01"),
    ("people", "ts::DATE = current_date", "2026-03-31", "2026-04-03"),
    ("people", "current_date - 1 <= ts::DATE", "2026-03-30", None),
    ("people", "date_trunc('hour', ts) < now() - INTERVAL 1 DAY", None, "2026-04-03"),
    ("people", "datetrunc(year, ts) > DATE '2025-01-01'", "2024-12-31", None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("who", "condition", "first", "last"), ROUNDED, ids=[form[1] for form in ROUNDED]
)
def test_files_are_pruned_by_rounded_times(
    engine: Engine, who: str, condition: str, first: str | None, last: str | None
) -> None:
    bounds = _bounds(engine, condition, "UTC")
    expected = {
        operator: dt.datetime.fromisoformat(time).replace(tzinfo=dt.UTC)
        for operator, time in ((">=", first), ("<=", last))
        if time is not None
    }
    assert bounds == expected, who


def _bounds(
    engine: Engine, condition: str, zone: str, kind: pa.DataType = ZONED
) -> dict[str, dt.datetime]:
    sql = f"SELECT * FROM a.b.c WHERE {condition}"
    document = engine.parse(sql)
    quote_date_parts(document, sql)
    (reference,) = references(document)
    context = StatementContext(document, (), When(NOW, zone))
    schema = TableSchema(0, (Column(1, "ts", kind),))
    (conditions,) = scan_filter(engine, context, conjuncts(document)[reference], schema)
    return {each.operator: each.values[0].as_py() for each in conditions}


#: Clocks that were turned at midnight and a minute later, by half an hour, over the date line, and never.
_ZONES = ("America/St_Johns", "America/Sao_Paulo", "Pacific/Apia", "Australia/Lord_Howe", "UTC")


@pytest.mark.parametrize("zone", _ZONES)
@pytest.mark.parametrize("kind", [ZONED, pa.timestamp("us"), pa.date32()], ids=str)
def test_no_row_is_outside_of_the_bounds_whatever_clocks_did(
    engine: Engine, zone: str, kind: pa.DataType
) -> None:
    rng = random.Random(f"{zone} {kind}")
    turns = _turns(zone)
    with duckdb.connect() as connection:
        connection.execute(f"SET TimeZone = '{zone}'")
        for _ in range(10):
            turn = rng.choice(turns)
            times = [
                turn + dt.timedelta(minutes=rng.randint(-3_000, 3_000)) for _ in range(500)
            ]
            rows = pa.table({"ts": pa.array(times, ZONED)})
            rows = rows if kind == ZONED else rows.cast(pa.schema({"ts": pa.timestamp("us")}))
            rows = (
                rows if kind != pa.date32() else rows.cast(pa.schema({"ts": kind}), safe=False)
            )
            unit = rng.choice(("second", "hour", "day", "week", "month", "year"))
            rounded = rng.choice((f"date_trunc('{unit}', ts)", "ts::DATE"))
            value = (turn + dt.timedelta(minutes=rng.randint(-1_500, 1_500))).isoformat(" ")
            operand = rng.choice(
                (
                    f"TIMESTAMPTZ '{value}'",
                    f"TIMESTAMP '{value[:19]}'",
                    f"DATE '{value[:10]}'",
                    f"'{value[:19]}'",
                    f"'{value[:19]}{rng.choice(('+14', '-11:30', '+99', '-99', 'Z'))}'",
                )
            )
            if operand[0] != "'":
                operand = rng.choice((operand, f"date_trunc('{unit}', {operand})"))
            condition = f"{rounded} {rng.choice(('=', '<', '<=', '>', '>='))} {operand}"
            lower, upper = (
                _bounds(engine, condition, zone, kind).get(operator)
                for operator in (">=", "<=")
            )
            assert lower or upper, condition
            answer = connection.execute(
                f"SELECT ts FROM rows WHERE {condition}"
            ).to_arrow_table()
            for time in answer["ts"].cast(kind).to_pylist():
                assert lower is None or time >= lower, (condition, zone)
                assert upper is None or time <= upper, (condition, zone)


@cache
def _turns(zone: str) -> list[dt.datetime]:
    """When clocks were turned there."""
    begin = dt.datetime(2006, 1, 1, tzinfo=dt.UTC)
    hours = [begin + dt.timedelta(hours=hour) for hour in range(6 * 366 * 24)]
    offsets = [hour.astimezone(ZoneInfo(zone)).utcoffset() for hour in hours]
    return [
        hour
        for hour, sooner, later in zip(hours, offsets, offsets[1:], strict=False)
        if sooner != later
    ] or [begin]
