"""What the rows of an Avro table must be: each record as fastavro reads it with the schema that it was written with.

A row that was tiered is NULL in a column that came later.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import fastavro

from connectors.iceberg.catalogs import Catalogs
from connectors.kafka.log import KafkaLog
from planner.names import TableName
from planner.offsets import OffsetRange
from planner.ports import TopicSource
from planner.schema import Column, TableSchema
from planner.seam.watermark import SUMMARY_KEY, parse_watermark
from tests.harness.avro_histories import conformed

Row = dict[str, Any]


class AvroOracle:
    """``texts`` are the schemas of all records by id. Reads the topic, and snapshots before they expire."""

    def __init__(self, catalogs: Catalogs, log: KafkaLog, table: TableName, topic: str) -> None:
        self.texts: dict[int, str] = {}
        self._catalogs, self._log = catalogs, log
        self._table, self._topic = table, topic
        #: All records by partition, as their producers' schemas have them, with their ids.
        self._records: dict[int, list[tuple[int, Row]]] = {}
        #: By partition and offset, the field ids that the table had when the row was tiered.
        self._tiered: dict[tuple[int, int], frozenset[int]] = {}
        self._snapshots: set[int] = set()

    def expected(self, schema: TableSchema) -> list[Row]:
        """Return all rows in the columns of a schema, by partition and offset."""
        self._read_on()
        rows = []
        for partition, records in sorted(self._records.items()):
            for offset, (_, record) in enumerate(records):
                ids = self._tiered.get((partition, offset))
                row = {
                    column.name: conformed(column.type, _value_of(column, record))
                    if ids is None or column.field_id in ids
                    else None
                    for column in schema.payload
                }
                rows.append({**row, "kafka_partition": partition, "kafka_offset": offset})
        return rows

    def tail_ids(self) -> set[int]:
        """Return the ids of the records above the watermark."""
        self.note_tiered()
        self._read_on()
        return {
            number
            for partition, records in self._records.items()
            for offset, (number, _) in enumerate(records)
            if (partition, offset) not in self._tiered
        }

    def note_tiered(self) -> None:
        """Note which fields the table had when rows were tiered."""
        table = self._catalogs.load(self._table)
        schemas = {
            key: frozenset(each.field_id for each in schema.fields)
            for key, schema in table.schemas().items()
        }
        for snapshot in sorted(table.snapshots(), key=lambda each: each.sequence_number or 0):
            text = snapshot.summary and snapshot.summary.additional_properties.get(SUMMARY_KEY)
            if snapshot.snapshot_id in self._snapshots or not text:
                continue
            self._snapshots.add(snapshot.snapshot_id)
            for partition, end in parse_watermark(text).next:
                for offset in range(end):
                    ids = schemas[snapshot.schema_id or 0]
                    self._tiered.setdefault((partition, offset), ids)

    def _read_on(self) -> None:
        ends = self._log.measure([self._topic])[self._topic].partitions
        starts = {each.partition: len(self._records.get(each.partition, ())) for each in ends}
        spans = [
            OffsetRange(each.partition, starts[each.partition], each.log_end)
            for each in ends
            if each.log_end > starts[each.partition]
        ]
        schemas: Mapping[int, Any] = {
            number: fastavro.parse_schema(json.loads(text))
            for number, text in self.texts.items()
        }
        source = TopicSource(self._topic)
        for batch in self._log.fetch(source, spans, timeout_s=60) if spans else ():
            for raw in batch.to_pylist():
                number = int.from_bytes(raw["kafka_value"][1:5])
                body = io.BytesIO(raw["kafka_value"][5:])
                value: Any = fastavro.schemaless_reader(body, schemas[number], None)
                records = self._records.setdefault(raw["kafka_partition"], [])
                assert raw["kafka_offset"] == len(records)
                records.append((number, value))


def _value_of(column: Column, record: Row) -> Any:
    """Return a record's value for a column, which may have had other names."""
    return next((record[key] for key in (column.name, *column.keys) if key in record), None)
