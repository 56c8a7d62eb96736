"""Which value of a writer goes into which field, and how it is read: docs/avro-types.md.

Both paths follow these plans, so names and types are matched once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa

from connectors.decoding.fields import VALUE, Field
from planner.evolution.table_types import members_of
from planner.evolution.writer_types import WriterField, WriterSchema, WriterType

#: How a value is read. Those without a field are only checked and skipped over.
#: ``whole``: an integer as a number. ``epoch``: an integer as a time, by its meaning or by the field's unit.
#: ``scaled``: a record of a decimal's scale and digits. ``rest``: what is left of the value. ``other``: it fits no value of the
#: field.
How = Literal[
    "null",
    "boolean",
    "whole",
    "epoch",
    "floating",
    "decimal",
    "scaled",
    "bytes",
    "rest",
    "text",
    "uuid_text",
    "uuid_bytes",
    "time_text",
    "enum",
    "record",
    "array",
    "map",
    "optional",
    "union",
    "again",
    "other",
]

REQUIRED = "it is required, but null or missing"

#: Debezium's decimals without a scale of their column. Elsewhere their columns are structs.
_SCALED = "io.debezium.data.VariableScaleDecimal"

_NUMBERS = ("int", "long", "float", "double", "decimal")


@dataclass(frozen=True, slots=True)
class Plan:
    """How one value is read. ``path`` names it in messages.

    ``items`` are a record's fields, a union's branches, an array's element, a map's key and value, all in the writer's order.
    ``slots`` say which member of the field's struct each of a record or union fills, None where it has none. ``required``:
    members that must have a value and that no item fills.
    """

    writer: WriterType
    field: Field | None
    path: str
    how: How
    items: tuple[Plan, ...] = ()
    slots: tuple[int | None, ...] = ()
    required: tuple[tuple[int, Field], ...] = ()

    @property
    def is_required(self) -> bool:
        return self.field is not None and self.field.required


@dataclass(frozen=True, slots=True)
class RootPlan:
    """How the records of one schema become rows.

    ``branch``: the branch of the union at the top whose records are rows, if it is one that has others, too; they are
    skipped. ``is_other``: all records are.
    """

    plan: Plan
    schema: WriterSchema
    branch: int | None = None
    is_other: bool = False


def plan_root(schema: WriterSchema, fields: Sequence[Field], record: str | None) -> RootPlan:
    """Plan a schema for the columns of a table. ``record``: the full name of the records that become rows, if not all."""
    root = schema.root
    row = Field("", "struct", pa.struct([]), required=False, children=tuple(fields))
    if record is None:
        if root.value.kind != "record":
            root = WriterType("record", fields=(WriterField(VALUE, root),))
        plan = _plan(root, row, "")
        value = plan.items[0] if plan.items else plan
        if not root.name and value.how == "bytes" and value.writer.kind == "bytes":
            plan = replace(plan, items=(replace(value, how="rest"),))
        return RootPlan(plan, schema)
    if root.kind == "union":
        names = [each.name if each.kind == "record" else "" for each in root.items]
        branch = names.index(record) if record in names else None
        chosen = root if branch is None else root.items[branch]
    else:
        branch, chosen = None, root
    is_other = chosen.name != record or chosen.kind != "record"
    return RootPlan(_plan(chosen, None if is_other else row, ""), schema, branch, is_other)


def plan_without_field(writer: WriterType, path: str) -> Plan:
    """Plan a value without a field: it is read as its writer has it."""
    return _plan(writer, None, path)


def _plan(writer: WriterType, field: Field | None, path: str) -> Plan:
    path = path if field is None else field.path
    if writer.kind == "union":
        return _union(writer, field, path)
    how = _how(writer, field)
    if how == "record":
        return _record(writer, field, path)
    items: tuple[Plan, ...] = ()
    children: tuple[Field | None, ...] = (None, None) if field is None else field.children
    if how == "array":
        items = (_plan(writer.items[0], children[0], f"{path}[]"),)
    elif how == "map":
        key = _plan(WriterType("string"), children[0], f"{path}.key")
        items = (key, _plan(writer.items[0], children[1], f"{path}.value"))
    elif how == "scaled":
        items = tuple(_plan(each.type, None, path) for each in writer.fields)
    return Plan(writer, field, path, how, items)


def _union(writer: WriterType, field: Field | None, path: str) -> Plan:
    value = writer.value
    if value.kind != "union" or not value.items:
        items = tuple(_plan(each, field, path) for each in writer.items)
        return Plan(writer, field, path, "optional", items)
    if field is not None and field.kind != "struct":
        # A null among them is NULL, as of any other type that does not fit.
        null = tuple(
            Plan(each, field, path, "null" if each.kind == "null" else "other")
            for each in writer.items
        )
        return Plan(writer, field, path, "optional", null)
    names = {each: name for name, each in members_of(value)}
    return _with_members(
        writer, field, path, "union", [(names.get(each, ""), each) for each in writer.items]
    )


def _record(writer: WriterType, field: Field | None, path: str) -> Plan:
    return _with_members(
        writer, field, path, "record", [(each.name, each.type) for each in writer.fields]
    )


def _with_members(
    writer: WriterType,
    field: Field | None,
    path: str,
    how: How,
    members: Sequence[tuple[str, WriterType]],
) -> Plan:
    children = () if field is None else field.children
    slots = _slots([name for name, _ in members], children)
    items = tuple(
        _plan(
            each,
            None if slots.get(name) is None else children[slots[name]],
            f"{path}.{name}" if path else name,
        )
        for name, each in members
    )
    return Plan(
        writer,
        field,
        path,
        how,
        items,
        tuple(slots.get(name) for name, _ in members),
        tuple(
            (slot, child)
            for slot, child in enumerate(children)
            if child.required and (how == "union" or slot not in slots.values())
        ),
    )


def _slots(names: Sequence[str], children: Sequence[Field]) -> Mapping[str, int]:
    """Give each of a writer's names to the field that has it now, else to the one that once had it."""
    own = frozenset(names)
    slots = {}
    for slot, child in enumerate(children):
        name = next((key for key in child.keys if key in own), "")
        if name:
            slots[name] = slot
    return slots


