import pytest

from planner.errors import BadConfig, BadStatement, UnknownTable, UnsupportedStatement
from planner.names import Side, TableName
from planner.statement.ast import is_constant
from planner.statement.gate import check
from planner.statement.references import (
    ResolvedTable,
    TableReference,
    quoted,
    references,
    resolve,
)
from tests.harness.serving import engine
from tests.harness.sql import parse


def named(sql: str) -> list[str]:
    return [str(reference) for reference in references(parse(sql))]


SCOPES = {
    "SELECT 1": [],
    "SELECT * FROM a, s.b, c.s.d": ["a", "s.b", "c.s.d"],
    "SELECT * FROM a JOIN b USING (x) NATURAL JOIN c POSITIONAL JOIN d ASOF JOIN e ON d.x > e.x": [
        *"abcde"
    ],
    "SELECT * FROM a, a AS b, A": ["a", '"A"'],
    "SELECT (SELECT 1 FROM b) FROM a WHERE x IN (SELECT 1 FROM c) ORDER BY (SELECT 1 FROM d)": [
        *"bacd"
    ],
    "SELECT * FROM a, LATERAL (SELECT * FROM b WHERE b.x = a.x)": ["a", "b"],
    "SELECT * FROM (SELECT * FROM a UNION SELECT * FROM b) EXCEPT SELECT * FROM c": [*"abc"],
    "DESCRIBE a": ["a"],
    "SUMMARIZE SELECT * FROM a": ["a"],
    "SELECT * FROM a PIVOT (sum(x) FOR y IN (1))": ["a"],
    "UNPIVOT a ON x INTO NAME n VALUE v": ["a"],
    "SELECT sum(x) FILTER (WHERE EXISTS (FROM b)) OVER (PARTITION BY (SELECT 1 FROM c)) FROM a": [
        *"cba"
    ],
    "SELECT 1 LIMIT (SELECT count(*) FROM a)": ["a"],
    # WITH clauses
    "WITH a AS (SELECT 1) SELECT * FROM a": [],
    "WITH a AS (SELECT * FROM a) SELECT * FROM a": ["a"],
    "WITH A AS (SELECT 1) SELECT * FROM a": [],
    "WITH a AS (SELECT 1) SELECT * FROM s.a, c.s.a": ["s.a", "c.s.a"],
    "WITH a AS (SELECT * FROM b), b AS (SELECT * FROM a) SELECT * FROM a, b": ["b"],
    "WITH a AS (WITH b AS (SELECT 1) SELECT * FROM b) SELECT * FROM a, b": ["b"],
    "WITH a AS (SELECT 1) SELECT * FROM (WITH a AS (SELECT * FROM a) SELECT * FROM a)": [],
    "WITH a AS (SELECT 1) SELECT 1 WHERE EXISTS (SELECT 1 FROM a, b)": ["b"],
    "WITH a AS (SELECT 1) (SELECT * FROM a) UNION (SELECT * FROM a, b)": ["b"],
    "SELECT * FROM (WITH a AS (SELECT 1) SELECT * FROM a), a": ["a"],
    "WITH RECURSIVE a AS (SELECT * FROM a) SELECT * FROM a": ["a"],
    "WITH RECURSIVE a AS (SELECT 1 UNION ALL SELECT * FROM a) SELECT * FROM a": [],
    "WITH RECURSIVE a AS (SELECT 1 FROM a UNION ALL SELECT 1 FROM a) SELECT * FROM a": ["a"],
    "WITH RECURSIVE a AS (SELECT 1 UNION ALL SELECT 1 FROM s.a) SELECT * FROM a": ["s.a"],
    "WITH RECURSIVE a(k) USING KEY (k) AS (SELECT 1 UNION SELECT 1 FROM recurring.a) FROM a": [],
    "WITH RECURSIVE a AS (SELECT 1 UNION SELECT 1 FROM recurring.b) SELECT * FROM a": [
        "recurring.b"
    ],
    "WITH a AS (SELECT 1) SELECT * FROM recurring.a": ["recurring.a"],
    "WITH RECURSIVE a AS (SELECT 1 UNION SELECT 1 FROM (WITH a AS (SELECT 2) FROM recurring.a)) "
    "FROM a": ["recurring.a"],
}


@pytest.mark.parametrize(("sql", "expected"), SCOPES.items())
def test_tables_are_named_and_with_clauses_are_not(sql: str, expected: list[str]) -> None:
    assert named(sql) == expected


