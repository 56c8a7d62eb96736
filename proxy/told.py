"""An answer that was worked out while planning: its rows came with the ticket."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa


class Told:
    """``proxy.flightsql.backend.Stream`` over an Arrow IPC stream. Nothing runs, so there is nothing to end."""

    def __init__(self, data: bytes) -> None:
        with pa.ipc.open_stream(data) as reader:
            self.schema: pa.Schema = reader.schema
            self._batches = list(reader)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self._batches)

    def close(self) -> None:
        """Do nothing."""
