"""Samples of a topic as records, and what is said of those that are none.

The values of each field over all samples: what a column's type is inferred from.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from connectors.decoding.fields import Field, Kind
from connectors.decoding.json.parsing import OtherFormat, kind_of, parse
from connectors.decoding.json.strict import read_value
from connectors.decoding.policy import Unfit
from planner.schema import TIMESTAMPTZ
from planner.sql_text import FieldPath, resolve, spell

#: What Debezium writes for a value that the database did not send: it is stored apart (TOAST) and did not change.
TOAST_PLACEHOLDER = "__debezium_unavailable_value"

_ENVELOPE = {"op", "source"}
_STATES = ("before", "after")
_FLAT = ("__op", "__deleted")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Samples that are no JSON object for one reason; ``first`` says where one is.

    ``schema_id`` is set where they look like Avro.
    """

    reason: str
    count: int
    first: str
    schema_id: int | None = None


@dataclass(frozen=True, slots=True)
class Samples:
    """``unreadable`` has one entry for each reason, in the order they appear."""

    records: tuple[dict[str, Any], ...]
    unreadable: tuple[Unreadable, ...]

    @property
    def total(self) -> int:
        return len(self.records) + sum(group.count for group in self.unreadable)

    @property
    def schema_ids(self) -> tuple[int, ...]:
        """Ids that stand in front of them, as of Avro; empty where one is a JSON object."""
        ids = (group.schema_id for group in self.unreadable if not self.records)
        return tuple(sorted(each for each in ids if each is not None))


def read_samples(values: Iterable[tuple[str, bytes]]) -> Samples:
    """Parse values, each with where it is: ``partition 0, offset 7``."""
    records = []
    groups: dict[str, Unreadable] = {}
    for where, value in values:
        try:
            records.append(parse(value))
        except Unfit as unfit:
            reason = _reason(value, unfit)
            # The position in the value is another in each.
            kind = reason.partition(" (character")[0].partition(" (byte")[0]
            schema_id = unfit.schema_id if isinstance(unfit, OtherFormat) else None
            group = groups.get(kind, Unreadable(reason, 0, where, schema_id))
            groups[kind] = replace(group, count=group.count + 1)
    return Samples(tuple(records), tuple(groups.values()))


def change_events(records: Iterable[dict[str, Any]]) -> str | None:
    """Say what rows become of Debezium's events, where records are such.

    Debezium documentation, "Change events" and "New Record State Extraction".
    """
    records = list(records)
    envelopes = list(filter(None, map(_envelope, records)))
    flat = [record for record in records if not record.keys().isdisjoint(_FLAT)]
    if not envelopes + flat:
        return None
    is_flat = len(flat) > len(envelopes)
    names, events = (_FLAT, flat) if is_flat else ((*_STATES, "op"), envelopes)
    form = ", ".join(name for name in names if any(name in event for event in events))
    return (
        f"{len(envelopes) + len(flat)} of {len(records)} samples are Debezium's change events ({form}): each event becomes "
        f"a row, and an update or a delete is one more row"
    )


def varying_names(records: Iterable[dict[str, Any]]) -> str | None:
    """Say that the names of outermost fields are data, where they are: a table reads none that comes later."""
    root = FieldValues.of((), list(records))
    if not root.names_are_data:
        return None
    return (
        f"{len(root.members)} different fields in {len(root.values)} samples, of which each has few: if their names are data, "
        f"the table does not read the next one; give its columns with --column, without --infer"
    )


def placeholders(records: Iterable[dict[str, Any]]) -> tuple[FieldPath, ...]:
    """Fields in which Debezium's placeholder stands for a value that did not change, in the order they appear."""
    fields = (
        path
        for record in records
        for path, value in _leaves((), record)
        if value == TOAST_PLACEHOLDER
    )
    return tuple(dict.fromkeys(fields))


def _envelope(record: dict[str, Any]) -> dict[str, Any] | None:
    """Return the envelope that a record is, or has beside its schema."""
    for value in (record, record.get("payload")):
        if isinstance(value, dict) and value.keys() >= _ENVELOPE:
            return None if value.keys().isdisjoint(_STATES) else value
    return None


class _Bare(str):
    """``NaN``, ``Infinity`` or ``-Infinity`` without quotes."""

    __slots__ = ()