def test_names_keep_their_parts_and_spelling() -> None:
    assert references(parse('SELECT * FROM "Lake"."a b"."t""x"')) == (
        TableReference("Lake", "a b", 't"x'),
    )
    assert named('SELECT * FROM "Lake"."a b"."t""x"') == ['"Lake"."a b"."t""x"']


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        ("VERSION => 3", "AT (VERSION => 3)"),
        ("VERSION => -3", "AT (VERSION => -3)"),
        ("VERSION => 'main'", "AT (VERSION => main)"),
        ("TIMESTAMP => '2026-01-01'", "AT (TIMESTAMP => 2026-01-01)"),
        ("TIMESTAMP => TIMESTAMP '2026-01-01'", "AT (TIMESTAMP => ...)"),
        ("TIMESTAMP => now() - INTERVAL 1 DAY", "AT (TIMESTAMP => ...)"),
    ],
)
def test_the_at_clause_is_read(clause: str, message: str) -> None:
    (result,) = references(parse(f"SELECT * FROM t AT ({clause})"))
    assert result.at is not None
    assert str(result.at) == message
    assert result.at.unit == clause.split()[0]
    # The same wherever it is written, and another where it says another thing.
    (again,) = references(parse(f"SELECT 1,\n 2 FROM t x AT ({clause}), t AT ({clause})"))
    assert again == result
    (other,) = references(parse("SELECT * FROM t AT (VERSION => 4)"))
    assert other != result


def test_a_table_is_found_as_it_was() -> None:
    (reference,) = references(parse('SELECT * FROM "flows$cold" AT (VERSION => 3)'))
    (plain,) = references(parse("SELECT * FROM flows AT (VERSION => 3)"))
    resolved = resolve(reference, "lake", "net", TABLES)
    assert (resolved.table, resolved.side, resolved.at) == (
        table("flows"),
        Side.COLD,
        reference.at,
    )
    assert (
        resolved.key == resolve(plain, "lake", "net", TABLES).key == (table("flows"), plain.at)
    )


def test_a_with_clause_has_no_versions() -> None:
    with pytest.raises(UnsupportedStatement, match="c is a WITH clause and has no versions"):
        references(parse("WITH c AS (SELECT 1) SELECT * FROM c AT (VERSION => 3)"))


def table(name: str, schema: str = "net", catalog: str = "lake") -> TableName:
    return TableName(catalog, tuple(schema.split(".")), name)


TABLES = {
    table("flows"),
    table("Flows", "shop"),
    table("orders", "shop"),
    table("ORDERS", "shop"),
    table("kept$cold"),
    table("kept"),
    table("alone$cold"),
    table("deep", "a.b"),
    table("flows", "net", "other"),
    table("only", "net", "other"),
    table("both", "net", "x"),
    table("both", "x", "lake"),
    table("deeper", "a.b.c"),
    table("twice", "net", "x"),
    table("twice", "x.net"),
    table("weird", "dots.inside"),
}
TABLES.remove(table("weird", "dots.inside"))
TABLES.add(TableName("lake", ("dots.inside",), "weird"))


def resolved(sql_name: str) -> ResolvedTable:
    (reference,) = references(engine().parse(f"SELECT * FROM {sql_name}"))
    return resolve(reference, "lake", "net", TABLES)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("flows", table("flows")),
        ("FLOWS", table("flows")),
        ("net.flows", table("flows")),
        ("Net.Flows", table("flows")),
        ("lake.net.flows", table("flows")),
        ("LAKE.NET.FLOWS", table("flows")),
        ("shop.flows", table("Flows", "shop")),
        ("shop.orders", table("orders", "shop")),
        ('shop."ORDERS"', table("ORDERS", "shop")),
        ("other.net.flows", table("flows", "net", "other")),
        ("other.only", table("only", "net", "other")),
        ('"a.b".deep', table("deep", "a.b")),
        ('lake."A.B".deep', table("deep", "a.b")),
        # A namespace's levels are one name or several.
        ("lake.a.b.deep", table("deep", "a.b")),
        ("Lake.A.B.c.Deeper", table("deeper", "a.b.c")),
        ('lake.a."b.c".deeper', table("deeper", "a.b.c")),
        ("lake.dots.inside.weird", TableName("lake", ("dots.inside",), "weird")),
        # Without its catalog, where no other table has the name in full.
        ("a.b.deep", table("deep", "a.b")),
        ("a.b.c.deeper", table("deeper", "a.b.c")),
        ("x.net.twice", table("twice", "net", "x")),
        ('"dots.inside".weird', TableName("lake", ("dots.inside",), "weird")),
    ],
)
def test_names_resolve_without_case_an_exact_match_first(
    name: str, expected: TableName
) -> None:
    assert resolved(name) == ResolvedTable(expected)


@pytest.mark.parametrize("side", [side for side in Side if side.value])
def test_a_suffix_names_a_side_of_the_table(side: Side) -> None:
    assert resolved(f'"flows${side.value}"') == ResolvedTable(table("flows"), side)
    upper = f'net."FLOWS${side.value.upper()}"'
    assert resolved(upper) == ResolvedTable(table("flows"), side)


