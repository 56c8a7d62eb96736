"""Which changes a table needs so that it has a column for every field of a writer's schema.

Facts in: the table's schema and a writer's. Decision out: changes by path, what does not fit, what is left out. Nothing is
dropped, renamed or narrowed, and a column whose field is gone stays, as NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from planner.evolution.promotions import holds, is_promotion
from planner.evolution.table_types import members_of, table_type
from planner.evolution.writer_types import WriterSchema, WriterType
from planner.names import METADATA_COLUMNS, Envelope
from planner.schema import FIELD_ID, Column, TableSchema, field_id_if_any
from planner.sql_text import FieldPath, spell
from planner.type_text import type_text


@dataclass(frozen=True, slots=True)
class AddColumn:
    """An optional column, or member of a struct."""

    path: FieldPath
    type: pa.DataType

    def __str__(self) -> str:
        return f"add {spell(self.path)} {type_text(self.type)}"


@dataclass(frozen=True, slots=True)
class Widen:
    path: FieldPath
    before: pa.DataType
    after: pa.DataType

    def __str__(self) -> str:
        return (
            f"widen {spell(self.path)} from {type_text(self.before)} to {type_text(self.after)}"
        )


@dataclass(frozen=True, slots=True)
class MakeOptional:
    """The writer may leave the field out, or write null."""

    path: FieldPath

    def __str__(self) -> str:
        return f"make {spell(self.path)} optional"


Change = AddColumn | Widen | MakeOptional


@dataclass(frozen=True, slots=True)
class Misfit:
    """A field that no change makes fit: its type cannot become the column's. Records with a value there are bad."""

    path: FieldPath
    writer: str
    column: str

    def __str__(self) -> str:
        return f"field {spell(self.path)} is {self.writer}, and its column {self.column}"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A field that can have no column, and why."""

    path: FieldPath
    reason: str

    def __str__(self) -> str:
        return f"field {spell(self.path)}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Evolution:
    changes: tuple[Change, ...] = ()
    misfits: tuple[Misfit, ...] = ()
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True, slots=True)
class Evolving:
    """What a commit brings: changes of a table's schema, and the text of its ledger then."""

    changes: tuple[Change, ...]
    ledger: str


#: Takes a table's newest schema, its properties, and the fields that its schemas have had; returns what to commit on them,
#: or None where they have all of it already.
Decide = Callable[[TableSchema, Mapping[str, str], Collection[FieldPath]], Evolving | None]

Units = Collection[int] | None


def evolve(
    schema: TableSchema,
    writer: WriterSchema,
    earlier: Collection[FieldPath] = (),
    units: Units = None,
    key: Column | None = None,
    required: Collection[int] = (),
) -> Evolution:
    """Return what a table with ``schema`` needs for records of ``writer``. A schema that is no record has the field ``value``.

    ``earlier`` are fields that the table has had, and those of schemas that it has taken up: one of them that has no column
    was dropped, or left out, by a person. Those inside a column are below any name that it has or had.
    ``units`` are the ids of the table's fields whose times may be numbers; None: all.
    ``key`` is the column that keys of records fill, if they do: it is no field's.
    ``required`` are ids of columns that stay so: those of a keyed table's key, which may be in keys of records alone.
    """
    always = [
        MakeOptional((column.name,)) for column in schema.columns if column.field_id in required
    ]
    owners = _owners(schema.columns)
    without = {
        (owners[path[0]].name, *path[1:]) if path[0] in owners else path for path in earlier
    }
    items = [
        LeftOut(item.path, "a schema of before had it, too, and its column was dropped")
        if isinstance(item, AddColumn) and item.path in without
        else item
        for item in _columns(schema, record_fields(writer), key, units)
        if item not in always
    ]
    return Evolution(
        tuple(each for each in items if isinstance(each, AddColumn | Widen | MakeOptional)),
        tuple(each for each in items if isinstance(each, Misfit)),
        tuple(each for each in items if isinstance(each, LeftOut)),
    )


def record_fields(writer: WriterSchema) -> tuple[tuple[str, WriterType], ...]:
    """Return names and types of what becomes columns: a record's fields, or the one ``value``."""
    value = writer.root.value
    return members_of(value) if value.kind == "record" else (("value", writer.root),)


def schema_of_rows(
    writer: WriterSchema, record: str | None, envelope: Envelope = "none"
) -> WriterSchema | None:
    """Return the schema of what becomes rows: of records by their full name if not all do, of what is in their envelope.

    None: none of the schema's records does.
    """
    root = writer.root
    if record is None or root.value.name == record:
        return _inside(writer, envelope)
    branches = [each for each in root.items if root.kind == "union" and each.name == record]
    return _inside(WriterSchema(branches[0], writer.recursive), envelope) if branches else None


def _inside(writer: WriterSchema, envelope: Envelope) -> WriterSchema | None:
    if envelope == "none":
        return writer
    fields = writer.root.value.fields
    if envelope == "debezium":
        after = next((each.type.value for each in fields if each.name == "after"), None)
        is_row = after is not None and after.kind == "record"
        return WriterSchema(after, writer.recursive) if after is not None and is_row else None
    # Says which change a record is, and nothing of its row.
    rows = tuple(each for each in fields if each.name != "__deleted")
    return WriterSchema(replace(writer.root.value, fields=rows), writer.recursive)


def paths_of(writer: WriterSchema) -> frozenset[FieldPath]:
    """Return the paths of all fields that can have a column, by the writer's names."""
    return frozenset(_paths((), record_fields(writer)))


