"""Which statements may ask for a zero by equality."""

from __future__ import annotations

import duckdb
import pytest

from planner.reading.needs import StatementNeeds
from tests.harness.sql import parse

MAY = [
    "SELECT a FROM t WHERE x = 0",
    "SELECT a FROM t WHERE x = -0.0",
    "SELECT a FROM t WHERE 0.00 = x",
    "SELECT a FROM t WHERE x = '-0'",
    "SELECT a FROM t WHERE x = '1e-60'",
    "SELECT a FROM t WHERE x IN (2, '1e-60')",
    "SELECT a FROM t WHERE x = false",
    "SELECT a FROM t WHERE x = ANY([0.0])",
    "SELECT a FROM t WHERE x = (SELECT 0.0)",
    "SELECT x FROM t INTERSECT SELECT 0.0",
    "SELECT a FROM t WHERE x IS NOT DISTINCT FROM 0e0",
    "SELECT a FROM t WHERE NOT x <> 0",
    "SELECT a FROM t WHERE x IN (1, 0)",
    "SELECT a FROM t WHERE x = ?",
    "SELECT a FROM t WHERE x = y",
    "SELECT a FROM t WHERE x = 1 - 1",
    "SELECT a FROM (SELECT x AS y, a FROM t) WHERE y = 0",
    "SELECT a FROM t WHERE x IN (SELECT y FROM u)",
    "SELECT a FROM t JOIN u USING (x)",
    "SELECT a FROM t, u WHERE t.x = u.x",
]
MAY_NOT = [
    "SELECT a FROM t",
    "SELECT a FROM t WHERE x > 0 AND x <= 5",
    "SELECT a FROM t WHERE x BETWEEN 0 AND 1",
    "SELECT a FROM t WHERE x = 5 AND y = 'host'",
    "SELECT a FROM t WHERE x = 0.5",
    "SELECT a FROM t WHERE x = '1e-40'",
    "SELECT a FROM (SELECT a FROM t WHERE x > 0)",
    "SELECT a FROM t WHERE y = '0.5'",
    "SELECT a FROM t WHERE x IN (1, 2.5, 'b')",
    "SELECT a FROM t WHERE x = NULL",
    "SELECT sum(x) FROM t GROUP BY y ORDER BY 1 LIMIT 10",
]


@pytest.mark.parametrize("sql", MAY)
def test_it_may_equal_a_zero(sql: str) -> None:
    assert StatementNeeds.of(parse(sql), {}).equals_zero


@pytest.mark.parametrize("sql", MAY_NOT)
def test_it_equals_no_zero(sql: str) -> None:
    assert not StatementNeeds.of(parse(sql), {}).equals_zero


def test_duckdb_has_constants_as_they_are_read_here() -> None:
    assert duckdb.execute("SELECT '-0'::DOUBLE = 0 AND false::INT = 0").fetchone() == (True,)
