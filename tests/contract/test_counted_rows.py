"""Rows that are only counted are counted by a constant: no column is read for them."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from connectors.iceberg.store import IcebergStore
from planner.errors import BadStatement
from planner.ports import SqlRelation
from planner.reading.plan import ColumnRead
from proxy.engine.engine import Engine
from proxy.engine.relations import Relation, nested, prelude
from proxy.session import Deadline
from tests.contract.engine import prepared, value
from tests.doubles.log import MemoryLog
from tests.fixtures.engine import Place
from tests.harness.serving import SESSION, forget, serve

SCHEMA = pa.schema(
    {"i": pa.int64(), "s": pa.struct({"a": pa.int64(), "b": pa.string()}), "x": pa.string()}
)
ROWS = pa.Table.from_pylist(
    [{"i": n, "s": {"a": n % 4, "b": f"b{n}"}, "x": f"x{n % 3}"} for n in range(1_200)], SCHEMA
)


@pytest.mark.parametrize(
    ("sql", "names", "count"),
    [
        ("SELECT count(*) FROM lake.n.t WHERE x = 'x1'", ["x"], 400),
        ("SELECT count(*) FROM lake.n.t WHERE s.a = 1", ["s"], 300),
        ("SELECT count(*) FROM lake.n.t WHERE s.a = 1 AND x = 'x1'", ["s", "x"], 100),
        ("SELECT count(*) FROM lake.n.t, range(2)", ["i"], 2_400),
        ("SELECT count(i) FROM lake.n.t WHERE s.a = 1 AND x = 'x1'", ["i", "s", "x"], 100),
        ("SELECT count(*) FROM (SELECT * FROM lake.n.t) WHERE s.a = 1", ["i", "s", "x"], 300),
        ("SELECT count(*) FROM lake.n.t a NATURAL JOIN lake.n.t b", ["i", "s", "x"], 1_200),
    ],
)
def test_a_statement_reads_the_columns_it_names(
    place: Place, monkeypatch: pytest.MonkeyPatch, sql: str, names: list[str], count: int
) -> None:
    runs: list[list[str]] = []
    run = Engine.run

    def noted(
        engine: Engine, document: Any, relations: list[Relation], *rest: Any, **more: Any
    ) -> Any:
        runs.extend(relation.arrow.names for relation in relations)
        return run(engine, document, relations, *rest, **more)

    monkeypatch.setattr(Engine, "run", noted)
    assert answer(place, sql) == [count]
    assert runs == [names]


def answer(place: Place, sql: str) -> list[Any]:
    """The first column of what a statement over ``lake.n.t`` answers."""
    folder = place.root / "counted"
    folder.mkdir(exist_ok=True)
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/c.db",
        "warehouse": f"file://{folder}",
    }
    with closing(SqlCatalog("lake", **properties)) as catalog:
        catalog.create_namespace_if_not_exists("n")
        if not catalog.table_exists("n.t"):
            catalog.create_table("n.t", schema=SCHEMA).append(ROWS)
    with closing(IcebergStore({"lake": properties})) as store:
        board, tails, statements = serve(store, MemoryLog(), runs_in=place.engine)
        try:
            planned = statements.plan(SESSION, sql, None, Deadline(60))
            batches = statements.open(SESSION, planned.ticket, Deadline(60))
            return [row for batch in batches for row in batch.column(0).to_pylist()]
        finally:
            forget(board, tails)


def of_two_parts(place: Place, *, has_constant: bool) -> Relation:
    path = place.root / "counted.parquet"
    if not path.exists():
        pq.write_table(ROWS, path)
    schema = pa.schema([SCHEMA.field("s"), SCHEMA.field("x")])
    part = SqlRelation(f"SELECT s, x FROM read_parquet('{path}')")
    return Relation(
        "lake.n.t", schema, (part, part), reads=ColumnRead(has_constant=has_constant)
    )


def columns_read(engine: Engine, sql: str, relation: Relation) -> list[str]:
    """The columns that a plan takes out of files, beside those that only its conditions are about."""
    text = nested(engine.unparse(prepared(engine, sql, [relation])))
    with engine._connection.cursor() as cursor:
        explained = f"EXPLAIN (FORMAT json) {prelude(cursor, [relation])}{text}"
        pending = json.loads(cursor.execute(explained).fetchall()[0][1])
    columns: list[str] = []
    while pending:
        node = pending.pop()
        pending += node["children"]
        if "PARQUET" in node["name"]:
            said = node["extra_info"].get("Projections", [])
            columns += [said] if isinstance(said, str) else said
    return [name for name in columns if name]


@pytest.mark.parametrize(
    ("sql", "count"),
    [
        ("SELECT count(*) AS n FROM t WHERE s.a = 1", 600),
        ("SELECT count(*) AS n FROM t WHERE x = 'x1'", 800),
        ("SELECT count(*) AS n FROM t WHERE s.a = 1 AND x = 'x1'", 200),
        ("SELECT count(*) AS n FROM t", 2_400),
    ],
)
def test_a_count_reads_no_column_beside_its_condition(
    place: Place, engine: Engine, sql: str, count: int
) -> None:
    relation = of_two_parts(place, has_constant=True)
    assert columns_read(engine, sql, relation) == []
    assert value(engine, sql, [relation]) == count
    # The reason for the constant; when DuckDB reads nothing by itself, it can go.
    assert set(columns_read(engine, sql, of_two_parts(place, has_constant=False))) == {"s"}


def test_what_is_read_elsewhere_in_a_statement_is_not_read_to_count(
    place: Place, engine: Engine
) -> None:
    sql = "SELECT (SELECT count(*) FROM t) - (SELECT count(DISTINCT x) FROM t) AS n"
    relation = of_two_parts(place, has_constant=True)
    assert columns_read(engine, sql, relation) == ["x", "x"]  # of two parts
    assert value(engine, sql, [relation]) == 2_397


NAMED = '"__TC:Row"'


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        # Else it would be the constant of ``t``, which is nearer.
        (f"SELECT (SELECT {NAMED} FROM lake.n.t WHERE x = 'x1' LIMIT 1) FROM (SELECT 5 AS {NAMED}) q", 5),
        (f"SELECT sum({NAMED})::BIGINT FROM lake.n.t JOIN (SELECT 7 AS {NAMED}, 1 AS k) q ON i = k", 7),
        ("SELECT count(*) FROM lake.n.t WHERE s.a = 1", 300),
    ],
)  # fmt: skip
def test_a_statement_never_sees_the_constant(place: Place, sql: str, value: int) -> None:
    assert answer(place, sql) == [value]


def test_the_constant_has_no_name_that_a_statement_can_read(place: Place) -> None:
    with pytest.raises(BadStatement, match="__TC:Row"):
        answer(place, f"SELECT {NAMED} FROM lake.n.t")
