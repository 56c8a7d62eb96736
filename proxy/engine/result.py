"""The rows of a running statement, as the engine makes them, and of an answer on their way out (``proxy.session.Stream``).

Nothing under a NULL: DuckDB 1.5 leaves there what was in that memory before, rows and texts of others. Its texts,
binaries and lists have no bytes under a NULL. Everything of fixed width has, at any depth; an ENUM too, but that goes
out as text.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from planner.schema import size_of
from proxy.engine.running import EngineCall
from proxy.session import Deadline

#: Target size of one batch of numbers: throughput over Flight peaks here (docs/internals/protocol.md).
_TARGET_BYTES = 2 << 20
#: What the engine has ready is put together to that size for so long: each batch costs a message and some hundred
#: microseconds on its way to the client. A slow statement's rows do not wait for more of them.
_GATHERED_S = 0.005


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """An iterator of record batches; close it in the end. Not thread-safe.

    ``schema`` is the reader's, maybe with other names. ``batch_rows``: what the engine puts into one batch, but the last.
    """

    reader: pa.RecordBatchReader
    running: EngineCall
    schema: pa.Schema
    batch_rows: int = 0
    #: Taken from the reader and not returned yet: one batch at most.
    left: list[pa.RecordBatch] = field(default_factory=list)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        """Return the next batch, of any size. Closes at the end.

        What came before an error is not the whole answer: BadStatement, Cancelled, DeadlineExceeded, LimitExceeded,
        SnapshotExpired, ColdStoreUnavailable.
        """
        try:
            batch = self.running.call(lambda _: self._gathered())
        except BaseException:
            self.close()
            raise
        if batch is None:
            self.close()
            raise StopIteration
        return cleared(batch, self.schema)

    def _gathered(self) -> pa.RecordBatch | None:
        """Return the next batch, small ones put together as long as they come fast; None at the end."""
        until = time.monotonic() + _GATHERED_S
        batches: list[pa.RecordBatch] = []
        rows = size = 0
        while (batch := self._next()) is not None:
            batch_size = size_of(batch)
            if batches and (
                size + batch_size > _TARGET_BYTES or rows + batch.num_rows > MAX_ROWS
            ):
                self.left.append(batch)
                break
            batches.append(batch)
            rows += batch.num_rows
            size += batch_size
            if batch.num_rows < self.batch_rows or time.monotonic() > until:
                break
        return pa.concat_batches(batches) if len(batches) > 1 else next(iter(batches), None)

    def _next(self) -> pa.RecordBatch | None:
        return self.left.pop() if self.left else next(self.reader, None)

    def close(self) -> None:
        """Free the cursor and what it holds. May be called twice."""
        self.reader.close()
        self.running.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


#: Texts and lists may be of any size, so few rows are gathered before their size can be seen.
_WIDE_ROWS = 4_096
MAX_ROWS = 65_536
_UNKNOWN = 1 << 16
#: Names of column types by the bytes of one value in Arrow.
_TYPES = {
    1: "boolean tinyint utinyint",
    2: "smallint usmallint",
    4: "integer uinteger float date",
    8: "bigint ubigint double time timestamp timestamp_s timestamp_ms timestamp_ns",
    16: "hugeint uhugeint decimal interval",
}
_WIDTHS = {name: width for width, names in _TYPES.items() for name in names.split()}
_WIDTHS["timestamp with time zone"] = 8


def rows_per_batch(types: Sequence[str]) -> int:
    """Return how many rows to ask the engine for, from the names of the column types."""
    width = sum(_WIDTHS.get(name, _UNKNOWN) for name in types)
    return _WIDE_ROWS if width >= _UNKNOWN else min(MAX_ROWS, _TARGET_BYTES // max(width, 1))


def cleared(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the same rows under ``schema``, with zeros under their NULLs. Columns without NULLs are not copied."""
    columns = [_cleared(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cleared(column: pa.Array) -> pa.Array:
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _cleared(column.storage))
    if kind.num_fields:
        return _nested(column)
    if not column.null_count:
        return column  # looked at first: most columns of most batches
    is_number = types.is_primitive(kind) or types.is_decimal(kind)
    if not (is_number or types.is_fixed_size_binary(kind)):
        return column
    if types.is_boolean(kind):
        return pc.if_else(pc.is_valid(column), column.fill_null(False), None)
    width = kind.bit_width // 8
    values = column.view(pa.binary(width)).fill_null(bytes(width))
    valid = pc.is_valid(column)
    assert values.offset == valid.offset == 0  # noqa: S101 - both were just made
    buffers = [valid.buffers()[1], values.buffers()[1]]
    return pa.Array.from_buffers(kind, len(column), buffers, column.null_count)


def _nested(column: pa.Array) -> pa.Array:
    kind = column.type
    if column.offset or (types.is_fixed_size_list(kind) and column.null_count):
        # From its start; and what lies under a NULL array is NULL itself then.
        column = column.take(pc.indices_nonzero(pa.repeat(True, len(column))))
    if types.is_map(kind) and all(_cleared(own) is own for own in (column.keys, column.items)):
        return column
    children = _children(column)
    new = [_cleared(child) for child in children]
    if all(child is before for child, before in zip(new, children, strict=True)):
        return column
    has_offsets = not (types.is_struct(kind) or types.is_fixed_size_list(kind))
    own = column.buffers()[: 2 if has_offsets else 1]
    return pa.Array.from_buffers(kind, len(column), own, column.null_count, children=new)


def _children(column: pa.Array) -> list[pa.Array]:
    kind = column.type
    if types.is_struct(kind):
        # Flattened, a child is NULL wherever its struct is.
        fields = range(kind.num_fields)
        return column.flatten() if column.null_count else [column.field(i) for i in fields]
    if types.is_map(kind):
        entries = pa.struct([kind.key_field, kind.item_field])
        pairs = [column.keys, column.items]
        return [pa.Array.from_buffers(entries, len(column.keys), [None], 0, children=pairs)]
    if types.is_union(kind):
        return [column.field(index) for index in range(kind.num_fields)]
    return [column.values]


_SMALL_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class MaterializedResult:
    """An answer that is in memory. Nothing runs, so there is nothing to end."""

    schema: pa.Schema
    batches: tuple[pa.RecordBatch, ...]

    @classmethod
    def of(cls, data: bytes) -> Self:
        """Read an Arrow IPC stream: rows that came with a ticket."""
        with pa.ipc.open_stream(data) as reader:
            return cls(reader.schema, tuple(reader))

    @classmethod
    def of_count(cls, name: str, rows: int, metadata: dict[str, str]) -> Self:
        """Answer a bare count whose rows were counted without the engine."""
        schema = pa.schema([(name, pa.int64())], metadata or None)
        return cls(schema, (pa.record_batch([pa.array([rows], pa.int64())], schema),))

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self.batches)

    def close(self) -> None:
        """Do nothing."""


