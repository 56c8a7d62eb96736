"""Nothing under a NULL: DuckDB 1.5 leaves there what was in that memory before, rows and texts of others.

Its texts, binaries and lists have no bytes under a NULL. Everything of fixed width has, at any depth; an ENUM too,
but that goes out as text.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types


def cleared(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the same rows under ``schema``, with zeros under their NULLs. Columns without NULLs are not copied."""
    columns = [_cleared(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cleared(column: pa.Array) -> pa.Array:
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _cleared(column.storage))
    if kind.num_fields:
        return _nested(column)
    if not column.null_count:
        return column  # looked at first: most columns of most batches
    is_number = types.is_primitive(kind) or types.is_decimal(kind)
    if not (is_number or types.is_fixed_size_binary(kind)):
        return column
    if types.is_boolean(kind):
        return pc.if_else(pc.is_valid(column), column.fill_null(False), None)
    width = kind.bit_width // 8
    values = column.view(pa.binary(width)).fill_null(bytes(width))
    valid = pc.is_valid(column)
    assert values.offset == valid.offset == 0  # noqa: S101 - both were just made
    buffers = [valid.buffers()[1], values.buffers()[1]]
    return pa.Array.from_buffers(kind, len(column), buffers, column.null_count)


def _nested(column: pa.Array) -> pa.Array:
    kind = column.type
    if column.offset or (types.is_fixed_size_list(kind) and column.null_count):
        # From its start; and what lies under a NULL array is NULL itself then.
        column = column.take(pc.indices_nonzero(pa.repeat(True, len(column))))
    if types.is_map(kind) and all(
        _cleared(part) is part for part in (column.keys, column.items)
    ):
        return column
    children = _children(column)
    new = [_cleared(child) for child in children]
    if all(child is before for child, before in zip(new, children, strict=True)):
        return column
    own = column.buffers()[
        : 1 if types.is_struct(kind) or types.is_fixed_size_list(kind) else 2
    ]
    return pa.Array.from_buffers(kind, len(column), own, column.null_count, children=new)


def _children(column: pa.Array) -> list[pa.Array]:
    kind = column.type
    if types.is_struct(kind):
        # Flattened, a child is NULL wherever its struct is.
        fields = range(kind.num_fields)
        return column.flatten() if column.null_count else [column.field(i) for i in fields]
    if types.is_map(kind):
        entries = pa.struct([kind.key_field, kind.item_field])
        pairs = [column.keys, column.items]
        return [pa.Array.from_buffers(entries, len(column.keys), [None], 0, children=pairs)]
    if types.is_union(kind):
        return [column.field(index) for index in range(kind.num_fields)]
    return [column.values]
