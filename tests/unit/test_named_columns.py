"""Which columns a statement can read: over the named ones alone it answers the same rows."""

from __future__ import annotations

import duckdb
import pytest

from planner.reading.needs import StatementNeeds
from planner.statement.ast import fold
from tests.harness.sql import parse

NAMED = {
    "SELECT id FROM t": {"id"},
    "SELECT T.Id, t.Device.OS FROM t": {"t", "id", "device", "os"},
    "SELECT count(*) FROM t": set(),
    "SELECT 1 FROM t": set(),
    "SELECT sum(a) FILTER (b > 1) OVER (PARTITION BY c ORDER BY d) FROM t WHERE e IN (1, f) GROUP BY g HAVING h": {
        *"abcdefgh"
    },
    "SELECT a FROM t JOIN u USING (B, c)": {"a", "b", "c"},
    "SELECT a FROM t JOIN u ON t.x = u.y": {"a", "t", "x", "u", "y"},
    "SELECT a FROM t ASOF JOIN u USING (b, c)": {"a", "b", "c"},
    "WITH c(p, q) AS (SELECT a, b FROM t) SELECT p FROM c": {"a", "b", "p"},
    "SELECT a FROM (SELECT b AS a FROM t) s(z)": {"a", "b"},
    "SELECT (SELECT x FROM u WHERE u.k = t.k) FROM t": {"x", "u", "k", "t"},
    "SELECT list_transform(a, lambda q: q + b) FROM t": {"a", "q", "b"},
    "SELECT a FROM t UNION ALL BY NAME SELECT b FROM u ORDER BY c LIMIT 1": {"a", "b", "c"},
    "SELECT DISTINCT ON (a) b FROM t QUALIFY row_number() OVER (ORDER BY c) = 1": {"a", "b", "c"},
    "SELECT unnest(a) FROM t": {"a"},
    'SELECT "Ä", "ä" FROM t': {"Ä", "ä"},
    "SELECT id AS bytes FROM t ORDER BY bytes": {"id", "bytes"},
}  # fmt: skip
ANY = [
    "SELECT * FROM t",
    "FROM t",
    "SELECT t.* FROM t",
    "SELECT * EXCLUDE (a) FROM t",
    "SELECT COLUMNS('a.*') FROM t",
    "SELECT min(COLUMNS(*)) FROM t",
    "SELECT #1 FROM t",
    "SELECT id FROM t ORDER BY ALL",
    "SELECT t FROM t",
    "SELECT T FROM t AS t",
    "SELECT count(DISTINCT e) FROM t AS e",
    "SELECT struct_pack(x := e) FROM s.t e",
    "SELECT a FROM t NATURAL JOIN u",
    "SELECT a FROM t AS x(a, b)",
    "PIVOT t ON a IN (1, 2) USING sum(b)",
    "UNPIVOT t ON a, b INTO NAME n VALUE v",
    "SUMMARIZE t",
    "SELECT a FROM t WHERE EXISTS (FROM u)",
]


@pytest.mark.parametrize("sql", NAMED)
def test_columns_are_named(sql: str) -> None:
    assert StatementNeeds.of(parse(sql), {}).columns == frozenset(NAMED[sql])


COLUMNS = [*"abcdefghkpqxyz", "id", "bytes", "Ä"]
TABLES = {
    name: ", ".join(
        f"{{'os': 'o', 'n': {seed}}} AS device" if column == "device"
        else f"[{seed}, {number}] AS a" if column == "a"
        else f'(i * {number + seed}) % 7 AS "{column}"'
        for number, column in enumerate((*COLUMNS, "device"))
    )
    for seed, name in enumerate("tu", start=1)
}  # fmt: skip


@pytest.mark.parametrize("sql", [sql for sql in NAMED if "AS a FROM t) s" not in sql])
def test_rows_over_the_named_columns_are_those_over_all(sql: str) -> None:
    """Where the statement binds at all over these tables, which have numbers, a list and a struct."""
    names = StatementNeeds.of(parse(sql), {}).columns
    assert names is not None

    def answer(*, is_whole: bool) -> object:
        with duckdb.connect() as connection:
            for name, columns in TABLES.items():
                connection.execute(
                    f"CREATE TABLE every AS SELECT {columns} FROM range(40) r(i)"
                )
                chosen = [
                    f'"{column}"'
                    for column in ("b", *COLUMNS, "device")
                    if is_whole or column == "b" or fold(column) in names
                ]
                listed = ", ".join(dict.fromkeys(chosen))
                connection.execute(f"CREATE TABLE {name} AS SELECT {listed} FROM every")
                connection.execute("DROP TABLE every")
            try:
                return sorted(map(repr, connection.execute(sql).fetchall()))
            except duckdb.Error as error:
                return type(error)

    assert answer(is_whole=True) == answer(is_whole=False)


@pytest.mark.parametrize("sql", ANY)
def test_any_column_may_be_read(sql: str) -> None:
    assert StatementNeeds.of(parse(sql), {}).columns is None


#: What is compared, of statements over columns that may hold NaN.
COMPARED = {
    "SELECT avg(a), SUM(b), count(c) FROM t WHERE NOT isnan(d)": set(),
    "SELECT avg(a) FROM t WHERE a > 1": {"a"},
    "SELECT avg(a) FROM t HAVING avg(a) > 1 ORDER BY avg(a)": set(),
    "SELECT avg(t.a), avg(x.y.z) FROM t": {"t", "a", "x", "y", "z"},
    "SELECT sum(a + 1), sum(b) FILTER (c > 1), sum(d ORDER BY e) FROM t": {*"ace"},
    "SELECT count(DISTINCT a), sum(DISTINCT b) FROM t": {"a", "b"},
    "SELECT sum(a) OVER (), min(b), max(c), any_value(d), first(e) FROM t": {*"abcde"},
    "SELECT sum(a) FROM (SELECT b AS a FROM t) WHERE b > 1": {"b"},
    "SELECT sum(a) AS a FROM t GROUP BY b": {"b"},
    "SELECT sum(a) FROM t JOIN u USING (a)": {"a"},
    "SELECT sum(a) FROM t GROUP BY ALL ORDER BY 1": set(),
}


@pytest.mark.parametrize("sql", COMPARED)
def test_columns_that_are_only_added_up_are_not_compared(sql: str) -> None:
    assert StatementNeeds.of(parse(sql), {}).compared == frozenset(COMPARED[sql])


@pytest.mark.parametrize("sql", [*ANY, "SELECT count(e) FROM t AS e"])
def test_any_column_may_be_compared(sql: str) -> None:
    assert StatementNeeds.of(parse(sql), {}).compared is None
