"""Columns from samples of a topic, by the rules in docs/json-types.md, "Inferred columns".

Pure: the caller has read the samples. Every sample decodes under the resulting columns, or a refusal says why not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from connectors.decoding.json.renames import other_name, rename_option, renamed, with_fields
from connectors.decoding.json.samples import MAX_NESTING, FieldValues, all_fit, time_type
from connectors.decoding.json.wishes import (
    Refusal,
    TimeWays,
    Wishes,
    as_text_option,
    column_option,
    floor_option,
    leave_out_option,
    same_names,
    unfit_floors,
    unfit_renames,
    unfit_values,
    values_as_time,
    ways_inside,
    with_epochs,
)
from planner.epoch_units import type_at
from planner.names import did_you_mean
from planner.schema import TIMESTAMPTZ, Column, EpochUnit
from planner.sql_text import FieldPath, resolve, spell, spelled
from planner.type_text import type_text

#: Digits of the largest unsigned number of 64 bits, and of the largest decimal.
_UINT64_DIGITS = 20
_DECIMAL_DIGITS = 38


@dataclass(frozen=True, slots=True)
class Inferred:
    """Columns, in the order keys first appear, and what a person should know of them.

    ``left_out`` are fields without a type, with the reason. ``whole`` are long fields, with the number of their values.
    With refusals no table is to be made.
    """

    columns: tuple[Column, ...]
    left_out: tuple[tuple[FieldPath, str], ...]
    whole: tuple[tuple[FieldPath, int], ...]
    refusals: tuple[Refusal, ...]


def infer_columns(records: Sequence[dict[str, Any]], wishes: Wishes) -> Inferred:
    """Find the columns under which every record decodes, where one can be found.

    Field ids are 0; nested units of times are in the types (``planner.epoch_units``).
    """
    fields = {name for record in records for name in record}
    as_columns = [renamed(record, wishes.renames) for record in records]
    root = FieldValues.of((), as_columns)
    inferred = _Inference(root, wishes, fields).run()
    refusals = inferred.refusals
    if not refusals:
        inside = ways_inside(root, wishes)
        refusals += tuple(unfit_renames(wishes.renames, inferred.columns, fields, inside))
    columns = with_fields(inferred.columns, wishes.renames)
    return replace(inferred, columns=columns, refusals=refusals)


class _Inference:
    """One run over the fields of some records, from the outermost inwards."""

    def __init__(self, root: FieldValues, wishes: Wishes, fields: Collection[str] = ()) -> None:
        self._root = root
        self._wishes = wishes
        #: Names that no column which is offered can have, and the fields of renamed columns.
        self._names = {
            *fields,
            *root.members,
            *wishes.renames.values(),
            *(".".join(path) for path, _ in wishes.columns),
        }
        self._fields = {column: field for field, column in wishes.renames.items()}
        self._left_out: list[tuple[FieldPath, str]] = []
        self._whole: list[tuple[FieldPath, int]] = []
        self._refusals: list[Refusal] = []
        self._declared: dict[FieldPath, pa.DataType] = {}
        self._units: dict[FieldPath, EpochUnit] = {}
        self._leave_out: set[FieldPath] = set()
        self._floors: set[FieldPath] = set()
        #: Declared columns of which no record has a value.
        self._new: list[Column] = []
        #: Fields that the run came to: what lies inside a declared or left out one is not looked at.
        self._visited: set[FieldPath] = set()
        #: Kinds that a time in a unit may have.
        self._epoch_kinds = {"a number", "a string"} if wishes.lenient else {"a number"}

    def run(self) -> Inferred:
        self._read_wishes()
        columns = [Column(0, name, kind) for name, kind in self._members(self._root)]
        self._check_new({column.name.casefold(): column.name for column in columns})
        columns += self._new
        self._refusals += same_names(with_fields(self._new, self._wishes.renames))
        epochs = self._wishes.epochs
        if self._refusals:
            # Of a field that was refused there is no column, and one refusal is enough.
            epochs = tuple(item for item in epochs if type_at(columns, item[0]) is not None)
        with_units, refusals = with_epochs(tuple(columns), epochs, self._as_time(columns))
        self._refusals += refusals
        self._check_visited()
        self._refusals += unfit_values(
            self._root, with_units, self._declared, self._units, self._wishes
        )
        if not self._refusals:
            as_time = self._as_time(with_units)
            self._refusals += unfit_floors(with_units, self._wishes.floors, as_time)
        if not (self._refusals or any(not column.is_metadata for column in columns)):
            self._refuse_empty()
        return Inferred(
            with_units, tuple(self._left_out), tuple(self._whole), tuple(self._refusals)
        )

    def _as_time(self, columns: Sequence[Column]) -> TimeWays:
        wishes = self._wishes
        return values_as_time(
            self._root, tuple(columns), self._declared, wishes.floors, lenient=wishes.lenient
        )

    def _read_wishes(self) -> None:
        for path, kind in self._wishes.columns:
            node = self._node(path)
            if (node.path if node else path) in self._declared:
                self._refuse(f"column {spell(path)} is given twice")
            elif node is None and len(path) > 1 and self._node(path[:1]):
                self._refuse(
                    f"{column_option(path, type_text(kind))}: no sample has such a field inside {spell(path[:1])}; a column "
                    f"of this name is written in quotes",
                    column_option((".".join(path),), type_text(kind)),
                )
            elif node is None:
                self._new.append(Column(0, ".".join(path), kind))
            self._declared[node.path if node else path] = kind
        for path in self._wishes.leave_out:
            node = self._node(path)
            if node is None:
                names = [spell(each.path) for each in self._root.all_inside()]
                cure = did_you_mean(spell(path), names, "take the option away.")
                self._refuse(f"{leave_out_option(path)}: no sample has such a field; {cure}")
            else:
                self._leave_out.add(node.path)
        for path, unit in self._wishes.epochs:
            node = self._node(path)
            if node is not None:
                self._units[node.path] = unit
        self._floors = {node.path for node in map(self._node, self._wishes.floors) if node}

    def _check_new(self, names: Mapping[str, str]) -> None:
        """Refuse declared columns without a value that differ in case from a field that has some."""
        for column in self._new:
            name = names.get(column.name.casefold())
            if name is not None:
                ways = [leave_out_option((name,))]
                if (name,) not in self._declared:
                    ways.insert(0, column_option((name,), type_text(column.type)))
                self._refuse(
                    f"column {spell((column.name,))} and field {spell((name,))} differ in case only, which SQL does not "
                    f"tell apart",
                    *ways,
                )

    def _node(self, path: FieldPath) -> FieldValues | None:
        return resolve(path, self._root, FieldValues.inside)

    def _refuse(self, reason: str, *ways: str) -> None:
        self._refusals.append(Refusal(reason, ways))

    def _refuse_empty(self) -> None:
        fields = "; ".join(f"{spell(path)}: {reason}" for path, reason in self._left_out)
        listed = f" ({fields})" if fields else ""
        self._refuse(f"no field has a type{listed}", "--column NAME:TYPE")

    def _check_visited(self) -> None:
        for path in (*self._declared, *self._leave_out):
            is_new = self._node(path) is None
            is_left_out = path in self._leave_out and any(
                path[:length] in self._leave_out for length in range(1, len(path))
            )
            if not (is_new or is_left_out or path in self._visited or self._refusals):
                self._refuse(f"field {spell(path)} lies in one that another option decides on")

    def _members(self, node: FieldValues) -> list[tuple[str, pa.DataType]]:
        """The fields inside an object that become columns or members."""
        names: dict[str, FieldValues] = {}
        members = []
        for name, member in node.members.items():
            if member.path in self._leave_out:
                self._visited.add(member.path)
                continue
            other = names.setdefault(name.casefold(), member)
            if other is not member:
                both = f"{self._called(other)} and {self._called(member)}"
                fault = f"fields {both} differ in case only, which SQL does not tell apart"
                self._refuse_name(fault, member, leave_out_option(other.path))
                continue
            if fault := self._fault_of_name(node, name):
                self._refuse_name(f"field {self._called(member)} has {fault}", member)
                continue
            if (kind := self._type(member)) is not None:
                members.append((name, kind))
        return members

    def _refuse_name(self, reason: str, member: FieldValues, *ways: str) -> None:
        """Refuse a field by its name: it is left out, or becomes a column of another one."""
        self._refuse(
            reason, *ways, leave_out_option(member.path), *self._rename_options(member)
        )

    def _fault_of_name(self, node: FieldValues, name: str) -> str:
        """Say why no column or member can have the name of this member of ``node``; empty: it can."""
        if not name:
            return "no name"
        if not node.path and name.lower() in self._wishes.reserved:
            return "the name of a column that every table has or Iceberg computes"
        if node.has_twin(name):
            return "the name of a field inside another, which Iceberg does not tell apart"
        return ""

    def _called(self, node: FieldValues) -> str:
        """The name of a field, and of the column that it has by a rename."""
        field = self._fields.get(node.path[0]) if len(node.path) == 1 else None
        name = spell(node.path)
        return name if field is None else f"{spelled(field)} (column {name})"

    def _rename_options(self, node: FieldValues) -> Iterator[str]:
        """The option that makes an outermost field a column of another name, in place of its rename if it has one."""
        if len(node.path) == 1:
            (name,) = node.path
            field = self._fields.get(name, name)
            column = other_name(field, self._names)
            self._names.add(column)
            yield rename_option(field, column)

    def _type(self, node: FieldValues) -> pa.DataType | None:
        """The type of one field, or None: it becomes no column."""
        self._visited.add(node.path)
        if node.path in self._declared:
            return self._declared[node.path]
        if node.path in self._leave_out:
            return None
        kinds = node.kinds
        if node.path in self._units and kinds.keys() <= self._epoch_kinds:
            return TIMESTAMPTZ
        if kinds.keys() == {"a number", "a string"} and all_fit(
            "double", pa.float64(), node.values
        ):
            return pa.float64()
        if len(kinds) > 1:
            return self._mixed_type(node)
        if node.is_too_deep:
            outermost = FieldValues(node.path[:1], [], 0)
            reason = f"is nested more than {MAX_NESTING} levels deep"
            return self._refuse_field(outermost, reason, self._as_text(outermost))
        match next(iter(kinds), None):
            case "a boolean":
                return pa.bool_()
            case "a number":
                return self._number_type(node)
            case "a string":
                return self._string_type(node)
            case "an object":
                return self._object_type(node)
            case "an array":
                return self._array_type(node)
        return self._untyped(node, "always null")

    def _refuse_field(
        self, node: FieldValues, reason: str, *more: str, first: str = ""
    ) -> pa.DataType | None:
        """Refuse a field that may be left out: there are the ways ``first``, that, and ``more``."""
        ways = (first, leave_out_option(node.path), *more)
        self._refuse(f"field {spell(node.path)} {reason}", *filter(None, ways))
        return None

    def _untyped(self, node: FieldValues, reason: str) -> pa.DataType | None:
        self._left_out.append((node.path, reason))
        return None

    def _mixed_type(self, node: FieldValues) -> pa.DataType | None:
        if self._wishes.lenient:
            return pa.string()
        kinds = " and ".join(
            f"{kind} {count} times" if count > 1 else f"{kind} once"
            for kind, count in node.kinds.items()
        )
        return self._refuse_field(
            node, f"is {kinds}, and no type takes both", self._as_text(node)
        )

    def _as_text(self, node: FieldValues) -> str:
        return as_text_option(node.path, lenient=self._wishes.lenient)

    def _number_type(self, node: FieldValues) -> pa.DataType | None:
        whole = [value for value in node.values if value.removeprefix("-").isdigit()]
        if len(whole) == len(node.values):
            if all_fit("long", pa.int64(), whole):
                self._whole.append((node.path, len(whole)))
                return pa.int64()
            digits = max(len(value.removeprefix("-")) for value in whole)
            if digits <= _DECIMAL_DIGITS:
                precision = _UINT64_DIGITS if digits <= _UINT64_DIGITS else _DECIMAL_DIGITS
                option = column_option(node.path, f"decimal({precision},0)")
                return self._refuse_field(
                    node, "has whole numbers beyond 64 bits", first=option
                )
        elif all_fit("double", pa.float64(), node.values):
            if all_fit("long", pa.int64(), whole):
                return pa.float64()
            reason = "has whole numbers beyond 64 bits beside numbers with a fraction"
            return self._refuse_field(node, reason, first=column_option(node.path, "double"))
        return self._refuse_field(node, "has numbers beyond every type", self._as_text(node))

    def _string_type(self, node: FieldValues) -> pa.DataType | None:
        has_floor = self._wishes.lenient or node.path in self._floors
        if (time := time_type(node.values, floor=has_floor)) is not None:
            return time
        if (finer := time_type(node.values, floor=True)) is not None:
            self._refuse(
                f"field {spell(node.path)} is a {type_text(finer)} with digits below a microsecond, which no type holds",
                floor_option(node.path),
                column_option(node.path, "string"),
                leave_out_option(node.path),
            )
            return None
        if all_fit("string", pa.string(), node.values):
            return pa.string()
        reason = (
            "has strings with half of a surrogate pair, which lenient decoding reads as NULL"
        )
        return self._refuse_field(node, reason, self._as_text(node))

    def _object_type(self, node: FieldValues) -> pa.DataType | None:
        if not node.members:
            return self._untyped(node, "always {}")
        if node.names_are_data:
            return self._map_offer(node)
        inside = self._members(node)
        return pa.struct(inside) if inside else self._untyped(node, "nothing in it has a type")

    def _map_offer(self, node: FieldValues) -> pa.DataType | None:
        """Refuse an object whose names are data: a struct would not read the next name."""
        values = [value for item in node.values for value in item.values()]
        apart = _Inference(FieldValues.of((*node.path, "value"), values), Wishes())
        kind = apart._type(apart._root)
        reason = f"has {len(node.members)} different members in {len(node.values)} objects, so its names are data"
        if kind is None or apart._refusals:
            return self._refuse_field(node, reason, self._as_text(node))
        option = column_option(node.path, f"map<string, {type_text(kind)}>")
        return self._refuse_field(node, reason, first=option)

    def _array_type(self, node: FieldValues) -> pa.DataType | None:
        element = node.element
        if element is None or not (element.values or element.nulls):
            return self._untyped(node, "always []")
        kind = self._type(element)
        if kind is None:
            return self._untyped(node, "nothing in it has a type")
        return pa.list_(pa.field("element", kind))