@dataclass(slots=True, eq=False)
class StatementStream:
    """One execution. ``on_thread`` does its reading: on a thread of its own, no longer than until the deadline.

    The clock stands still while the client has a batch. What the execution uses is freed once nothing runs in it.
    ``metadata`` is the schema's.
    """

    result: Result
    metadata: dict[str, str]
    deadline: Deadline
    on_thread: Callable[[Callable[[], None]], None]
    resources: contextlib.ExitStack
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_busy: bool = False
    _is_closed: bool = False
    _has_ended: bool = False
    _ready: deque[pa.RecordBatch] = field(default_factory=deque)

    @property
    def schema(self) -> pa.Schema:
        return self.result.schema.with_metadata(self.metadata or None)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while True:
            while self._ready:
                with self.deadline.paused():
                    yield self._ready.popleft()
            if self._has_ended:
                self.deadline.cancellation.check()
                return
            self.on_thread(self.read)

    def read(self) -> None:
        """Read the next batch, and one more behind a small one: that is most likely the end.

        A small statement is opened, read and ended in one switch to another thread.
        """
        with self._lock:
            if self._is_closed:
                self._has_ended = True
                return
            self._is_busy = True
        try:
            for _ in range(2):
                batch = next(self.result, None)
                if batch is None:
                    self._has_ended = True
                    return
                self._ready.append(batch)
                if size_of(batch) > _SMALL_BYTES:
                    return
        finally:
            self._rest()

    def _rest(self) -> None:
        with self._lock:
            self._is_busy, is_closed = False, self._is_closed
        if is_closed:
            self.resources.close()

    def close(self) -> None:
        with self._lock:
            self._is_closed, is_busy = True, self._is_busy
        if not is_busy:
            self.resources.close()