def _how(writer: WriterType, field: Field | None) -> How:
    """Match a type that is no union with a field's; without a field, say how its bytes are checked."""
    if field is None:
        return _SKIPS[writer.kind]
    to = field.kind
    meaning = None if writer.logical is None else writer.logical.meaning
    if writer.name == _SCALED and to == "decimal" and field.is_connects:
        return "scaled"
    if meaning is not None:
        return _MEANINGS.get((meaning, to), _by_fixed(writer, field, meaning))
    if writer.kind in ("int", "long") and field.unit is not None:
        return "epoch"
    if writer.kind == "float" and to in ("float", "double"):
        return "floating"
    if writer.kind in ("bytes", "fixed") and to in ("binary", "fixed"):
        is_of_size = writer.kind == "bytes" or to == "binary" or writer.size == _width(field)
        return "bytes" if is_of_size else "other"
    return _KINDS.get((writer.kind, to), "null" if writer.kind == "null" else "other")


def _by_fixed(writer: WriterType, field: Field, meaning: str) -> How:
    """Match a meaning whose value is the bare number or bytes, as tables have no type for it."""
    if meaning.startswith("time-") and field.kind in ("int", "long"):
        return "whole"
    if meaning == "uuid" and field.kind in ("uuid", "string"):
        return "uuid_bytes" if writer.kind == "fixed" else "uuid_text"
    if meaning == "duration" and (field.kind == "binary" or _width(field) == writer.size):
        return "bytes"
    return "other"


def _width(field: Field) -> int | None:
    return field.type.byte_width if field.kind == "fixed" else None


_SKIPS: Mapping[str, How] = {
    "null": "null",
    "boolean": "boolean",
    "int": "whole",
    "long": "whole",
    "float": "floating",
    "double": "floating",
    "bytes": "bytes",
    "fixed": "bytes",
    "string": "text",
    "enum": "enum",
    "record": "record",
    "array": "array",
    "map": "map",
    "again": "again",
}

#: By kind of the writer without a meaning, and of the field.
_KINDS: Mapping[tuple[str, str], How] = {
    ("boolean", "boolean"): "boolean",
    **{(kind, to): "whole" for kind in ("int", "long") for to in _NUMBERS},
    ("double", "double"): "floating",
    ("string", "string"): "text",
    ("string", "uuid"): "uuid_text",
    ("enum", "string"): "enum",
    ("record", "struct"): "record",
    ("array", "list"): "array",
    ("map", "map"): "map",
    ("again", "string"): "again",
}

#: By meaning of the writer, and kind of the field.
_MEANINGS: Mapping[tuple[str, str], How] = {
    ("decimal", "decimal"): "decimal",
    ("date", "date"): "epoch",
    **{(f"timestamp-{unit}", "timestamptz"): "epoch" for unit in ("millis", "micros", "nanos")},
    **{
        (f"local-timestamp-{unit}", "timestamp"): "epoch"
        for unit in ("millis", "micros", "nanos")
    },
    ("timestamp-text", "timestamptz"): "time_text",
    ("timestamp-text", "string"): "text",
}
