"""Which places of a statement its parameters stand in, and what a bare date part is."""

from __future__ import annotations

import pytest

from planner.statement.parameters import (
    addends,
    integers,
    may_type_columns,
    whole_numbers,
)
from planner.statement.rewrite import quote_date_parts
from tests.harness.sql import parse, unparse


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("SELECT round(x, $n), ROUND(x, $m)", {"n", "m"}),
        ("SELECT lpad(t, $n, $fill), set_bit(b, $i, $j)", {"n", "i", "j"}),
        ("SELECT price.round($n), t.price.round($m)", {"n", "m"}),
        ("SELECT a.lpad($n)", {"n"}),
        ("SELECT round($x, 2), round(x, $n + 1)", set()),
        # Elsewhere it would overflow sooner, or change the type of a column.
        ("SELECT round(x, $n), qty + $n", set()),
        ("SELECT round(x, $n) FROM t WHERE round(y, $n) > 0", {"n"}),
    ],
)
def test_parameters_that_can_be_nothing_but_integer(sql: str, names: set[str]) -> None:
    assert integers(parse(sql)) == names


def test_parameters_beside_dates_and_units() -> None:
    document = parse("SELECT day - $a, $b + 1, x * $c, to_days($d), to_hours($e)")
    assert addends(document) == {"a", "b"}
    assert whole_numbers(document) == {"d"}


@pytest.mark.parametrize(
    ("sql", "may"),
    [
        ("SELECT 1", False),
        ("SELECT ?", True),
        ("SELECT a FROM t WHERE b = ? AND c IN (SELECT ? FROM u)", False),
        ("SELECT a FROM t JOIN u ON t.a = u.a + ? GROUP BY ALL HAVING sum(b) > ?", False),
        ("SELECT a FROM t QUALIFY row_number() OVER (ORDER BY b) <= ?", False),
        ("SELECT DISTINCT ON (a % ?) a FROM t ORDER BY a + ? LIMIT ? OFFSET ?", False),
        ("SELECT sum(a) FILTER (WHERE b > ?), list(a ORDER BY b + ?) FROM t", False),
        ("SELECT a > ?, a BETWEEN ? AND ?, a = ? OR b FROM t", False),
        ("SELECT a FROM (SELECT ? AS a) t", True),
        ("WITH t AS (SELECT ? AS a) SELECT a FROM t", True),
        ("SELECT (SELECT max(a + ?) FROM t)", True),
        ("SELECT * FROM range(?)", True),
        ("SELECT * FROM (VALUES (?)) v(a)", True),
        ("SELECT a FROM t UNION ALL SELECT ?", True),
        ("SELECT CASE WHEN a > ? THEN 1 ELSE 2 END FROM t", False),
        ("SELECT CASE WHEN a THEN ? ELSE 2 END FROM t", True),
    ],
)
def test_what_may_have_a_say_in_the_types_of_columns(sql: str, may: bool) -> None:
    assert may_type_columns(parse(sql)) == may


@pytest.mark.parametrize(
    ("sql", "quoted"),
    [
        ("date_diff(month, a, b)", "date_diff('month', a, b)"),
        ("DateDiff(MONTH, a, b)", "datediff('month', a, b)"),
        ("date_trunc(week, date_trunc(day, a))", "date_trunc('week', date_trunc('day', a))"),
        ('date_part("year", a)', "date_part('year', a)"),
        ("datesub(hours, a, b)", "datesub('hours', a, b)"),
        ("date_trunc(t.day, a)", 'date_trunc(t."day", a)'),
        ("date_trunc(unit, a)", "date_trunc(unit, a)"),
        ("year(day)", '"year"("day")'),
        ("date_part()", "date_part()"),
    ],
)
def test_a_bare_date_part_is_a_text(sql: str, quoted: str) -> None:
    document = parse(f"SELECT {sql}")
    quote_date_parts(document, sql)
    assert unparse(document) == f"SELECT {quoted}"
