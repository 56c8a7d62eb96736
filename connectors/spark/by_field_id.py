"""Arrow columns of one schema of a table as another schema has them: by field id, at every level."""

from __future__ import annotations

import pyarrow as pa

from connectors.spark.columns import spark_type
from planner.schema import field_id


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
    if array.offset:
        # A sliced array's offsets and children still refer to the whole; taking its rows copies them.
        array = array.take(pa.array(range(len(array)), pa.int64()))
    mask = array.is_null() if array.null_count else None
    if pa.types.is_list(kind) and pa.types.is_list(own):
        values = converted(array.values, own.value_type, kind.value_type)
        return pa.ListArray.from_arrays(array.offsets, values, type=target, mask=mask)
    if pa.types.is_map(kind) and pa.types.is_map(own):
        keys = converted(array.keys, own.key_type, kind.key_type)
        items = converted(array.items, own.item_type, kind.item_type)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=target, mask=mask)
    if pa.types.is_struct(kind) and pa.types.is_struct(own):
        sources = {field_id(field): field for field in own}
        children = [
            pa.nulls(len(array), field.type)
            if (source := sources.get(field_id(member))) is None
            else converted(array.field(source.name), source.type, member.type)
            for member, field in zip(kind, target, strict=True)
        ]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)
    raise pa.ArrowTypeError(f"{own} is no {kind}")
