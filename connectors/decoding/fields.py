"""The payload columns of a table as a tree of fields, which a record must match.

Both decoding paths walk this tree, so a type, a key or an epoch unit is interpreted once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, cast

import pyarrow as pa

from planner.errors import BadBinding, UnsupportedType
from planner.schema import (
    PRIMITIVES,
    Column,
    EpochUnit,
    TableSchema,
    field_id_if_any,
    nested_paths,
)
from planner.seam.binding import Binding, check_times

Kind = Literal[
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "decimal",
    "date",
    "timestamp",
    "timestamptz",
    "string",
    "binary",
    "fixed",
    "uuid",
    "list",
    "map",
    "struct",
]

#: Name of the column of records that are one value, without fields.
VALUE = "value"

TIME_KINDS = ("date", "timestamp", "timestamptz")

#: Microseconds of 0001-01-01T00:00:00 and of the last one of year 9999: what every reader of ours can hold.
MIN_TIME_US = -62_135_596_800_000_000
MAX_TIME_US = 253_402_300_799_999_999
DAY_US = 86_400_000_000
#: Largest finite float; a number above it is refused, never turned into infinity.
MAX_FLOAT = 3.4028234663852886e38
#: Units that numbers may have which are times. Days are what Kafka Connect writes dates in; no property names them.
Unit = EpochUnit | Literal["d"]
#: Microseconds in one unit. A nanosecond is less than one, so ``ns`` is handled by division.
UNIT_US: dict[Unit, int] = {"d": DAY_US, "s": 1_000_000, "ms": 1_000, "us": 1}
NS_PER_US = 1_000


@dataclass(frozen=True, slots=True)
class Field:
    """One value: a column, a struct's member, a list's element, a map's key or value.

    ``keys`` are the names a record may carry it under, first present wins; empty for elements. ``path`` names it in messages.
    ``floor``: a time loses what is below a microsecond, and is not refused. ``children`` are the members of a struct, the
    element of a list, key and value of a map.

    ``is_connects``: values are written as Kafka Connect's converters do (docs/change-data.md); of those that they write as a
    decimal's digits alone ``scale`` is the writer's. ``misfit``: why no value of the writer's type fits, if none does.
    """

    path: str
    kind: Kind
    type: pa.DataType
    required: bool
    keys: tuple[str, ...] = ()
    unit: Unit | None = None
    children: tuple[Field, ...] = ()
    floor: bool = False
    field_id: int = 0
    is_connects: bool = False
    scale: int | None = None
    misfit: str = ""

    @property
    def is_object(self) -> bool:
        """Whether this map is written as a JSON object: its keys are strings."""
        return self.kind == "map" and self.children[0].kind == "string"


def payload_fields(table: str, schema: TableSchema, binding: Binding) -> tuple[Field, ...]:
    """Read the payload columns of a schema, in table order.

    Raises:
        BadBinding: two columns claim one key, or an epoch unit or a floor is declared for a column that holds no time.
        UnsupportedType: a column's type has no JSON form.
    """
    claimed = _keys(table, schema.payload)
    times = _Times(table, dict(binding.format.epoch_units), frozenset(binding.format.floors))
    fields = tuple(
        _field(
            times,
            column.name,
            pa.field(column.name, column.type, nullable=not column.required),
            claimed[column.name],
            (column.field_id, column.epoch_unit),
        )
        for column in schema.payload
    )
    check_times(table, schema, binding)
    return fields


@dataclass(frozen=True, slots=True)
class _Times:
    """How a table's times are read, by field id."""

    table: str
    units: Mapping[int, EpochUnit]
    floors: frozenset[int]


def _keys(table: str, columns: tuple[Column, ...]) -> dict[str, tuple[str, ...]]:
    """Give each key of a record to one column: to the one now named so, else to the one once named so."""
    owner = {column.name: column.name for column in columns if column.name in _names(column)}
    for column in columns:
        for key in _names(column):
            other = owner.setdefault(key, column.name)
            if other not in (key, column.name):
                raise BadBinding(
                    f"{table}: columns {other} and {column.name} both list {key!r} as a former name; remove it "
                    f"from one of them in the table's name mapping.",
                    table=table,
                    column=column.name,
                )
    return {
        column.name: tuple(key for key in _names(column) if owner[key] == column.name)
        for column in columns
    }


def _names(column: Column) -> tuple[str, ...]:
    return column.keys or (column.name,)


def _field(
    times: _Times,
    path: str,
    arrow: pa.Field,
    keys: tuple[str, ...],
    default: tuple[int, EpochUnit | None],
) -> Field:
    """Read one field; ``default`` is its id, and its unit where the binding names none."""
    field_id, unit = default
    unit = times.units.get(field_id, unit)
    name = _kind(arrow.type)
    if name is None:
        raise UnsupportedType(
            f"{times.table}: column {path} is {arrow.type}, which has no JSON form; see docs/json-types.md.",
            table=times.table,
            column=path,
            type=str(arrow.type),
        )
    children = tuple(
        _field(
            times,
            child_path,
            child,
            (child.name,) if name == "struct" else (),
            (field_id_if_any(child) or 0, None),
        )
        for child_path, child in nested_paths(path, arrow.type)
    )
    floor, required = field_id in times.floors, not arrow.nullable
    return Field(path, name, arrow.type, required, keys, unit, children, floor, field_id)


def _kind(kind: pa.DataType) -> Kind | None:
    if kind in _PRIMITIVE_KINDS:
        return _PRIMITIVE_KINDS[kind]
    return next((name for name, is_of in _OTHER_KINDS.items() if is_of(kind)), None)


_PRIMITIVE_KINDS = {kind: cast("Kind", name) for name, kind in PRIMITIVES.items()}
_OTHER_KINDS: dict[Kind, Callable[[pa.DataType], bool]] = {
    "decimal": pa.types.is_decimal128,
    "fixed": pa.types.is_fixed_size_binary,
    "list": pa.types.is_list,
    "map": pa.types.is_map,
    "struct": pa.types.is_struct,
}
