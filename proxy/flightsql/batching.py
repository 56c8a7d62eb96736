"""Batches as they may go out: none too large for a client's message limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from planner.errors import LimitExceeded

# Go and Rust clients refuse messages above 4,194,304 bytes, ADBC above 16 MiB (docs/internals/protocol.md).
MAX_MESSAGE_BYTES = 4 << 20
# What is left above this ceiling is for the message's header and the padding of its buffers.
MAX_BATCH_BYTES = 3_500_000
_HEADER_BYTES = MAX_MESSAGE_BYTES - MAX_BATCH_BYTES


def sendable(
    batches: Iterable[pa.RecordBatch], max_message_bytes: int = MAX_MESSAGE_BYTES
) -> Iterator[pa.RecordBatch]:
    """Yield the same rows in batches below ``MAX_BATCH_BYTES``, a single larger row by itself.

    Raises:
        LimitExceeded: one row fills more than ``max_message_bytes``: most clients would drop the connection
            without saying why.
    """
    for batch in batches:
        for part in _split(batch):
            if part.nbytes > max_message_bytes - _HEADER_BYTES:
                raise LimitExceeded(
                    f"One row of the answer has {part.nbytes:,} bytes, and a message may have {max_message_bytes:,}. "
                    f"Select fewer or shorter columns; or set the session option max_message_bytes, if this client "
                    f"takes larger messages.",
                    row_bytes=part.nbytes,
                )
            yield part


def _split(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if batch.num_rows <= 1 or batch.nbytes <= MAX_BATCH_BYTES:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _split(batch.slice(0, half))
    yield from _split(batch.slice(half))
