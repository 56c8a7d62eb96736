"""Statements run in an engine, as rows and values."""

import datetime as dt
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import pyarrow as pa

from planner.ports import ArrowRelation
from planner.statement.ast import Node
from planner.statement.gate import check
from planner.statement.references import references
from planner.statement.rewrite import rewrite
from proxy.engine.engine import Engine
from proxy.engine.macros import When
from proxy.engine.relations import Relation
from proxy.engine.running import working_for
from proxy.session import Deadline

NOW = dt.datetime(2026, 3, 1, 23, 30, 15, 250_000, tzinfo=dt.UTC)
LONG = "SELECT count(*) FROM range(4000000000) a(i), range(1000) b(j) WHERE i + j = 7"


def prepared(engine: Engine, sql: str, relations: Sequence[Relation] = ()) -> Node:
    document = engine.parse(sql)
    check(document)
    names = {relation.name.rsplit(".", 1)[-1]: relation.name for relation in relations}
    return rewrite(
        document, {reference: names[reference.name] for reference in references(document)}
    )


def table(
    engine: Engine,
    sql: str,
    relations: Sequence[Relation] = (),
    parameters: Sequence[object] = (),
    *,
    time_zone: str = "UTC",
    deadline: Deadline | None = None,
    owner: str | None = None,
) -> pa.Table:
    document = prepared(engine, sql, relations)
    caller = nullcontext() if deadline is None else working_for(deadline, owner)
    when = When(NOW, time_zone)
    with caller, engine.run(document, relations, parameters, when=when) as result:
        return pa.Table.from_batches(list(result), result.schema)


def rows(*arguments: Any, **options: Any) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = table(*arguments, **options).to_pylist()
    return result


def value(*arguments: Any, **options: Any) -> Any:
    (row,) = rows(*arguments, **options)
    (result,) = row.values()
    return result


def arrow(name: str, content: pa.Table) -> Relation:
    return Relation(f"lake.net.{name}", content.schema, (ArrowRelation(content),))
