"""A table's columns as clients see them when they browse: the types a query returns, and comments."""

from __future__ import annotations

import pyarrow as pa

from planner.schema import TableSchema
from proxy.session import COMMENT, TYPE_NAME


def client_schema(schema: TableSchema) -> pa.Schema:
    """Return the columns under their returned types; a UUID arrives as text and says so."""
    fields = []
    for column in schema.columns:
        metadata = {COMMENT: column.doc.encode()} if column.doc else {}
        if column.type == pa.uuid():
            metadata[TYPE_NAME] = b"UUID"
        fields.append(
            pa.field(
                column.name,
                _returned(column.type),
                nullable=not column.required,
                metadata=metadata,
            )
        )
    return pa.schema(fields)


def _returned(kind: pa.DataType) -> pa.DataType:
    if kind == pa.uuid():
        return pa.string()
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind):
        return pa.list_(_returned(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_returned(kind.key_type), _returned(kind.item_type))
    if pa.types.is_struct(kind):
        members = (kind.field(index) for index in range(kind.num_fields))
        return pa.struct([pa.field(member.name, _returned(member.type)) for member in members])
    return kind
