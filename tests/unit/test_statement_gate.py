import re

import duckdb
import pytest

from planner.errors import UnsupportedStatement
from planner.statement import allowed
from planner.statement.ast import MAX_DEPTH, Node, children, node_fields, parameters, walk
from planner.statement.gate import MAX_SQL_BYTES, check, check_text
from tests.harness.sql import VARIED, parse


@pytest.mark.parametrize("sql", [*VARIED, "SELECT current_setting('timezone')"])
def test_ordinary_queries_pass(sql: str) -> None:
    check(parse(sql))


def refusal(sql: str) -> str:
    with pytest.raises(UnsupportedStatement) as refused:
        check(parse(sql))
    return str(refused.value)


AT_REFUSED = (
    "AT on table flows takes VERSION => a snapshot id or the text of a cut, or TIMESTAMP => a time made of "
    "literals and now(); no columns, no parameters."
)
SETTING_REFUSED = "current_setting tells 'TimeZone' alone; ask for other settings with SHOW."
REFUSED = {
    "SELECT * FROM read_csv('x')": "function read_csv is not supported.",
    "SELECT * FROM flows, Read_Csv('x')": "function read_csv is not supported.",
    "SELECT getenv('x')": "function getenv is not supported.",
    "SELECT main.current_setting('TimeZone')": "function current_setting is not supported.",
    "SELECT current_setting('temp_directory')": SETTING_REFUSED,
    "SELECT current_setting('Time' || 'Zone')": SETTING_REFUSED,
    "SELECT current_setting(name) FROM flows": SETTING_REFUSED,
    "SELECT current_setting('TimeZone', true)": SETTING_REFUSED,
    "SELECT pg_catalog.current_setting('TimeZone')": "function current_setting is not supported.",
    "SELECT system.main.now()": "function now is not supported.",
    "SELECT pg_catalog.now()": "function now is not supported.",
    "SELECT system.version()": "function version is not supported.",
    "SELECT x.pg_catalog.version()": "function version is not supported.",
    "SELECT nosuch(1) OVER () FROM flows": "function nosuch is not supported.",
    "SELECT sum(id) EXPORT_STATE FROM flows": "EXPORT_STATE is not supported.",
    'WITH "/etc/passwd" AS (SELECT 1) SELECT 1': "'/etc/passwd' is not supported as a name of WITH.",
    "SELECT * FROM flows AT (VERSION => ?)": AT_REFUSED,
    "SELECT * FROM flows AT (VERSION => 1 + 2)": AT_REFUSED,
    "SELECT * FROM flows AT (TIMESTAMP => seen)": AT_REFUSED,
    "SELECT * FROM flows AT (TIMESTAMP => now() - ?)": AT_REFUSED,
    "SELECT * FROM flows AT (TIMESTAMP => (SELECT max(day) FROM flows))": AT_REFUSED,
    "SELECT * FROM flows AT (TIMESTAMP => getenv('x'))": AT_REFUSED,
    "SHOW TABLES": "SHOW is not supported; list tables through the client's catalog, or DESCRIBE "
    "one.",
    "SELECT 1::nosuch": "type nosuch is not supported.",
    "SELECT 1::GEOMETRY": "type GEOMETRY is not supported.",
    "SELECT NULL::STRUCT(a INT[70][70])": "arrays of more than 4096 elements are not supported; use "
    "a list (T[]).",
    "SELECT * FROM flows USING SAMPLE 200000 ROWS": "samples of more than 100000 rows are not "
    "supported; give a percentage.",
    "SELECT * FROM flows TABLESAMPLE RESERVOIR(200000 ROWS)": "samples of more than 100000 rows are "
    "not supported; give a percentage.",
    f"SELECT 1 GROUP BY CUBE ({', '.join(f'c{n}' for n in range(11))})": "more than 1024 grouping "
    "sets are not supported.",
    "SELECT format(s, 1) FROM flows": "the first argument of format must be a text literal with "
    "widths below 1000.",
    "SELECT format()": "the first argument of format must be a text literal with widths below 1000.",
    "SELECT printf('%1000d', 1)": "the first argument of printf must be a text literal with widths "
    "below 1000.",
    "SELECT printf('%*d', 1, 1)": "the first argument of printf must be a text literal with widths "
    "below 1000.",
    "SELECT format('{:{}}', 1, 2)": "the first argument of format must be a text literal with "
    "widths below 1000.",
    "SELECT range(1, 9, 2)": "function range with a step is only supported in FROM; collect its rows "
    "with list(...).",
    "SELECT list_transform(l, x -> repeat('x', x))": "function repeat is not supported inside a "
    "lambda, where its results multiply.",
    "SELECT list_transform(l, a -> list_transform(l, b -> list_transform(l, c -> a)))": "lambdas "
    "nested more than 2 deep are not supported; use unnest.",
    "SELECT array_to_string(l, s)": "the arguments of array_to_string after the first must be "
    "literals of at most 100 characters.",
    f"SELECT list_aggregate(l, 'string_agg', '{'x' * 101}')": "the arguments of list_aggregate "
    "after the first must be literals of at most 100 characters.",
    "SELECT a GLOB b": "LIKE with ESCAPE, and GLOB, need a literal pattern with at most 2 wildcards; "
    "use regexp_full_match.",
    "SELECT a LIKE '%a%b%' ESCAPE '!'": "LIKE with ESCAPE, and GLOB, need a literal pattern with at "
    "most 2 wildcards; use regexp_full_match.",
    "SELECT like_escape()": "LIKE with ESCAPE, and GLOB, need a literal pattern with at most 2 "
    "wildcards; use regexp_full_match.",
    ";": "the text holds no statement; send one query.",
    "SELECT 1; SELECT 2": "one statement is expected, the text holds 2; send them one by one.",
    "SELECT DEFAULT": "syntax of kind DEFAULT is not supported.",
}


