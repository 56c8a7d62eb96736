"""Arrow columns as Spark holds them: uuid is a string in Spark and fixed is binary; all else is equal.

Arrow columns of one schema of a table as another schema has them: by field id, at every level.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from planner.schema import field_id


def to_spark(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return ``rows`` with the types Spark gives to the table's columns. Equal columns are not copied."""
    columns = [_convert(column) for column in rows.columns]
    return pa.RecordBatch.from_arrays(
        columns,
        schema=pa.schema(
            pa.field(field.name, column.type, field.nullable)
            for field, column in zip(rows.schema, columns, strict=True)
        ),
    )


def spark_type(kind: pa.DataType) -> pa.DataType:
    """The Arrow type of ``kind`` in Spark; ``kind`` itself when nothing inside it differs."""
    if kind == pa.uuid():
        return pa.string()
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    return inner_types(kind, spark_type)


def inner_types(
    kind: pa.DataType, convert: Callable[[pa.DataType], pa.DataType]
) -> pa.DataType:
    """Return ``kind`` with what ``convert`` makes of the types inside it; lists that are not plain stay as they are."""

    def field(old: pa.Field) -> pa.Field:
        return old.with_type(convert(old.type))

    if pa.types.is_map(kind):
        return pa.map_(field(kind.key_field), field(kind.item_field))
    if pa.types.is_struct(kind):
        return pa.struct([field(each) for each in kind])
    if pa.types.is_list(kind):
        return pa.list_(field(kind.value_field))
    return kind


def _convert(array: pa.Array) -> pa.Array:
    target = spark_type(array.type)
    if target == array.type:
        return array
    if array.type == pa.uuid():
        return _uuid_text(array.storage)
    if pa.types.is_fixed_size_binary(array.type):
        return array.cast(target)
    array = _whole(array)
    if pa.types.is_list(array.type):
        return _nested(array, target, _convert(array.values))
    if pa.types.is_map(array.type):
        return _nested(array, target, _convert(array.keys), _convert(array.items))
    children = [_convert(array.field(index)) for index in range(array.type.num_fields)]
    return _nested(array, target, *children)


def _whole(array: pa.Array) -> pa.Array:
    """A sliced array's offsets and children still refer to the whole; taking its rows copies them."""
    return array.take(pa.array(range(len(array)), pa.int64())) if array.offset else array


def _nested(array: pa.Array, target: pa.DataType, *children: pa.Array) -> pa.Array:
    """Return the values of ``array`` with other ones inside."""
    mask = array.is_null() if array.null_count else None
    if pa.types.is_struct(target):
        return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)
    kind = pa.MapArray if pa.types.is_map(target) else pa.ListArray
    return kind.from_arrays(array.offsets, *children, type=target, mask=mask)


def _uuid_text(storage: pa.Array) -> pa.Array:
    digits = (None if value is None else value.hex() for value in storage.to_pylist())
    texts = (h and f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}" for h in digits)
    return pa.array(texts, pa.string())


def converted(array: pa.Array, own: pa.DataType, kind: pa.DataType) -> pa.Array:
    """Return values of the table's type ``own`` as Spark holds those of ``kind``. Equal types are not copied.

    ``array`` has the names of ``own``. A name alone says nothing within a struct: fields are renamed, and a dropped
    one's name is given to another.

    Raises:
        pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError: a type does not hold what another one does.
    """
    target = spark_type(kind)
    if own.equals(kind, check_metadata=True) or not pa.types.is_nested(kind):
        # Also where the names of a time zone differ: DuckDB says Etc/UTC.
        return array if array.type == target else array.cast(target)
    array = _whole(array)
    if pa.types.is_list(kind) and pa.types.is_list(own):
        values = converted(array.values, own.value_type, kind.value_type)
        return _nested(array, target, values)
    if pa.types.is_map(kind) and pa.types.is_map(own):
        keys = converted(array.keys, own.key_type, kind.key_type)
        items = converted(array.items, own.item_type, kind.item_type)
        return _nested(array, target, keys, items)
    if pa.types.is_struct(kind) and pa.types.is_struct(own):
        sources = {field_id(field): field for field in own}
        children = [
            pa.nulls(len(array), field.type)
            if (source := sources.get(field_id(member))) is None
            else converted(array.field(source.name), source.type, member.type)
            for member, field in zip(kind, target, strict=True)
        ]
        return _nested(array, target, *children)
    raise pa.ArrowTypeError(f"{own} is no {kind}")
