"""Records that are one value, the bytes as they are or text in UTF-8, as the column ``value`` of a table (docs/records.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connectors.decoding.arrays import build, exact_leaf
from connectors.decoding.fields import VALUE, payload_fields
from connectors.decoding.policy import Portion, Unfit
from planner.errors import BadBinding
from planner.names import KAFKA_VALUE
from planner.schema import TableSchema
from planner.seam.binding import Binding
from planner.seam.formats import RawFormat, StringFormat
from planner.type_text import type_text

#: Type of the column, by format.
PLAIN_TYPES = {RawFormat.name: pa.binary(), StringFormat.name: pa.string()}


class PlainRecords:
    """Reads one value for one (schema, binding): a ``RecordReader``. Other columns of the table are NULL.

    Raises:
        BadBinding: the column ``value`` is of another type, or another column is required; or as ``payload_fields``.
        UnsupportedType: as ``payload_fields``.
    """

    reads = frozenset({KAFKA_VALUE})

    def __init__(self, table: str, schema: TableSchema, binding: Binding) -> None:
        self.fields = payload_fields(table, schema, binding)
        self._type = PLAIN_TYPES[binding.format.name]
        # As the decoders of other formats: the column that has the name now, else the one that once had it.
        self._at = next(
            (at for at, field in enumerate(self.fields) if VALUE in field.keys), None
        )
        for at, field in enumerate(self.fields):
            name, what = binding.format.name, ""
            if at == self._at and field.type != self._type:
                what = f"is {type_text(field.type)}, and what it holds is {type_text(self._type)}, by the format {name}"
            elif at != self._at and field.required:
                what = f"is required, and nothing fills it: the format {name} has one value"
            if what:
                raise BadBinding(
                    f"{table}: column {field.path} {what}; make another column, or a table of another format.",
                    table=table,
                    column=field.path,
                )

    def read(self, batch: pa.RecordBatch) -> Portion:
        """See ``RecordReader.read``."""
        column = batch.column(KAFKA_VALUE)

        def exactly(at: int) -> tuple[Any, ...]:
            try:
                text = column[at].as_py().decode()
            except UnicodeDecodeError as cause:
                raise Unfit(None, f"the value is not UTF-8 (byte {cause.start})") from cause
            return tuple(
                text if index == self._at else None for index in range(len(self.fields))
            )

        positions: Sequence[int] = range(len(column))
        if column.null_count:
            positions = pc.indices_nonzero(column.is_valid()).to_pylist()
        try:
            values = column.drop_null().cast(self._type)
        except pa.ArrowInvalid:
            # Some of them are no text.
            return Portion((), self._columns(column[:0].cast(self._type)), positions, exactly)
        return Portion(positions, self._columns(values), (), exactly)

    def names(self, raw: bytes) -> frozenset[str]:
        """See ``RecordReader.names``."""
        del raw
        return frozenset()

    def _columns(self, values: pa.Array) -> list[pa.Array]:
        nothing = [None] * len(values)
        return [
            values if at == self._at else build(field, nothing, exact_leaf)
            for at, field in enumerate(self.fields)
        ]
