"""Parsing with plain DuckDB, and the corpus of varied statements the statement tests share."""

import json
from pathlib import Path
from typing import Any

import duckdb

from planner.statement.ast import Node
from proxy.engine import macros

_PARSER = duckdb.connect()


def parse(sql: str) -> Node:
    """Parse one or more queries to the document the planner takes."""
    document: Node = json.loads(_one("SELECT json_serialize_sql(?)", sql))
    assert not document["error"], document
    return document


def unparse(document: Node) -> str:
    return _one("SELECT json_deserialize_sql(?::JSON)", json.dumps(document))


def _one(sql: str, argument: str) -> str:
    row = _PARSER.cursor().execute(sql, [argument]).fetchone()
    assert row is not None
    return str(row[0])


#: Tables of the corpus, as (schema, name, content).
TABLES = (
    (
        "main",
        "flows",
        "SELECT i AS id, 'k' || (i % 3) AS key, i * 1.5::DOUBLE AS size, i % 2 = 0 AS odd, "
        "DATE '2026-01-01' + i::INT AS day, [i, i + 1] AS items, {'x': i, 'y': 'n' || i} AS pos, "
        "MAP {'a': i} AS tags FROM range(7) t(i)",
    ),
    ("main", "keys", "SELECT 'k' || i AS key, 'name ' || i AS name FROM range(4) t(i)"),
    (
        "other",
        "flows",
        "SELECT i + 3 AS id, 'k1' AS key, 0.5::DOUBLE AS size FROM range(3) t(i)",
    ),
    ("other", "Keys", "SELECT 'k9' AS key, 'other' AS name"),
)

#: Answers of each are equal after the rewrite: rows, order, names of columns.
VARIED = (Path(__file__).parent / "data" / "varied_statements.sql").read_text().splitlines()


def database(rename: dict[tuple[str, str], str] | None = None) -> duckdb.DuckDBPyConnection:
    """Return a database with the tables of the corpus, under their names or under new ones in main."""
    connection = duckdb.connect()
    connection.execute("CREATE SCHEMA other")
    for schema, name, content in TABLES:
        target = f'"{rename[(schema, name)]}"' if rename else f'{schema}."{name}"'
        connection.execute(f"CREATE TABLE {target} AS {content}")
    for macro in macros.STATEMENTS if rename else ():
        connection.execute(macro)
    return connection


def answer(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[list[str], list[Any]]:
    cursor = connection.cursor()
    cursor.execute(sql)
    return [column[0] for column in cursor.description or ()], cursor.fetchall()