@pytest.mark.parametrize("name", ["kept$cold", "KEPT$COLD", "kept$cold$seam"])
def test_a_table_that_is_named_as_a_side_of_another_is_named_and_not_read(name: str) -> None:
    with pytest.raises(BadConfig) as refused:
        resolved(f'"{name}"')
    assert refused.value.message == (
        'lake.net."kept$cold" is a table of its catalog, and its name means a side of table lake.net.kept here; rename or '
        "drop it there."
    )
    assert resolved('"kept$tail"') == ResolvedTable(table("kept"), Side.TAIL)
    assert resolved('a.b."deep$tail"') == ResolvedTable(table("deep", "a.b"), Side.TAIL)
    assert resolved('lake.a.b.c."deeper$seam"') == ResolvedTable(
        table("deeper", "a.b.c"), Side.SEAM
    )


def test_a_table_of_one_place_is_not_read_for_a_side_of_one_in_another() -> None:
    (reference,) = references(parse('SELECT * FROM a."t$cold"'))
    tables = {table("t", "net", "a"), table("t$cold", "a", "lake")}
    with pytest.raises(
        BadConfig, match=r'^lake\.a\."t\$cold" is a table .* a side of table a\.net\.t here'
    ):
        resolve(reference, "lake", "net", tables)


def test_such_a_name_with_no_table_before_it_is_a_name_like_others() -> None:
    assert resolved('"alone$cold"') == ResolvedTable(table("alone$cold"))
    assert resolved('"alone$cold$tail"') == ResolvedTable(table("alone$cold"), Side.TAIL)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("flowz", "there is no table flowz; did you mean lake.net.flows?"),
        ("f" * 201, f"there is no table {'f' * 201}."),
        ("zzz", "there is no table zzz."),
        ('"zzz$cold"', 'there is no table "zzz$cold".'),
        ("nowhere.flows", "there is no table nowhere.flows; did you mean lake.net.flows?"),
        ("shop.ordrs", 'there is no table shop.ordrs; did you mean lake.shop."ORDERS"?'),
        (
            "lake.nowhere.flows",
            "there is no table lake.nowhere.flows; did you mean lake.net.flows?",
        ),
    ],
)
def test_an_unknown_table_is_named_with_the_nearest(name: str, message: str) -> None:
    with pytest.raises(UnknownTable) as unknown:
        resolved(name)
    assert str(unknown.value) == message


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "shop.Orders",
            'table name shop."Orders" is ambiguous: it may mean lake.shop."ORDERS" or '
            "lake.shop.orders; write the full name.",
        ),
        (
            "x.both",
            "table name x.both is ambiguous: it may mean lake.x.both or x.net.both; write the full "
            "name.",
        ),
    ],
)
def test_an_ambiguous_name_is_an_error(name: str, message: str) -> None:
    with pytest.raises(BadStatement) as ambiguous:
        resolved(name)
    assert str(ambiguous.value) == message


def test_case_folds_ascii_only_as_in_duckdb() -> None:
    tables = {table("É")}
    assert resolve(TableReference(None, None, "É"), "lake", "net", tables).table == table("É")
    with pytest.raises(UnknownTable):
        resolve(TableReference(None, None, "é"), "lake", "net", tables)


def test_identifiers_are_quoted_where_needed() -> None:
    assert [quoted(name) for name in ("flows", "Flows", "a b", 'a"b', "é", "1a")] == [
        "flows",
        '"Flows"',
        '"a b"',
        '"a""b"',
        '"é"',
        '"1a"',
    ]


@pytest.mark.parametrize("sql", ["select 1", "SELECT 1;", "select 'a' as b, null, 1.5"])
def test_literals_alone_are_constant(sql: str) -> None:
    assert is_constant(parse(sql))


@pytest.mark.parametrize(
    "sql",
    [
        "select 1 + 1",
        "select now()",
        "select ?",
        "select 1 from t",
        "select 1 where random() < 0.5",
        "select 1 limit 0",
        "select 1 having true",
        "select 1 union select 2",
        "with x as (select * from t) select 1",
        "select (select 1)",
    ],
)
def test_whatever_else_a_statement_holds_it_is_not_constant(sql: str) -> None:
    assert not is_constant(parse(sql))


@pytest.mark.parametrize(
    "name", ["a/b", "a*", "a:b", "x.csv", "two\nlines", "s3://b/x.parquet"]
)
def test_a_table_may_be_called_like_a_file_and_a_file_is_none(name: str) -> None:
    document = parse(f'SELECT * FROM "{name}"')
    check(document)
    (reference,) = references(document)
    table = TableName("lake", ("main",), name)
    assert resolve(reference, "lake", "main", [table]).table == table


def test_a_name_like_a_file_that_is_no_table_says_so() -> None:
    for name in ("x.parquet", "s3://b/" + "x" * 100):
        (reference,) = references(parse(f"SELECT * FROM '{name}'"))
        with pytest.raises(UnsupportedStatement, match="files and addresses cannot be read"):
            resolve(reference, "lake", "main", [])
