"""Arrow columns as Spark holds them: uuid is a string in Spark and fixed is binary; all else is equal."""

from __future__ import annotations

import pyarrow as pa


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
    if pa.types.is_list(kind):
        return pa.list_(_field(kind.value_field))
    if pa.types.is_map(kind):
        return pa.map_(_field(kind.key_field), _field(kind.item_field))
    if pa.types.is_struct(kind):
        return pa.struct([_field(kind.field(index)) for index in range(kind.num_fields)])
    return kind


def _field(field: pa.Field) -> pa.Field:
    return field.with_type(spark_type(field.type))


def _convert(array: pa.Array) -> pa.Array:
    target = spark_type(array.type)
    if target == array.type:
        return array
    if array.type == pa.uuid():
        return _uuid_text(array.storage)
    if pa.types.is_fixed_size_binary(array.type):
        return array.cast(target)
    if array.offset:
        # A sliced array's offsets and children still refer to the whole; taking its rows copies them.
        array = array.take(pa.array(range(len(array)), pa.int64()))
    mask = array.is_null() if array.null_count else None
    if pa.types.is_list(array.type):
        return pa.ListArray.from_arrays(
            array.offsets, _convert(array.values), type=target, mask=mask
        )
    if pa.types.is_map(array.type):
        return pa.MapArray.from_arrays(
            array.offsets, _convert(array.keys), _convert(array.items), type=target, mask=mask
        )
    children = [_convert(array.field(index)) for index in range(array.type.num_fields)]
    return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)


def _uuid_text(storage: pa.Array) -> pa.Array:
    digits = (None if value is None else value.hex() for value in storage.to_pylist())
    return pa.array(
        (
            None if h is None else f"{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"
            for h in digits
        ),
        pa.string(),
    )
