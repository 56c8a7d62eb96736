"""Leaves out skipped records: the same for the tail and the tierer, whatever the format."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from planner.names import KAFKA_OFFSET, KAFKA_PARTITION
from planner.ports import Decoded, Decoder
from planner.seam.watermark import Outcomes


class SkippingDecoder:
    """A decoder that never sees some records; each is counted as skipped. Pickles as its arguments."""

    def __init__(self, inner: Decoder, skips: Collection[tuple[int, int]]) -> None:
        self._arguments = (inner, tuple(skips))
        self._inner = inner
        offsets: dict[int, list[int]] = {}
        for partition, offset in skips:
            offsets.setdefault(partition, []).append(offset)
        self._offsets = {
            partition: pa.array(positions, pa.int64())
            for partition, positions in offsets.items()
        }

    def __reduce__(self) -> tuple[object, ...]:
        return (SkippingDecoder, self._arguments)

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """As the decoder inside, for the records that are left."""
        skipped: pa.Array | None = None
        for partition, offsets in self._offsets.items():
            matches = pc.and_(
                pc.is_in(batch.column(KAFKA_OFFSET), value_set=offsets),
                pc.equal(batch.column(KAFKA_PARTITION), partition),
            )
            skipped = matches if skipped is None else pc.or_(skipped, matches)
        if skipped is None or not skipped.true_count:
            return self._inner.decode(batch)
        decoded = self._inner.decode(batch.filter(pc.invert(skipped)))
        counted = decoded.outcomes + Outcomes(skipped=skipped.true_count)
        return replace(decoded, outcomes=counted)
