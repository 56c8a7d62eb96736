"""Writes what of a cut's tail is in no file yet.

The rows of a cut's tail as Arrow batches, for files: of some ranges, straight from the engine's tables.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial

import pyarrow as pa

from connectors.iceberg.live.files import LiveFiles
from planner.live.tiling import Hole, LivePiece
from planner.offsets import OffsetRange
from planner.ports import SqlRelation
from planner.schema import TableSchema
from planner.seam.cut import Pin, TableCut
from planner.sql_text import identifier
from planner.type_text import sql_type
from proxy.engine.engine import Engine
from proxy.engine.relations import Relation
from proxy.engine.thread_pool import ThreadPool
from proxy.session import WAITED_FOR_TAIL, Deadline
from proxy.tail.tails import Tails


class PieceWriter:
    """Thread-safe; the caller closes it."""

    def __init__(self, tails: Tails, engine: Engine, files: LiveFiles) -> None:
        self._tails = tails
        self._engine = engine
        self._files = files
        # A thread whose call into the engine takes long has a lower priority from then on: these end, the caller's would not.
        self._threads = ThreadPool()

    def close(self) -> None:
        self._threads.close()

    def write(
        self,
        pin: Pin,
        cut: TableCut,
        holes: Iterable[Hole],
        deadline: Deadline,
        owner: str | None,
        note: Callable[[Sequence[LivePiece]], None],
    ) -> tuple[LivePiece, ...]:
        """Write a file for each hole of a cut that has a tail, by the deadline.

        ``holes`` are asked for the next one once the last is written. ``note`` gets each file as it is written, also
        where its caller has gone.

        Raises:
            FederationError: as ``holes``, ``Tails.read``, ``Engine.run`` and ``LiveFiles.write_piece``.
        """
        hot = cut.hot
        if hot is None:
            raise ValueError(f"{cut.table} has no tail")

        def work() -> tuple[LivePiece, ...]:
            written = []
            with self._tails.read(cut, partial(deadline.check, WAITED_FOR_TAIL)) as tail:
                for hole in holes:
                    batches = tail_batches(
                        self._engine, cut, tail.relations, hole.ranges, deadline, owner
                    )
                    piece = self._files.write_piece(pin, hole, hot.epochs, batches)
                    note([piece])
                    written.append(piece)
            return tuple(written)

        return self._threads.run(work, deadline, owner)


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
    parts = tail if whole else [part.within(ranges) for part in tail]
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
        name if kind == column.type else f"CAST({name} AS {sql_type(kind)}) AS {name}"
        for column in schema.columns
        for name, kind in ((identifier(column.name), _with_bytes(column.type)),)
    )


def _with_bytes(kind: pa.DataType) -> pa.DataType:
    """Return a type with its uuids as bytes."""
    if kind == pa.uuid():
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_bytes(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_bytes(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(_with_bytes(kind.key_type)),
            kind.item_field.with_type(_with_bytes(kind.item_type)),
        )
    return kind
