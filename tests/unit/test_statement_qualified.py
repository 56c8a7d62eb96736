"""Names with a schema or a catalog before them mean over relations what they mean to DuckDB over the tables."""

from typing import Any

import duckdb
import pytest

from planner.errors import UnsupportedStatement
from planner.names import TableName
from planner.statement.dotted_names import AddressableTable, Path, may_name_paths
from planner.statement.gate import check
from planner.statement.references import TableReference, references, resolve
from planner.statement.rewrite import rewrite, same
from tests.harness.sql import answer, parse, unparse

#: In schema bench of catalog lake unless they say another one.
TABLES = {
    "lake.bench.odd": "SELECT i AS id, i * 1.5::DOUBLE AS odd, {'odd': 7 - i, 'id': -i} AS bench FROM range(3) t(i)",
    "lake.bench.events": "SELECT i AS id, {'a': i % 2, 'id': 10 + i} AS st, i + 1 AS i FROM range(4) t(i)",
    "lake.bench.mono": "SELECT 4 AS mono",
    "lake.bench.bench": "SELECT 1 AS id, {'id': 'field'} AS events, {'id': 'of bench'} AS bench",
    "lake.bench.deep": "SELECT {'events': {'id': 5}, 'deep': {'q': 6}} AS bench, {'q': 8} AS deep",
    "lake.bench.plain": "SELECT 2 AS bench",
    "lake.other.events": "SELECT i AS id, 'o' || i AS k FROM range(2, 5) t(i)",
    "east.lake.events": "SELECT 99 AS id, 98 AS east",
    "east.bench.events": "SELECT 97 AS id",
    'lake."low.er".deep': "SELECT i AS id, {'a': i} AS st, {'er': i + 5} AS low FROM range(2) t(i)",
}
NAMES = {name: TableName.parse(name) for name in TABLES}


def natively() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for catalog, schema in dict.fromkeys(
        (name.catalog, name.schema) for name in NAMES.values()
    ):
        connection.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {catalog}")
        connection.execute(f'CREATE SCHEMA {catalog}."{schema}"')
    for name, content in TABLES.items():
        connection.execute(f"CREATE TABLE {name} AS {content}")
    connection.execute("USE lake.bench")
    return connection


def over_relations() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for name, content in TABLES.items():
        connection.execute(f'CREATE TABLE "__tc:{NAMES[name]}" AS {content}')
    return connection


NATIVE, RELATIONS = natively(), over_relations()
COLUMNS = {
    str(name): tuple(answer(RELATIONS, f'SELECT * FROM "__tc:{name}"')[0])
    for name in NAMES.values()
}


def nested(name: str) -> frozenset[str]:
    rows = RELATIONS.execute(f'DESCRIBE "__tc:{name}"').fetchall()
    return frozenset(row[0] for row in rows if row[1].startswith("STRUCT"))


def expected(sql: str) -> tuple[list[str], list[Any]]:
    # A cursor would have another search path.
    NATIVE.execute(sql)
    return [column[0] for column in NATIVE.description or ()], NATIVE.fetchall()


def written(sql: str) -> str:
    document = parse(sql)
    check(document)
    relations: dict[TableReference, str] = {}
    paths: dict[TableReference, Path] = {}
    tables: dict[TableReference, AddressableTable] = {}
    for reference in references(document):
        table = resolve(reference, "lake", "bench", NAMES.values()).table
        relations[reference] = f"__tc:{table}"
        paths[reference] = (table.catalog, table.schema, reference.name)
        tables[reference] = AddressableTable(
            paths[reference], COLUMNS[str(table)], nested(str(table))
        )
    is_needed = may_name_paths(document, paths.values())
    new = rewrite(document, relations, tables if is_needed else None)
    text = unparse(new)
    assert same(new, parse(text))
    return text


def reply(sql: str) -> tuple[list[str], list[Any]]:
    return answer(RELATIONS, written(sql))


