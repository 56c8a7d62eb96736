"""The product's decoder of Avro, with or without its fast path, and records for it."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest

from connectors.decoding.avro.decoder import AvroRecords
from connectors.decoding.policy import TableDecoder
from connectors.decoding.writers import Writers
from planner.schema import RAW_SCHEMA, TableSchema
from planner.seam.binding import Binding
from planner.seam.formats import AvroFormat

#: ``fast_from`` of the two paths.
PATHS = [pytest.param(0, id="fast"), pytest.param(None, id="exact")]


def avro_decoder(
    schema: TableSchema, writers: Writers, *, fast_from: int | None = 0, **options: Any
) -> TableDecoder:
    """Decode by ``Binding(**options)``."""
    binding = Binding("t", **{"format": AvroFormat(), **options})
    records = AvroRecords("t", schema, binding, writers, fast_from=fast_from)
    return TableDecoder("t", schema, binding, records)


def framed(schema_id: int, body: bytes) -> bytes:
    return b"\0" + struct.pack(">I", schema_id) + body


def raw_batch(*values: bytes | None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {"kafka_partition": 0, "kafka_offset": at, "kafka_value": value}
            for at, value in enumerate(values)
        ],
        RAW_SCHEMA,
    )
