"""What is taken from a statement as surely asked of a table, and what is not."""

from __future__ import annotations

import pytest

from planner.statement.conditions import (
    MAX_ALTERNATIVES,
    MAX_VALUES,
    alternatives,
    both,
    conjuncts,
)
from tests.harness.sql import parse, unparse


def conditions(sql: str, table: str = "t") -> list[list[str]]:
    """Return the conjuncts at each place the table is named, as text, sorted."""
    result = {str(reference): places for reference, places in conjuncts(parse(sql)).items()}
    return [
        sorted(
            " ".join(
                (conjunct.column, conjunct.operator, *map(text, conjunct.operands))
            ).strip()
            for conjunct in place
        )
        for place in result[table]
    ]


def text(operand: dict) -> str:  # type: ignore[type-arg]
    document = parse("SELECT 1")
    document["statements"][0]["node"]["select_list"] = [operand]
    return unparse(document).removeprefix("SELECT ")


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("a = 1", ["a = 1"]),
        ("1 < a AND a <= 5", ["a <= 5", "a > 1"]),
        ("t.a >= 1", ["a >= 1"]),
        ("T.A >= 1", ["A >= 1"]),
        ("a BETWEEN 1 AND 2", ["a between 1 2"]),
        ("a IN (1, 2)", ["a in 1 2"]),
        ("a = 1 OR a IN (2, 3)", ["a in 1 2 3"]),
        ("a = 1 OR t.a = 2", []),
        ("a = 1 OR b = 2", []),
        ("a = 1 OR a > 2", []),
        ("a IS NULL", ["a is null"]),
        ("a IS NOT NULL", ["a is not null"]),
        ("a LIKE 'web%'", ["a starts with 'web'"]),
        ("a LIKE 'we_%'", ["a starts with 'we'"]),
        ("a LIKE '%web'", []),
        ("a LIKE b", []),
        ("starts_with(a, 'web')", ["a starts with 'web'"]),
        ("starts_with(a, NULL)", []),
        ("contains(a, 'web')", []),
        ("lower(a) = 'x'", []),
        ("a = lower('X')", []),
        ("a = b", []),
        ("a = $1", ["a = $1"]),
        (
            "a > now() - INTERVAL 1 MINUTE",
            ["a > (now() - to_minutes(CAST(trunc(CAST(1 AS DOUBLE)) AS BIGINT)))"],
        ),
        ("a >= current_date", ["a >= current_date"]),
        (
            "a > CURRENT_TIMESTAMP - INTERVAL '1 h'",
            ["a > (CURRENT_TIMESTAMP - CAST('1 h' AS INTERVAL))"],
        ),
        (
            "a IN (current_date, DATE '2026-01-01')",
            ["a in current_date CAST('2026-01-01' AS DATE)"],
        ),
        ("a > t.current_date", []),
        ("a > current_user", []),
        ("a = random()", []),
        ("a = DATE '2026-01-01'", ["a = CAST('2026-01-01' AS DATE)"]),
        ("a = 'x' COLLATE nocase", []),
        ("a = (SELECT 1)", []),
        ("a IN (SELECT 1)", []),
        ("NOT (a = 1)", []),
        ("a <> 1", []),
        ("s.f.g = 1", []),
        (f"a IN ({', '.join(map(str, range(MAX_VALUES + 1)))})", []),
        (" OR ".join(f"a = {number}" for number in range(MAX_VALUES + 1)), []),
        ("a = 1 AND CASE WHEN b THEN true END", ["a = 1"]),
        ("date_trunc('week', a) > b", []),
        ("date_trunc('week', b) IN (1)", []),
        ("date_trunc('week', lower(a)) > 1", []),
        ("date_trunc('fortnight', a) > 1", []),
        ("date_trunc(b, a) > 1", []),
        ("date_trunc(NULL, a) > 1", []),
        ("date_trunc(a) > 1", []),
        ("CAST(lower(a) AS DATE) > 1", []),
        ("CAST(a AS DATE) IS NULL", []),
        ("CAST(a AS VARCHAR) > 1", []),
        (
            "CAST(a AS DATE) = DATE '2026-01-01'",
            [
                "a <= (CAST(CAST('2026-01-01' AS DATE) AS DATE) + to_days(2))",
                "a >= (CAST(CAST('2026-01-01' AS DATE) AS DATE) + to_days(-1))",
            ],
        ),
        ("date_trunc('weeks', t.a) <= $1", ["a <= (CAST($1 AS DATE) + to_days(14))"]),
        ("1 < DateTrunc('DAY', a)", ["a >= (CAST(1 AS DATE) + to_days(-6))"]),
        (
            "a::DATE > '2026-01-01 10:00'",
            ["a >= (CAST('2026-01-01 10:00' AS DATE) + to_days(-1))"],
        ),
        (
            "a::DATE > '2026-01-01 10+14'",
            ["a >= (CAST('2026-01-01 10+14' AS DATE) + to_days(-6))"],
        ),
        ("date_trunc('decade', a) > 1", []),
    ],
)
def test_conjuncts_of_where(where: str, names: list[str]) -> None:
    assert conditions(f"SELECT * FROM t WHERE {where}") == [names]


@pytest.mark.parametrize(
    "select",
    [
        "SELECT b AS current_date FROM t",
        "SELECT b AS Current_Date, * FROM t",
        "SELECT * RENAME (b AS current_date) FROM t",
        r"SELECT COLUMNS('(.*)_x') AS '\1' FROM t",
        "SELECT * FROM t, u",
        "SELECT * FROM t JOIN u USING (a)",
    ],
)
def test_a_name_that_may_be_a_column_or_an_alias_is_not_the_time(select: str) -> None:
    assert conditions(f"{select} WHERE t.a > current_date AND t.c = 1", "t") == [["c = 1"]]


