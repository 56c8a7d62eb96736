"""Adds column statistics of staged files where the table's properties kept Iceberg's writer from collecting them.

``write.metadata.metrics.*`` belongs to the table, and no option of a write overrides it. The missing statistics are in
the files' footers, unless ``write.parquet.stats-enabled.column.*`` left them out there, too.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from connectors.spark.metadata import java
from planner.names import KAFKA_OFFSET, KAFKA_PARTITION, KAFKA_TIMESTAMP
from planner.tiering.write_plan import leading_metrics


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
        for part in (added, metrics):
            if part is not None:
                merged.putAll(part)
        return merged
