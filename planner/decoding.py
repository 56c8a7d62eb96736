"""What a record's decoding depends on, as one value: equal keys, equal rows of equal bytes."""

from __future__ import annotations

import hashlib

from planner.binding import Binding
from planner.schema import TableSchema
from planner.watermark import Watermark


def decoding_key(schema: TableSchema, binding: Binding) -> str:
    """Name the decoding of a table's records: schema with all accepted names, policies, decoder version, skips."""
    return f"{schema.fingerprint}.{binding.shape}"


def era_after(mark: Watermark, decoding: str) -> str:
    """Name the publishes in a row that decode alike and end with one on top of ``mark`` that decodes so.

    Two watermarks of one era cover rows of the same values, from where the era began to the lower of both: what one
    of them leaves to the tail, the other may have cold. A watermark of a tierer that did not write its decoding
    belongs to none.
    """
    if mark.decoding == decoding:
        return mark.era
    text = f"{decoding}:{mark.next.items}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
