"""Partition specs and sort orders, from the terms a person writes: ``day(kafka_timestamp)``, ``host desc``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from pyiceberg import transforms
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.types import FixedType, NestedField, StructType

from planner.errors import BadConfig
from planner.names import TableName, partition_field_name
from planner.sql_text import read_path

_Transform: TypeAlias = transforms.Transform[Any, Any]

_PLAIN: dict[str, _Transform] = {
    "identity": transforms.IdentityTransform(),
    "year": transforms.YearTransform(),
    "month": transforms.MonthTransform(),
    "day": transforms.DayTransform(),
    "hour": transforms.HourTransform(),
}
#: Transforms with a number, and how Iceberg's own builder ends the partition field's name.
_COUNTED: dict[str, tuple[Callable[[int], _Transform], str]] = {
    "bucket": (transforms.BucketTransform, "bucket"),
    "truncate": (transforms.TruncateTransform, "trunc"),
}
_TERMS = "column, year(c), month(c), day(c), hour(c), bucket(n, c), truncate(w, c)"
#: A name is bare up to a space, a comma or a parenthesis, or has quoted parts (``planner.sql_text``).
_TERM = re.compile(
    r"""(?:(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?)?((?:"(?:[^"]|"")*+"|[^\s"(),])++)\s*(\))?"""
)
_DIRECTION = re.compile(r"\s+(?:(asc|desc)\b)?\s*(?:nulls\s+(first|last))?\s*$", re.IGNORECASE)


def partition_spec(table: TableName, schema: Schema, terms: Sequence[str]) -> PartitionSpec:
    """Build the spec; field names as Iceberg's own builder gives them, in the characters that every engine reads.

    Raises:
        BadConfig: a term is not a transform of a column, or the transform does not fit the column's type; or a field is
            fixed bytes as they are.
    """
    parsed = [_parse(table, schema, term) for term in terms]
    for term, (source, transform, _) in zip(terms, parsed, strict=True):
        # Iceberg's Java library (1.12.0) writes a length before such a value in a manifest (iceberg issue 17501).
        is_plain = isinstance(transform, transforms.IdentityTransform)
        if is_plain and isinstance(source.field_type, FixedType):
            raise BadConfig(
                f"{table}: a table partitioned by {term!r}, of type {source.field_type}, gets manifests that readers lose "
                f"rows by; partition by bucket(16, {term}) instead.",
                table=str(table),
                term=term,
            )
    if len({(source.field_id, suffix) for source, _, suffix in parsed}) != len(parsed):
        why = f"a partition term is given twice among {', '.join(terms)}."
        raise BadConfig(f"{table}: {why}", table=str(table))
    fields: list[PartitionField] = []
    for source, transform, suffix in parsed:
        column = schema.find_column_name(source.field_id) or source.name
        own = {column.lower()} if isinstance(transform, transforms.IdentityTransform) else set()
        used = {name.lower() for name in schema.column_names} - own
        used |= {field.name.lower() for field in fields}
        fields.append(
            PartitionField(
                source_id=source.field_id,
                field_id=PARTITION_FIELD_ID_START + len(fields),
                transform=transform,
                name=partition_field_name(f"{column}_{suffix}" if suffix else column, used),
            )
        )
    return PartitionSpec(*fields)


def sort_order(table: TableName, schema: Schema, terms: Sequence[str]) -> SortOrder:
    """Build the order rows have inside a file. Nulls default to first when ascending, last when descending.

    Raises BadConfig: as ``partition_spec``.
    """
    fields = []
    for term in terms:
        match = _DIRECTION.search(term)
        way, nulls = match.groups() if match is not None else (None, None)
        source, transform, _ = _parse(table, schema, _DIRECTION.sub("", term))
        direction = SortDirection((way or "asc").lower())
        if nulls is None:
            nulls = "last" if direction is SortDirection.DESC else "first"
        order = NullOrder(f"nulls-{nulls.lower()}")
        fields.append(SortField(source.field_id, transform, direction, order))
    return SortOrder(*fields)


def _parse(table: TableName, schema: Schema, term: str) -> tuple[NestedField, _Transform, str]:
    def refused(why: str) -> BadConfig:
        message = f"{table}: {term!r} {why}; a term is one of: {_TERMS}, and names may stand in double quotes."
        return BadConfig(message, table=str(table), term=term)

    match = _TERM.fullmatch(term.strip())
    if match is None or (match[1] is None) != (match[4] is None):
        raise refused("is not a partition or sort term")
    name = (match[1] or "identity").lower()
    source = _column(schema, match[3])
    if source is None:
        raise refused(f"names column {match[3]}, which the table does not have")
    if name in _PLAIN and match[2] is None:
        transform, suffix = _PLAIN[name], "" if name == "identity" else name
    elif name in _COUNTED and match[2] is not None and int(match[2]) > 0:
        kind, suffix = _COUNTED[name]
        transform = kind(int(match[2]))
    else:
        raise refused("is not a transform Iceberg knows")
    if not transform.can_transform(source.field_type):
        raise refused(f"cannot be used on {source.field_type}")
    return source, transform, suffix


def _column(schema: Schema, text: str) -> NestedField | None:
    """Find a column, or a field of structs by its path; None: there is none.

    Without quotes a dot is either: part of a column's name, or between a struct and its field.
    """
    if '"' not in text:
        try:
            return schema.find_field(text)
        except ValueError:
            return None
    fields: tuple[NestedField, ...] = schema.fields
    column = None
    for name in read_path(text):
        column = next((field for field in fields if field.name == name), None)
        if column is None:
            return None
        kind = column.field_type
        fields = kind.fields if isinstance(kind, StructType) else ()
    return column
