"""One key for all that a record's decoding depends on: equal keys make equal rows of equal bytes."""

from __future__ import annotations

import hashlib

from planner.binding import Binding
from planner.schema import TableSchema
from planner.watermark import Watermark


def decoding_key(schema: TableSchema, binding: Binding) -> str:
    """Name the decoding of a table's records: schema with all accepted names, policies, decoder version, skips, floors."""
    floors = "".join(f".{field_id}" for field_id in binding.floors)
    return f"{schema.fingerprint}.{binding.shape}{floors}"


def era_after(mark: Watermark, decoding: str) -> str:
    """Name the era, a run of publishes with one decoding, that a publish on top of ``mark`` belongs to.

    Two watermarks of one era cover rows of the same values, from the start of the era to the lower of both: rows that
    one leaves to the tail, the other may have in cold. A watermark without its decoding belongs to no era.
    """
    if mark.decoding == decoding:
        return mark.era
    text = f"{decoding}:{mark.next.items}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