@pytest.mark.parametrize(("sql", "message"), REFUSED.items())
def test_a_refusal_is_one_sentence_that_names_the_thing(sql: str, message: str) -> None:
    assert refusal(sql) == message


def select_of(document: Node) -> Node:
    node: Node = document["statements"][0]["node"]
    return node


def test_a_with_clause_that_is_not_a_query_is_refused() -> None:
    document = parse("WITH a AS (SELECT 1) SELECT * FROM a")
    query = select_of(document)["cte_map"]["map"][0]["value"]["query"]
    query["node"] = {"type": "COPY_QUERY_NODE", "copy_statement": {}}
    with pytest.raises(UnsupportedStatement, match=r"kind COPY_QUERY_NODE is not supported"):
        check(document)


@pytest.mark.parametrize("node", [{"class": "NEW"}, {"type": "NEW"}])
def test_what_an_unknown_kind_holds_is_not_guessed(node: Node) -> None:
    with pytest.raises(UnsupportedStatement, match="syntax of kind NEW is not supported"):
        node_fields(node)


@pytest.mark.parametrize("kind", ["INSERT_QUERY_NODE", "CTE_NODE", "STATEMENT_NODE"])
def test_an_unknown_kind_of_query_is_refused(kind: str) -> None:
    document = parse("SELECT 1")
    select_of(document)["type"] = kind
    with pytest.raises(UnsupportedStatement, match=kind):
        check(document)


def test_an_unknown_field_is_refused() -> None:
    document = parse("SELECT 1 FROM flows")
    select_of(document)["from_table"]["pushed_down"] = True
    with pytest.raises(
        UnsupportedStatement, match="BASE_TABLE with pushed_down is not supported"
    ):
        check(document)


def test_an_unknown_clause_is_refused() -> None:
    document = parse("SELECT CASE WHEN a THEN b END")
    select_of(document)["select_list"][0]["case_checks"][0]["also"] = 1
    with pytest.raises(UnsupportedStatement, match="a clause with also is not supported"):
        check(document)


def test_an_unknown_operator_is_refused() -> None:
    document = parse("SELECT a IS NULL")
    select_of(document)["select_list"][0]["type"] = "OPERATOR_NEW"
    with pytest.raises(UnsupportedStatement, match="operator OPERATOR_NEW is not supported"):
        check(document)


def test_a_table_function_that_is_no_function_is_refused() -> None:
    document = parse("SELECT * FROM range(3)")
    select_of(document)["from_table"]["function"] = {
        "class": "SUBQUERY",
        "type": "SUBQUERY",
    }
    with pytest.raises(UnsupportedStatement, match="function SUBQUERY is not supported"):
        check(document)


def test_a_show_of_an_unknown_kind_is_refused() -> None:
    document = parse("DESCRIBE flows")
    select_of(document)["from_table"]["show_type"] = "SHOW_FROM"
    with pytest.raises(UnsupportedStatement, match="SHOW is not supported"):
        check(document)