@pytest.mark.parametrize(
    ("sql", "of_t", "of_u"),
    [
        ("FROM t, u WHERE a = 1", ["a = 1"], ["a = 1"]),
        ("FROM t JOIN u ON t.a = u.a AND u.b = 2 WHERE t.b = 1", ["b = 1"], ["b = 2"]),
        ("FROM t LEFT JOIN u ON t.c = 3 AND u.b = 2", [], ["b = 2"]),
        ("FROM t RIGHT JOIN u ON t.c = 3 AND u.b = 2", ["c = 3"], []),
        ("FROM t FULL JOIN u ON t.c = 3 AND u.b = 2", [], []),
        ("FROM t LEFT JOIN u ON true WHERE u.b = 2", [], ["b = 2"]),
        ("FROM t LEFT JOIN u ON true WHERE u.b IS NULL", [], []),
        ("FROM t SEMI JOIN u ON t.a = u.a AND u.b = 2 WHERE b = 1", ["b = 1"], ["b = 2"]),
        ("FROM t ANTI JOIN u ON t.a = u.a AND u.b = 2 WHERE t.b = 1", ["b = 1"], ["b = 2"]),
        ("FROM t JOIN u USING (a) WHERE a = 1 AND t.a = 2 AND b = 3", ["a = 2", "b = 3"], ["b = 3"]),
        ("FROM t NATURAL JOIN u WHERE a = 1 AND u.b = 3", [], ["b = 3"]),
        ("FROM t POSITIONAL JOIN u WHERE t.a = 1", [], []),
        ("FROM t ASOF JOIN u ON t.a >= u.a WHERE t.a = 1", [], []),
        ("FROM t, u AS t WHERE t.a = 1", [], []),
        ("FROM t AS u, u AS t WHERE t.a = 1", [], ["a = 1"]),
        ("FROM t TABLESAMPLE 10 PERCENT, u WHERE t.a = 1 AND u.a = 1", [], ["a = 1"]),
        ("FROM t, u WHERE t.a = 1 USING SAMPLE 10%", [], []),
        ("FROM t AS x(q), u WHERE x.q = 1", [], []),
        ("FROM t, (SELECT * FROM u WHERE b = 2) AS v WHERE v.a = 1 AND t.a = 1", ["a = 1"], ["b = 2"]),
        ("FROM t WHERE EXISTS (FROM u WHERE u.a = t.a AND u.b = 2 AND t.b = 1)", [], ["b = 2"]),
        ("WITH w AS (FROM t WHERE a = 1) SELECT * FROM w, u WHERE w.a = 2 AND u.a = 3", ["a = 1"], ["a = 3"]),
        ("FROM (PIVOT t ON a IN (1) USING sum(b)), u WHERE u.a = 1", [], ["a = 1"]),
    ],
)  # fmt: skip
def test_conjuncts_of_joins(sql: str, of_t: list[str], of_u: list[str]) -> None:
    if not sql.startswith("WITH"):
        sql = f"SELECT * {sql}"
    assert (conditions(sql, "t"), conditions(sql, "u")) == ([of_t], [of_u])


def test_every_place_that_names_a_table_has_its_own() -> None:
    assert conditions("SELECT * FROM t WHERE a = 1 UNION ALL SELECT * FROM t WHERE b = 2") == [
        ["a = 1"],
        ["b = 2"],
    ]
    assert conditions("SELECT * FROM t AS x, t AS y WHERE x.a = 1") == [["a = 1"], []]
    assert conditions("DESCRIBE SELECT * FROM t WHERE a = 1") == [["a = 1"]]


def test_a_cte_is_not_the_table_it_hides() -> None:
    result = conjuncts(parse("WITH t AS (SELECT 1 AS a) SELECT * FROM t WHERE a = 1"))
    assert result == {}


@pytest.mark.parametrize(
    ("where", "is_fixed"),
    [("a = 1::DOUBLE", True), ("a = $1", False), ("a > now()", False), ("a IS NULL", True)],
)
def test_what_needs_neither_parameters_nor_the_time_is_fixed(
    where: str, is_fixed: bool
) -> None:
    (((conjunct,),),) = conjuncts(parse(f"SELECT * FROM t WHERE {where}")).values()
    assert conjunct.is_fixed == is_fixed


@pytest.mark.parametrize(
    ("condition", "names"),
    [
        ("a = 1 AND (b > 2 OR c < 3)", [["a = 1", "b > 2"], ["a = 1", "c < 3"]]),
        ("a = 1 OR a = 2", [["a in 1 2"]]),
        ("a = 1 OR (b = 2 AND length(c) = 1)", [["a = 1"], ["b = 2"]]),
        ("NOT (a = 1 AND b = 2)", [[]]),
    ],
)
def test_a_condition_has_alternatives(condition: str, names: list[list[str]]) -> None:
    (expression,) = parse(f"SELECT {condition}")["statements"][0]["node"]["select_list"]
    assert [
        [
            " ".join((each.column, each.operator, *map(text, each.operands)))
            for each in alternative
        ]
        for alternative in alternatives(expression)
    ] == names


def test_more_alternatives_than_are_worth_it_are_none() -> None:
    arms = [f"(a = {n} AND b = {n})" for n in range(MAX_ALTERNATIVES + 1)]
    (expression,) = parse(f"SELECT {' OR '.join(arms)}")["statements"][0]["node"]["select_list"]
    assert alternatives(expression) == ((),)
    many = (("x",),) * 11
    assert both(many, many) == many
    assert both((("x",), ()), (("y", "z"),)) == (("x", "y", "z"), ("y", "z"))
