"""What a record's decoding depends on, as one value: equal keys, equal rows of equal bytes."""

from __future__ import annotations

import hashlib

from planner.binding import Binding
from planner.offsets import OffsetVector
from planner.schema import TableSchema


def decoding_key(schema: TableSchema, binding: Binding) -> str:
    """Name the decoding of a table's records: schema with all accepted names, policies, decoder version, skips."""
    return f"{schema.fingerprint}.{binding.shape}"


def run_key(decoding: str, begin: OffsetVector) -> str:
    """Name a run of publishes that decoded alike, by the watermark the first of them started from."""
    text = f"{decoding}:{list(begin)}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
