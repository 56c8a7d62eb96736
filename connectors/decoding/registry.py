"""Decoders: the bytes of a log record to the row of a table, the same code on both sides of the seam."""

from collections.abc import Callable, Mapping

from connectors.decoding.json.decoder import JsonRecords
from connectors.decoding.policy import RecordReader, TableDecoder
from connectors.decoding.writers import Writers
from planner.schema import TableSchema
from planner.seam.binding import Binding
from planner.seam.formats import AvroFormat, JsonFormat


def _avro(
    table: str, schema: TableSchema, binding: Binding, writers: Writers | None
) -> RecordReader:
    # Tables of JSON need no numpy, which this loads.
    from connectors.decoding.avro.decoder import AvroRecords

    return AvroRecords(table, schema, binding, writers or Writers())


#: The reader of each of ``planner.seam.formats.FORMATS``.
READERS: Mapping[str, Callable[[str, TableSchema, Binding, Writers | None], RecordReader]] = {
    JsonFormat.name: lambda table, schema, binding, _: JsonRecords(table, schema, binding),
    AvroFormat.name: _avro,
}


def decoder_for(
    table: str, schema: TableSchema, binding: Binding, writers: Writers | None = None
) -> TableDecoder:
    """Build the decoder of a bound table. ``writers`` has the schemas of formats that need some; without it, there is none.

    Raises:
        BadBinding: the schema cannot hold what the binding asks for.
        UnsupportedType: a column's type has no form in the binding's format.
    """
    records = READERS[binding.format.name](table, schema, binding, writers)
    return TableDecoder(table, schema, binding, records)
