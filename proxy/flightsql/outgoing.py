"""An answer as it goes out: in types that a session's tools can read, in messages that its client takes.

BI tools disagree with Arrow and with each other: Power BI and Excel know no 38-digit integers, Grafana reads
every timestamp as nanoseconds, JDBC 18.3.0 throws where a tool asks for a timestamp with a zone as an object. So a
session can choose; the name of a driver decides nothing. The names of columns never change.

A dictionary, which ENUM is, goes out as what it stands for, under each choice: JDBC shows its indices, and ADBC's
Go driver does not read the stream at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from planner.errors import LimitExceeded, UnsupportedType
from planner.schema import size_of
from proxy.session import Session

#: Go and Rust clients refuse messages above 4,194,304 bytes, ADBC above 16 MiB (docs/internals/protocol.md).
MAX_MESSAGE_BYTES = 4 << 20
#: Throughput over Flight peaks here.
MAX_BATCH_BYTES = 2 << 20
#: Of a message, for its header and the padding of its buffers.
_HEADER_BYTES = MAX_MESSAGE_BYTES - 3_500_000

#: ``bi``: views and large texts as plain ones, hugeint = double, and times with a zone without it, as UTC tells them.
#: ``grafana``: that, all decimals as double, times and dates as nanoseconds, times of a day as text.
PROFILES = ("arrow", "bi", "grafana")
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
    #: Types that Grafana's plugin knows.
    for_grafana: bool = False

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """The schema of the answer; metadata and nullability stay."""
        return pa.schema(
            [field.with_type(self._type(field.type)) for field in schema], schema.metadata
        )

    def batch(self, batch: pa.RecordBatch, target: pa.Schema) -> pa.RecordBatch:
        """The same rows under the schema ``target``.

        Raises:
            UnsupportedType: a time lies outside what its new unit can tell.
        """
        columns = [
            _cast(column, field) for column, field in zip(batch.columns, target, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=target)

    def _type(self, kind: pa.DataType) -> pa.DataType:
        if self.plain and kind in _PLAIN:
            return _PLAIN[kind]
        if types.is_dictionary(kind) or (self.plain and types.is_run_end_encoded(kind)):
            return self._type(kind.value_type)
        if self.hugeint_as_double and kind == _HUGEINT:
            return pa.float64()
        if self.for_grafana:
            if types.is_decimal(kind):
                return pa.float64()
            if types.is_date(kind):
                return pa.timestamp(self.timestamp_unit or "ns")
            if types.is_time(kind) or types.is_null(kind):
                return pa.string()
        if types.is_timestamp(kind):
            zone = None if self.plain else kind.tz
            return pa.timestamp(self.timestamp_unit or kind.unit, zone)
        return self._nested(kind)

    def _nested(self, kind: pa.DataType) -> pa.DataType:
        def inside(field: pa.Field) -> pa.Field:
            return field.with_type(self._type(field.type))

        if types.is_map(kind):
            return pa.map_(inside(kind.key_field), inside(kind.item_field))
        if types.is_list(kind) or (self.plain and types.is_large_list(kind)):
            return pa.list_(inside(kind.value_field))
        if types.is_fixed_size_list(kind):
            return pa.list_(inside(kind.value_field), kind.list_size)
        if types.is_struct(kind):
            return pa.struct([inside(kind.field(index)) for index in range(kind.num_fields)])
        return kind


def shape_of(session: Session) -> Shape | None:
    """What the session has chosen; None: answers go out as they are."""
    options = session.options
    profile = options.get("profile", "arrow")
    plain, for_grafana = profile != "arrow", profile == "grafana"
    hugeint = options.get("hugeint", "double" if plain else "decimal")
    unit = options.get("timestamp_unit", "ns" if for_grafana else None)
    if not (plain or hugeint == "double" or unit is not None):
        return None
    unit = None if unit is None else str(unit)
    return Shape(plain, hugeint == "double", unit, for_grafana)


def shaped_schema(session: Session, schema: pa.Schema) -> pa.Schema:
    shape = _shape_for(session, schema)
    return schema if shape is None else shape.schema(schema)


def shaping(
    session: Session, schema: pa.Schema
) -> tuple[pa.Schema, Callable[[pa.RecordBatch], pa.RecordBatch]]:
    """The schema an answer goes out with, and what brings a batch there."""
    shape = _shape_for(session, schema)
    if shape is None:
        return schema, lambda batch: batch
    target = shape.schema(schema)
    return target, lambda batch: shape.batch(batch, target)


def sendable(
    batch: pa.RecordBatch, max_message_bytes: int = MAX_MESSAGE_BYTES
) -> list[pa.RecordBatch]:
    """Return the same rows in batches of at most ``MAX_BATCH_BYTES``, a single larger row by itself. Nothing is copied.

    Raises:
        LimitExceeded: one row fills more than ``max_message_bytes``: most clients would drop the connection
            without saying why.
    """
    size = size_of(batch)
    if size <= MAX_BATCH_BYTES:
        return [batch]
    if batch.num_rows > 1:
        half = batch.num_rows // 2
        return [
            *sendable(batch.slice(0, half), max_message_bytes),
            *sendable(batch.slice(half), max_message_bytes),
        ]
    if size > max_message_bytes - _HEADER_BYTES:
        raise LimitExceeded(
            f"One row of the answer has {size:,} bytes, and a message may have {max_message_bytes:,}. "
            f"Select fewer or shorter columns; or set the session option max_message_bytes, if this client "
            f"takes larger messages.",
            row_bytes=size,
        )
    return [batch]


#: What an answer has in a session that has chosen nothing, where it cannot go out as it is.
_UNCHOSEN = Shape(plain=False, hugeint_as_double=False, timestamp_unit=None)


def _shape_for(session: Session, schema: pa.Schema) -> Shape | None:
    shape = shape_of(session)
    if shape is None and any(map(_holds_dictionary, schema.types)):
        return _UNCHOSEN
    return shape


def _holds_dictionary(kind: pa.DataType) -> bool:
    if types.is_dictionary(kind):
        return True
    count = kind.num_fields
    # Asked of each column three times a statement, and most have no fields.
    return count > 0 and any(_holds_dictionary(kind.field(at).type) for at in range(count))


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
