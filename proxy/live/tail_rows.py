"""The rows of a cut's tail as Arrow batches, for files: of some ranges, straight from the engine's tables."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pyarrow as pa

from planner.cut import TableCut
from planner.offsets import OffsetRange
from planner.ports import SqlRelation
from planner.schema import TableSchema
from planner.sqltext import identifier
from proxy.deadline import Deadline
from proxy.engine.engine import Engine
from proxy.engine.relations import Relation
from proxy.query.relations import narrowed

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_ROWS = "rows"


def tail_batches(
    engine: Engine,
    cut: TableCut,
    tail: Sequence[SqlRelation],
    ranges: Sequence[OffsetRange],
    deadline: Deadline,
    owner: str | None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``ranges`` (one a partition), columns in the schema's order, uuids as 16 bytes.

    ``tail`` are the relations of the cut's tail; the caller holds their lease until the last batch.
    """
    schema = cut.cold.schema
    whole = cut.hot is not None and tuple(ranges) == cut.hot.ranges
    parts = tail if whole else [narrowed(part, ranges, None) for part in tail]
    with ExitStack() as stack:
        result = engine.run(
            engine.parse(f"SELECT {_columns(schema)} FROM {_ROWS}"),  # noqa: S608 - quoted
            [Relation(_ROWS, schema, tuple(parts))],
            statement_time=_EPOCH,
            deadline=deadline,
            owner=owner,
        )
        yield from stack.enter_context(result)


def _columns(schema: TableSchema) -> str:
    # The engine hands a UUID to Arrow as text; a file has its bytes.
    return ", ".join(
        f"unhex(replace(CAST({name} AS VARCHAR), '-', '')) AS {name}"
        if column.type == pa.uuid()
        else name
        for column in schema.columns
        for name in (identifier(column.name),)
    )
