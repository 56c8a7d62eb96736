"""Values the planner's tests are made of, with everything that does not matter filled in."""

from __future__ import annotations

from planner.names import METADATA_COLUMNS, TableName
from planner.offsets import OffsetVector
from planner.schema import METADATA_TYPES, Column, TableSchema
from planner.seam.binding import Binding
from planner.seam.cut import LogBounds, PartitionBounds, Pin
from planner.seam.snapshots import Snapshot
from planner.seam.watermark import SUMMARY_KEY, Watermark, format_watermark

FLOWS = TableName("lake", ("net",), "flows")
BINDING = Binding(topic="flows")


def vector(*offsets: int) -> OffsetVector:
    return OffsetVector(tuple(enumerate(offsets)))


def watermark(*offsets: int, **changes: object) -> Watermark:
    facts: dict[str, object] = {
        "cluster_id": "cluster-1",
        "topic": "flows",
        "topic_id": "topic-1",
        "next": vector(*offsets),
        "shape": BINDING.shape,
        "run": "run-1",
    }
    return Watermark(**(facts | changes))  # type: ignore[arg-type]


def schema(*payload: Column) -> TableSchema:
    leading = tuple(
        Column(index + 1, name, METADATA_TYPES[name])
        for index, name in enumerate(METADATA_COLUMNS[:3])
    )
    return TableSchema(0, leading + payload)


def pin(*offsets: int, binding: Binding | None = BINDING) -> Pin:
    return Pin(
        table=FLOWS,
        table_uuid="table-1",
        metadata_location="file:///warehouse/net/flows/metadata/00001-a.metadata.json",
        snapshot_id=1,
        schema=schema(),
        binding=binding,
        watermark=watermark(*offsets) if binding else None,
    )


def bounds(*pairs: tuple[int, int], **changes: object) -> LogBounds:
    """Bounds from (log start, log end) per partition."""
    facts: dict[str, object] = {
        "cluster_id": "cluster-1",
        "topic": "flows",
        "topic_id": "topic-1",
        "partitions": tuple(
            PartitionBounds(index, start, end) for index, (start, end) in enumerate(pairs)
        ),
    }
    return LogBounds(**(facts | changes))  # type: ignore[arg-type]


def snapshot(
    snapshot_id: int,
    parent_id: int | None,
    operation: str = "append",
    *,
    mark: Watermark | None = None,
    added_next: OffsetVector | None = None,
    **counts: int,
) -> Snapshot:
    """A snapshot whose sequence number is its id; ``counts`` use underscores for the summary's dashes."""
    summary = {key.replace("_", "-"): str(count) for key, count in counts.items()}
    if mark is not None:
        summary[SUMMARY_KEY] = format_watermark(mark)
    return Snapshot(snapshot_id, parent_id, snapshot_id, operation, summary, added_next)
