"""What a person says about the fields of samples, against the values that they have."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, get_args

import pyarrow as pa

from connectors.decoding.fields import TIME_KINDS, Field, payload_fields
from connectors.decoding.json.lenient import substitute
from connectors.decoding.json.renames import Renames
from connectors.decoding.json.samples import FieldValues
from connectors.decoding.json.strict import read_value
from connectors.decoding.policy import Unfit
from planner.epoch_units import ids_at, numbered, type_at, units_by_id, with_epoch_unit
from planner.names import did_you_mean
from planner.schema import PRIMITIVES, Column, EpochUnit
from planner.seam.binding import Binding
from planner.seam.formats import JsonFormat
from planner.spelling import FieldPath, resolve, spell
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


def unfit_floors(columns: Sequence[Column], floors: Sequence[FieldPath]) -> list[Refusal]:
    """Refuse a floor of fields that do not exist or hold no time."""
    refusals = []
    for path in floors:
        kind = type_at(columns, path)
        if kind is None:
            names = [column.name for column in columns]
            cure = did_you_mean(spell(path), names, f"the columns are {', '.join(names)}")
            refusals.append(
                Refusal(f"{floor_option(path)}: there is no such column; {cure}", ())
            )
        elif not pa.types.is_timestamp(kind):
            reason = (
                f"{floor_option(path)}: column {spell(path)} is {type_text(kind)}, and only timestamp and timestamptz "
                f"have fractions of seconds"
            )
            refusals.append(Refusal(reason, (column_option(path, "timestamptz"),)))
    return refusals


def with_epochs(
    columns: tuple[Column, ...], epochs: Sequence[tuple[FieldPath, EpochUnit]]
) -> tuple[tuple[Column, ...], tuple[Refusal, ...]]:
    """Declare the units of times; refuse them of fields that do not exist or hold no time."""
    refusals = []
    for path, unit in epochs:
        option = f"--epoch {spell(path)}={unit}"
        kind = type_at(columns, path)
        if kind is None:
            names = [column.name for column in columns]
            cure = did_you_mean(spell(path), names, f"the columns are {', '.join(names)}")
            refusals.append(Refusal(f"{option}: there is no such column; {cure}", ()))
        elif kind not in TIME_TYPES:
            reason = (
                f"{option}: column {spell(path)} is {type_text(kind)}, and only date, timestamp and timestamptz can "
                f"have a unit"
            )
            refusals.append(Refusal(reason, (column_option(path, "timestamptz"),)))
        else:
            columns = with_epoch_unit(columns, path, unit)
    return columns, tuple(refusals)


def unfit_values(
    root: FieldValues,
    columns: tuple[Column, ...],
    declared: Mapping[FieldPath, pa.DataType],
    units: Mapping[FieldPath, EpochUnit],
    wishes: Wishes,
) -> list[Refusal]:
    """Refuse declared types, and units, that the values do not fit; ``columns`` have both."""
    types = {path: kind for path, kind in declared.items() if path not in units}
    refusals = [] if wishes.lenient else _unfit_declared(root, columns, types, wishes.floors)
    of_times = {
        path: unit
        for path, unit in units.items()
        if type_at(columns, path) in TIME_TYPES
        and not any(path[:length] in declared for length in range(1, len(path)))
    }
    return refusals + _unfit_units(
        root, columns, of_times, wishes.floors, lenient=wishes.lenient
    )


def _unfit_declared(
    root: FieldValues,
    columns: tuple[Column, ...],
    declared: Mapping[FieldPath, pa.DataType],
    floors: Sequence[FieldPath],
) -> list[Refusal]:
    """Refuse declared types that strict decoding would not read the values with."""
    fields = _fields_of(columns, floors)
    refusals = []
    for path, kind in declared.items():
        option = column_option(path, type_text(kind))
        ways: tuple[str, ...] = (leave_out_option(path), f"--json-mode lenient {option}")
        if pa.types.is_timestamp(kind) and not _unfit(
            root, _fields_of(columns, (*floors, path)), path, lenient=False
        ):
            ways = (floor_option(path), *ways)
        refusals += [
            Refusal(f"{option}: {reason}", ways)
            for reason in _unfit(root, fields, path, lenient=False)
        ]
    return refusals


def _unfit_units(
    root: FieldValues,
    columns: tuple[Column, ...],
    units: Mapping[FieldPath, EpochUnit],
    floors: Sequence[FieldPath],
    *,
    lenient: bool,
) -> list[Refusal]:
    """Refuse units under which a number is no time."""
    refusals = []
    for path, unit in units.items():
        reasons = _unfit(root, _fields_of(columns, floors), path, lenient=lenient)
        if not reasons:
            continue
        option = f"--epoch {shlex.quote(spell(path))}="
        ways = [
            f"{option}{other}"
            for other in get_args(EpochUnit)
            if not _unfit(
                root,
                _fields_of(with_epoch_unit(columns, path, other), floors),
                path,
                lenient=lenient,
            )
        ]
        # The coarsest: of a finer one, the same numbers are times near 1970.
        ways = ways[:1]
        if not (
            lenient or _unfit(root, _fields_of(columns, (*floors, path)), path, lenient=False)
        ):
            ways.insert(0, f"{option}{unit} {floor_option(path)}")
        if not (
            ways or lenient or _unfit(root, _fields_of(columns, floors), path, lenient=True)
        ):
            ways = [f"--json-mode lenient {option}{unit}"]
        refusals.append(Refusal(f"{option}{unit}: {reasons[0]}", tuple(ways)))
    return refusals


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
