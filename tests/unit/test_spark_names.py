"""Names of tables in Spark's SQL: those of a cut become its views, others are refused."""

from __future__ import annotations

import pytest

from planner.errors import UnsupportedStatement
from planner.names import TableName
from planner.spark_names import with_views
from tests.harness.builders import FLOWS

ODD = TableName("lake", ("net", "eu"), "my`flows")
VIEWS = {FLOWS: "flows", ODD: "net_eu_my`flows"}


def put(sql: str) -> str:
    return with_views(sql, VIEWS, ["lake"])


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT 1", "SELECT 1"),
        ("SELECT * FROM lake.net.flows", "SELECT * FROM `flows`"),
        ("FROM lake . net /* a */ .\n`flows` f", "FROM `flows` f"),
        ("SELECT lake.net.flows.id FROM lake.net.flows", "SELECT `flows`.id FROM `flows`"),
        ("FROM lake.net.eu.`my``flows`", "FROM `net_eu_my``flows`"),
        (
            "SELECT 'lake.net.x', \"lake.net.x\", r'\\'",
            "SELECT 'lake.net.x', \"lake.net.x\", r'\\'",
        ),
        ("SELECT 'it\\'s lake.net.x'", "SELECT 'it\\'s lake.net.x'"),
        ("SELECT 1 -- FROM lake.net.x", "SELECT 1 -- FROM lake.net.x"),
        (
            "SELECT f.id, 1.5, a.lake FROM other.net.flows f",
            "SELECT f.id, 1.5, a.lake FROM other.net.flows f",
        ),
        ("SELECT lake FROM t", "SELECT lake FROM t"),
        ("SELECT 1 -- it's\rFROM lake.net.flows", "SELECT 1 -- it's\rFROM `flows`"),
        ("SELECT 1 --\\\nFROM lake.net.x", "SELECT 1 --\\\nFROM lake.net.x"),
        (
            "SELECT /*+ h('*/') */ '/* /*' FROM lake.net.flows -- /* /*",
            "SELECT /*+ h('*/') */ '/* /*' FROM `flows` -- /* /*",
        ),
        ("SELECT t.*, t. FROM t", "SELECT t.*, t. FROM t"),
        ("SELECT a.", "SELECT a."),
    ],
)
def test_tables_of_the_cut_become_views(sql: str, expected: str) -> None:
    assert put(sql) == expected


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM lake.net.other",
        "SELECT * FROM LAKE.net.flows",
        "SELECT * FROM lake.net.Flows",
        "SELECT * FROM `lake`.net.other",
        "SELECT lake.id FROM t lake",
        "SELECT * FROM identifier('lake.net.flows')",
        "EXECUTE IMMEDIATE 'SELECT * FROM lake.net.flows'",
        "SELECT /* /* */ 1 FROM lake.net.other",
        "SELECT /* it's /* nested */ */ 1 FROM lake.net.flows WHERE host = 'a'",
        "SELECT 1 /* never closed",
        "SELECT 1 -- a comment\rFROM lake.net.other",
        "SELECT /*+ hint('*/') */ 1 FROM lake.net.other WHERE host = 'a'",
        "SELECT * FROM ${table}",
    ],
)
def test_what_may_be_another_table_is_refused(sql: str) -> None:
    with pytest.raises(UnsupportedStatement):
        put(sql)


def test_double_quotes_are_refused_where_they_are_names() -> None:
    sql = 'SELECT \'a "b" c\', "x" FROM lake.net.flows'
    assert put(sql) == 'SELECT \'a "b" c\', "x" FROM `flows`'
    for text in (sql, 'FROM "lake"."net"."flows"'):
        with pytest.raises(UnsupportedStatement, match="backticks"):
            with_views(text, VIEWS, ["lake"], double_quotes_are_names=True)
    single = "SELECT 'a \"b\" c' FROM lake.net.flows"
    assert with_views(single, VIEWS, ["lake"], double_quotes_are_names=True).endswith("`flows`")
