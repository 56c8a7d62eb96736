"""Keys of records as the columns of a keyed table's key: by the names of their fields, or one value for the one column."""

from __future__ import annotations

import contextlib
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

    is_plain = binding.envelope == "none"
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
        self._by_name = records
        self._alone = values

    def read(self, batch: pa.RecordBatch) -> Portion:
        """See ``RecordReader.read``."""
        keys = batch.column(KAFKA_VALUE)
        reader = self._by_name if self._have_fields(keys) else self._alone
        return replace(reader.read(batch), exactly=lambda at: self._exactly(keys[at].as_py()))

    def names(self, raw: bytes) -> frozenset[str]:
        """See ``RecordReader.names``."""
        return self._by_name.names(raw)

    def _have_fields(self, keys: pa.Array) -> bool:
        """Return whether the first of them is an object with the field: then most are."""
        present = keys.drop_null()
        if not len(present):
            return False
        try:
            _one(self._by_name, present[0].as_py())
        except Unfit:
            return False
        return True

    def _exactly(self, key: bytes) -> tuple[Any, ...]:
        first, other = self._alone, self._by_name
        if key.lstrip().startswith(b"{"):
            first, other = other, first
        try:
            return _one(first, key)
        except Unfit:
            with contextlib.suppress(Unfit):
                return _one(other, key)
            raise


def _one(reader: RecordReader, key: bytes) -> tuple[Any, ...]:
    """Read one key. Raises Unfit."""
    alone = pa.RecordBatch.from_arrays([pa.array([key], pa.binary())], names=[KAFKA_VALUE])
    portion = reader.read(alone)
    if portion.doubtful:
        return portion.exactly(0)
    return tuple(_value(column) for column in portion.columns)


def _value(column: pa.Array) -> Any:
    """Return the one value of a column as ``arrays.exact_leaf`` takes it."""
    kind = column.type
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    elif pa.types.is_timestamp(kind):
        column = column.view(pa.int64())
    elif pa.types.is_date32(kind):
        column = column.view(pa.int32())
    return column[0].as_py()
