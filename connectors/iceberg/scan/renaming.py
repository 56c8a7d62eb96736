"""Reads nested columns under the names that files have for their members, where these are not the table's.

Iceberg's writers escape what Avro's names may not have, as ``user-agent``, in Parquet too; and a member that was renamed has its
former name in older files. Of a schema, DuckDB 1.5.5 finds nested members by name alone.
"""

from __future__ import annotations

import pyarrow as pa

from planner.sql_text import identifier, literal
from planner.type_text import sql_type


def renamed_sql(column: str, written: pa.DataType, kind: pa.DataType) -> str:
    """Return SQL for ``column`` as a value of ``kind``, where the files have it as ``written``: alike but for names.

    ``remap_struct`` is what DuckDB's own readers of several files do this with: values stay where they are.
    """
    return f"remap_struct({identifier(column)}, NULL::{sql_type(kind)}, {_members(written, kind)}, NULL)"


def _members(written: pa.DataType, kind: pa.DataType) -> str:
    """Return the names of members by those they get; of a list and a map, DuckDB's own names of what is in them."""
    if pa.types.is_struct(kind):
        pairs = [
            (new.name, old.name, old.type, new.type)
            for old, new in zip(written, kind, strict=True)
        ]
    elif pa.types.is_map(kind):
        pairs = [
            ("key", "key", written.key_type, kind.key_type),
            ("value", "value", written.item_type, kind.item_type),
        ]
    else:
        pairs = [("list", "list", written.value_type, kind.value_type)]
    listed = ", ".join(
        f"{identifier(new)}: {_member(old, *types)}" for new, old, *types in pairs
    )
    return f"{{{listed}}}"


def _member(name: str, written: pa.DataType, kind: pa.DataType) -> str:
    if pa.types.is_nested(kind):
        return f"({literal(name)}, {_members(written, kind)})"
    return literal(name)
