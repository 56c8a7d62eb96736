"""Record formats: what each adds to a table's properties, to a binding's shape and to the decoding key.

``connectors.decoding.registry`` has the decoder of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import pyarrow as pa

from planner.errors import BadBinding
from planner.names import TableName
from planner.schema import EpochUnit, TableSchema, field_id_if_any, nested_fields

JsonMode = Literal["strict", "lenient"]

JSON_MODE = "thermocline.json_mode"

#: ``thermocline.epoch_unit.<field id>``: numbers of that column are times since 1970 in this unit.
EPOCH_UNIT_PREFIX = "thermocline.epoch_unit."

#: ``thermocline.fraction.<field id>`` = ``floor``: times of that column lose what is below a microsecond.
FRACTION_PREFIX = "thermocline.fraction."
FLOOR = "floor"


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """How the values of JSON records are read (docs/json-types.md).

    ``epoch_units`` are by field id. ``floors`` are the ids of fields whose times lose what is below a microsecond.
    """

    name: ClassVar[str] = "json"
    #: Its properties, and the beginnings of those that end in a field's id.
    options: ClassVar[tuple[str, ...]] = (JSON_MODE,)
    prefixes: ClassVar[tuple[str, ...]] = (EPOCH_UNIT_PREFIX, FRACTION_PREFIX)
    #: Changes whenever strict decoding takes records that it refused. 2: ISO 8601's short times.
    forms: ClassVar[int] = 2

    mode: JsonMode = "strict"
    epoch_units: tuple[tuple[int, EpochUnit], ...] = ()
    floors: tuple[int, ...] = ()

    @classmethod
    def parse(cls, table: TableName, properties: Mapping[str, str]) -> JsonFormat:
        """Read the format's own properties. Raises BadBinding for a value that is not allowed."""
        return cls(
            one_of(table, properties, JSON_MODE, get_args(JsonMode), "strict"),  # type: ignore[arg-type]
            _epoch_units(table, properties),
            _floors(table, properties),
        )

    @property
    def properties(self) -> dict[str, str]:
        """The table properties that ``parse`` reads back equal."""
        return {
            JSON_MODE: self.mode,
            **{f"{EPOCH_UNIT_PREFIX}{field_id}": unit for field_id, unit in self.epoch_units},
            **{f"{FRACTION_PREFIX}{field_id}": FLOOR for field_id in self.floors},
        }

    def shape(self, on_error: str, forms: int) -> dict[str, object]:
        """Return the facts that decide which row a record becomes, where strict decoding takes these forms.

        What makes a row of a bad record is left out under policy ``fail``, where nothing bad was tiered, and for lenient
        decoding, which had a value for it.
        """
        facts: dict[str, object] = {
            "json_mode": self.mode,
            "epoch_units": [list(item) for item in self.epoch_units],
        }
        if on_error != "fail" and self.mode == "strict":
            if forms > 1:
                facts["forms"] = forms
            if self.floors:
                facts["floors"] = list(self.floors)
        return facts

    def reads_as_at_first(self, schema: TableSchema) -> bool:
        """Return whether the first forms gave the same rows: they differ in times written as text only."""
        units = dict(self.epoch_units)
        return not any(
            _has_written_times(column.type, column.field_id, units) for column in schema.payload
        )

    @property
    def beyond_shape(self) -> str:
        """What the decoding key has of the format that its shape may lack."""
        return "".join(f".{field_id}" for field_id in self.floors)


#: By ``thermocline.format``.
FORMATS: Mapping[str, type[JsonFormat]] = {JsonFormat.name: JsonFormat}


def bad_property(table: TableName, key: str, what: str) -> BadBinding:
    """Return the error of one property of a table."""
    return BadBinding(f"{table}: {what}", table=str(table), property=key)


def one_of(
    table: TableName,
    properties: Mapping[str, str],
    key: str,
    allowed: tuple[str, ...],
    default: str,
) -> str:
    """Read a property that has one of some values. Raises BadBinding for another."""
    value = properties.get(key, default)
    if value not in allowed:
        what = f"property {key} is {value!r}; allowed are {', '.join(allowed)}."
        raise bad_property(table, key, what)
    return value


def _has_written_times(
    kind: pa.DataType, field_id: int, units: Mapping[int, EpochUnit]
) -> bool:
    """Return whether a record writes a time as text somewhere in a value of this type."""
    if pa.types.is_timestamp(kind):
        return field_id not in units
    return any(
        _has_written_times(child.type, field_id_if_any(child) or 0, units)
        for child in nested_fields(kind)
    )


def _by_field(
    properties: Mapping[str, str], prefix: str
) -> Iterator[tuple[str, int | None, str]]:
    """Yield key, field id and value of the properties with a prefix; None where it is not an id."""
    for key, value in properties.items():
        if key.startswith(prefix):
            field_id = key.removeprefix(prefix)
            is_id = field_id.isascii() and field_id.isdigit()
            yield key, int(field_id) if is_id else None, value


def _epoch_units(
    table: TableName, properties: Mapping[str, str]
) -> tuple[tuple[int, EpochUnit], ...]:
    units = []
    for key, field_id, unit in _by_field(properties, EPOCH_UNIT_PREFIX):
        if field_id is None or unit not in get_args(EpochUnit):
            what = f"property {key} = {unit!r} is not a field id with a unit; units are s, ms, us, ns."
            raise bad_property(table, key, what)
        units.append((field_id, unit))
    return tuple(sorted(units))  # type: ignore[arg-type]


def _floors(table: TableName, properties: Mapping[str, str]) -> tuple[int, ...]:
    floors = []
    for key, field_id, text in _by_field(properties, FRACTION_PREFIX):
        if field_id is None or text != FLOOR:
            what = (
                f"property {key} = {text!r} is not a field id with what to do; that is {FLOOR}."
            )
            raise bad_property(table, key, what)
        floors.append(field_id)
    return tuple(sorted(floors))
