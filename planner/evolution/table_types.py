"""Which type a column has for each type of a writer (docs/avro-types.md). Everything in it is optional: fields come and go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pyarrow as pa

from planner.evolution.writer_types import Kind, Meaning, WriterType
from planner.schema import PRIMITIVES, TIMESTAMPTZ

_KINDS: Mapping[Kind, pa.DataType] = {
    "boolean": PRIMITIVES["boolean"],
    "int": PRIMITIVES["int"],
    "long": PRIMITIVES["long"],
    "float": PRIMITIVES["float"],
    "double": PRIMITIVES["double"],
    "bytes": PRIMITIVES["binary"],
    "string": PRIMITIVES["string"],
    "enum": PRIMITIVES["string"],
    # A record inside itself, as JSON text.
    "again": PRIMITIVES["string"],
}

_MEANINGS: Mapping[Meaning, pa.DataType] = {
    "uuid": PRIMITIVES["uuid"],
    "date": PRIMITIVES["date"],
    # Tables have no type for a time of day: the number stays one.
    "time-millis": PRIMITIVES["int"],
    "time-micros": PRIMITIVES["long"],
    "time-nanos": PRIMITIVES["long"],
    "timestamp-millis": TIMESTAMPTZ,
    "timestamp-micros": TIMESTAMPTZ,
    "timestamp-nanos": TIMESTAMPTZ,
    "timestamp-text": TIMESTAMPTZ,
    "local-timestamp-millis": PRIMITIVES["timestamp"],
    "local-timestamp-micros": PRIMITIVES["timestamp"],
    "local-timestamp-nanos": PRIMITIVES["timestamp"],
    "duration": pa.binary(12),
}

#: A fixed of more bytes is binary: Arrow and numpy have memory for as many in each row, also of one that is NULL.
MAX_FIXED_BYTES = 1_024


def table_type(writer: WriterType) -> pa.DataType | None:
    """Return the type of a column for values of ``writer``; None where they are no values: null, a record without fields.

    Of members whose names differ in case only it has the first.
    """
    writer = writer.value
    if writer.logical is not None:
        if writer.logical.meaning == "decimal":
            return pa.decimal128(writer.logical.digits, writer.logical.scale)
        return _MEANINGS[writer.logical.meaning]
    if writer.kind == "fixed":
        return pa.binary(writer.size if 0 < writer.size <= MAX_FIXED_BYTES else -1)
    if writer.kind in ("record", "union"):
        named: dict[str, pa.Field] = {}
        for name, each in members_of(writer):
            kind = table_type(each)
            if kind is not None:
                # Engines take a name that differs in case only for the same one, and give the first one's value.
                named.setdefault(name.casefold(), pa.field(name, kind))
        return pa.struct(list(named.values())) if named else None
    if writer.kind in ("array", "map"):
        item = table_type(writer.items[0])
        if item is None:
            return None
        return pa.list_(item) if writer.kind == "array" else pa.map_(pa.string(), item)
    return _KINDS.get(writer.kind)


def members_of(writer: WriterType) -> tuple[tuple[str, WriterType], ...]:
    """Return names and types of a record's fields, or of a union's branches that are not null.

    A branch has the name of its type, without a namespace where that is the only one of its name.
    """
    if writer.kind == "record":
        return tuple((each.name, each.type) for each in writer.fields)
    branches = [each for each in writer.items if each.kind != "null"]
    names = Counter(each.short_name for each in branches)
    return tuple(
        (each.short_name if names[each.short_name] == 1 else each.name, each)
        for each in branches
    )
