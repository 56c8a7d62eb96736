"""Decoders: the bytes of a log record to the row of a table, the same code on both sides of the seam."""

from connectors.decoding.json.decoder import JsonDecoder
from connectors.decoding.policy import SkippingDecoder
from planner.ports import Decoder
from planner.schema import TableSchema
from planner.seam.binding import Binding


def decoder_for(table: str, schema: TableSchema, binding: Binding) -> Decoder:
    """Build the decoder of a bound table.

    Raises:
        BadBinding: the schema cannot hold what the binding asks for.
        UnsupportedType: a column's type has no form in the binding's format.
    """
    decoder = JsonDecoder(table, schema, binding)
    return SkippingDecoder(decoder, binding.skips) if binding.skips else decoder


__all__ = ["JsonDecoder", "decoder_for"]
