"""Decoders: the bytes of a log record to the row of a table, the same code on both sides of the seam."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from connectors.decoding.fields import VALUE
from connectors.decoding.json.decoder import JsonRecords
from connectors.decoding.keys import KeyColumn, key_writer, key_writers
from connectors.decoding.plain import PlainRecords
from connectors.decoding.policy import RecordReader, TableDecoder
from connectors.decoding.writers import Writers
from planner.schema import Column, TableSchema
from planner.seam.binding import Binding
from planner.seam.formats import FORMATS, AvroFormat, JsonFormat, RawFormat, StringFormat
from planner.seam.keys import RecordKey

_Reader = Callable[[str, TableSchema, Binding, Writers | None], RecordReader]


def _avro(
    table: str, schema: TableSchema, binding: Binding, writers: Writers | None
) -> RecordReader:
    # Tables of other formats need no numpy, which this loads.
    from connectors.decoding.avro.decoder import AvroRecords

    return AvroRecords(table, schema, binding, writers or Writers())


def _plain(
    table: str, schema: TableSchema, binding: Binding, _: Writers | None
) -> RecordReader:
    return PlainRecords(table, schema, binding)


#: The reader of each of ``planner.seam.formats.FORMATS``.
READERS: Mapping[str, _Reader] = {
    JsonFormat.name: lambda table, schema, binding, _: JsonRecords(table, schema, binding),
    AvroFormat.name: _avro,
    RawFormat.name: _plain,
    StringFormat.name: _plain,
}

#: Those of keys, which are one value: a JSON value of any kind, an Avro record as a struct.
_KEY_READERS: Mapping[str, _Reader] = {
    **READERS,
    JsonFormat.name: lambda table, schema, binding, _: JsonRecords(
        table, schema, binding, is_value=True
    ),
}


def decoder_for(
    table: str, schema: TableSchema, binding: Binding, writers: Writers | None = None
) -> TableDecoder:
    """Build the decoder of a bound table. ``writers`` has the schemas of formats that need some; without it, there is none.

    Raises:
        BadBinding: the schema cannot hold what the binding asks for.
        UnsupportedType: a column's type has no form in the binding's format.
    """
    if binding.upsert is not None:
        # Tables without a key need none of it.
        from connectors.decoding.changes import change_decoder

        return change_decoder(table, schema, binding, writers)
    key = binding.key_column(schema)
    values, keys = schema, None
    if binding.key is not None and key is not None:
        others = tuple(column for column in schema.columns if column is not key)
        values = replace(schema, columns=others)
        keys = KeyColumn(table, schema, key, _key_reader(table, binding, binding.key, key))
    records = READERS[binding.format.name](table, values, binding, writers)
    return TableDecoder(table, schema, binding, records, keys)


def _key_reader(table: str, binding: Binding, key: RecordKey, column: Column) -> RecordReader:
    """Build the reader of keys as values of the one column."""
    form = replace(
        FORMATS[key.format](),
        epoch_units=binding.format.epoch_units,
        floors=binding.format.floors,
    )
    alone = TableSchema(0, (replace(column, keys=(VALUE,)),))
    writers = None
    if key.schema is not None:
        writers = key_writers(key.schema, key_writer(table, key.schema).as_value)
    return _KEY_READERS[key.format](table, alone, replace(binding, format=form), writers)
