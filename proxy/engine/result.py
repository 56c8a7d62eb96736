"""The rows of a running statement, as the engine makes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from proxy.engine.nulls import cleared
from proxy.engine.running import EngineCall

#: Target size of one batch of numbers: throughput over Flight peaks here (docs/internals/protocol.md).
_TARGET_BYTES = 2 << 20


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """An iterator of record batches; close it in the end. Not thread-safe.

    ``schema`` is the reader's, maybe with other names.
    """

    reader: pa.RecordBatchReader
    running: EngineCall
    schema: pa.Schema

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        """Return the next batch, of any size. Closes at the end.

        What came before an error is not the whole answer: BadStatement, Cancelled, DeadlineExceeded, LimitExceeded,
        SnapshotExpired, ColdStoreUnavailable.
        """
        try:
            batch = self.running.call(lambda _: next(self.reader, None))
        except BaseException:
            self.close()
            raise
        if batch is None:
            self.close()
            raise StopIteration
        return cleared(batch, self.schema)

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
