"""What a statement is shown of a relation: its own conditions meet no other row, whatever DuckDB moves."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from planner.errors import BadStatement
from planner.ports import SqlRelation
from planner.statement.references import references
from planner.statement.rewrite import rewrite
from proxy.engine.engine import Engine
from proxy.engine.macros import When
from proxy.engine.relations import AccessFilter, Relation
from tests.contract.engine import NOW, arrow, rows, value
from tests.fixtures.engine import Place

#: DuckDB tries out orders of conditions as rows go by; one row in 2,500 is hidden.
ROWS, EVERY = 600_000, 2_500
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("region", pa.string())])
ALL = SqlRelation(
    f"SELECT i AS id, CASE WHEN i % {EVERY} = {EVERY - 1} THEN 'SECRET' || i ELSE '1' END AS name, "
    f"CASE WHEN i % {EVERY} = {EVERY - 1} THEN 'us' ELSE 'eu' END AS region FROM range({ROWS}) AS t(i)"
)
FILTER = "TRY(CAST((region = 'eu') AS BOOLEAN))"
PEOPLE = Relation(
    "lake.net.people",
    SCHEMA,
    (ALL,),
    AccessFilter((("id", '"id"'), ("name", '"name"')), FILTER),
)

#: Each fails on a hidden row, and quotes it. Without the barrier the first three do: DuckDB 1.5.5 does not
#: know that they can fail, so it feels free to evaluate them first.
FAILING = [
    "datediff(name, DATE '2020-01-01', DATE '2020-01-02') IS NOT NULL",
    "CAST(name AS BIT) IS NOT NULL",
    "CAST(name AS UUID) IS NOT NULL",
    "CAST(name AS INTEGER) > 0",
    "error(name) IS NULL",
    "strptime(name, '%Y') IS NOT NULL",
]


@pytest.mark.parametrize("failing", FAILING)
def test_no_condition_of_a_statement_meets_a_hidden_row(engine: Engine, failing: str) -> None:
    guarded = f"CASE WHEN name LIKE 'SEC%' THEN {failing} ELSE true END"
    access_filter = ROWS - ROWS // EVERY
    for sql in (
        f"SELECT count(*) FROM people WHERE {guarded}",
        f"WITH p AS MATERIALIZED (FROM people) SELECT count(*) FROM p WHERE {guarded}",
        f"SELECT count(*) FROM people AS p JOIN range({ROWS}) AS r(i) ON p.id = r.i WHERE {guarded}",
    ):
        assert value(engine, sql, [PEOPLE]) == access_filter
    everything = Relation(PEOPLE.name, SCHEMA, (ALL,))
    with pytest.raises(BadStatement):
        value(engine, f"SELECT count(*) FROM people WHERE {guarded}", [everything])


#: Functions of which DuckDB does not know that they can fail, of a column, of one in a struct, of one in a list.
ON_DICTIONARIES = [
    f"{function} IS NOT NULL"
    for function in (
        "datediff({0}, DATE '2020-01-01', DATE '2020-01-02')",
        "parse_formatted_bytes({0})",
        "datediff(upper({0}), DATE '2020-01-01', DATE '2020-01-02')",
    )
]


@pytest.mark.parametrize("column", ["name", '"at".name', "names[1]"])
@pytest.mark.parametrize("failing", ON_DICTIONARIES)
def test_no_function_meets_a_hidden_rows_value_in_a_files_dictionary(
    place: Place, failing: str, column: str
) -> None:
    """Every shown value is NULL, so only what is hidden can fail."""
    names = ["SECRET" if number % 50 == 49 else None for number in range(20_000)]
    regions = ["us" if name else "eu" for name in names]
    content = pa.table(
        {"name": names, "at": [{"name": name} for name in names], "names": [[name] for name in names],
         "region": regions}
    )  # fmt: skip
    file = place.root / "people.parquet"
    pq.write_table(content, file, use_dictionary=True)
    part = SqlRelation(f"SELECT * FROM read_parquet('{file}')")
    columns = tuple((name, f'"{name}"') for name in ("name", "at", "names"))
    people = Relation("lake.net.people", content.schema, (part,), AccessFilter(columns, FILTER))
    sql = f"SELECT count(*) FROM people WHERE {failing.format(column)}"
    assert value(place.engine, sql, [people]) == 0


def test_all_rows_that_are_shown_come_in_their_order(engine: Engine) -> None:
    items = rows(engine, "SELECT id FROM people LIMIT 5000", [PEOPLE])
    access_filter = [number for number in range(5_100) if number % EVERY != EVERY - 1]
    assert [row["id"] for row in items] == access_filter[:5000]


def test_an_expression_that_fails_hides_its_row_or_its_value(engine: Engine) -> None:
    people = arrow("people", pa.table({"id": ["1", "x", None], "name": ["a", "b", "c"]}))
    hidden = AccessFilter(
        (("name", '"name"'),), "TRY(CAST((CAST(id AS INTEGER) = 1) AS BOOLEAN))"
    )
    masked = AccessFilter(
        (("id", "TRY(CAST((CAST(id AS INTEGER)) AS VARCHAR))"), ("name", '"name"'))
    )
    for access_filter, expected in (
        (hidden, [{"name": "a"}]),
        (
            masked,
            [{"id": "1", "name": "a"}, {"id": None, "name": "b"}, {"id": None, "name": "c"}],
        ),
    ):
        relation = Relation(people.name, people.schema, people.sources, access_filter)
        assert rows(engine, "FROM people", [relation]) == expected
        assert rows(engine, "SELECT count(*) AS n FROM people", [relation]) == [
            {"n": len(expected)}
        ]


def test_columns_that_are_not_shown_are_not_there(engine: Engine) -> None:
    for sql in (
        "SELECT region FROM people",
        "SELECT people.region FROM people",
        "FROM people WHERE region = 'eu'",
    ):
        with pytest.raises(BadStatement, match="region") as caught:
            rows(engine, sql, [PEOPLE])
        assert "SECRET" not in str(caught.value)
    assert [row["column_name"] for row in rows(engine, "DESCRIBE people", [PEOPLE])] == [
        "id",
        "name",
    ]


def test_columns_are_not_called_after_our_relations(engine: Engine) -> None:
    people = Relation("__tc:lake.net.people:all", PEOPLE.arrow)
    document = engine.parse("SELECT (SELECT count(*) FROM people), EXISTS (FROM people)")
    reply = rewrite(document, dict.fromkeys(references(document), people.name))
    schema, _ = engine.describe(reply, [people])
    with engine.run(reply, [people], when=When(NOW)) as result:
        batches = list(result)
        assert result.schema.names == schema.names == batches[0].schema.names
    assert "__tc:" not in str(schema.names)
