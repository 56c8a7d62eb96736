"""What a statement's constants depend on, and the files that its conditions leave out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

from connectors import file_conditions
from planner.reading.filters import ScanFilter
from planner.schema import TableSchema
from planner.statement.ast import Node, parameters
from planner.statement.conditions import Places
from proxy.engine.engine import Engine
from proxy.engine.parameters import Parameter, bound


@dataclass(frozen=True, slots=True)
class StatementContext:
    """What constants depend on: the statement as it came, its parameters in order, its time and time zone."""

    document: Node
    values: Sequence[Parameter]
    statement_time: datetime
    time_zone: str


def scan_filter(
    engine: Engine, asking: StatementContext, positions: Places, schema: TableSchema
) -> ScanFilter:
    """Return what rows of one table must meet, at any of the positions that name it, to matter."""

    def evaluate(constants: Node, columns: str) -> pa.Table:
        values = bound(asking.document, asking.values)
        return engine.evaluate(
            constants,
            columns,
            {name: values[name] for name in parameters(constants)},
            statement_time=asking.statement_time,
            time_zone=asking.time_zone,
        )

    values = dict(zip(parameters(asking.document), asking.values, strict=False))
    return file_conditions.scan_filter(evaluate, positions, schema, values)