ANSWERS = """
SELECT bench.odd FROM lake.bench.odd ORDER BY id
SELECT id FROM lake.bench.odd WHERE bench.odd = 7
SELECT id FROM bench.odd ORDER BY bench.odd
SELECT bench.odd, count(*) FROM odd GROUP BY bench.odd ORDER BY 1
SELECT bench.odd.id, bench.odd.odd, bench.odd.bench.odd, odd.bench.odd, odd.odd FROM odd ORDER BY 1
SELECT bench.events FROM (SELECT {'events':{'id':5}} AS bench) x, lake.bench.events WHERE events.id<3
SELECT bench.events.id FROM (SELECT {'events':{'id':5}} AS bench) x, lake.bench.events WHERE events.id<3
SELECT bench.events.id FROM (SELECT {'id':5} AS events) bench, lake.bench.events WHERE events.id<3
SELECT bench.events.zz FROM (SELECT {'events':{'zz':5}} AS bench) x, lake.bench.events
SELECT bench.events.zz FROM (SELECT {'zz':5} AS events) bench, lake.bench.events
SELECT bench.events, bench.events.id, events.id FROM bench, events ORDER BY 3
SELECT lake.bench.bench FROM bench
SELECT bench.bench, bench.bench.id FROM bench
SELECT bench.deep, bench.deep.deep, lake.bench.deep FROM deep
SELECT lake.bench.odd FROM lake.bench.odd ORDER BY id
SELECT bench.mono FROM lake.bench.mono
SELECT lake.mono, mono, mono.mono FROM mono
SELECT bench.mono, events.id FROM events LEFT JOIN mono ON bench.mono.mono = 7 + bench.events.id ORDER BY 2
SELECT bench.mono, count(*) FROM mono GROUP BY bench.mono ORDER BY bench.mono
SELECT bench.events.id FROM events ORDER BY 1
SELECT lake.bench.events.id, lake.events.i FROM bench.events ORDER BY 1
SELECT id FROM events WHERE bench.events.id < 3 ORDER BY lake.bench.events.id DESC
SELECT bench.events.id % 2, count(*) FROM events GROUP BY bench.events.id % 2 ORDER BY bench.events.id % 2
SELECT bench.events FROM events ORDER BY bench.events.id
SELECT BENCH.Events, Bench.EVENTS.ID AS k FROM events ORDER BY k
SELECT bench.events.st.a, lake.bench.events.st.a, events.st.id, bench.events.st FROM events ORDER BY ALL
SELECT i, (SELECT count(*) FROM events WHERE id < bench.odd.id) AS n FROM odd, range(1) r(i) ORDER BY ALL
SELECT id, (SELECT count(*) FROM mono WHERE mono.mono = bench.events.i) AS n FROM events ORDER BY id
SELECT id, (SELECT bench.events FROM mono) AS n FROM events ORDER BY id
SELECT id, (SELECT bench.mono FROM mono) AS n FROM events ORDER BY id
SELECT id FROM lake.other.events o WHERE EXISTS (FROM events WHERE bench.events.id = o.id) ORDER BY id
SELECT id FROM other.events WHERE EXISTS (FROM events WHERE bench.events.id = other.events.id) ORDER BY id
SELECT id FROM other.events WHERE EXISTS (FROM events WHERE events.id = other.events.id) ORDER BY events.k
SELECT events.k, events FROM other.events WHERE EXISTS (FROM events WHERE events.id = other.events.id) ORDER BY 1
SELECT 1 AS one FROM other.events WHERE EXISTS (FROM events WHERE other.events.id = 3)
SELECT id, (SELECT bench.events.id + x.id FROM (SELECT {'id': 3} AS events, 4 AS id) x) AS m FROM events ORDER BY 1
SELECT id, (SELECT bench.events FROM (SELECT {'id': 3} AS events, 4 AS id) x) AS m FROM events ORDER BY 1
SELECT bench.events.id, other.events.k FROM bench.events JOIN other.events USING (id) ORDER BY 1
SELECT bench.events, other.events FROM bench.events JOIN other.events ON bench.events.id = other.events.id ORDER BY 1
SELECT id FROM bench.events JOIN other.events USING (id) ORDER BY 1
SELECT lake.events.k, lake.events FROM lake.other.events, east.lake.events ORDER BY 1
SELECT lake.events.id, lake.bench.events.id AS b FROM events ORDER BY 1
SELECT lake.bench.events.id + east.bench.events.id AS s FROM lake.bench.events, east.bench.events ORDER BY 1
SELECT id, (SELECT count(*) FROM mono, odd o WHERE mono = 4 AND lake.bench.events.id = o.id) AS n FROM events ORDER BY id
SELECT id, (SELECT count(*) FROM plain p WHERE bench.events.id = p.bench) AS n FROM events ORDER BY id
SELECT bench.mono FROM (SELECT bench.mono FROM mono) bench
WITH events AS (SELECT 3 AS id) SELECT bench.events.id FROM events, bench.events ORDER BY 1
WITH events AS (SELECT 3 AS id) SELECT bench.events FROM events, bench.events ORDER BY bench.events.id
WITH x AS (SELECT bench.events.id FROM events) SELECT id FROM x ORDER BY x.id
WITH x AS (SELECT 1 AS q) SELECT bench.events, q FROM events, x WHERE bench.events.id = x.q
WITH x AS (SELECT id FROM mono, other.events) SELECT (SELECT max(x.id) FROM x WHERE x.id <= bench.events.id) AS m FROM events ORDER BY 1
SELECT {'events': 5} AS bench, bench.events FROM events ORDER BY id
SELECT id, {'events': -id} AS bench FROM events ORDER BY bench.events
SELECT list_transform([{'events': 1}], lambda bench: bench.events) AS l FROM events ORDER BY id
SELECT list_transform([1, 2], lambda x: x + bench.events.id) AS l FROM events ORDER BY bench.events.id
SELECT * EXCLUDE (bench.events.id) FROM events ORDER BY id
SELECT * EXCLUDE (lake.bench.events.id) RENAME (bench.events.i AS j) FROM events ORDER BY events.id
SELECT * EXCLUDE (bench.events.id) FROM bench.events, other.events ORDER BY ALL
SELECT * EXCLUDE (events.st) FROM events WHERE bench.events.id > 1 ORDER BY id
SELECT * EXCLUDE (events.id) FROM bench.events WHERE EXISTS (FROM other.events WHERE bench.events.id = other.events.id)
SELECT events.* FROM bench.events WHERE EXISTS (FROM other.events WHERE bench.events.id = other.events.id) ORDER BY 1
SELECT bench.* FROM odd ORDER BY 1
SELECT count(*) FILTER (bench.events.id = 1) AS n, sum(lake.bench.events.i) OVER () AS s FROM events GROUP BY bench.events.i
SELECT bench.events.id FROM events UNION ALL SELECT 5 ORDER BY bench.events.id
SELECT id FROM events UNION SELECT id FROM other.events ORDER BY other.events.id
SELECT bench.events.id FROM events UNION SELECT bench.events.i FROM events ORDER BY bench.events.id
SELECT l.k FROM events, LATERAL (SELECT bench.events.id + 1 AS k) l ORDER BY 1
SELECT x.id FROM events x JOIN odd ON bench.odd = 7 ORDER BY 1
SELECT events.id FROM events WHERE id IN (SELECT bench.events.id FROM other.events) ORDER BY bench.events.id
SELECT events.id FROM bench.events UNION ALL SELECT events.id FROM other.events ORDER BY 1
SELECT (SELECT {'a': 1}.a) AS a, bench.events.id FROM events ORDER BY 2
WITH RECURSIVE r AS (SELECT bench.events.id FROM events UNION SELECT r.id + 1 FROM r WHERE r.id < 9) FROM r ORDER BY 1
""".strip().splitlines()


