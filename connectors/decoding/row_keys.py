"""Keys of records as the columns of a keyed table's key: by the names of their fields, or one value for the one column."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from connectors.decoding.connect import ConnectRecords
from connectors.decoding.fields import VALUE, Field, payload_fields
from connectors.decoding.json.decoder import JsonRecords
from connectors.decoding.keys import key_writer, key_writers
from connectors.decoding.plain import PlainRecords
from connectors.decoding.policy import Portion, RecordReader, Unfit
from planner.errors import BadBinding
from planner.names import KAFKA_VALUE
from planner.schema import Column, TableSchema
from planner.seam.binding import Binding
from planner.seam.formats import FORMATS
from planner.seam.keys import KeySchema


def row_key_reader(table: str, binding: Binding, columns: tuple[Column, ...]) -> RecordReader:
    """Build the reader of keys, as if they were values, into the columns of a table's key, in their order.

    Raises:
        BadBinding: keys of the format are one value, and the key has several columns or one of another type; or the schema of
            keys cannot be read.
    """
    key, upsert = binding.key, binding.upsert
    assert key is not None and upsert is not None  # noqa: S101, PT018 - as its caller checks
    form = replace(
        FORMATS[key.format](),
        epoch_units=binding.format.epoch_units,
        floors=binding.format.floors,
    )
    bound = replace(binding, format=form)
    by_name = TableSchema(0, columns)
    alone = TableSchema(0, tuple(replace(column, keys=(VALUE,)) for column in columns))
    if key.schema is not None:
        return _avro(table, bound, key.schema, by_name, alone)
    if key.format == "json":
        fields = payload_fields(table, by_name, bound)
        records = _json(table, bound, fields, is_value=False)
        if len(columns) > 1:
            return records
        return _EitherJson(records, _json(table, bound, _values(fields), is_value=True))
    if len(columns) > 1:
        raise BadBinding(
            f"{table}: keys of the format {key.format} are one value, and the table's key has {len(columns)} columns "
            f"({', '.join(column.name for column in columns)}); use --key-format json or avro, or make a table with one key "
            f"column.",
            table=table,
        )
    return PlainRecords(table, alone, bound)


def _values(fields: tuple[Field, ...]) -> tuple[Field, ...]:
    return tuple(replace(field, keys=(VALUE,)) for field in fields)


def _json(
    table: str, binding: Binding, fields: tuple[Field, ...], *, is_value: bool
) -> RecordReader:
    def make(fields: tuple[Field, ...]) -> JsonRecords:
        return JsonRecords(table, TableSchema(0, ()), binding, fields=fields, is_value=is_value)

    is_plain = binding.upsert is None or binding.upsert.envelope == "none"
    return make(fields) if is_plain else ConnectRecords(fields, make, is_value=is_value)


def _avro(
    table: str, binding: Binding, schema: KeySchema, by_name: TableSchema, alone: TableSchema
) -> RecordReader:
    from connectors.decoding.avro.decoder import AvroRecords

    writer = key_writer(table, schema)
    is_record = writer.root.value.kind == "record"
    if not is_record and len(alone.columns) > 1:
        raise BadBinding(
            f"{table}: keys are {schema}, which is no record, and the table's key has {len(alone.columns)} columns; make a "
            f"table with one key column.",
            table=table,
        )
    columns = by_name if is_record else alone
    return AvroRecords(table, columns, binding, key_writers(schema, writer))


class _EitherJson:
    """Reads keys that are an object with the one field, or its bare value: serializers write both."""

    def __init__(self, records: RecordReader, values: RecordReader) -> None:
        self.fields = records.fields
        self.reads = records.reads
        self._both = (records, values)

    def read(self, batch: pa.RecordBatch) -> Portion:
        """See ``RecordReader.read``."""
        keys = batch.column(KAFKA_VALUE)
        first, other = self._both if self._has_fields(keys) else reversed(self._both)
        portion = first.read(batch)

        def exactly(at: int) -> tuple[Any, ...]:
            try:
                return portion.exactly(at)
            except Unfit:
                one = _one(other, keys[at])
                if one is None:
                    raise
                return one

        return replace(portion, exactly=exactly)

    def names(self, raw: bytes) -> frozenset[str]:
        """See ``RecordReader.names``."""
        return self._both[0].names(raw)

    def _has_fields(self, keys: pa.Array) -> bool:
        """Return whether the first of them is an object with the field."""
        present = keys.drop_null()
        return len(present) > 0 and _one(self._both[0], present[0]) is not None


def _one(reader: RecordReader, key: pa.Scalar) -> tuple[Any, ...] | None:
    """Read one key, or return None: it is none of these."""
    alone = pa.array([key.as_py()], pa.binary())
    portion = reader.read(pa.RecordBatch.from_arrays([alone], names=[KAFKA_VALUE]))
    if not portion.doubtful:
        return tuple(column[0].as_py() for column in portion.columns)
    try:
        return portion.exactly(0)
    except Unfit:
        return None