def _paths(above: FieldPath, fields: Sequence[tuple[str, WriterType]]) -> Iterator[FieldPath]:
    for name, kind in fields:
        if table_type(kind) is None:
            continue
        yield (*above, name)
        value, path = kind.value, (*above, name)
        while value.kind in ("array", "map"):
            path = (*path, "element" if value.kind == "array" else "value")
            value = value.items[0].value
        if value.kind in ("record", "union"):
            yield from _paths(path, members_of(value))


_Item = Change | Misfit | LeftOut


def _owners(columns: Sequence[Column]) -> dict[str, Column]:
    """Return columns by their names, the one of now before those of earlier."""
    owners = {name: column for column in columns for name in column.keys}
    return owners | {column.name: column for column in columns}


def _columns(
    schema: TableSchema,
    fields: Sequence[tuple[str, WriterType]],
    key: Column | None,
    units: Units,
) -> Iterator[_Item]:
    """Match fields with columns: by the name that a column has now, then by those that it had."""
    columns = [column for column in schema.columns if column is not key]
    owners = _owners(columns)
    names = [column.name for column in columns]
    written = frozenset(name for name, _ in fields)
    claimed: set[str] = set()
    for name, writer in fields:
        column = owners.get(name)
        if key is not None and name.casefold() == key.name.casefold():
            yield LeftOut((name,), "the column of this name is filled by records' keys")
            continue
        if column is None or column.is_metadata or name in METADATA_COLUMNS:
            yield from _added((), name, writer, names)
            names.append(name)
            continue
        first = next((key for key in column.keys if key in written), name)
        if first != name:
            yield LeftOut((name,), f"its column is filled by the field {spell((first,))}")
            continue
        claimed.add(column.name)
        yield from _matched((column.name,), _as_field(column), writer, units)
    for column in columns:
        if column.required and not (column.is_metadata or column.name in claimed):
            yield MakeOptional((column.name,))


def _as_field(column: Column) -> pa.Field:
    own_id = {FIELD_ID: str(column.field_id)}
    return pa.field(column.name, column.type, not column.required, own_id)


def _added(
    above: FieldPath, name: str, writer: WriterType, names: Sequence[str]
) -> Iterator[_Item]:
    path = (*above, name)
    kind = table_type(writer)
    if not above and name in METADATA_COLUMNS:
        yield LeftOut(path, "its name is one of the metadata columns'")
    elif kind is None:
        yield LeftOut(path, "it holds no values")
    elif any(name.casefold() == other.casefold() for other in names):
        yield LeftOut(
            path,
            "its name differs from another one's in case only, which SQL does not tell apart",
        )
    else:
        yield AddColumn(path, kind)
        # What it leaves out inside.
        yield from _matched(path, pa.field(name, kind), writer, None)


def _matched(
    path: FieldPath, field: pa.Field, writer: WriterType, units: Units
) -> Iterator[_Item]:
    """Compare a column, a member, an element with the writer's type for it."""
    if writer.is_optional and not field.nullable:
        yield MakeOptional(path)
    value = writer.value
    kind = table_type(value)
    if kind is None:
        return
    if pa.types.is_struct(field.type) and value.kind in ("record", "union"):
        yield from _struct(path, field.type, value, units)
    elif pa.types.is_list(field.type) and value.kind == "array":
        yield from _matched((*path, "element"), field.type.value_field, value.items[0], units)
    elif pa.types.is_map(field.type) and value.kind == "map":
        yield from _matched((*path, "value"), field.type.item_field, value.items[0], units)
    elif is_promotion(field.type, kind):
        yield Widen(path, field.type, kind)
    elif not (holds(field.type, kind) or _is_read(field, value, units)):
        yield Misfit(path, type_text(kind), type_text(field.type))


def _struct(
    path: FieldPath, kind: pa.DataType, value: WriterType, units: Units
) -> Iterator[_Item]:
    own = {member.name: member for member in kind}
    names, members = list(own), members_of(value)
    for name, writer in members:
        if name in own:
            yield from _matched((*path, name), own[name], writer, units)
        else:
            yield from _added(path, name, writer, names)
            names.append(name)
    written = {name for name, _ in members}
    for member in kind:
        # Of a union's members all but one are NULL.
        if not member.nullable and (value.kind == "union" or member.name not in written):
            yield MakeOptional((*path, member.name))


def _is_read(field: pa.Field, writer: WriterType, units: Units) -> bool:
    """Return whether values of a type without a promotion are read, too, exactly or as bad values (docs/avro-types.md)."""
    column = field.type
    if writer.logical is not None:
        meaning = writer.logical.meaning
        if meaning == "decimal":
            return bool(pa.types.is_decimal128(column))
        if meaning == "duration":
            return bool(pa.types.is_binary(column))
        return meaning in ("uuid", "timestamp-text") and column == pa.string()
    if writer.kind in ("int", "long"):
        return bool(
            pa.types.is_integer(column)
            or pa.types.is_floating(column)
            or pa.types.is_decimal128(column)
            or (
                pa.types.is_temporal(column)
                and (units is None or field_id_if_any(field) in units)
            )
        )
    if writer.kind == "string":
        return bool(column == pa.uuid())
    return writer.kind in ("bytes", "fixed") and bool(
        pa.types.is_binary(column) or pa.types.is_fixed_size_binary(column)
    )
