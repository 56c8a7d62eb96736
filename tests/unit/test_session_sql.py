"""Which statements are about the session, and what SHOW stands for."""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from planner.errors import BadParameter
from proxy.flightsql.session_sql import as_query, change_of
from proxy.session import Session

HERE = Session("s", catalog="lake", schema="o'net", time_zone="UTC", options={"profile": "bi"})


@pytest.mark.parametrize(
    "sql",
    [
        "BEGIN",
        "begin;",
        "BEGIN TRANSACTION",
        "START TRANSACTION READ ONLY",
        "BEGIN ISOLATION LEVEL REPEATABLE READ",
        "/* dbt */ COMMIT -- done",
        "END",
        "ROLLBACK WORK",
        "SET TRANSACTION READ ONLY",
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "SET application_name = 'Metabase'",
        "SET extra_float_digits TO 3;",
    ],
)
def test_what_changes_nothing_is_accepted(sql: str) -> None:
    change = change_of(sql)
    assert change is not None
    assert (dict(change.settings), change.path) == ({}, ())


@pytest.mark.parametrize(
    ("sql", "settings"),
    [
        ("SET time_zone = 'Europe/Zurich'", {"time_zone": "Europe/Zurich"}),
        ("set TimeZone to 'UTC' ;", {"time_zone": "UTC"}),
        ("SET TIME ZONE 'it''s'", {"time_zone": "it's"}),
        ("SET SESSION schema = net", {"schema": "net"}),
        ('SET SCHEMA "Net"', {"schema": "Net"}),
        ("SET CATALOG lake", {"catalog": "lake"}),
        ("SET profile = bi", {"profile": "bi"}),
        ("SET max_message_bytes = 16777216", {"max_message_bytes": "16777216"}),
        ("RESET profile", {"profile": None}),
        ("SET profile TO DEFAULT", {"profile": None}),
        ("SET profile = 'default'", {"profile": "default"}),
    ],
)
def test_set_and_reset(sql: str, settings: dict[str, Any]) -> None:
    change = change_of(sql)
    assert change is not None
    assert dict(change.settings) == settings


@pytest.mark.parametrize(
    ("sql", "place"),
    [
        ("USE lake", ("lake",)),
        ('USE "a.b"."C"', ("a.b", "C")),
        ("USE lake.shop.Public", ("lake", "shop", "Public")),
        ("use lake.net;", ("lake", "net")),
    ],
)
def test_use_names_a_place(sql: str, place: tuple[str, ...]) -> None:
    change = change_of(sql)
    assert change is not None
    assert change.path == place


@pytest.mark.parametrize(
    "sql",
    [
        "",
        ";",
        "SELECT 1",
        "BEGIN; SELECT 1",
        "BEGIN SELECT",
        "COMMIT AND CHAIN",
        "SET",
        "SET a",
        "SET profile = bi, hugeint = double",
        "SET profile = (SELECT 1)",
        "SET profile == bi",
        '"SET" profile = bi',
        "USE a.b.",
        "USE a = b",
        "USE a b",
        "USE",
        "SET profile = bi" + " " * 64_001,
        "SET profile = $$bi$$",
        "COPY x TO 'y'",
    ],
)
def test_all_else_is_left_to_the_backend(sql: str) -> None:
    assert change_of(sql) is None


@pytest.mark.parametrize(
    "sql", ["SET threads = 4", "SET enable_external_access = true", "RESET memory_limit"]
)
def test_an_engine_s_setting_is_refused_by_name(sql: str) -> None:
    with pytest.raises(BadParameter, match="There is no setting"):
        change_of(sql)


@pytest.mark.parametrize(
    ("sql", "query"),
    [
        ("SHOW TABLES", "table_catalog = 'lake' AND table_schema = 'o''net'"),
        ("show tables from net;", "table_catalog = 'lake' AND table_schema = 'net'"),
        ('SHOW TABLES IN second."o\'x"', "table_catalog = 'second' AND table_schema = 'o''x'"),
        ("SHOW TABLES IN a.b.c", "table_catalog = 'a' AND table_schema = 'b.c'"),
        ("SHOW DATABASES", "DISTINCT catalog_name AS database_name"),
        ("SHOW SCHEMAS", "schema_name FROM information_schema.schemata"),
        ("SHOW ALL TABLES", "FROM information_schema.tables ORDER BY 1, 2, 3"),
        ("SHOW time_zone", "SELECT 'UTC'::VARCHAR AS time_zone"),
        ("SHOW TIME ZONE", "SELECT 'UTC'::VARCHAR AS time_zone"),
        ("SHOW TimeZone", "SELECT 'UTC'::VARCHAR AS time_zone"),
        ("SHOW hugeint", "SELECT NULL::VARCHAR AS hugeint"),
        ("SHOW search_path", "SELECT 'o''net'::VARCHAR AS schema"),
        ("SHOW ALL", "('profile', 'bi')"),
        ("SHOW TRANSACTION ISOLATION LEVEL", "AS transaction_isolation"),
    ],
)
def test_show_is_a_query(sql: str, query: str) -> None:
    assert query in as_query(sql, HERE)


@pytest.mark.parametrize(
    "sql", ["SHOW", "SHOW flows", "SHOW TABLES FROM a.", "SHOW profile x", "DESCRIBE flows"]
)
def test_other_shows_are_left_as_they_are(sql: str) -> None:
    assert as_query(sql, HERE) == sql


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("SELECT current_user", {"current_user": "a'da"}),
        ("select CURRENT_CATALOG ;", {"current_catalog": "lake"}),
        (
            "SELECT current_database( ), current_schema()",
            {"current_database": "lake", "current_schema": "net"},
        ),
        ('SELECT session_user AS u, current_role AS "the, role"', None),
        ("SELECT\n  current_schema() as s", {"s": "net"}),
    ],
)
def test_who_and_where_a_session_is_is_told_from_the_session(
    sql: str, columns: dict[str, str] | None
) -> None:
    session = Session("1", user="a'da", catalog="lake", schema="net")
    said = as_query(sql, session)
    if columns is None:
        assert said == sql  # a comma inside a name: not one of these, and refused by the gate
        return
    assert duckdb.sql(said).to_arrow_table().to_pylist() == [columns]


def test_an_anonymous_session_has_no_user() -> None:
    said = as_query("SELECT current_user, current_schema()", Session("1", catalog="lake"))
    assert duckdb.sql(said).fetchall() == [(None, None)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT current_user FROM t",
        "SELECT current_users",
        "SELECT current_user, 1",
        "SELECT current_schema(1)",
        "SELECT current_user; DROP TABLE t",
        "SELECT current_user" + " " * 100_000,
    ],
)
def test_other_statements_go_on_as_they_came(sql: str) -> None:
    assert as_query(sql, Session("1", user="ada")) == sql
