"""The fields that a table's schemas have had, as Iceberg keeps them in the table's metadata."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from pyiceberg.schema import index_by_id
from pyiceberg.table import Table
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from planner.sql_text import FieldPath


def past_fields(loaded: Table) -> frozenset[FieldPath]:
    """Return the paths of all fields that the table has or had, each by every name.

    A field inside another one is below the name that this one has now. Outermost fields have the names of the name mapping,
    too, which keeps those of columns that were dropped. Schemas that were cleaned up
    (``expire_snapshots(clean_expired_metadata => true)``) are in no metadata.
    """
    names = {at: field.name for at, field in index_by_id(loaded.schema()).items()}
    schemas = loaded.schemas().values()
    paths = {path for schema in schemas for path in _paths((), schema.fields, names)}
    paths |= {(name,) for mapped in loaded.name_mapping() or () for name in mapped.names}
    return frozenset(paths)


def _paths(
    above: FieldPath, fields: Iterable[NestedField], names: Mapping[int, str]
) -> Iterator[FieldPath]:
    for field in fields:
        yield (*above, field.name)
        path = (*above, names.get(field.field_id, field.name))
        yield from _paths(path, _inside(field.field_type), names)


def _inside(kind: IcebergType) -> tuple[NestedField, ...]:
    match kind:
        case StructType():
            return kind.fields
        case ListType():
            return (kind.element_field,)
        case MapType():
            return kind.key_field, kind.value_field
    return ()
