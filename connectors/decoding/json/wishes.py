"""What a person says about the fields of samples, against the values that they have."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, get_args

import pyarrow as pa

from connectors.decoding.fields import TIME_KINDS, Field, payload_fields
from connectors.decoding.json.lenient import substitute
from connectors.decoding.json.renames import Renames, other_name, rename_option, with_fields
from connectors.decoding.json.samples import FieldValues
from connectors.decoding.json.strict import read_value
from connectors.decoding.policy import Unfit
from planner.epoch_units import (
    ids_at,
    numbered,
    type_at,
    units_by_id,
    with_epoch_unit,
    with_type,
)
from planner.names import did_you_mean, first_of
from planner.schema import PRIMITIVES, TIMESTAMPTZ, Column, EpochUnit
from planner.seam.binding import Binding
from planner.seam.formats import JsonFormat
from planner.sql_text import FieldPath, resolve, spell, spelled
from planner.type_text import type_text

#: Types whose values a record may have as numbers in a unit.
TIME_TYPES = tuple(PRIMITIVES[name] for name in TIME_KINDS)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a person says about fields, by their paths: types, fields that are no columns, units of times, and times that
    lose what is below a microsecond.

    ``renames`` come first: paths have the names of columns. ``reserved`` are names in lower case that no column of the record's value can have.
    """

    columns: tuple[tuple[FieldPath, pa.DataType], ...] = ()
    leave_out: tuple[FieldPath, ...] = ()
    epochs: tuple[tuple[FieldPath, EpochUnit], ...] = ()
    floors: tuple[FieldPath, ...] = ()
    renames: Renames = field(default_factory=dict)
    lenient: bool = False
    reserved: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a field becomes no column, and the options of which any one is a way out."""

    reason: str
    ways: tuple[str, ...]


def column_option(path: FieldPath, kind: str) -> str:
    return f"--column {shlex.quote(f'{spell(path)}:{kind}')}"


def leave_out_option(path: FieldPath) -> str:
    return f"--leave-out {shlex.quote(spell(path))}"


def floor_option(path: FieldPath) -> str:
    return f"--floor {shlex.quote(spell(path))}"


def as_text_option(path: FieldPath, *, lenient: bool) -> str:
    """Return the options that read any value, as its JSON text."""
    mode = "" if lenient else "--json-mode lenient "
    return f"{mode}{column_option(path, 'string')}"


def unfit_renames(
    renames: Renames,
    columns: Sequence[Column],
    fields: Collection[str],
    inside: Mapping[str, tuple[str, ...]],
) -> list[Refusal]:
    """Refuse renames that cannot be; ``fields`` are all outermost ones that records have.

    ``inside`` has the ways out of those renames whose field lies inside another. A rename is no error where its field
    becomes no column.
    """
    names = {column.name for column in columns}
    refusals = []
    for source, column in renames.items():
        option = rename_option(source, column)
        ways: tuple[str, ...] = ()
        if column in fields:
            reason = f"records have a field {spelled(column)}, too; in place of the option"
            other = other_name(source, [*names, *fields, *renames, *renames.values()])
            ways = (rename_option(source, other),)
        elif source in names:
            reason = f"another column is called {spelled(source)}, and reads that field"
        elif column in names or source in fields:
            continue
        elif source in inside:
            reason = "a field inside another keeps its name; in place of the option"
            ways = inside[source]
        else:
            reason = f"there is no column {spelled(column)}, for want of an outermost field {spelled(source)}"
        refusals.append(Refusal(f"{option}: {reason}", ways))
    return refusals


#: The options that make the field at a path a time, in a unit where there is one; none where its values are no times.
TimeWays = Callable[[FieldPath, EpochUnit | None], tuple[str, ...]]


def declared_columns(wishes: Wishes) -> tuple[tuple[Column, ...], tuple[Refusal, ...]]:
    """Return the columns of a table that nothing is inferred for, and what cannot be of them."""
    columns = tuple(Column(0, ".".join(path), kind) for path, kind in wishes.columns)

    def as_time(path: FieldPath, unit: EpochUnit | None) -> tuple[str, ...]:
        del unit  # any fits a column that nothing is known of
        column = with_type(columns, path, TIMESTAMPTZ)[1]
        return (column_option((column.name,), type_text(column.type)),)

    with_units, refused = with_epochs(columns, wishes.epochs, as_time)
    inside = {
        field: (as_text_option((field.split(".")[0],), lenient=wishes.lenient),)
        for field in wishes.renames
        if "." in field and type_at(columns, tuple(field.split("."))) is not None
    }
    payload = with_fields(with_units, wishes.renames)
    return payload, (
        *refused,
        *unfit_floors(columns, wishes.floors, as_time),
        *same_names(payload),
        *unfit_renames(wishes.renames, payload, (), inside),
    )


def same_names(columns: Sequence[Column]) -> list[Refusal]:
    """Refuse declared columns that SQL takes for one."""
    refusals = []
    names: dict[str, str] = {}
    for column in columns:
        first = names.setdefault(column.name.casefold(), column.name)
        if first == column.name:
            continue
        field = column.keys[-1] if column.keys else column.name
        other = other_name(field, [each.name for each in columns])
        way = f"{column_option((other,), type_text(column.type))} {rename_option(field, other)}"
        reason = (
            f"columns {spelled(first)} and {spelled(column.name)} differ in case only, which SQL does not tell apart; in "
            f"place of the second"
        )
        refusals.append(Refusal(reason, (way,)))
    return refusals


def unfit_floors(
    columns: Sequence[Column], floors: Sequence[FieldPath], as_time: TimeWays
) -> list[Refusal]:
    """Refuse a floor of fields that do not exist or hold no time."""
    refusals = (
        _no_time(columns, path, floor_option(path), None, as_time)
        for path in floors
        if not pa.types.is_timestamp(type_at(columns, path) or pa.null())
    )
    return list(refusals)


def with_epochs(
    columns: tuple[Column, ...],
    epochs: Sequence[tuple[FieldPath, EpochUnit]],
    as_time: TimeWays,
) -> tuple[tuple[Column, ...], tuple[Refusal, ...]]:
    """Declare the units of times; refuse them of fields that do not exist or hold no time."""
    refusals = []
    for path, unit in epochs:
        if type_at(columns, path) in TIME_TYPES:
            columns = with_epoch_unit(columns, path, unit)
        else:
            option = f"--epoch {spell(path)}={unit}"
            refusals.append(_no_time(columns, path, option, unit, as_time))
    return columns, tuple(refusals)


def _no_time(
    columns: Sequence[Column],
    path: FieldPath,
    option: str,
    unit: EpochUnit | None,
    as_time: TimeWays,
) -> Refusal:
    """Refuse an option at a path where there is no time that it fits: a unit, or a floor where there is none."""
    kind = type_at(columns, path)
    if kind is None:
        names = [column.name for column in columns]
        listed = f"the columns are {', '.join(first_of(names))}"
        cure = did_you_mean(spell(path), names, listed)
        return Refusal(f"{option}: there is no such column; {cure}", ())
    only = (
        "only timestamp and timestamptz have fractions of seconds"
        if unit is None
        else "only date, timestamp and timestamptz can have a unit"
    )
    reason = f"{option}: column {spell(path)} is {type_text(kind)}, and {only}"
    return Refusal(reason, as_time(path, unit))


def values_as_time(
    root: FieldValues,
    columns: tuple[Column, ...],
    declared: Collection[FieldPath],
    floors: Sequence[FieldPath],
    *,
    lenient: bool,
) -> TimeWays:
    """Return the ways of inferred columns with exceptions, where the values at a path are such times."""

    def ways(path: FieldPath, unit: EpochUnit | None) -> tuple[str, ...]:
        around = [path[:end] for end in range(1, len(path)) if path[:end] in declared]
        owner = around[0] if around else path
        changed, _ = with_type(columns, path, TIMESTAMPTZ)
        kind = type_at(changed, owner)
        if unit is not None:
            changed = with_epoch_unit(changed, path, unit)
        if kind is None or _unfit(root, _fields_of(changed, floors), owner, lenient=lenient):
            return ()
        return (column_option(owner, type_text(kind)),)

    return ways


def ways_inside(root: FieldValues, wishes: Wishes) -> dict[str, tuple[str, ...]]:
    """The options that do something about renamed fields which lie inside others."""
    ways: dict[str, tuple[str, ...]] = {}
    for name in wishes.renames:
        node = resolve(tuple(name.split(".")), root, FieldValues.inside)
        if node is not None and len(node.path) > 1:
            as_text = as_text_option(node.path[:1], lenient=wishes.lenient)
            ways[name] = (leave_out_option(node.path), as_text)
    return ways


def unfit_values(
    root: FieldValues,
    columns: tuple[Column, ...],
    declared: Mapping[FieldPath, pa.DataType],
    units: Mapping[FieldPath, EpochUnit],
    wishes: Wishes,
) -> list[Refusal]:
    """Refuse declared types, and units, that the values do not fit; ``columns`` have both."""
    values = _Values(root, columns, wishes, _fields_of(columns, wishes.floors))
    refusals = []
    if not wishes.lenient:
        types = {path: kind for path, kind in declared.items() if path not in units}
        refusals = [each for at, kind in types.items() for each in values.unfit_type(at, kind)]
    for path, unit in units.items():
        inside = any(path[:length] in declared for length in range(1, len(path)))
        if type_at(columns, path) in TIME_TYPES and not inside:
            refusals += values.unfit_unit(path, unit)
    return refusals


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of some records, and the columns that are to hold them."""

    root: FieldValues
    columns: tuple[Column, ...]
    wishes: Wishes
    #: The columns as the decoder reads them.
    fields: Mapping[str, Field]

    def unfit_type(self, path: FieldPath, kind: pa.DataType) -> list[Refusal]:
        """Refuse a declared type that strict decoding would not read the values with."""
        option = column_option(path, type_text(kind))
        ways: tuple[str, ...] = (leave_out_option(path), f"--json-mode lenient {option}")
        if pa.types.is_timestamp(kind) and not self._reasons(path, floor=True, lenient=False):
            ways = (floor_option(path), *ways)
        reasons = self._reasons(path, lenient=False)
        return [Refusal(f"{option}: {reason}", ways) for reason in reasons]

    def unfit_unit(self, path: FieldPath, unit: EpochUnit) -> list[Refusal]:
        """Refuse a unit under which a number is no time."""
        lenient = self.wishes.lenient
        reasons = self._reasons(path, lenient=lenient)
        if not reasons:
            return []
        option = f"--epoch {shlex.quote(spell(path))}="
        ways = [
            f"{option}{other}"
            for other in get_args(EpochUnit)
            if not self._reasons(path, unit=other, lenient=lenient)
        ]
        # The coarsest: of a finer one, the same numbers are times near 1970.
        ways = ways[:1]
        if not (lenient or self._reasons(path, floor=True, lenient=False)):
            ways.insert(0, f"{option}{unit} {floor_option(path)}")
        if not (ways or lenient or self._reasons(path, lenient=True)):
            ways = [f"--json-mode lenient {option}{unit}"]
        return [Refusal(f"{option}{unit}: {reasons[0]}", tuple(ways))]

    def _reasons(
        self,
        path: FieldPath,
        *,
        lenient: bool,
        unit: EpochUnit | None = None,
        floor: bool = False,
    ) -> list[str]:
        """As ``_unfit``, with another unit or a floor at the path."""
        if unit is None and not floor:
            return _unfit(self.root, self.fields, path, lenient=lenient)
        columns = self.columns if unit is None else with_epoch_unit(self.columns, path, unit)
        floors = (*self.wishes.floors, *((path,) if floor else ()))
        return _unfit(self.root, _fields_of(columns, floors), path, lenient=lenient)


