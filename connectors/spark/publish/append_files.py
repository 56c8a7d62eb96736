"""Commits files that tasks wrote by themselves to a branch, with the statistics Iceberg's own writer would give them.

Iceberg reads each footer and makes its metrics of it, under the table's own modes: counts, sizes, bounds and how they are
cut. Only NaN values are not in a footer; tasks counted them.

Adds column statistics of staged files where the table's properties kept Iceberg's writer from collecting them.

``write.metadata.metrics.*`` belongs to the table, and no option of a write overrides it. The missing statistics are in
the files' footers, unless ``write.parquet.stats-enabled.column.*`` left them out there, too.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from connectors.spark.errors import java_classes
from connectors.spark.metadata import java
from connectors.spark.publish.parquet_files import ParquetFile
from planner.errors import InternalError
from planner.names import KAFKA_OFFSET, KAFKA_PARTITION, KAFKA_TIMESTAMP
from planner.tiering.write_plan import leading_metrics

#: Iceberg's number of the order that is none.
_UNSORTED = 0

#: Errors that say that a commit did not land (Iceberg's ``CleanableFailure``).
_NOT_COMMITTED = frozenset(
    f"org.apache.iceberg.exceptions.{name}"
    for name in ("CommitFailedException", "ValidationException", "NotFoundException")
)


def append_files(
    session: SparkSession,
    loaded: Any,
    files: Sequence[ParquetFile],
    *,
    branch: str,
    summary: Mapping[str, str],
) -> None:
    """Append ``files`` to a branch of the Java table ``loaded``, in one commit; if it is known to have failed they are removed.

    Raises:
        Py4JError: the commit's.
        InternalError: a file does not hold the rows its task wrote.
    """
    try:
        registered = Registration(session, loaded)
        append = loaded.newAppend()
        for file in files:
            append.appendFile(registered.data_file(file))
        for key, text in summary.items():
            append.set(key, text)
    except (Py4JError, InternalError):
        remove_files(loaded, files)
        raise
    try:
        append.toBranch(branch).commit()
    except Py4JError as error:
        # After any other error the commit may have landed, and they are the table's.
        if _NOT_COMMITTED.intersection(java_classes(error)):
            remove_files(loaded, files)
        raise


def remove_files(loaded: Any, files: Sequence[ParquetFile]) -> None:
    """Remove files without a reference, as far as that goes: what stays is an orphan."""
    for file in files:
        with contextlib.suppress(Py4JError):
            loaded.io().deleteFile(file.location)


class Registration:
    """Makes Iceberg's ``DataFile`` of files of a table's current partition spec."""

    def __init__(self, session: SparkSession, table: Any) -> None:
        self._iceberg = java(session).org.apache.iceberg
        self._maps = java(session).java.util.HashMap
        self._table = table
        self._config = self._iceberg.MetricsConfig.forTable(table)

    def data_file(self, file: ParquetFile) -> Any:
        spec = self._table.spec()
        stored = self._table.io().newInputFile(file.location)
        footer = self._iceberg.parquet.ParquetUtil.fileMetrics(stored, self._config)
        if (footer.recordCount(), stored.getLength()) != (file.rows, file.size_bytes):
            raise InternalError("A file is not as its task wrote it.")
        counts = footer.valueCounts()
        nans = {field_id: count for field_id, count in file.nans if field_id in counts}
        document = {
            "spec-id": spec.specId(),
            "content": "data",
            "file-path": file.location,
            "file-format": "parquet",
            "partition": list(file.partition),
            "file-size-in-bytes": file.size_bytes,
            "record-count": file.rows,
            # A column without counts has no count of NaN either.
            "nan-value-counts": {"keys": list(nans), "values": list(nans.values())},
            "split-offsets": list(file.split_offsets),
            "sort-order-id": _UNSORTED,
        }
        tree = self._iceberg.util.JsonUtil.mapper().readTree(json.dumps(document))
        own = self._iceberg.ContentFileParser.fromJson(tree, spec)
        metrics = self._iceberg.Metrics(
            footer.recordCount(),
            footer.columnSizes(),
            counts,
            footer.nullValueCounts(),
            own.nanValueCounts(),
            self._without(footer.lowerBounds(), file.unbounded),
            self._without(footer.upperBounds(), file.unbounded),
        )
        return self._iceberg.DataFiles.builder(spec).copy(own).withMetrics(metrics).build()

    def _without(self, bounds: Any, field_ids: Sequence[int]) -> Any:
        """Leave out columns that lack bounds in some row group: the bounds of the rest would be too narrow."""
        if bounds is None or not any(field_id in bounds for field_id in field_ids):
            return bounds
        rest = self._maps(bounds)
        for field_id in field_ids:
            rest.remove(field_id)
        return rest


class LeadingMetrics:
    """Completes the statistics of files that are about to be appended to one table."""

    def __init__(self, session: SparkSession, table: Any) -> None:
        self._java = java(session)
        self._table = table
        schema = table.schema()
        self._fields = [
            schema.findField(name).fieldId()
            for name in (KAFKA_PARTITION, KAFKA_OFFSET, KAFKA_TIMESTAMP)
        ]

    def completed(self, file: Any) -> Any:
        """Return a copy of a data file with bounds and counts of the leading columns, those of others as they are."""
        if self._is_complete(file):
            return file.copy()
        iceberg = self._java.org.apache.iceberg
        config = iceberg.MetricsConfig.fromProperties(leading_metrics())
        read = iceberg.parquet.ParquetUtil.fileMetrics(
            self._table.io().newInputFile(file.location()), config
        )
        metrics = iceberg.Metrics(
            read.recordCount(),
            file.columnSizes() or read.columnSizes(),
            self._merged(file.valueCounts(), read.valueCounts()),
            self._merged(file.nullValueCounts(), read.nullValueCounts()),
            file.nanValueCounts() or read.nanValueCounts(),
            self._merged(file.lowerBounds(), read.lowerBounds()),
            self._merged(file.upperBounds(), read.upperBounds()),
        )
        spec = self._table.specs().get(file.specId())
        return iceberg.DataFiles.builder(spec).copy(file).withMetrics(metrics).build()

    def _is_complete(self, file: Any) -> bool:
        lower, upper, nulls = file.lowerBounds(), file.upperBounds(), file.nullValueCounts()
        if None in (lower, upper, nulls):
            return False
        return all(
            field in nulls
            and (nulls[field] == file.recordCount() or (field in lower and field in upper))
            for field in self._fields
        )

    def _merged(self, metrics: Any, added: Any) -> Any:
        merged = self._java.java.util.HashMap()
        for entries in (added, metrics):
            if entries is not None:
                merged.putAll(entries)
        return merged
