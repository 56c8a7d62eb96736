"""Samples of a topic as records, and what is said of those that are none."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from connectors.json.field_values import FieldValues
from connectors.json.parsing import Unfit, parse
from planner.field_path import FieldPath, spell

#: What Debezium writes for a value that the database did not send: it is stored apart (TOAST) and did not change.
TOAST_PLACEHOLDER = "__debezium_unavailable_value"
_ENVELOPE = {"op", "source"}
_STATES = ("before", "after")
_FLAT = ("__op", "__deleted")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Samples that are no JSON object for one reason; ``first`` says where one is."""

    reason: str
    count: int
    first: str


@dataclass(frozen=True, slots=True)
class Samples:
    """``unreadable`` has one entry for each reason, in the order they appear."""

    records: tuple[dict[str, Any], ...]
    unreadable: tuple[Unreadable, ...]

    @property
    def total(self) -> int:
        return len(self.records) + sum(group.count for group in self.unreadable)


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
            group = groups.get(kind, Unreadable(reason, 0, where))
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
    names: tuple[str, ...] = (*_STATES, "op")
    events = envelopes
    if len(flat) > len(envelopes):
        names, events = _FLAT, flat
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