def _unfit(
    root: FieldValues, fields: Mapping[str, Field], path: FieldPath, *, lenient: bool
) -> list[str]:
    """Why values at ``path`` do not fit, one reason for each field inside; lenient: would be NULL."""
    node = resolve(path, root, FieldValues.inside)
    field = resolve(path, None, partial(_inside, fields))
    if node is None or field is None:
        return []
    reasons: dict[str | None, str] = {}

    def note(inner: Field, value: Any, unfit: Unfit) -> None:
        if not lenient or substitute(inner, value, unfit) is None:
            reasons.setdefault(unfit.path, unfit.reason)

    for value in node.values:
        read_value(field, value, note)
    return list(reasons.values())


def _fields_of(columns: tuple[Column, ...], floors: Sequence[FieldPath]) -> dict[str, Field]:
    """The columns as the decoder reads them, by name."""
    schema = numbered(columns)
    times = [
        path for path in floors if pa.types.is_timestamp(type_at(columns, path) or pa.null())
    ]
    read_as = JsonFormat("strict", units_by_id(columns, schema), ids_at(times, schema))
    return {field.path: field for field in payload_fields("", schema, Binding("", read_as))}


def _inside(fields: Mapping[str, Field], outer: Field | None, name: str) -> Field | None:
    """Return the field of this name inside another, or the column where there is no other."""
    if outer is None:
        return fields.get(name)
    names = {"list": ("element",), "map": ("key", "value")}.get(outer.kind)
    if names is None:
        names = tuple(child.keys[0] for child in outer.children)
    return dict(zip(names, outer.children, strict=True)).get(name)
