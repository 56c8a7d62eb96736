"""Reads an Iceberg table's metadata on the Java side, by its JSON form: one call through the gateway."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from planner.names import KAFKA_OFFSET, KAFKA_PARTITION, TableName
from planner.offsets import OffsetVector
from planner.seam.binding import MIRROR
from planner.seam.snapshots import TAG, History, Snapshot
from planner.seam.watermark import LastPublish, Outcomes, readable_watermark
from planner.tiering.layout import PartitionTerm, SortTerm
from planner.tiering.triggers import ColdSurvey, parse_options


@dataclass(frozen=True, slots=True)
class TableState:
    """One metadata file. ``refs`` are snapshot ids by branch or tag; ``head`` is that of the main branch.

    ``schema`` is the JSON form of the current one, ``committed_ms`` when each snapshot was committed, since 1970.
    ``partitions`` are the fields of the default spec, ``sort`` those of the default sort order, of id ``sort_id``.
    """

    table_uuid: str
    head: int | None
    schema_id: int
    schema: Mapping[str, Any]
    partitions: tuple[PartitionTerm, ...]
    sort_id: int
    sort: tuple[SortTerm, ...]
    properties: Mapping[str, str]
    refs: Mapping[str, int]
    history: History
    committed_ms: Mapping[int, int]

    @property
    def partitioned(self) -> bool:
        return any(term.transform != "void" for term in self.partitions)


def identifier(table: TableName, branch: str | None = None) -> str:
    """The table, or one branch of it, as Spark SQL names it."""
    branches = () if branch is None else (f"branch_{branch}",)
    return quoted((table.catalog, *table.namespace, table.name, *branches))


def quoted(parts: Sequence[str]) -> str:
    """A name of several parts in Spark SQL."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def java(session: SparkSession) -> Any:
    return session._jvm


def load_table(session: SparkSession, table: TableName) -> Any:
    """Return the Java ``Table``, its metadata just read. In any thread."""
    # Spark looks a catalog up, at its first use, in the settings of the thread's active session. A thread that did
    # nothing with Spark yet has none, and the catalog would be unknown there.
    java(session).org.apache.spark.sql.classic.SparkSession.setActiveSession(
        session._jsparkSession
    )
    # One that does not start is taken for a namespace of another catalog, and why is lost.
    session._jsparkSession.sessionState().catalogManager().catalog(table.catalog)
    spark_util = java(session).org.apache.iceberg.spark.Spark3Util
    return spark_util.loadIcebergTable(session._jsparkSession, identifier(table))


def read_state(session: SparkSession, metadata: Any) -> TableState:
    text = java(session).org.apache.iceberg.TableMetadataParser.toJson(metadata)
    return parse_state(json.loads(text))


def load_state(session: SparkSession, table: TableName) -> TableState:
    return read_state(session, load_table(session, table).operations().current())


def parse_state(document: Mapping[str, Any]) -> TableState:
    """Take the facts out of table metadata (Iceberg spec, "Table Metadata and Snapshots")."""
    refs = {name: ref["snapshot-id"] for name, ref in document.get("refs", {}).items()}
    head = document.get("current-snapshot-id")
    specs = {spec["spec-id"]: spec["fields"] for spec in document["partition-specs"]}
    # Order 0 is no order (Iceberg spec, "Sort Orders").
    sort_id = document.get("default-sort-order-id", 0)
    sort_orders = {
        order["order-id"]: order["fields"] for order in document.get("sort-orders", ())
    }
    properties, snapshots = document.get("properties", {}), document.get("snapshots", ())
    schema_id = document["current-schema-id"]
    return TableState(
        table_uuid=document["table-uuid"],
        # Format v1 writes -1 for none.
        head=None if head in (None, -1) else head,
        schema_id=schema_id,
        schema=next(each for each in document["schemas"] if each["schema-id"] == schema_id),
        partitions=tuple(
            PartitionTerm(field["name"], field["source-id"], field["transform"])
            for field in specs[document["default-spec-id"]]
        ),
        sort_id=sort_id,
        sort=tuple(
            SortTerm(
                field["source-id"],
                field["transform"],
                descending=field["direction"] == "desc",
                nulls_first=field["null-order"] == "nulls-first",
            )
            for field in sort_orders.get(sort_id, ())
        ),
        properties=properties,
        refs=refs,
        history=History(
            snapshots={each["snapshot-id"]: _snapshot(each) for each in snapshots},
            tagged_id=refs.get(TAG),
            mirror=properties.get(MIRROR),
        ),
        committed_ms={each["snapshot-id"]: each["timestamp-ms"] for each in snapshots},
    )


def survey(table: TableName, state: TableState) -> ColdSurvey:
    """Return the facts for triggers and layout; raises BadBinding as ``parse_options``."""
    head = next(state.history.line(state.head), None)
    last = last_publish(state)
    values = None if last is None else last.partitions
    return ColdSurvey(
        options=parse_options(table, state.properties),
        rows=(head.count("total-records") or 0) if head else 0,
        file_bytes=(head.count("total-files-size") or 0) if head else 0,
        published_at_s=None if last is None else last.committed_ms / 1000,
        partitioned=state.partitioned,
        partition_values=values if state.partitioned else 1,
    )


