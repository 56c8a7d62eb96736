"""The types an answer arrives in: as the engine has them, or as a session's tools can read them.

BI tools disagree with Arrow and with each other: Power BI and Excel know no 38-digit integers, Grafana reads
every timestamp as nanoseconds, JDBC shows a dictionary's indices (flight-sql.md 2.8, 4.4, 4.7). So a session can
choose; nobody is guessed at by the name of their driver. The names of columns never change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from planner.errors import UnsupportedType
from proxy.flightsql.backend import Session

#: ``bi``: dictionaries, views and large texts as plain ones, and hugeint = double.
PROFILES = ("arrow", "bi")
#: HUGEINT, which sums of integers are, arrives as decimal(38, 0) or as double.
HUGEINTS = ("decimal", "double")
UNITS = ("s", "ms", "us", "ns")

_HUGEINT = pa.decimal128(38, 0)
_PLAIN: dict[pa.DataType, pa.DataType] = {
    pa.string_view(): pa.string(),
    pa.large_string(): pa.string(),
    pa.binary_view(): pa.binary(),
    pa.large_binary(): pa.binary(),
}


@dataclass(frozen=True, slots=True)
class Shape:
    """How one session wants its answers."""

    plain: bool
    hugeint_as_double: bool
    timestamp_unit: str | None

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """The schema of the answer; metadata and nullability stay."""
        return pa.schema(
            [field.with_type(self._type(field.type)) for field in schema], schema.metadata
        )

    def batches(
        self, batches: Iterator[pa.RecordBatch], wanted: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """The same rows under the schema ``wanted``.

        Raises:
            UnsupportedType: a time lies outside what its new unit can tell.
        """
        for batch in batches:
            columns = [
                _cast(column, field)
                for column, field in zip(batch.columns, wanted, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=wanted)

    def _type(self, kind: pa.DataType) -> pa.DataType:
        if self.plain and kind in _PLAIN:
            return _PLAIN[kind]
        if self.plain and (types.is_dictionary(kind) or types.is_run_end_encoded(kind)):
            return self._type(kind.value_type)
        if self.hugeint_as_double and kind == _HUGEINT:
            return pa.float64()
        if self.timestamp_unit is not None and types.is_timestamp(kind):
            return pa.timestamp(self.timestamp_unit, kind.tz)
        return self._nested(kind)

    def _nested(self, kind: pa.DataType) -> pa.DataType:
        def inside(field: pa.Field) -> pa.Field:
            return field.with_type(self._type(field.type))

        if types.is_map(kind):
            return pa.map_(inside(kind.key_field), inside(kind.item_field))
        if types.is_list(kind) or (self.plain and types.is_large_list(kind)):
            return pa.list_(inside(kind.value_field))
        if types.is_struct(kind):
            return pa.struct([inside(kind.field(index)) for index in range(kind.num_fields)])
        return kind


def shape_of(session: Session) -> Shape | None:
    """What the session has chosen; None: answers go out as they are."""
    options = session.options
    plain = options.get("profile") == "bi"
    hugeint = options.get("hugeint", "double" if plain else "decimal")
    unit = options.get("timestamp_unit")
    if not (plain or hugeint == "double" or unit is not None):
        return None
    return Shape(plain, hugeint == "double", None if unit is None else str(unit))


def shaped_schema(session: Session, schema: pa.Schema) -> pa.Schema:
    shape = shape_of(session)
    return schema if shape is None else shape.schema(schema)


def shaping(
    session: Session, schema: pa.Schema
) -> tuple[pa.Schema, Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]]:
    """The schema an answer goes out with, and what brings its batches there."""
    shape = shape_of(session)
    if shape is None:
        return schema, lambda batches: batches
    wanted = shape.schema(schema)
    return wanted, lambda batches: shape.batches(batches, wanted)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type == field.type:
        return column
    # A coarser unit drops digits on purpose; nothing else may be lost.
    options = pc.CastOptions(field.type, allow_time_truncate=True)
    try:
        return pc.cast(column, options=options)
    except pa.ArrowInvalid as error:
        raise UnsupportedType(
            f"column {field.name} holds a value that {field.type} cannot tell; choose another timestamp_unit or "
            f"hugeint for this session.",
            column=field.name,
        ) from error
