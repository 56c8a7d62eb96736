"""Which columns get statistics in a Parquet file. Pure.

Iceberg's Java library, so Spark, compares uuids as Java does: as two signed numbers (``java.util.UUID.compareTo``). Parquet
orders them by their bytes, as the specification says. A file whose uuids begin with digits on both sides of 8 then has a
lowest one that is above its highest, and is left out by any condition (apache/iceberg issue 14216). So no uuid gets
statistics unless its table asks for them. Random ones prune nothing anyway.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from planner.schema import field_id_if_any, nested_fields

#: Iceberg's property, without the name of the column. Its writer ignores names that there are not.
STATISTICS = "write.parquet.stats-enabled.column."


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column of a Parquet file: its name in Iceberg (``point.x``, ``list.element``, ``map.key``); ``field_id`` 0: none yet.

    ``is_repeated``: it lies in a list or a map, where no condition of Iceberg's reaches.
    """

    name: str
    field_id: int
    type: pa.DataType
    is_repeated: bool

    @property
    def is_misread(self) -> bool:
        return self.type == pa.uuid() and not self.is_repeated


def leaves(schema: pa.Schema) -> Iterator[Leaf]:
    """Yield all, in Parquet's order."""
    for field in schema:
        yield from _leaves(field.name, field, False)


def uuids(schema: pa.Schema) -> tuple[Leaf, ...]:
    """Return those that conditions reach."""
    return tuple(leaf for leaf in leaves(schema) if leaf.is_misread)


@dataclass(frozen=True, slots=True)
class UuidStatistics:
    """Names of uuid columns that no property keeps Iceberg's own writer from, and of those of which files have bounds."""

    to_come: tuple[str, ...]
    written: tuple[str, ...]


def uuid_statistics(
    schema: pa.Schema, properties: Mapping[str, str], bounded: Collection[int]
) -> UuidStatistics:
    """``bounded``: ids of fields of which some file has bounds."""
    own = uuids(schema)
    return UuidStatistics(
        tuple(
            leaf.name
            for leaf in own
            if properties.get(f"{STATISTICS}{leaf.name}", "true").lower() == "true"
        ),
        tuple(leaf.name for leaf in own if leaf.field_id in bounded),
    )


def uuid_properties(schema: pa.Schema) -> dict[str, str]:
    """Return the properties by which Iceberg's own writer leaves out statistics of uuids."""
    return {f"{STATISTICS}{leaf.name}": "false" for leaf in uuids(schema)}


def fields_without_statistics(
    schema: pa.Schema, properties: Mapping[str, str]
) -> frozenset[int]:
    """Return the ids of the columns that get none: by the table's properties, or uuids of which they say nothing."""
    return frozenset(
        leaf.field_id for leaf in leaves(schema) if not _has_statistics(leaf, properties)
    )


def _has_statistics(leaf: Leaf, properties: Mapping[str, str]) -> bool:
    text = properties.get(f"{STATISTICS}{leaf.name}")
    # As Java's ``Boolean.valueOf``.
    return not leaf.is_misread if text is None else text.lower() == "true"


def _leaves(name: str, field: pa.Field, is_repeated: bool) -> Iterator[Leaf]:
    is_struct, members = pa.types.is_struct(field.type), nested_fields(field.type)
    for member in members:
        yield from _leaves(f"{name}.{member.name}", member, is_repeated or not is_struct)
    if not (members or is_struct):
        yield Leaf(name, field_id_if_any(field) or 0, field.type, is_repeated)
