"""Names of tables in Spark's SQL: those of a cut become its views, others are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.errors import BadConfig, UnknownTable, UnsupportedStatement
from planner.names import TableName
from planner.spark_names import StatementView, statements, tables_of, with_views
from tests.harness.builders import FLOWS

ODD = TableName("lake", ("net", "eu"), "my`flows")
VIEWS = {FLOWS: StatementView("v0", "flows"), ODD: StatementView("v`1", "my`flows")}


def put(sql: str) -> str:
    return with_views(sql, VIEWS, ["lake"])[0]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT 1", "SELECT 1"),
        ("SELECT * FROM lake.net.flows", "SELECT * FROM (`v0` AS `flows`)"),
        ("FROM lake . net /* a */ .\n`flows` f", "FROM (`v0` AS `flows`) f"),
        (
            "SELECT lake.net.flows.id, lake.net.flows.* FROM a, lake.net.flows",
            "SELECT `flows`.id, `flows`.* FROM a, (`v0` AS `flows`)",
        ),
        ("FROM lake.net.eu.`my``flows`", "FROM (`v``1` AS `my``flows`)"),
        ("TABLE lake.net.flows", "TABLE `v0`"),
        ("DESCRIBE lake.net.flows", "DESCRIBE `v0`"),
        (
            "MERGE INTO t USING lake.net.flows f ON f.id = t.id WHEN MATCHED THEN DELETE",
            "MERGE INTO t USING `v0` f ON f.id = t.id WHEN MATCHED THEN DELETE",
        ),
        (
            "SELECT /*+ BROADCAST(lake.net.flows) */ 2*/* c */3 FROM lake.net.flows",
            "SELECT /*+ BROADCAST(`flows`) */ 2*/* c */3 FROM (`v0` AS `flows`)",
        ),
        ("((SELECT 1) UNION SELECT 2)", "((SELECT 1) UNION SELECT 2)"),
        (
            "WITH flows AS (SELECT * FROM lake.net.flows) INSERT INTO t SELECT * FROM flows",
            "WITH flows AS (SELECT * FROM (`v0` AS `flows`)) INSERT INTO t SELECT * FROM flows",
        ),
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
        (
            "SELECT 1 -- it's\rFROM lake.net.flows",
            "SELECT 1 -- it's\rFROM (`v0` AS `flows`)",
        ),
        ("SELECT 1 --\\\nFROM lake.net.x", "SELECT 1 --\\\nFROM lake.net.x"),
        (
            "SELECT /*+ h('*/') */ '/* /*' FROM lake.net.flows -- /* /*",
            "SELECT /*+ h('*/') */ '/* /*' FROM (`v0` AS `flows`) -- /* /*",
        ),
        (
            "SELECT /*+ BROADCAST(f) */* FROM lake.net.flows f -- */",
            "SELECT /*+ BROADCAST(f) */* FROM (`v0` AS `flows`) f -- */",
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
        "SELECT * FROM \u0131dentifier('lake.net.flows')",
        "SELECT /*+ BROADCAST(f) */* FROM lake.net.other f -- */",
        "EXECUTE IMMEDIATE 'SELECT * FROM lake.net.flows'",
        "SELECT /* /* */ 1 FROM lake.net.other",
        "SELECT /* it's /* nested */ */ 1 FROM lake.net.flows WHERE host = 'a'",
        "SELECT 1 /* never closed",
        "SELECT 1 -- a comment\rFROM lake.net.other",
        "SELECT /*+ hint('*/') */ 1 FROM lake.net.other WHERE host = 'a'",
        "SELECT * FROM ${table}",
        "SELECT 1 AS x, $$ ' $$ FROM lake.net.other WHERE host = 'a'",
        "BEGIN USE lake; SELECT * FROM net.flows; END",
        "/* a */ script: BEGIN SELECT 1; END",
        "USE lake",
        "SET CATALOG lake",
        "CREATE TEMPORARY VIEW v USING iceberg OPTIONS (path 'lake.net.flows')",
        "CREATE FUNCTION f() RETURNS TABLE RETURN SELECT 1",
        "DECLARE x INT",
        "CALL system.x()",
        "CACHE TABLE x",
        "",
        "(",
    ],
)
def test_what_may_be_another_table_is_refused(sql: str) -> None:
    with pytest.raises(UnsupportedStatement):
        put(sql)


def test_a_table_whose_name_is_a_namespace_hides_none_in_it() -> None:
    within = TableName("lake", ("net", "flows"), "id")
    for tables in ((FLOWS, within), (within, FLOWS)):
        views = {table: StatementView(f"v_{table.name}", table.name) for table in tables}
        assert with_views("FROM lake.net.flows.id", views, ["lake"]) == (
            "FROM (`v_id` AS `id`)",
            frozenset({within}),
        )
        assert with_views("FROM lake.net.flows", views, ["lake"])[1] == {FLOWS}
        assert tables_of("FROM lake.net.flows.id", tables, ["lake"]) == [within]


def test_other_kinds_of_statements_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedStatement) as refusal:
        put("begin SELECT 1; END")
    assert refusal.value.message == (
        "begin begins no query; cut.sql() runs SELECT, WITH, FROM, VALUES, TABLE, EXPLAIN, DESCRIBE, DESC, INSERT, MERGE. "
        "Save what it returns (writeTo, createOrReplaceTempView); say other statements, and scripts, with spark.sql()."
    )


def test_the_tables_of_a_statement_are_listed() -> None:
    assert with_views("SELECT 'lake.net.eu.x' FROM lake.net.flows", VIEWS, ["lake"])[1] == {
        FLOWS
    }


def test_views_of_another_cut_are_refused() -> None:
    for sql in ("SELECT * FROM Flows", "SELECT * FROM `lake.net.flows`"):
        with pytest.raises(UnsupportedStatement, match="is a view of another cut"):
            with_views(sql, VIEWS, ["lake"], foreign_views=["flows", "lake.net.flows"])
    sql = "SELECT flows.id FROM lake.net.flows"
    assert with_views(sql, VIEWS, ["lake"], foreign_views=["flows"])[1] == {FLOWS}


def test_double_quotes_are_refused_where_they_are_names() -> None:
    sql = 'SELECT \'a "b" c\', "x" FROM lake.net.flows'
    assert put(sql) == 'SELECT \'a "b" c\', "x" FROM (`v0` AS `flows`)'
    for text in (sql, 'FROM "lake"."net"."flows"'):
        with pytest.raises(UnsupportedStatement, match="backticks"):
            with_views(text, VIEWS, ["lake"], double_quotes_are_names=True)
    single = "SELECT 'a \"b\" c' FROM lake.net.flows"
    assert with_views(single, VIEWS, ["lake"], double_quotes_are_names=True)[1] == {FLOWS}


def test_tables_of_a_query_are_those_of_the_catalog() -> None:
    sql = "SELECT lake.net.flows.id FROM lake.net.flows JOIN other.net.x JOIN lake.net.eu.`my``flows`"
    assert tables_of(sql, [FLOWS, ODD], ["lake"]) == [FLOWS, ODD]
    for text, words in (
        ("SELECT * FROM lake.net.flow", "did you mean lake.net.flows"),
        ("SELECT * FROM lake.zzz", "no name is like it"),
    ):
        with pytest.raises(UnknownTable, match=words):
            tables_of(text, [FLOWS], ["lake"])
    with pytest.raises(UnsupportedStatement):
        tables_of("BEGIN SELECT 1; END", [FLOWS], ["lake"])


def test_a_table_that_is_named_as_a_side_of_another_is_no_table_of_a_query() -> None:
    side = replace(FLOWS, name="flows$cold")
    with pytest.raises(
        BadConfig, match=r"a side of table lake\.net\.flows here; rename or drop"
    ):
        tables_of("SELECT * FROM lake.net.`flows$cold`", [FLOWS, side], ["lake"])
    assert tables_of("SELECT * FROM lake.net.`flows$cold`", [side], ["lake"]) == [side]


def test_statements_of_a_text_end_with_semicolons() -> None:
    text = "SELECT 'a;\\';b'; -- one;\n ; SELECT `x;y` /* ; */;\nSELECT 3"
    assert statements(text) == ["SELECT 'a;\\';b'", "SELECT `x;y` /* ; */", "SELECT 3"]
    assert statements(" -- nothing") == []
