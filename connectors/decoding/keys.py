"""Keys of records as a column of their table, by the readers that values have (docs/records.md)."""

from __future__ import annotations

import pyarrow as pa

from connectors.decoding.policy import Payload, RecordReader, Unfit, read_exactly
from planner.errors import BadBinding
from planner.names import KAFKA_KEY, KAFKA_VALUE
from planner.schema import Column, TableSchema
from planner.seam.binding import OnError


class BadKey(Unfit):
    """A key that does not decode."""

    cure = "correct its producer, or make a table with another --key-format; where it is a single one, run"

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
        keys, errors = self._read(batch.column(KAFKA_KEY))
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

    def _read(self, raw: pa.Array) -> tuple[pa.Array, dict[int, Unfit]]:
        """Return the keys of all records, NULL where there is none, and the errors of bad ones by position."""
        batch = pa.RecordBatch.from_arrays([raw], names=[KAFKA_VALUE])
        # All of them, under any policy: a bad key of a tombstone is no matter.
        read = read_exactly(self._records.fields, self._records.read(batch), "null")
        [keys] = read.columns
        if len(read.positions) != len(raw):
            at: list[int | None] = [None] * len(raw)
            for index, position in enumerate(read.positions):
                at[position] = index
            keys = keys.take(pa.array(at, pa.int64()))
        return keys, dict(read.errors)