def _reason(value: bytes, unfit: Unfit) -> str:
    """The reason of a sample that does not parse; names the fields of bare NaN, which the decoder does not look for."""
    if "bare" not in unfit.message:
        return unfit.message
    try:
        parsed = json.loads(value, parse_constant=_Bare)
    except ValueError:
        return unfit.message
    fields = dict.fromkeys(
        f"{spell(path)} is a bare {leaf}"
        for path, leaf in _leaves((), parsed)
        if isinstance(leaf, _Bare)
    )
    return f"{', '.join(fields)}, which is not JSON"


def _leaves(path: FieldPath, value: Any) -> Iterator[tuple[FieldPath, Any]]:
    pending = [(path, value)]
    while pending:
        path, value = pending.pop()
        if isinstance(value, dict):
            pending += [((*path, name), member) for name, member in reversed(value.items())]
        elif isinstance(value, list):
            pending += [((*path, "element"), item) for item in reversed(value)]
        else:
            yield path, value


#: Deeper values are not looked into: ``planner.type_text`` reads no deeper types either.
MAX_NESTING = 32

#: Objects with so many members together, of which one has few, have data for names.
_MANY_MEMBERS = 200
_FEW_OF_THEM = 0.25


@dataclass(slots=True)
class FieldValues:
    """One field: its values that are not null, and the fields inside its objects and arrays.

    ``members`` come in the order their names first appear.
    """

    path: FieldPath
    values: list[Any]
    nulls: int
    members: dict[str, FieldValues] = field(default_factory=dict)
    element: FieldValues | None = None

    @classmethod
    def of(cls, path: FieldPath, values: Sequence[Any]) -> FieldValues:
        present = [value for value in values if value is not None]
        node = cls(path, present, len(values) - len(present))
        if len(path) > MAX_NESTING:
            return node
        members: dict[str, list[Any]] = {}
        for value in present:
            if isinstance(value, dict):
                for name, member in value.items():
                    members.setdefault(name, []).append(member)
        node.members = {name: cls.of((*path, name), inside) for name, inside in members.items()}
        arrays = [value for value in present if isinstance(value, list)]
        if arrays:
            node.element = cls.of((*path, "element"), list(itertools.chain(*arrays)))
        return node

    @property
    def kinds(self) -> Counter[str]:
        """How often each kind occurs: ``a string``, ``an object``."""
        return Counter(map(kind_of, self.values))

    @property
    def is_too_deep(self) -> bool:
        return len(self.path) > MAX_NESTING and any(
            isinstance(value, dict | list) for value in self.values
        )

    @property
    def names_are_data(self) -> bool:
        """Whether the names inside its objects vary as values do, such as ids."""
        many = len(self.members)
        return many >= _MANY_MEMBERS and (
            sum(map(len, self.values)) < _FEW_OF_THEM * many * len(self.values)
        )

    def inside(self, name: str) -> FieldValues | None:
        """Return the member of this name, or the element."""
        return self.members.get(name) or (self.element if name == "element" else None)

    def has_twin(self, name: str) -> bool:
        """Return whether the dots of a member's name lead to a field inside another member, too."""
        levels = name.split(".")
        for end in range(1, len(levels)):
            member = self.members.get(".".join(levels[:end]))
            if member and resolve(tuple(levels[end:]), member, FieldValues.inside):
                return True
        return False

    def all_inside(self) -> Iterator[FieldValues]:
        """Return every field inside, at any depth."""
        for node in (*self.members.values(), *([self.element] if self.element else ())):
            yield node
            yield from node.all_inside()


_TIMES: dict[Kind, pa.DataType] = {
    "timestamptz": TIMESTAMPTZ,
    "timestamp": pa.timestamp("us"),
    "date": pa.date32(),
}


def all_fit(
    kind: Kind, arrow: pa.DataType, values: Sequence[Any], *, floor: bool = False
) -> bool:
    """Return whether every value can be read as a type."""
    field = Field("", kind, arrow, required=False, floor=floor)
    try:
        for value in values:
            read_value(field, value)
    except Unfit:
        return False
    return True


def time_type(values: Sequence[Any], *, floor: bool) -> pa.DataType | None:
    """Return the first type of a time that reads every value, where there is one."""
    for kind, arrow in _TIMES.items():
        if all_fit(kind, arrow, values, floor=floor and kind != "date"):
            return arrow
    return None
