"""What is around the row in a record's value, and which kind of change the record is (docs/change-data.md).

An envelope is fields around those of the row, so each format reads it by the means it has for any fields. What Debezium calls
``before`` is none of them: it is not a row's former state in all settings of the source.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connectors.decoding.arrays import build, exact_leaf, true_at
from connectors.decoding.fields import Field
from connectors.decoding.policy import SINGLE, Unfit
from planner.errors import UndecodableRecord, ValueUnavailable
from planner.names import Envelope

#: Operations of Debezium's events that say a row: create, read by a snapshot, update.
_ROWS = pa.array(["c", "r", "u"])
_DELETE = "d"
_NO_ROWS: Mapping[str, str] = {
    "t": "a truncate, which names no key: the table keeps its rows until it is made anew",
    "m": "a message of its source, and no change of a row",
}

#: Of events that ExtractNewRecordState has flattened, where its deletes are rewritten.
_DELETED = "__deleted"
_MARKS = pa.array(["true", "false", None])

#: What Debezium writes for a large value that an update of PostgreSQL did not touch, in text.
PLACEHOLDER = "__debezium_unavailable_value"
_OCTETS = PLACEHOLDER.encode()
_UUID = uuid.UUID(bytes=hashlib.md5(_OCTETS, usedforsecurity=False).digest(), version=3)


class NoChange(Unfit):
    """A record that says no change of a row, or not of which."""

    def __init__(self, reason: str, cure: str) -> None:
        super().__init__(None, reason)
        self.cure = f"{cure}{SINGLE}"


class ValueLeftOut(Unfit):
    """A value that its source did not send."""

    error: type[UndecodableRecord] = ValueUnavailable
    cure = (
        "have PostgreSQL send whole rows (`ALTER TABLE … REPLICA IDENTITY FULL`) and touch the row there; to leave this change "
        "out, run"
    )

    def __init__(self, path: str) -> None:
        super().__init__(path, "an update did not touch the value, and its source left it out")


@dataclass(frozen=True, slots=True)
class Opened:
    """Rows out of envelopes: a column for each field of the row. ``is_delete``: None says that no record is one.

    ``errors`` are by the records' indices.
    """

    columns: Sequence[pa.Array]
    is_delete: pa.Array | None = None
    errors: Mapping[int, Unfit] = field(default_factory=dict)


def around(envelope: Envelope, fields: tuple[Field, ...]) -> tuple[Field, ...]:
    """Return the fields of a record that has a row of ``fields``, none of which is required, in an envelope."""
    if envelope == "debezium":
        members = [pa.field(each.path, each.type) for each in fields]
        after = Field("after", "struct", pa.struct(members), False, ("after",), None, fields)
        return _text("op"), after
    if envelope == "debezium-flat" and _marker(fields) is None:
        return (*fields, _text(_DELETED))
    return fields


def opened(envelope: Envelope, fields: Sequence[Field], columns: Sequence[pa.Array]) -> Opened:
    """Take rows of ``fields`` out of what was read as the fields of ``around``."""
    if envelope == "debezium":
        return _event(*columns)
    if envelope == "debezium-flat":
        return _flat(fields, columns)
    return Opened(columns)


def _text(name: str) -> Field:
    return Field(name, "string", pa.string(), False, (name,))


def _event(ops: pa.Array, after: pa.Array) -> Opened:
    is_row = pc.is_in(ops, value_set=_ROWS)
    is_delete = pc.fill_null(pc.equal(ops, _DELETE), False)
    errors: dict[int, Unfit] = {}
    for at in true_at(pc.invert(pc.or_(is_row, is_delete))):
        errors[at] = _no_row(ops[at].as_py())
    for at in true_at(pc.and_(is_row, after.is_null())):
        errors[at] = Unfit("after", f"it is null, and the operation {ops[at]} says a row")
    if pc.any(pc.and_(is_delete, after.is_valid())).as_py():
        # A delete has no row, also where its event has one.
        index = pc.if_else(is_delete, None, pa.array(range(len(after)), pa.int64()))
        after = after.take(index)
    return Opened(after.flatten(), is_delete if pc.any(is_delete).as_py() else None, errors)


def _no_row(op: str | None) -> Unfit:
    if op is None:
        return NoChange(
            "the record is no change event of Debezium: it has no field op",
            "for records that are the row itself make a table with --envelope none or debezium-flat",
        )
    what = _NO_ROWS.get(op, "none of Debezium's operations on a row")
    return NoChange(f"operation {op!r} is {what}", "have its connector leave such events out")


def _marker(fields: Sequence[Field]) -> int | None:
    return next((at for at, each in enumerate(fields) if _DELETED in each.keys), None)


def _flat(fields: Sequence[Field], columns: Sequence[pa.Array]) -> Opened:
    at = _marker(fields)
    marks = columns[-1 if at is None else at]
    rows = columns[: len(fields)]
    if marks.null_count == len(marks):
        return Opened(rows)
    is_delete, errors = marks, dict[int, Unfit]()
    if not pa.types.is_boolean(marks.type):
        is_delete = pc.equal(marks.cast(pa.string()), "true")
        is_other = pc.invert(pc.is_in(marks.cast(pa.string()), value_set=_MARKS))
        reason = "it is neither true nor false"
        errors = {each: Unfit(_DELETED, reason) for each in true_at(is_other)}
    is_delete = pc.fill_null(is_delete, False)
    return Opened(rows, is_delete if pc.any(is_delete).as_py() else None, errors)


def plain_instead(names: Collection[str]) -> Unfit | None:
    """Say why a record with these fields, and with no value for any column, is no row by itself; None: it may be one."""
    if {"op", "after"} <= set(names):
        return NoChange(
            "the record is a change event of Debezium, with the row in its field after",
            "make a table with --envelope debezium",
        )
    if set(names) == {"schema", "payload"}:
        return NoChange(
            "the record has its schema beside it, as Kafka Connect's converter writes",
            "make a table with --envelope debezium-flat, which reads such records",
        )
    return None


def unavailable(
    fields: Sequence[Field], columns: Sequence[pa.Array]
) -> Iterator[tuple[int, Unfit]]:
    """Yield the indices of the records with a value that their source did not send, in any order."""
    for each, column in zip(fields, columns, strict=True):
        for placeholder in _placeholders(each):
            for at in _equal(each, column, placeholder):
                yield at, ValueLeftOut(each.path)


def _placeholders(each: Field) -> list[Any]:
    """Return what Debezium's UnchangedToastedPlaceholder (3.x) has for values of a column's type."""
    if each.kind == "list":
        inner = each.children[0].kind
        of_items: Mapping[str, list[Any]] = {
            "string": [[PLACEHOLDER], [str(_UUID)]],
            "uuid": [[_UUID.bytes]],
            "binary": [[_OCTETS]],
            "int": [list(_OCTETS)],
            "long": [list(_OCTETS)],
        }
        return of_items.get(inner, [])
    if each.kind == "map":
        kinds = [child.kind for child in each.children]
        return [[(PLACEHOLDER, PLACEHOLDER)]] if kinds == ["string", "string"] else []
    # The second is a map of PostgreSQL's hstore as JSON.
    pair = f'{{"{PLACEHOLDER}":"{PLACEHOLDER}"}}'
    of_kinds: Mapping[str, list[Any]] = {"string": [PLACEHOLDER, pair], "binary": [_OCTETS]}
    return of_kinds.get(each.kind, [])


def _equal(each: Field, column: pa.Array, placeholder: Any) -> list[int]:
    if each.kind not in ("list", "map"):
        return true_at(pc.equal(column, pa.scalar(placeholder, each.type)))
    # Arrow has no comparison of lists: those of its length are few.
    lengths = pc.subtract(column.offsets[1:], column.offsets[:-1])
    candidates = true_at(pc.equal(lengths, len(placeholder)))
    if not candidates:
        return []
    same = build(each, [placeholder], exact_leaf).to_pylist()[0]
    some = column.take(pa.array(candidates, pa.int64())).to_pylist()
    return [at for at, value in zip(candidates, some, strict=True) if value == same]
