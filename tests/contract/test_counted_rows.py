"""Rows that are only counted are counted by what the statement reads of them anyway."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from connectors.iceberg.store import IcebergStore
from planner.ports import SqlRelation
from proxy.deadline import Deadline
from proxy.engine.engine import Engine
from proxy.engine.relations import Relation, nested, prelude
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
            answer = statements.open(SESSION, planned.ticket, Deadline(60))
            assert [row for batch in answer for row in batch.column(0).to_pylist()] == [count]
        finally:
            forget(board, tails)
    assert runs == [names]


def of_two_parts(place: Place, *, by_name: bool) -> Relation:
    path = place.root / "counted.parquet"
    if not path.exists():
        pq.write_table(ROWS, path)
    schema = pa.schema([SCHEMA.field("s"), SCHEMA.field("x")])
    part = SqlRelation(f"SELECT s, x FROM read_parquet('{path}')")
    return Relation("lake.n.t", schema, (part, part), by_name=by_name)


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
    relation = of_two_parts(place, by_name=True)
    assert columns_read(engine, sql, relation) == []
    assert value(engine, sql, [relation]) == count
    # The reason for the constant; when DuckDB reads nothing by itself, it can go.
    assert set(columns_read(engine, sql, of_two_parts(place, by_name=False))) == {"s"}


def test_what_is_read_elsewhere_in_a_statement_is_not_read_to_count(
    place: Place, engine: Engine
) -> None:
    sql = "SELECT (SELECT count(*) FROM t) - (SELECT count(DISTINCT x) FROM t) AS n"
    relation = of_two_parts(place, by_name=True)
    assert columns_read(engine, sql, relation) == ["x", "x"]  # of two parts
    assert value(engine, sql, [relation]) == 2_397


def test_a_table_may_have_a_column_of_the_name_of_the_constant(
    place: Place, engine: Engine
) -> None:
    name = "__TC:row"
    part = SqlRelation(f"SELECT {{'a': 1}} AS s, 7 AS \"{name}\"")
    schema = pa.schema([("s", pa.struct({"a": pa.int32()})), (name, pa.int32())])
    relation = Relation("lake.n.t", schema, (part, part), by_name=True)
    sql = f'SELECT sum("{name}")::BIGINT AS n FROM t WHERE s.a = 1'
    assert value(engine, sql, [relation]) == 14