def last_publish(state: TableState) -> LastPublish | None:
    """Return the newest publish of the head's line; a commit that moved no offset says which that was."""
    committed_ms: int | None = None
    outcomes = Outcomes()
    for at in state.history.line(state.head):
        if not at.carries_watermark:
            continue
        mark = readable_watermark(at.watermark_text)
        last = None if mark is None else mark.publish
        if committed_ms is None:
            if last is not None:
                return last
            committed_ms = state.committed_ms[at.snapshot_id]
            outcomes = Outcomes() if mark is None else mark.outcomes
        if at.count("added-records") or last is not None:
            partitions = last.partitions if last else at.count("changed-partition-count")
            return LastPublish(committed_ms, partitions, outcomes)
    if committed_ms is not None:
        return LastPublish(committed_ms, None, outcomes)
    tagged = state.history.tagged
    mark = None if tagged is None else readable_watermark(tagged.watermark_text)
    if tagged is None or mark is None:
        return None
    # Expiry hid the commit from the head's line, and its tag keeps it.
    return mark.publish or LastPublish(
        state.committed_ms[tagged.snapshot_id], None, mark.outcomes
    )


def renewed_publish(state: TableState) -> LastPublish:
    """Return what a commit that moves no offset says of the last publish, which may be expired; there is a snapshot."""
    return last_publish(state) or LastPublish(
        max(state.committed_ms.values()), None, Outcomes()
    )


def _snapshot(snapshot: Mapping[str, Any]) -> Snapshot:
    # A format v1 snapshot may lack a summary; the resolver refuses an operation it does not know.
    summary = dict(snapshot.get("summary", {}))
    return Snapshot(
        snapshot_id=snapshot["snapshot-id"],
        parent_id=snapshot.get("parent-snapshot-id"),
        sequence_number=snapshot.get("sequence-number", 0),
        operation=summary.pop("operation", "unknown"),
        summary=summary,
    )


def java_snapshot(snapshot: Any) -> Snapshot:
    """Return the facts of a Java ``Snapshot``."""
    return Snapshot(
        snapshot_id=snapshot.snapshotId(),
        parent_id=snapshot.parentId(),
        sequence_number=snapshot.sequenceNumber(),
        operation=snapshot.operation(),
        summary=dict(snapshot.summary()),
    )


def each(iterable: Any) -> Iterator[Any]:
    cursor = iterable.iterator()
    while cursor.hasNext():
        yield cursor.next()


def added_next(
    session: SparkSession, table: TableName, loaded: Any, snapshot_id: int
) -> OffsetVector | None:
    """Return 1 + the greatest offset per Kafka partition among rows of the data files a snapshot added.

    Column statistics answer for a file of one Kafka partition; of other files the two columns are read
    (docs/internals/seam.md, T25). None when it cannot be known: a row without partition or offset.
    """
    reach: dict[int, int] = {}
    unknown: list[str] = []
    bounds = FileBounds(session, loaded)
    for file in each(loaded.snapshot(snapshot_id).addedDataFiles(loaded.io())):
        if not file.recordCount():
            continue
        ends = bounds.ends(file)
        if ends is None or ends[0] != ends[1]:
            unknown.append(str(file.location()))
        else:
            reach[ends[0]] = max(ends[2], reach.get(ends[0], 0))
    return raised_by_rows(session, table, snapshot_id, unknown, reach)


class FileBounds:
    """Decodes lower and upper bounds of the two columns."""

    def __init__(self, session: SparkSession, loaded: Any) -> None:
        self._conversions = java(session).org.apache.iceberg.types.Conversions
        self._partition = loaded.schema().findField(KAFKA_PARTITION)
        self._offset = loaded.schema().findField(KAFKA_OFFSET)

    def ends(self, file: Any) -> tuple[int, int, int] | None:
        """Return lowest and greatest partition and the greatest offset + 1; None where a row may lack one."""
        nulls = file.nullValueCounts() or {}
        if any(nulls.get(field.fieldId()) != 0 for field in (self._partition, self._offset)):
            return None
        first = self._bound(file.lowerBounds(), self._partition)
        last = self._bound(file.upperBounds(), self._partition)
        offset = self._bound(file.upperBounds(), self._offset)
        if first is None or last is None or offset is None:
            return None
        return first, last, offset + 1

    def _bound(self, bounds: Any, field: Any) -> int | None:
        raw = None if bounds is None else bounds.get(field.fieldId())
        if raw is None:
            return None
        return int(self._conversions.fromByteBuffer(field.type(), raw))


def raised_by_rows(
    session: SparkSession,
    table: TableName,
    snapshot_id: int,
    files: Sequence[str],
    reach: Mapping[int, int],
) -> OffsetVector | None:
    """Raise 1 + the greatest offset per partition by the rows of some data files; None where one lacks either."""
    raised = dict(reach)
    if files:
        rows = session.read.option("versionAsOf", snapshot_id).table(identifier(table))
        groups = rows.where(F.col("_file").isin(list(files))).groupBy(KAFKA_PARTITION)
        # A null offset must be seen: max() alone ignores it.
        nulls = F.count_if(F.col(KAFKA_OFFSET).isNull())
        for partition, offset, without in groups.agg(F.max(KAFKA_OFFSET), nulls).collect():
            if partition is None or without:
                return None
            raised[partition] = max(offset + 1, raised.get(partition, 0))
    return OffsetVector.of(raised.items())
