"""The gate bounds what costs time before a statement runs, where nothing interrupts it."""

from __future__ import annotations

import pytest

from planner.errors import UnsupportedStatement
from planner.statement.gate import (
    MAX_CLAUSES,
    MAX_COMMENTS,
    MAX_EXPRESSIONS,
    MAX_ITEMS,
    MAX_LITERALS,
    MAX_NESTED_CONDITIONS,
    MAX_TABLES,
    check,
    check_text,
)
from tests.harness.sql import parse


def test_comments_are_counted_before_the_text_is_parsed() -> None:
    check_text("/*" * MAX_COMMENTS)
    with pytest.raises(UnsupportedStatement, match=f"more than {MAX_COMMENTS} comments"):
        check_text("/*" * (MAX_COMMENTS + 1))


def test_long_lists_are_refused_before_they_are_parsed() -> None:
    """Half a million values are a tree of 78 MB before it could be refused."""
    check_text("SELECT 1 IN (1" + ",1" * MAX_ITEMS + ")")
    check_text("SELECT '" + "," * (MAX_ITEMS + 1) + "', 'it''s'")
    with pytest.raises(UnsupportedStatement) as refused:
        check_text("SELECT 1 IN (1" + ",1" * (MAX_ITEMS + 1) + ")")
    assert str(refused.value) == (
        "the statement has lists of more than 62000 items; send them as parameters."
    )


def test_literals_are_many_and_what_is_made_of_them_is_less() -> None:
    check(parse("SELECT 1 IN (" + ",".join(["1"] * (MAX_EXPRESSIONS + 1)) + ")"))
    with pytest.raises(UnsupportedStatement, match=f"more than {MAX_LITERALS} literals"):
        check(parse("SELECT 1 IN (" + ",".join(["1"] * (MAX_LITERALS + 1)) + ")"))
    with pytest.raises(UnsupportedStatement, match=f"more than {MAX_EXPRESSIONS} parts"):
        check(parse("SELECT 1 WHERE " + " OR ".join(["1 = 1"] * MAX_EXPRESSIONS)))


def test_tables_and_clauses_are_counted() -> None:
    tables = ["(SELECT 1 FROM t)"] * (MAX_TABLES + 1)
    check(parse(f"SELECT {','.join(tables[1:])}"))
    with pytest.raises(UnsupportedStatement, match=f"more than {MAX_TABLES} tables"):
        check(parse(f"SELECT {','.join(tables)}"))
    clauses = [f"c{number} AS (SELECT 1)" for number in range(MAX_CLAUSES + 1)]
    check(parse(f"WITH {','.join(clauses[1:])} SELECT 1"))
    with pytest.raises(UnsupportedStatement, match=f"more than {MAX_CLAUSES} WITH clauses"):
        check(parse(f"WITH {','.join(clauses)} SELECT 1"))


def test_conditions_inside_conditions_are_counted_and_tuples_stand_for_them() -> None:
    pairs = range(MAX_NESTED_CONDITIONS + 1)
    tuples = ",".join(f"({pair}, 1)" for pair in pairs)
    check(parse(f"SELECT 1 FROM t WHERE (a, b) IN ({tuples})"))
    for arm in ("(a = {} AND b = 1)", "a BETWEEN {} AND 7"):
        arms = [arm.format(pair) for pair in pairs]
        check(parse(f"SELECT 1 FROM t WHERE {' OR '.join(arms[1:])}"))
        with pytest.raises(UnsupportedStatement, match=f"more than {len(arms) - 1} conditions"):
            check(parse(f"SELECT 1 FROM t WHERE {' OR '.join(arms)}"))
