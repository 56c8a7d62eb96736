"""Keys of records as a column of their table, by the readers that values have (docs/records.md)."""

from __future__ import annotations

import pyarrow as pa

from connectors.decoding.arrays import over_all
from connectors.decoding.policy import SINGLE, Payload, RecordReader, Unfit, read_exactly
from connectors.decoding.writers import Writers
from planner.errors import BadBinding
from planner.evolution.avro import BadSchema, parse_schema
from planner.evolution.writer_types import WriterSchema
from planner.names import KAFKA_KEY, KAFKA_VALUE
from planner.schema import Column, TableSchema
from planner.seam.binding import OnError
from planner.seam.keys import KeySchema


class BadKey(Unfit):
    """A key that does not decode."""

    cure = f"correct its producer, or make a table with another --key-format{SINGLE}"

    def __init__(self, column: str, unfit: Unfit) -> None:
        super().__init__(None, f"key: {unfit.reason}", f"key: {unfit.message}")
        self.path = column


class KeyColumn:
    """Puts keys beside the values of records. A record without a key has NULL.

    ``records`` reads keys as if they were values, into ``column`` of ``schema``.

    Raises:
        BadBinding: the column is required, and not every record has a key.
    """

    def __init__(
        self, table: str, schema: TableSchema, column: Column, records: RecordReader
    ) -> None:
        if column.required:
            raise BadBinding(
                f"{table}: column {column.name} is required and filled by keys, which not every record has; make it optional.",
                table=table,
                column=column.name,
            )
        self._index = schema.payload.index(column)
        self._name = column.name
        self._records = records

    def beside(self, payload: Payload, batch: pa.RecordBatch, policy: OnError) -> Payload:
        """Put the column of the records' keys between the columns of their values.

        A record whose key does not decode is a bad one, if it would be a row. By policy ``null`` what does decode of it stays.
        """
        [keys], errors = read_keys(self._records, batch.column(KAFKA_KEY))
        positions, columns = payload.positions, list(payload.columns)
        bad = {
            at: BadKey(self._name, errors[at])
            for at in (positions if errors else ())
            if at in errors and at not in payload.errors
        }
        if bad and policy == "skip":
            keep = [index for index, at in enumerate(positions) if at not in bad]
            columns = [column.take(pa.array(keep, pa.int64())) for column in columns]
            positions = [positions[index] for index in keep]
        if len(positions) != len(batch):
            keys = keys.take(pa.array(positions, pa.int64()))
        columns.insert(self._index, keys)
        return Payload(positions, columns, {**payload.errors, **bad})


def read_keys(records: RecordReader, raw: pa.Array) -> tuple[list[pa.Array], dict[int, Unfit]]:
    """Return the columns of the keys of all records, NULL where there is none, and the errors of bad ones by position."""
    batch = pa.RecordBatch.from_arrays([raw], names=[KAFKA_VALUE])
    # All of them, under any policy: of an append table, a bad key of a tombstone is no matter.
    read = read_exactly(records.fields, records.read(batch), "null")
    return over_all(read.columns, read.positions, len(raw)), dict(read.errors)


def key_writer(table: str, schema: KeySchema) -> WriterSchema:
    """Return the one schema of keys. Raises BadBinding: it does not parse any more."""
    try:
        return parse_schema(schema.text, dict(schema.references))
    except BadSchema as bad:
        raise BadBinding(
            f"{table}: the schema of keys, {schema}, cannot be read: {bad}; make the table anew.",
            table=table,
        ) from None


def key_writers(schema: KeySchema, writer: WriterSchema) -> Writers:
    """Return what has the schema of keys alone, to be read as ``writer``."""
    writers = Writers(others=f"is not that of the table's keys, {schema.id} ({schema})")
    writers.put(schema.id, writer)
    return writers
