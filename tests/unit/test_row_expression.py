"""Expressions over one row, and statements made of them."""

from __future__ import annotations

from planner.statement.ast import parameters
from planner.statement.row_expression import row_of
from tests.harness.sql import parse, unparse


def test_a_row_of_operands_keeps_the_names_of_its_parameters() -> None:
    document = parse("SELECT 1 + 1, $b, $a")
    operands = document["statements"][0]["node"]["select_list"]
    row = row_of(operands)
    assert unparse(row) == "SELECT (1 + 1) AS c0, $b AS c1, $a AS c2"
    assert parameters(row) == ("a", "b")
    assert operands[0]["alias"] == ""
