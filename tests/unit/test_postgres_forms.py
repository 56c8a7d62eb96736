"""What tools write for Postgres, in DuckDB's words."""

from __future__ import annotations

from datetime import datetime

import duckdb
import pytest

from planner.errors import UnsupportedStatement
from planner.statement.rewrite import apply
from tests.harness.sql import parse, unparse


def rewritten(sql: str) -> str:
    document = parse(sql)
    apply(document, text=sql)
    return unparse(document)


@pytest.mark.parametrize(
    ("text", "pattern", "value"),
    [
        (
            "2026-04-01 10:20:30.123456",
            "YYYY-MM-DD HH24:MI:SS.US",
            "2026-04-01 10:20:30.123456",
        ),
        ("2026-04-01T10:20:30.123", 'YYYY-MM-DD"T"HH24:MI:SS.MS', "2026-04-01 10:20:30.123"),
        ("20260401", "yyyymmdd", "2026-04-01 00:00:00"),
        ("01 Apr 26 03:04 PM", "DD MON YY HH12:MI AM", "2026-04-01 15:04:00"),
        ("100% 2026/091", '"100%" YYYY/DDD', "2026-04-01 00:00:00"),
        ("2026-04-01T10:20:30", "YYYY-MM-DDTHH24:MI:SS", "2026-04-01 10:20:30"),
    ],
)
def test_a_time_is_read_as_postgres_reads_it(text: str, pattern: str, value: str) -> None:
    sql = rewritten(f"SELECT TO_TIMESTAMP('{text}', '{pattern}') AS read")
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'America/New_York'")
        connection.execute(
            f"SELECT read = '{value} America/New_York'::TIMESTAMPTZ FROM ({sql})"
        )
        assert connection.fetchall() == [(True,)]


def test_where_it_is_read_in_another_way_than_in_postgres() -> None:
    """As docs/clients.md says. Postgres has 0001-01-01 BC, 2069, and the day."""
    without_year, short_year, longer = (
        rewritten(f"SELECT to_timestamp('{text}', '{pattern}')::TIMESTAMP")
        for text, pattern in (
            ("10:20", "HH24:MI"),
            ("69", "YY"),
            ("2026-04-01 10:20", "YYYY-MM-DD"),
        )
    )
    with duckdb.connect() as connection:
        assert connection.execute(without_year).fetchall() == [(datetime(1900, 1, 1, 10, 20),)]
        assert connection.execute(short_year).fetchall() == [(datetime(1969, 1, 1),)]
        with pytest.raises(duckdb.InvalidInputException, match="Could not parse string"):
            connection.execute(longer)


@pytest.mark.parametrize(
    ("sql", "printed"),
    [
        ("SELECT to_timestamp(0)", "SELECT to_timestamp(0)"),
        ("SELECT pg_catalog.version()", 'SELECT "version"()'),
        ("SELECT to_timestamp(a, 'YYYY') AS at FROM t", None),
    ],
)
def test_names_stay(sql: str, printed: str | None) -> None:
    if printed is None:
        assert rewritten(sql).startswith("SELECT CAST(strptime(a, '%Y') AS TIMESTAMP")
        assert " AS at" in rewritten(sql).replace('"', "")
    else:
        assert rewritten(sql) == printed


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            "SELECT to_timestamp(a, b) FROM t",
            "the format of to_timestamp must be a literal; write it in quotes.",
        ),
        (
            "SELECT to_timestamp(a, 'YYYY Q') FROM t",
            "to_timestamp does not know the format 'YYYY Q' from 'Q' on; fields are YYYY, YY, MM, MON, MONTH, DD, DDD, "
            "HH24, HH12, HH, MI, SS, MS, US, AM, PM, T, TZH:TZM, other letters stand in double quotes.",
        ),
        (
            "SELECT to_timestamp(a, 'M\u0130')",
            "to_timestamp does not know the format 'M\u0130' from 'M\u0130' on; fields are YYYY, YY, MM, MON, MONTH, DD, "
            "DDD, HH24, HH12, HH, MI, SS, MS, US, AM, PM, T, TZH:TZM, other letters stand in double quotes.",
        ),
    ],
)
def test_a_format_that_cannot_be_said_is_refused(sql: str, message: str) -> None:
    with pytest.raises(UnsupportedStatement) as refusal:
        rewritten(sql)
    assert str(refusal.value) == message
