"""Time filters as tools and people write them prune files, and row groups within them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from planner.pruning import EVERYTHING
from planner.schema import Column, TableSchema
from planner.statement.conjuncts import conjuncts
from planner.statement.references import references
from proxy.engine import macros
from proxy.engine.engine import Engine
from proxy.query.file_pruning import StatementContext, scan_filter

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
    context = StatementContext(document, (), NOW, "UTC")
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


def test_a_column_of_that_name_is_no_clock(engine: Engine) -> None:
    document = engine.parse("SELECT * FROM a.b.c WHERE ts >= current_date")
    (reference,) = references(document)
    context = StatementContext(document, (), NOW, "UTC")
    schema = TableSchema(0, (Column(1, "ts", ZONED), Column(2, "Current_Date", pa.date32())))
    assert scan_filter(engine, context, conjuncts(document)[reference], schema) == EVERYTHING
