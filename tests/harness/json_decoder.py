"""The product's decoder of JSON, with or without its fast path."""

from connectors.decoding.json.decoder import JsonRecords
from connectors.decoding.policy import TableDecoder
from planner.schema import TableSchema
from planner.seam.binding import Binding


def json_decoder(
    table: str, schema: TableSchema, binding: Binding, exact_only: bool = False
) -> TableDecoder:
    records = JsonRecords(table, schema, binding, exact_only=exact_only)
    return TableDecoder(table, schema, binding, records)
