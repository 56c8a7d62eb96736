"""Which constants of a statement are lifted out of its shape, and that another one's are filled in as the parser reads them."""

import random
from collections.abc import Callable

import pytest

from planner.statement.ast import Node, statement
from planner.statement.rewrite import same
from planner.statement.shapes import Lifts, Template, TextShape
from tests.harness.sql import parse, unparse


def lifts_of(sql: str) -> Lifts:
    return Lifts.of(TextShape.of(sql), parse(sql))


def lifted(sql: str) -> list[int | str]:
    lifts = lifts_of(sql)
    return list(lifts.shape.values(lifts.numbers))


@pytest.mark.parametrize(
    ("sql", "values"),
    [
        ("SELECT a FROM t WHERE a = 5", [5]),
        ("SELECT a FROM t WHERE a=5 AND b>=9000000000", [5, 9_000_000_000]),
        ("SELECT a FROM t WHERE 7 < a OR s <> 'wine'", [7, "wine"]),
        ("SELECT a FROM t WHERE a BETWEEN 3 AND 8 AND b IN (1, 2, 3)", [3, 8, 1, 2, 3]),
        ("SELECT a FROM t JOIN u USING (a) WHERE t.b = 4", [4]),
        ("SELECT a, count(*) FROM t WHERE a > 5 GROUP BY 1 HAVING count(*) > 6 LIMIT 7", [5]),
    ],
)
def test_constants_that_columns_are_compared_with_are_lifted(
    sql: str, values: list[int | str]
) -> None:
    assert lifted(sql) == values


@pytest.mark.parametrize(
    "sql",
    [
        # What the gate bounds, or what columns are named after.
        "SELECT repeat(s, 5) FROM t",
        "SELECT a FROM t WHERE s = repeat('wine', 5)",
        "SELECT a FROM t WHERE lpad(s, 5, 'x') = s",
        "SELECT a FROM t, range(5)",
        "SELECT a FROM t LIMIT 5 OFFSET 6",
        "SELECT a FROM t ORDER BY 2",
        "SELECT a FROM t AT (VERSION => 5)",
        "SELECT a FROM t WHERE date_trunc('day', d) = d",
        "SELECT a FROM t WHERE date_part('year', d) = a",
        "SELECT a FROM t WHERE s LIKE 'wi%'",
        "SELECT a = 5 FROM t",
        "SELECT 5",
        "SELECT (SELECT max(a) FROM t WHERE a = 5) FROM t",
        # Not compared with a column as it is.
        "SELECT a FROM t WHERE a + 1 = 5",
        "SELECT a FROM t WHERE 4 = 5",
        "SELECT a FROM t WHERE a = b + 5",
        "SELECT a FROM t WHERE CAST(a AS VARCHAR) = 'wine'",
        "SELECT a FROM t WHERE d >= DATE '2026-01-01'",
        "SELECT a FROM t WHERE a",
        # Names that are not columns of tables.
        "WITH t AS (SELECT 1 AS a) SELECT a FROM t WHERE a = 5",
        "SELECT a FROM (SELECT b AS a FROM t) WHERE a = 5",
        "SELECT a FROM t AS x(a) WHERE a = 5",
        "SELECT a FROM t WHERE a = 5 UNION ALL SELECT a FROM t",
        # Whether a statement compares with zero is part of its needs.
        "SELECT a FROM t WHERE a = 0",
        "SELECT a FROM t WHERE s = '0'",
        "SELECT a FROM t WHERE s = '-1e-50'",
        # Other types, or other spellings.
        "SELECT a FROM t WHERE a = -5",
        "SELECT a FROM t WHERE a = - 5",
        "SELECT a FROM t WHERE a = 5.5",
        "SELECT a FROM t WHERE a = 5e3",
        "SELECT a FROM t WHERE a = 007",
        "SELECT a FROM t WHERE a = 5_000",
        "SELECT a FROM t WHERE a = 9223372036854775808",
        "SELECT a FROM t WHERE s = 'it''s'",
        "SELECT a FROM t WHERE s = 'wi\\ne'",
        "SELECT a FROM t WHERE s = 'a\nb'",
        "SELECT a FROM t WHERE s = e'wine'",
        "SELECT a FROM t WHERE s = $$wine$$",
        "SELECT a FROM t WHERE s = 'blåbær' AND a = 5",
        "SELECT a FROM t WHERE s = 'wi'\n'ne'",
        "SELECT a FROM t WHERE a = ?",
        f"SELECT a FROM t WHERE s = '{'x' * 201}'",
        f"SELECT a FROM t WHERE a IN ({', '.join(map(str, range(1, 60)))})",
        f"SELECT a FROM t WHERE a = 5 {' ' * 2_000}",
    ],
)
def test_all_others_stay_in_the_shape(sql: str) -> None:
    assert lifted(sql) == []


