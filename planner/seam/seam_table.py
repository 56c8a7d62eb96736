"""``"table$seam"``: the seam of a cut, one row per partition; ``"table$snapshots"``: what ``AT`` may name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from planner.seam.cut import TableCut
from planner.seam.formats import AvroFormat
from planner.seam.snapshots import Retained


@dataclass(frozen=True, slots=True)
class PinFacts:
    """State of the pin that a server has of a table.

    ``age_s``: since the catalog last confirmed it. ``failing_s``: since the first refresh that failed after that,
    and ``error`` what the last one met, by its class; None while refreshing works.
    """

    age_s: float
    failing_s: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class TailFacts:
    """What a server has read of a tail: ``stops`` are the first offsets not read, by partition.

    ``offsets_per_s``: how fast it reads on; None where nothing was read lately.
    """

    stops: Mapping[int, int]
    offsets_per_s: float | None = None

    def rest_s(self, spans: Iterable[tuple[int, int, int]]) -> float | None:
        """About how long until all of ``(partition, start, stop)`` is read; None where nothing tells."""
        missing = sum(
            max(0, stop - max(start, self.stops.get(partition, 0)))
            for partition, start, stop in spans
        )
        if not missing:
            return 0.0
        return missing / self.offsets_per_s if self.offsets_per_s else None


#: ``watermark`` and ``log_end`` are exclusive ends; the tail holds the offsets between the two. What is accepted
#: and skipped was decided by people (planner.repairs), skips by hand only. ``schema_ids`` is how many the ledger of a
#: table of Avro records has, ``schema_era`` how often a person let ids mean other schemas. The five before these are of the
#: moment the statement runs, not of the cut: ``tail_read_offsets`` are what this server has in memory of ``tail_offsets``, and
#: ``tail_rest_s`` is about how long the rest of all partitions takes, NULL where it is not being read. Rows whose column
#: ``expired_field_id`` has a time before ``expired_before`` aged out, NULL where none did; the column's name may be hidden.
SEAM_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("topic_id", pa.string()),
        pa.field("cluster_id", pa.string()),
        pa.field("kafka_partition", pa.int32()),
        pa.field("watermark", pa.int64()),
        pa.field("log_end", pa.int64()),
        pa.field("tail_offsets", pa.int64()),
        pa.field("snapshot_id", pa.int64()),
        pa.field("schema_id", pa.int32()),
        pa.field("tiered_shape", pa.string()),
        pa.field("binding_shape", pa.string()),
        pa.field("accepted_gap_offsets", pa.int64()),
        pa.field("skipped_records", pa.int64()),
        pa.field("accepted_snapshots", pa.int64()),
        pa.field("pin_age_s", pa.float64()),
        pa.field("catalog_failing_s", pa.float64()),
        pa.field("catalog_error", pa.string()),
        pa.field("tail_read_offsets", pa.int64()),
        pa.field("tail_rest_s", pa.float64()),
        pa.field("schema_ids", pa.int32()),
        pa.field("schema_era", pa.int32()),
        pa.field("expired_before", pa.timestamp("us", "UTC")),
        pa.field("expired_field_id", pa.int32()),
    ]
)


def seam_rows(
    cut: TableCut, facts: PinFacts | None = None, tail: TailFacts | None = None
) -> list[dict[str, object]]:
    """Describe a cut, sorted by partition; no rows for an unbound table."""
    if cut.watermark is None or cut.binding is None:
        return []
    mark = cut.watermark
    spans = [(partition, mark.offset(partition), end) for partition, end in cut.end]
    rest_s = None if tail is None else tail.rest_s(spans)
    form = cut.binding.format
    ledger = form.ledger if isinstance(form, AvroFormat) else None
    boundary = mark.boundary
    return [
        {
            "topic": mark.address,
            "topic_id": mark.topic_id,
            "cluster_id": mark.cluster_id,
            "kafka_partition": partition,
            "watermark": start,
            "log_end": end,
            # A cut of the past may end below the watermark of the snapshot it is read from.
            "tail_offsets": max(0, end - start),
            "snapshot_id": cut.cold.snapshot_id,
            "schema_id": cut.cold.schema.schema_id,
            "tiered_shape": mark.shape,
            "binding_shape": cut.binding.shape,
            "accepted_gap_offsets": sum(
                len(gap) for gap in mark.gaps if gap.partition == partition
            ),
            "skipped_records": sum(skip.partition == partition for skip in mark.skips),
            "accepted_snapshots": len(mark.accepted),
            "pin_age_s": None if facts is None else facts.age_s,
            "catalog_failing_s": None if facts is None else facts.failing_s,
            "catalog_error": None if facts is None else facts.error,
            "tail_read_offsets": None
            if tail is None
            else max(0, min(tail.stops.get(partition, start), end) - start),
            "tail_rest_s": rest_s,
            "schema_ids": None if ledger is None else len(ledger.fingerprints),
            "schema_era": None if ledger is None else ledger.era,
            "expired_before": None if boundary is None else boundary.before_us,
            "expired_field_id": None if boundary is None else boundary.field_id,
        }
        for partition, start, end in spans
    ]


#: ``current_since`` is when the snapshot became the table's current one.
SNAPSHOTS_SCHEMA = pa.schema(
    [
        pa.field("snapshot_id", pa.int64()),
        pa.field("current_since", pa.timestamp("us", "UTC")),
    ]
)


def snapshot_rows(retained: Retained) -> list[dict[str, object]]:
    """Return the retained snapshots that were current once, oldest first; after a rollback one is there twice."""
    return [
        {"snapshot_id": snapshot_id, "current_since": since_us}
        for since_us, snapshot_id in retained.log
        if snapshot_id in retained.ids
    ]
