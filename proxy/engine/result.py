"""The rows of a running statement, in batches a client can take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType

import pyarrow as pa

from proxy.engine.running import EngineCall

#: Target size of one batch: throughput over Flight peaks here, and stock Go and Rust clients refuse
#: messages above 4 MiB (docs/internals/protocol.md).
MAX_BATCH_BYTES = 2 << 20


class Result:
    """A stream of record batches; iterate once, then close. Not thread-safe, but for ``cancel``."""

    def __init__(
        self, reader: pa.RecordBatchReader, running: EngineCall, schema: pa.Schema | None = None
    ) -> None:
        """``schema`` is the reader's, maybe with other names."""
        self._reader = reader
        self._running = running
        self.schema: pa.Schema = reader.schema if schema is None else schema
        self._is_renamed = self.schema.names != reader.schema.names

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield batches of at most ``MAX_BATCH_BYTES``, larger only where one row is. Closes at the end.

        Raises:
            BadStatement, Cancelled, DeadlineExceeded, LimitExceeded, SnapshotExpired, ColdStoreUnavailable:
                the statement failed on the way; what was yielded is not the whole answer.
        """
        try:
            while (batch := self._running.call(lambda _: self._next())) is not None:
                yield from sliced(batch, MAX_BATCH_BYTES)
        finally:
            self.close()

    def _next(self) -> pa.RecordBatch | None:
        try:
            batch = self._reader.read_next_batch()
            return self._named(batch) if self._is_renamed else batch
        except StopIteration:
            return None

    def _named(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)

    def cancel(self) -> None:
        """Stop the statement. Thread-safe; the reading thread gets ``Cancelled``."""
        self._running.cancellation.cancel()

    def close(self) -> None:
        """Free the cursor and what it holds. May be called twice."""
        self._reader.close()
        self._running.close()

    def __enter__(self) -> Result:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def sliced(batch: pa.RecordBatch, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield ``batch`` in parts of at most ``max_bytes``, or of one row. Nothing is copied."""
    pending = [batch]
    while pending:
        part = pending.pop()
        if part.nbytes <= max_bytes or part.num_rows <= 1:
            yield part
        else:
            half = part.num_rows // 2
            pending += [part.slice(half), part.slice(0, half)]


def rows_per_batch(types: Sequence[str]) -> int:
    """Return how many rows to ask the engine for, from the names of the column types."""
    width = sum(_WIDTHS.get(name, _UNKNOWN) for name in types)
    return _WIDE_ROWS if width >= _UNKNOWN else min(MAX_ROWS, MAX_BATCH_BYTES // max(width, 1))


#: Texts and lists may be of any size, so few rows are gathered before their size can be seen.
_WIDE_ROWS = 4_096
MAX_ROWS = 65_536
_UNKNOWN = 1 << 16
#: Bytes of one value in Arrow.
_WIDTHS = dict.fromkeys(("boolean", "tinyint", "utinyint"), 1)
_WIDTHS |= dict.fromkeys(("smallint", "usmallint"), 2)
_WIDTHS |= dict.fromkeys(("integer", "uinteger", "float", "date"), 4)
_WIDTHS |= dict.fromkeys(("bigint", "ubigint", "double", "time", "timestamp"), 8)
_WIDTHS |= dict.fromkeys(("timestamp_s", "timestamp_ms", "timestamp_ns"), 8)
_WIDTHS |= dict.fromkeys(("timestamp with time zone",), 8)
_WIDTHS |= dict.fromkeys(("hugeint", "uhugeint", "decimal", "interval"), 16)
