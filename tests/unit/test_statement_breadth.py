"""What stars, aliases, macros and joins come to is counted before the engine spells it out."""

from __future__ import annotations

import pyarrow as pa
import pytest

from planner.errors import UnsupportedStatement
from planner.statement.expansion_limits import (
    MAX_BOUND,
    MAX_BY_NAME,
    MAX_CELLS,
    MAX_COLUMNS,
    MAX_COMPARED,
    MAX_JOINED,
    MAX_PAIRS,
    MAX_SUBQUERIES,
    MAX_WINDOWS,
    Breadth,
    check_breadth,
)
from tests.harness.sql import parse

TABLES = {
    "p": Breadth(10),
    "w": Breadth(2_000),
    "s": Breadth(1, 300),
    "half": Breadth(MAX_COLUMNS // 2),
}


def joined(count: int, how: str = "JOIN") -> str:
    return "p p0 " + " ".join(f"{how} p p{n} ON p{n}.a = p0.a" for n in range(1, count))


def doubled(text: str, depth: int) -> str:
    return f"(SELECT {text} FROM " * depth + "p" + ")" * depth


#: What somebody needs.
FITTING = [
    "SELECT * FROM w",
    "SELECT * FROM w a JOIN w b USING (id)",
    "SELECT a.*, b.* FROM w a, w b",
    "SELECT count(*) FROM w a NATURAL JOIN w b",
    "SELECT * EXCLUDE (a) REPLACE (1 AS b) FROM w",
    "SELECT max(COLUMNS(*)) FROM w",
    "SELECT count(*) FROM p WHERE COLUMNS(*) > 1",
    "SUMMARIZE w",
    "DESCRIBE w",
    "SELECT unnest(x), s.* FROM s",
    "SELECT unnest({'a': 1, 'b': 2})",
    "SELECT unnest(NULL::STRUCT(a INTEGER, b STRUCT(c INTEGER)[]))",
    f"SELECT {'replace(' * 9}a{', $$a$$, $$b$$)' * 9} FROM p",
    f"SELECT count(*) FROM {joined(MAX_JOINED)}",
    f"SELECT count(*) FROM {joined(100, 'LEFT JOIN')}",
    "WITH x AS (SELECT * FROM p), y AS (SELECT * FROM x) SELECT * FROM x JOIN y USING (a)",
    "WITH RECURSIVE r AS (SELECT 1 a UNION ALL SELECT a + 1 FROM r WHERE a < 3) SELECT * FROM r",
    "WITH RECURSIVE r(a, b) USING KEY (a) AS (SELECT 1, 2 UNION SELECT a, b FROM recurring.r) FROM r",
    "SELECT * FROM (VALUES (1, 2), (3, 4)) t(a, b) ORDER BY ALL",
    "SELECT * FROM range(10) r(i), unnest([1]) u",
    "PIVOT p ON a IN (1, 2) USING sum(b), max(c)",
    "PIVOT p ON a IN (1, 2)",
    "UNPIVOT p ON COLUMNS(*)",
    "SELECT * FROM w UNION ALL BY NAME SELECT * FROM w",
    "SELECT 1 AS a, a + a AS b, b + b AS c",
    "SELECT x FROM p WHERE a > 1 AND (b = c OR b = 2) AND c = d",
    "SELECT row_number() OVER (ORDER BY a) FROM p WHERE a IN (SELECT a FROM p)",
    "SELECT NULL::STRUCT(a INT, b STRUCT(c INT)[])",
]
REFUSED = {
    f"SELECT {','.join(['*'] * 501)} FROM p": f"has 5010 columns in one place.* {MAX_COLUMNS}",
    f"SELECT {','.join(['p.*'] * 501)} FROM p": "5010 columns",
    f"SELECT {','.join(['COLUMNS(*)'] * 501)} FROM p": "5010 columns",
    f"SELECT {','.join(['* EXCLUDE (a)'] * 501)} FROM p": "5010 columns",
    f"SELECT {','.join(['1'] * (MAX_COLUMNS + 1))}": "5001 columns",
    f"SELECT {','.join(['unnest(x)'] * 17)} FROM s": "5100 columns",
    f"SELECT {','.join(['unnest(a::STRUCT(b STRUCT(c INTEGER)[]))'] * 2_501)} FROM p": "columns",
    f"SELECT {','.join(['x.*'] * 17)} FROM s": "5100 columns",
    "SELECT * FROM half a, half b, p": "5010 columns",
    "SELECT * FROM w UNION ALL BY NAME SELECT * FROM w UNION ALL BY NAME SELECT * FROM w": "6000 columns",
    f"SELECT 1 FROM {doubled('*, *', 14)}": "columns in one place",
    "WITH a AS (FROM w), b AS (SELECT *, * FROM a), c AS (SELECT *, * FROM b) SELECT 1": "8000 columns",
    "PIVOT p ON a IN (1,2,3,4,5,6,7,8,9,10), b IN (1,2,3,4,5,6,7,8,9,10), c IN "
    f"({','.join(map(str, range(60)))}) USING sum(d)": "6000 columns",
    f"SELECT {','.join(f'a{n - 1} + a{n - 1} AS a{n}' for n in range(1, 25))} FROM p": f"more than {MAX_BOUND} columns",
    f"SELECT {'repeat(' * 30}a{', 2)' * 30} FROM p": f"more than {MAX_BOUND} columns",
    f"SELECT {'lpad(' * 30}a{', 2, $$x$$)' * 30} FROM p": f"more than {MAX_BOUND} columns",
    "SELECT * FROM ("
    + " UNION ALL ".join(["SELECT * FROM w"] * 16)
    + ")": f"more than {MAX_BOUND} columns",
    "SUMMARIZE FROM w a, w b, p": f"more than {MAX_BOUND} columns|columns in one place",
    f"SELECT * FROM (VALUES {','.join(['(1, 2)'] * (MAX_CELLS // 2 + 1))})": f"more than {MAX_CELLS} values in VALUES",
    f"SELECT count(*) FROM {joined(MAX_JOINED + 1)}": f"more than {MAX_JOINED} tables are joined",
    " UNION ALL ".join(
        [f"SELECT 1 FROM {joined(35)}"] * 4
    ): f"more than {MAX_PAIRS} pairs|{MAX_COMPARED} comparisons",
    "SELECT 1 FROM "
    + " NATURAL JOIN ".join(
        f"p p{n}" for n in range(32)
    ): f"more than {MAX_COMPARED} comparisons",
    " UNION ALL BY NAME ".join(
        f"SELECT {n} AS u{n}" for n in range(700)
    ): f"more than {MAX_BY_NAME} columns",
    f"SELECT {','.join(['sum(a) OVER ()'] * (MAX_WINDOWS + 1))} FROM p": f"more than {MAX_WINDOWS} window",
    "SELECT sum(COLUMNS(*)) OVER () FROM w": f"more than {MAX_WINDOWS} window",
    f"SELECT {','.join(['(SELECT 1)'] * (MAX_SUBQUERIES + 1))}": f"more than {MAX_SUBQUERIES} subqueries",
    "SELECT COLUMNS(*) + (SELECT 1) FROM w": f"more than {MAX_SUBQUERIES} subqueries",
}


@pytest.mark.parametrize("sql", FITTING)
def test_what_fits_passes(sql: str) -> None:
    check_breadth(parse(sql), TABLES)


@pytest.mark.parametrize("sql", REFUSED, ids=lambda sql: sql[:60])
def test_what_does_not_is_refused_with_its_bound(sql: str) -> None:
    with pytest.raises(UnsupportedStatement, match=REFUSED[sql]):
        check_breadth(parse(sql), TABLES)


def test_a_struct_is_as_wide_as_its_fields_at_every_level() -> None:
    inner = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.struct([("z", pa.int64())])))])
    schema = pa.schema([("a", pa.int64()), ("s", pa.struct([("inner", inner)]))])
    assert Breadth.of(schema) == Breadth(2, 4)
    assert Breadth.of(pa.schema([])) == Breadth(0)
