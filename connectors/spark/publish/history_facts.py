"""``connectors.table_facts.Evidence`` over the metadata that a Java transaction builds on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from connectors.spark.metadata import (
    FileBounds,
    added_next,
    each,
    identifier,
    java,
    load_table,
    parse_state,
    raised_by_rows,
)
from connectors.table_facts import earlier_line
from planner.names import TableName
from planner.offsets import OffsetVector
from planner.seam.snapshots import Snapshot

_T = TypeVar("_T")
_EQUALITY_DELETES = 2
#: What Java says of a metadata file that is missing or invalid.
_UNREADABLE = ("NotFoundException", "RuntimeIOException", "IllegalArgumentException")


@dataclass(frozen=True, slots=True)
class SparkEvidence:
    """``remembered``: answers by kind and snapshot; a snapshot never changes."""

    session: SparkSession
    table: TableName
    transaction: Any
    remembered: MutableMapping[tuple[object, ...], Any]

    def added_next(self, snapshot_id: int) -> OffsetVector | None:
        return self._once(
            ("added", snapshot_id),
            lambda: added_next(self.session, self.table, self.transaction.table(), snapshot_id),
        )

    def live_rows(self, snapshot_id: int) -> int | None:
        return self._once(("rows", snapshot_id), lambda: self._live_rows(snapshot_id))

    def single_keys(self, snapshot_id: int, key: tuple[int, ...]) -> bool | None:
        return self._once(("keys", snapshot_id), lambda: self._single_keys(snapshot_id, key))

    def reach(self, snapshot_id: int, below: OffsetVector) -> OffsetVector | None:
        return self._once(
            ("reach", snapshot_id, below), lambda: self._reach(snapshot_id, below)
        )

    def earlier(self, snapshot_id: int) -> Mapping[int, Snapshot]:
        return self._once(
            ("earlier", snapshot_id), lambda: earlier_line(snapshot_id, self._older())
        )

    def _once(self, key: tuple[object, ...], find: Callable[[], _T]) -> _T:
        if key not in self.remembered:
            self.remembered[key] = find()
        value: _T = self.remembered[key]
        return value

    def _live_rows(self, snapshot_id: int) -> int | None:
        # As for readers without Spark, whose program does not read equality deletes.
        name = identifier(self.table)
        version = self.session.read.option("versionAsOf", snapshot_id)
        deletes = version.table(f"{name}.delete_files")
        if deletes.where(f"content = {_EQUALITY_DELETES}").count():
            return None
        return version.table(name).count()

    def _single_keys(self, snapshot_id: int, key: tuple[int, ...]) -> bool:
        loaded = load_table(self.session, self.table)
        schema = loaded.schemas().get(loaded.snapshot(snapshot_id).schemaId())
        names = (schema.findColumnName(field_id).replace("`", "``") for field_id in key)
        rows = self.session.read.option("versionAsOf", snapshot_id).table(
            identifier(self.table)
        )
        keys = rows.select(F.struct(*(F.col(f"`{name}`") for name in names)).alias("key"))
        return keys.groupBy("key").count().where("count > 1").isEmpty()

    def _reach(self, snapshot_id: int, below: OffsetVector) -> OffsetVector | None:
        # The table of a transaction does not scan.
        loaded = load_table(self.session, self.table)
        bounds, limits = FileBounds(self.session, loaded), below.as_dict()
        unknown: list[str] = []
        for task in each(loaded.newScan().useSnapshot(snapshot_id).planFiles()):
            file = task.file()
            ends = bounds.ends(file)
            if ends is None or any(
                ends[2] > limits.get(partition, 0) for partition in range(ends[0], ends[1] + 1)
            ):
                unknown.append(str(file.location()))
        return raised_by_rows(self.session, self.table, snapshot_id, unknown, {})

    def _older(self) -> Iterator[Mapping[int, Snapshot]]:
        """Read the metadata files before this one, newest first; skip missing or invalid ones."""
        metadata = self.transaction.currentMetadata()
        parser = java(self.session).org.apache.iceberg.TableMetadataParser
        io = self.transaction.table().io()
        for entry in reversed(list(each(metadata.previousFiles()))):
            try:
                older = json.loads(parser.toJson(parser.read(io, entry.file())))
            except Py4JJavaError as error:
                kind = error.java_exception.getClass().getSimpleName()
                if kind not in _UNREADABLE:
                    raise
                continue
            state = parse_state(older)
            if state.table_uuid == metadata.uuid():
                yield state.history.snapshots