def test_what_is_not_closed_has_no_constants() -> None:
    sql = "SELECT a FROM t WHERE 5 = 6 -- 7"
    assert [each.value for each in TextShape.of(sql).constants] == [5, 6]
    assert TextShape.of("SELECT a FROM t WHERE s = 'wine").constants == ()
    outline = TextShape.of("SELECT 5 Where s = 'x'").outline
    assert outline == "SELECT \0INTEGER Where s = \0VARCHAR"


@pytest.mark.parametrize("sql", ["SELECT 5", "SELECT a, 'x' FROM t LIMIT 5"])
def test_a_text_without_where_has_no_constants_to_lift(sql: str) -> None:
    assert TextShape.of(sql) == TextShape(sql)


def test_a_text_that_looks_like_an_outline_is_another_shape() -> None:
    shape = TextShape.of("SELECT a FROM t WHERE a = 5")
    other = TextShape.of(shape.outline)
    assert other.outline == shape.outline
    assert other.key(()) != shape.key((0,))


def test_other_values_of_what_is_not_lifted_are_other_shapes() -> None:
    one, same_shape, other = (
        lifts_of(f"SELECT repeat(s, {count}) FROM t WHERE a = {value}")
        for count, value in ((2, 5), (2, 6), (3, 5))
    )
    keys = [each.shape.key(each.numbers) for each in (one, same_shape, other)]
    assert keys[0] == keys[1] != keys[2]


SHAPES: list[Callable[[random.Random], str]] = [
    lambda r: f"SELECT a, s FROM t WHERE a = {r.randrange(1, 2**31)}",
    lambda r: (
        f"SELECT s FROM t WHERE s IN ('{word(r)}', '{word(r)}') AND {r.randrange(1, 99)} < a"
    ),
    lambda r: (
        f'SELECT "s" FROM t AS x WHERE x.a BETWEEN {r.randrange(1, 9)} AND {r.randrange(2**31, 2**63)}'
    ),
    lambda r: (
        f"SELECT a FROM t WHERE (a={r.randrange(1, 99)} OR a = {r.randrange(1, 99)}) ORDER BY 1 LIMIT 3"
    ),
    lambda r: (
        f"SELECT a + 1 FROM t WHERE s <> '{word(r)}' AND a IN (5, {r.randrange(1, 99)}, 7) -- 5"
    ),
]


def word(chance: random.Random) -> str:
    return "".join(chance.choices('abc def%_;-()"?$', k=chance.randrange(1, 12))) + "z"


@pytest.mark.parametrize("shape", SHAPES)
def test_a_filled_statement_is_what_the_parser_reads_of_its_text(
    shape: Callable[[random.Random], str],
) -> None:
    chance = random.Random(1)
    first = shape(chance)
    document, lifts = parse(first), lifts_of(first)
    assert lifts.proves(first, document, parse)
    template = Template.of(lifts, document, unparse)
    assert template is not None
    for _ in range(30):
        sql = shape(chance)
        other = TextShape.of(sql)
        assert other.key(lifts.numbers) == lifts.shape.key(lifts.numbers)
        values = other.values(lifts.numbers)
        assert is_same(lifts.fill(document, values), parse(sql))
        assert template.filled(values) == unparse(parse(sql))


def is_same(one: Node, other: Node) -> bool:
    return same(statement(one)["node"], statement(other)["node"])


def test_constants_of_other_places_are_no_proof() -> None:
    sql = "SELECT a FROM t WHERE a = 5 AND b = 5"
    assert not lifts_of(sql).proves(sql, parse(sql.replace("a = 5", "a = 6")), parse)


def test_what_is_not_printed_once_has_no_template() -> None:
    (mark,) = lifts_of("SELECT a FROM t WHERE a = 5").marks
    sql = f"SELECT a, {mark} FROM t WHERE a = 5"
    assert Template.of(lifts_of(sql), parse(sql), unparse) is None
