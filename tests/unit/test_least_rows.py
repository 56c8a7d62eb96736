"""Statements that need not read all of their table: which they are, and that the rewritten count is the same count."""

from __future__ import annotations

import json
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from planner.reading.needs import (
    MOST_ANY_ROWS,
    StatementNeeds,
    name_of_count,
    with_counted,
)
from planner.statement.references import ResolvedTable
from tests.harness.builders import FLOWS
from tests.harness.sql import parse, unparse

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
BARE = ["SELECT count(*) FROM t", 'SELECT COUNT() AS "N n" FROM t x']
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


def answer_of(sql: str) -> pa.Table:
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE t AS SELECT range AS n FROM range(7)")
        return connection.execute(sql).to_arrow_table()


@pytest.mark.parametrize("sql", ANY_ROWS)
def test_a_look_at_a_table_takes_any_rows(sql: str) -> None:
    assert needs(parse(sql)).any_rows == ANY_ROWS[sql]


@pytest.mark.parametrize("sql", [*NOT_ANY_ROWS, *NOT_BARE])
def test_what_depends_on_more_reads_all(sql: str) -> None:
    assert needs(parse(sql)).any_rows is None


@pytest.mark.parametrize("sql", [*NOT_BARE, *ANY_ROWS, *NOT_ANY_ROWS])
def test_what_does_more_than_count_is_no_bare_count(sql: str) -> None:
    assert not needs(parse(sql)).count_only


@pytest.mark.parametrize("sql", BARE)
def test_a_bare_count_is_one_by_its_name(sql: str) -> None:
    document = parse(sql)
    assert needs(document).count_only
    assert [name_of_count(document)] == answer_of(sql).schema.names


@pytest.mark.parametrize("rows", [-1, 0, 1, 2**31 - 1, 2**31, 2**40])
@pytest.mark.parametrize(
    ("sql", "others"),
    [
        *((sql, {}) for sql in BARE),
        (
            'SELECT max(n), count(*), min(n) - 1, count(*) AS "N n" FROM t',
            {"max(n)": 6, "(min(n) - 1)": -1},
        ),
    ],
)
def test_counts_have_what_was_counted_elsewhere_and_all_keep_type_and_name(
    sql: str, others: dict[str, int], rows: int
) -> None:
    document = parse(sql)
    before = json.dumps(document)
    counted = with_counted(document, rows)
    assert json.dumps(document) == before
    answer = answer_of(unparse(counted))
    assert answer.schema == answer_of(sql).schema
    assert answer.to_pylist() == [dict.fromkeys(answer.schema.names, 7 + rows) | others]
