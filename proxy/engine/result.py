"""The rows of a running statement, as the engine makes them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import pyarrow as pa

from planner.schema import size_of
from proxy.engine.nulls import cleared
from proxy.engine.running import EngineCall

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
        parts: list[pa.RecordBatch] = []
        rows = size = 0
        while (part := self._part()) is not None:
            part_size = size_of(part)
            if parts and (size + part_size > _TARGET_BYTES or rows + part.num_rows > MAX_ROWS):
                self.left.append(part)
                break
            parts.append(part)
            rows += part.num_rows
            size += part_size
            if part.num_rows < self.batch_rows or time.monotonic() > until:
                break
        return pa.concat_batches(parts) if len(parts) > 1 else next(iter(parts), None)

    def _part(self) -> pa.RecordBatch | None:
        return self.left.pop() if self.left else next(self.reader, None)

    def close(self) -> None:
        """Free the cursor and what it holds. May be called twice."""
        self.reader.close()
        self.running.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def rows_per_batch(types: Sequence[str]) -> int:
    """Return how many rows to ask the engine for, from the names of the column types."""
    width = sum(_WIDTHS.get(name, _UNKNOWN) for name in types)
    return _WIDE_ROWS if width >= _UNKNOWN else min(MAX_ROWS, _TARGET_BYTES // max(width, 1))


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
