"""What GetSqlInfo lists is what the real server takes."""

from __future__ import annotations

import adbc_driver_flightsql.dbapi as adbc
import duckdb
import pytest

from tests.fixtures.jdbc import Jdbc, metadata
from tests.fixtures.server import SqlServer
from thermocline.serve.sql_info import DATETIME, KEYWORDS, NUMERIC, STRING, SYSTEM, product


def test_keywords_are_those_the_engine_reserves() -> None:
    rows = duckdb.execute(
        "SELECT upper(keyword_name) FROM duckdb_keywords() WHERE keyword_category = 'reserved'"
    ).fetchall()
    assert set(KEYWORDS) == {name for (name,) in rows}


def test_each_function_is_listed_once() -> None:
    listed = (*NUMERIC, *STRING, *DATETIME, *SYSTEM)
    assert len(listed) == len(set(listed))


def _error(cursor: adbc.Cursor, sql: str) -> str:
    try:
        cursor.execute(sql)
    except adbc.Error as error:
        return str(error)
    return ""


@pytest.mark.parametrize("functions", [NUMERIC, STRING, DATETIME, SYSTEM])
def test_every_listed_function_is_known_and_allowed(
    iceberg_server: SqlServer, functions: tuple[str, ...]
) -> None:
    unknown = []
    with iceberg_server.cursor() as cursor:
        for name in functions:
            # Called with no arguments, most fail; not one may fail for being unknown or refused. Some words of
            # SQL (current_time) are called without parentheses.
            reply = _error(cursor, f"SELECT {name}()")
            missing = "is not supported" in reply or "does not exist" in reply
            if missing and _error(cursor, f"SELECT {name}"):
                unknown.append(name)
    assert unknown == []


def test_jdbc_reads_the_lists(iceberg_server: SqlServer, jdbc: Jdbc) -> None:
    _, numeric, string, dates, system, keywords, _ = jdbc.run(
        [
            metadata("getNumericFunctions"),
            metadata("getStringFunctions"),
            metadata("getTimeDateFunctions"),
            metadata("getSystemFunctions"),
            metadata("getSQLKeywords"),
        ],
        port=iceberg_server.port,
    )
    assert numeric["ok"].split(", ") == list(product().numeric_functions)
    assert "substring" in string["ok"]
    assert "date_trunc" in dates["ok"]
    assert "nullif" in system["ok"]
    assert "QUALIFY" in keywords["ok"]
