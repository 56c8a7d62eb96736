"""What needs no engine to be worked out comes to what the engine says."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import pyarrow as pa
import pytest

from planner.schema import Column, TableSchema
from planner.statement.ast import parameters
from planner.statement.conditions import conjuncts
from planner.statement.references import references
from proxy.engine.engine import Engine
from proxy.engine.macros import When
from proxy.query.relations import StatementContext, scan_filter

NOW = dt.datetime(2026, 4, 1, tzinfo=dt.UTC)
TYPES = {
    "i": pa.int32(),
    "l": pa.int64(),
    "s": pa.string(),
    "d": pa.float64(),
    "t": pa.timestamp("us"),
    "b": pa.bool_(),
}
SCHEMA = TableSchema(
    0, tuple(Column(at, name, kind) for at, (name, kind) in enumerate(TYPES.items(), start=1))
)
LITERALS = (
    *("5", "-3", "2147483647", "2147483648", "-2147483649", "9223372036854775808", "1.5"),
    *("'x'", "''", "'é'", "'5'", "NULL", "true", "?", "?", "?"),
)
INPUTS = (
    *(7, -1, 2**40, 2**63, "q", "", None, 1.5, True),
    *(pa.scalar(2**40), pa.scalar("z"), pa.scalar(None, pa.int64()), pa.scalar(3, pa.int8())),
)
CONDITIONS = ("{} = {}", "{} > {}", "{} IN ({}, {})", "{} BETWEEN {} AND {}", "{} LIKE {}")


def test_plain_operands_come_to_what_the_engine_says(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = random.Random(1)
    evaluated = []
    evaluate = Engine.evaluate

    def counted(*inputs: Any, **named: Any) -> pa.Table:
        evaluated.append(inputs)
        return evaluate(*inputs, **named)

    monkeypatch.setattr(Engine, "evaluate", counted)
    spared = 0
    for _ in range(150):
        places = (chosen.choice("ilsdtb"), *chosen.choices(LITERALS, k=2))
        sql = f"SELECT * FROM a.b.c WHERE {chosen.choice(CONDITIONS).format(*places)}"
        document = engine.parse(sql)
        values = chosen.choices(INPUTS, k=len(parameters(document)))
        asking = StatementContext(document, values, When(NOW))
        (reference,) = references(document)
        request = conjuncts(document)[reference]
        before = len(evaluated)
        ours = scan_filter(engine, asking, request, SCHEMA)
        was_spared = len(evaluated) == before
        with monkeypatch.context() as patch:
            patch.setattr("connectors.file_conditions._plain", lambda *_: None)
            assert ours == scan_filter(engine, asking, request, SCHEMA), (sql, values)
        spared += was_spared and len(evaluated) > before
    assert spared > 5
