"""Statements that need not read all of their table: which they are, and that the rewritten count is the same count."""

from __future__ import annotations

import json
from typing import Any

import duckdb
import pytest

from planner.reading.needs import (
    MOST_ANY_ROWS,
    StatementNeeds,
    name_of_count,
    with_counted,
)
from planner.statement.references import ResolvedTable
from tests.harness.builders import FLOWS

ANY_ROWS = {
    "SELECT * FROM t LIMIT 100": 100,
    "FROM t LIMIT 0": 0,
    "SELECT a, t.b AS c, q.* FROM s.t AS q LIMIT 5": 5,
    "SELECT * EXCLUDE (a) FROM t LIMIT 5": 5,
    f"FROM t LIMIT {MOST_ANY_ROWS}": MOST_ANY_ROWS,
}
NOT_ANY_ROWS = [
    "SELECT * FROM t",
    "SELECT * FROM t LIMIT 5 OFFSET 0",
    "SELECT * FROM t LIMIT 5 OFFSET 5",
    f"SELECT * FROM t LIMIT {MOST_ANY_ROWS + 1}",
    "SELECT * FROM t LIMIT 5%",
    "SELECT * FROM t LIMIT NULL",
    "SELECT * FROM t LIMIT 2 + 3",
    "SELECT * FROM t LIMIT ?",
    "SELECT * FROM t ORDER BY a LIMIT 5",
    "SELECT * FROM t WHERE a > 1 LIMIT 5",
    "SELECT DISTINCT a FROM t LIMIT 5",
    "SELECT a FROM t GROUP BY ALL LIMIT 5",
    "SELECT a FROM t QUALIFY row_number() OVER () = 1 LIMIT 5",
    "SELECT count(*) FROM t LIMIT 5",
    "SELECT unnest(a) FROM t LIMIT 5",
    "SELECT a + 1 FROM t LIMIT 5",
    "SELECT 1 FROM t LIMIT 5",
    "SELECT COLUMNS('a') FROM t LIMIT 5",
    "SELECT COLUMNS(['a']) FROM t LIMIT 5",
    "SELECT * REPLACE (a + 1 AS a) FROM t LIMIT 5",
    "SELECT * FROM t, u LIMIT 5",
    "SELECT * FROM t JOIN u USING (a) LIMIT 5",
    "SELECT * FROM t TABLESAMPLE 10% LIMIT 5",
    "SELECT * FROM t USING SAMPLE 3 ROWS LIMIT 5",
    "SELECT * FROM (FROM t LIMIT 5) LIMIT 5",
    "WITH c AS (FROM t) FROM c LIMIT 5",
    "FROM t UNION ALL FROM t LIMIT 5",
    "SELECT * FROM range(9) LIMIT 5",
]
NOT_BARE = [
    "SELECT count(a) FROM t",
    "SELECT count(DISTINCT a) FROM t",
    "SELECT count(*) FILTER (a > 1) FROM t",
    "SELECT count(*) OVER () FROM t",
    "SELECT count(*), 1 FROM t",
    "SELECT count(*) + 1 FROM t",
    "SELECT main.count(*) FROM t",
    "SELECT system.main.count_star() FROM t",
    "SELECT count(*) FROM t WHERE a > 1",
    "SELECT count(*) FROM t GROUP BY a",
    "SELECT count(*) FROM t HAVING count(*) > 1",
    "SELECT count(*) FROM t LIMIT 1",
    "SELECT count(*) FROM t ORDER BY 1",
    "SELECT count(*) FROM t TABLESAMPLE 50%",
    "SELECT count(*) FROM t USING SAMPLE 50%",
    "SELECT count(*) FROM t, t u",
    "SELECT count(*) FROM (FROM t)",
    "WITH c AS (FROM t) SELECT count(*) FROM c",
    "SELECT count(*)",
    "SELECT sum(a) FROM t",
    "SELECT count(*) FROM t UNION ALL SELECT count(*) FROM t",
]


def needs(document: dict[str, Any]) -> StatementNeeds:
    return StatementNeeds.of(document, {ResolvedTable(FLOWS): ((),)})


def tree(sql: str) -> dict[str, Any]:
    (row,) = duckdb.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    document: dict[str, Any] = json.loads(row[0])
    assert not document["error"], document
    return document


@pytest.mark.parametrize("sql", ANY_ROWS)
def test_a_look_at_a_table_takes_any_rows(sql: str) -> None:
    assert needs(tree(sql)).any_rows == ANY_ROWS[sql]


@pytest.mark.parametrize("sql", [*NOT_ANY_ROWS, *NOT_BARE])
def test_what_depends_on_more_reads_all(sql: str) -> None:
    assert needs(tree(sql)).any_rows is None


@pytest.mark.parametrize("sql", [*NOT_BARE, *ANY_ROWS, *NOT_ANY_ROWS])
def test_what_does_more_than_count_is_no_bare_count(sql: str) -> None:
    assert not needs(tree(sql)).count_only


@pytest.mark.parametrize("rows", [0, 1, 2**31 - 1, 2**31, 2**40])
@pytest.mark.parametrize("sql", ["SELECT count(*) FROM t", 'SELECT COUNT() AS "N n" FROM t x'])
def test_a_bare_count_keeps_type_and_name_with_what_was_counted_elsewhere(
    sql: str, rows: int
) -> None:
    document = tree(sql)
    before = json.dumps(document)
    assert needs(document).count_only
    counted = with_counted(document, rows)
    assert json.dumps(document) == before
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS FROM range(7)")
        (row,) = connection.execute(
            "SELECT json_deserialize_sql(?)", [json.dumps(counted)]
        ).fetchall()
        expected = connection.execute(sql).to_arrow_table()
        answer = connection.execute(row[0]).to_arrow_table()
    assert answer.schema == expected.schema
    assert answer.schema.names == [name_of_count(document)]
    assert answer.column(0).to_pylist() == [7 + rows]