@pytest.mark.parametrize("sql", ANSWERS)
def test_the_answer_is_that_of_plain_duckdb(sql: str) -> None:
    names, rows = expected(sql)
    new_names, new_rows = reply(sql)
    assert list(map(repr, new_rows)) == list(map(repr, rows))
    for old, new in zip(names, new_names, strict=True):
        assert old == new or not old.isidentifier()


#: What the columns of a subquery decide that the text does not tell, or DuckDB finds ambiguous.
REFUSED = {
    "SELECT id, (SELECT bench.events.id FROM (FROM odd) x LIMIT 1) AS m FROM events": (
        "bench.events.id may mean a column or a table; give the table an alias."
    ),
    "SELECT (SELECT lake.bench.events.id FROM (SELECT unnest([1]) AS u) x) AS m FROM events": (
        "lake.bench.events.id may mean a column or a table; give the table an alias."
    ),
    "SELECT bench.events, list_transform([1], lambda bench: bench.events) FROM events, (FROM odd) x": (
        "bench.events may mean a column or a table; give the table an alias."
    ),
    "SELECT bench.events.id FROM lake.bench.events, east.bench.events": (
        "bench.events.id may mean either of two tables; give one of them an alias."
    ),
    "SELECT events.id FROM bench.events, other.events WHERE other.events.id = 2": (
        "events.id may mean either of two tables; give one of them an alias."
    ),
    "SELECT events.* FROM bench.events, other.events": (
        "events may mean either of two tables; give one of them an alias."
    ),
}