def test_depth_is_limited_without_python_recursion() -> None:
    check(parse("SELECT " + " + ".join(["1"] * (MAX_DEPTH - 5))))
    assert "nested more than 300 levels" in refusal("SELECT " + "+".join(["1"] * 400))
    deep: Node = {"class": "OPERATOR", "type": "OPERATOR_NOT", "children": []}
    for _ in range(100_000):
        deep = {"class": "OPERATOR", "type": "OPERATOR_NOT", "children": [deep]}
    document = parse("SELECT 1")
    select_of(document)["select_list"] = [deep]
    with pytest.raises(UnsupportedStatement, match="nested"):
        check(document)
    while deep["children"]:  # freed level by level: the interpreter's own clean-up recurses
        deep = deep["children"].pop()


def test_the_number_of_nodes_is_limited() -> None:
    document = parse("SELECT 1")
    select_of(document)["select_list"] *= 200_000
    with pytest.raises(UnsupportedStatement, match="more than 200000 parts"):
        list(walk(document))


def test_the_text_is_limited_in_bytes_not_characters() -> None:
    check_text("x" * MAX_SQL_BYTES)
    with pytest.raises(UnsupportedStatement, match="has 1048578 bytes, the limit is 1048576"):
        check_text("é" * (MAX_SQL_BYTES // 2 + 1))


def test_parameters_are_named_in_binding_order() -> None:
    assert parameters(parse("SELECT ?, ?")) == ("1", "2")
    assert parameters(parse("SELECT $2, $1, $10")) == ("1", "2", "10")
    assert parameters(parse("SELECT $b, $a, $b")) == ("b", "a")
    assert parameters(parse("SELECT 1")) == ()


def test_the_lists_do_not_contradict_each_other() -> None:
    assert not allowed.SCALARS & allowed.BOUNDED
    assert not allowed.SCALARS & allowed.FORMATTED
    assert allowed.MATCHERS <= allowed.SCALARS
    assert allowed.JOINERS <= allowed.SCALARS
    for names in (allowed.FUNCTIONS, allowed.WINDOWS, allowed.TABLE_FUNCTIONS):
        assert all(name == name.lower() for name in names)


DANGEROUS = re.compile(
    r"^(read_|parquet_|duckdb_|pragma_|json_(de)?serialize|json_execute|python|pandas|arrow_|__internal|"
    r"iceberg|.*_scan|sniff|glob|query|getenv|getvariable|current_(setting|query)|write_|nextval|setseed|"
    r"finalize|combine|cast_to_type|from_json|which_secret|.*sleep|list_reduce|reduce$|array_reduce)"
)


def test_no_dangerous_family_is_on_any_list() -> None:
    named = allowed.FUNCTIONS | allowed.WINDOWS | allowed.TABLE_FUNCTIONS
    assert not [name for name in named if DANGEROUS.match(name)]


def test_children_come_in_the_order_of_the_text() -> None:
    select = select_of(parse("WITH a AS (SELECT 1) SELECT 2 FROM a WHERE true"))
    assert [type(child).__name__ for child in children(select)] == [
        "dict",
        "list",
        "dict",
        "dict",
    ]


@pytest.mark.parametrize(
    "clause",
    [
        "VERSION => 3",
        "VERSION => -3",
        "VERSION => 'c:eJyr'",
        "TIMESTAMP => '2026-01-01'",
        "TIMESTAMP => TIMESTAMPTZ '2026-01-01 00:00:00+02'",
        "TIMESTAMP => now() - INTERVAL 1 DAY",
    ],
)
def test_a_table_may_be_read_as_it_was(clause: str) -> None:
    check(parse(f"SELECT * FROM flows f AT ({clause}) JOIN flows AT ({clause}) USING (id)"))


def test_no_function_that_takes_an_address_is_allowed() -> None:
    """Its name is refused, not its arguments."""
    with duckdb.connect() as connection:
        names = [
            name
            for (name,) in connection.execute(
                "SELECT DISTINCT function_name FROM duckdb_functions() "
                "WHERE list_contains(parameter_types, 'POINTER') ORDER BY 1"
            ).fetchall()
        ]
    assert "arrow_scan" in names
    for name in names:
        assert refusal(f"SELECT * FROM {name}()") == f"function {name} is not supported."


@pytest.mark.parametrize(
    "name",
    ["finalize", "combine", "__internal_decompress_string", "variant_bytes_to_variant"],
)
def test_no_function_that_believes_bytes_is_allowed(name: str) -> None:
    """They take the inside of a value for what it says."""
    assert refusal(f"SELECT {name}()") == f"function {name} is not supported."
