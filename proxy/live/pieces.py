"""Writes what of a cut's tail is in no file yet, straight from the engine's tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from connectors.iceberg.live.files import LiveFiles
from planner.live.tiling import Hole, LivePiece
from planner.seam.cut import Pin, TableCut
from planner.sql_text import identifier
from planner.type_text import sql_type
from proxy.engine.engine import Engine
from proxy.engine.relations import Relation
from proxy.engine.running import working_for
from proxy.engine.thread_pool import ThreadPool
from proxy.session import WAITED_FOR_TAIL, Deadline
from proxy.tail.tails import Tails

_ROWS = "rows"


@dataclass(frozen=True, slots=True)
class PinnedCut:
    """A cut, and the pin that it was made from."""

    pin: Pin
    cut: TableCut


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
        pinned: PinnedCut,
        holes: Iterable[Hole],
        deadline: Deadline,
        owner: str | None,
        note: Callable[[LivePiece], None],
    ) -> tuple[LivePiece, ...]:
        """Write a file for each hole of a cut that has a tail, by the deadline.

        ``holes`` are asked for the next one once the last is written. ``note`` gets each file as it is written, also
        where its caller has gone.

        Raises:
            FederationError: as ``holes``, ``Tails.read``, ``Engine.run`` and ``LiveFiles.write_piece``.
        """
        pin, cut = pinned.pin, pinned.cut
        hot = cut.hot
        if hot is None:
            raise ValueError(f"{cut.table} has no tail")

        def work() -> tuple[LivePiece, ...]:
            written = []
            check = partial(deadline.check, WAITED_FOR_TAIL)
            with working_for(deadline, owner), self._tails.read(cut, check) as tail:
                for hole in holes:
                    is_whole = hole.ranges == hot.ranges
                    rows = tail.relations
                    if not is_whole:
                        rows = tuple(each.within(hole.ranges) for each in rows)
                    batches = self._batches(Relation(_ROWS, cut.cold.schema, rows))
                    piece = self._files.write_piece(pin, hole, hot.epochs, batches)
                    note(piece)
                    written.append(piece)
            return tuple(written)

        return self._threads.run(work, deadline, owner)

    def _batches(self, rows: Relation) -> Iterator[pa.RecordBatch]:
        """Yield rows of a tail, columns in the schema's order, uuids as 16 bytes."""
        sql = f"SELECT {_columns(rows.arrow)} FROM {_ROWS}"  # noqa: S608 - quoted
        with self._engine.run(self._engine.parse(sql), [rows]) as result:
            yield from result


def _columns(schema: pa.Schema) -> str:
    # The engine hands a UUID to Arrow as text; a file has its bytes.
    return ", ".join(
        name if kind == column.type else f"CAST({name} AS {sql_type(kind)}) AS {name}"
        for column in schema
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