@pytest.mark.parametrize(("sql", "message"), REFUSED.items())
def test_what_only_the_engine_could_tell_is_refused(sql: str, message: str) -> None:
    with pytest.raises(UnsupportedStatement) as refused:
        reply(sql)
    assert str(refused.value) == message


#: The engine knows the columns of these subqueries, so a name with a schema is left to it. It knows no schema.
LEFT = "SELECT bench.events FROM (FROM {}) x, events WHERE events.id = 0"


def test_a_column_of_a_subquery_is_left_to_the_engine() -> None:
    sql = LEFT.format("(SELECT {'events': 1} AS bench)")
    assert reply(sql) == expected(sql) == (["events"], [(1,)])


def test_a_row_that_may_be_a_column_is_an_error_where_it_is_none() -> None:
    sql = LEFT.format("(SELECT id FROM odd LIMIT 1)")
    assert len(expected(sql)[1]) == 1
    with pytest.raises(duckdb.BinderException, match='Referenced table "bench" not found'):
        reply(sql)


FORMS = {
    "SELECT id, odd FROM lake.bench.odd WHERE bench.odd > 1": 'SELECT id, odd FROM "__tc:lake.bench.odd" AS odd '
    "WHERE (bench.odd > 1)",
    "SELECT bench.events, bench.events.id FROM events": "SELECT events, events.id "
    'FROM "__tc:lake.bench.events" AS events',
    "SELECT bench.mono FROM mono": 'SELECT struct_pack(mono := mono.mono) AS mono FROM "__tc:lake.bench.mono" AS mono',
    """SELECT bench.events.id FROM bench.events, other.events AS "lake.bench.events", mono events""": ""
    """SELECT "lake.bench.events'".id FROM "__tc:lake.bench.events" AS "lake.bench.events'" INNER JOIN """
    """"__tc:lake.other.events" AS "lake.bench.events" ON (CAST('t' AS BOOLEAN)) INNER JOIN """
    """"__tc:lake.bench.mono" AS events ON (CAST('t' AS BOOLEAN))""",
}


@pytest.mark.parametrize(("sql", "form"), FORMS.items())
def test_the_form_of(sql: str, form: str) -> None:
    assert written(sql) == form


@pytest.mark.parametrize(
    ("sql", "is_needed"),
    {
        "SELECT id, events.id, st.a FROM bench.events WHERE events.id = 1": False,
        "SELECT * EXCLUDE (events.id) FROM bench.events": False,
        "SELECT e.id, o.id FROM bench.events e, other.events o": False,
        "SELECT Bench.events.id FROM events": True,
        "SELECT lake.events.id FROM events": True,
        "SELECT bench.events FROM events": True,
        "SELECT * EXCLUDE (bench.events.id) FROM events": True,
        "SELECT * RENAME (lake.bench.events.id AS k) FROM events": True,
        "SELECT 1 FROM bench.events, other.events": True,
    }.items(),
)
def test_columns_are_needed_where_a_name_may_have_a_path(sql: str, is_needed: bool) -> None:
    document = parse(sql)
    paths = {
        ("lake", reference.schema or "bench", reference.name)
        for reference in references(document)
    }
    assert may_name_paths(document, paths) == is_needed


@pytest.mark.parametrize(
    "column",
    [
        'lake."low.er".deep.id',
        '"low.er".deep.id',
        'lake."low.er".deep.st.a',
        'lake."low.er".deep',
        'lake."low.er".deep.low',
        '"low.er".deep.low.er',
    ],
)
def test_the_levels_of_a_schema_are_one_name_or_several(column: str) -> None:
    """DuckDB's answer is that for one name."""
    sql = 'SELECT {} FROM lake."low.er".deep, (SELECT 7 AS shop) x WHERE {} IS NOT NULL'
    expected_answer = expected(sql.format(column, column))
    levels = column.replace('"low.er"', "low.er")
    assert reply(sql.format(column, column)) == expected_answer
    assert reply(sql.format(levels, levels)) == expected_answer


def test_a_column_comes_before_a_row_by_the_levels_of_its_schema() -> None:
    """``low`` is a struct with a field ``er``."""
    assert reply('SELECT low.er FROM lake."low.er".deep') == (["er"], [(5,), (6,)])
    with pytest.raises(duckdb.BinderException, match="Cannot extract field 'deep'"):
        reply('SELECT low.er.deep FROM lake."low.er".deep')
