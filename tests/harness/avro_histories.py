"""What histories of an Avro topic are made of: a registry and a table in memory, which change as the real ones do."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pyarrow as pa

from connectors.registry.texts import Answer, UnknownSchema, WriterText
from planner.errors import SchemaRegistryUnavailable
from planner.evolution.changes import AddColumn, Change, Decide, Evolving, Widen
from planner.evolution.ledger import SCHEMAS
from planner.names import TableName
from planner.schema import METADATA_TYPES, Column, TableSchema
from planner.seam.binding import Binding, parse_binding
from planner.seam.formats import AvroFormat
from planner.sql_text import FieldPath

TABLE = TableName("lake", ("shop",), "orders")
LEAD = tuple(
    Column(at, name, METADATA_TYPES[name])
    for at, name in enumerate(("kafka_partition", "kafka_offset", "kafka_timestamp"), 1)
)
#: Types of a field, each with those that it may become.
WIDER = {"int": "long", "float": "double"}

#: Fields of a schema: name to type; of the struct ``p`` another such.
Fields = dict[str, Any]


def text_of(fields: Fields, name: str = "R") -> str:
    members = []
    for each, kind in fields.items():
        written = json.loads(text_of(kind, "P")) if isinstance(kind, dict) else kind
        members.append({"name": each, "type": ["null", written], "default": None})
    return json.dumps({"type": "record", "name": name, "fields": members})


class Registry:
    """``connectors.registry.decoders.Registry`` in memory. ``texts`` are those of ids 1, 2 and so on; None: there is none."""

    def __init__(self) -> None:
        self.texts: list[str | None] = []
        self.is_up = True

    def by_ids(self, ids: Collection[int], **_: object) -> dict[int, Answer]:
        if not self.is_up:
            raise SchemaRegistryUnavailable("the schema registry does not answer.")
        return {each: self._answer(each) for each in ids}

    def _answer(self, schema_id: int) -> Answer:
        text = self.texts[schema_id - 1]
        if text is None:
            return UnknownSchema(f"schema id {schema_id}")
        return WriterText(schema_id, text, {}, "AVRO")

    def by_subject(self, subject: str, version: int, *, timeout_s: float) -> Answer:
        raise NotImplementedError


class Table:
    """A table whose schema and properties change as pyiceberg would change them."""

    def __init__(self) -> None:
        self.schema = TableSchema(0, LEAD)
        form = AvroFormat(evolution="additive")
        self.properties = Binding("orders", form).properties()
        self._last = 10
        self._past: set[FieldPath] = set()

    @property
    def binding(self) -> Binding:
        binding = parse_binding(TABLE, self.properties)
        assert binding is not None
        return binding

    def commit(self, table: TableName, decide: Decide) -> Evolving | None:
        assert table == TABLE
        evolving = decide(self.schema, self.properties, self._past)
        if evolving is not None:
            for change in evolving.changes:
                self.change(change)
            self.properties[SCHEMAS] = evolving.ledger
        return evolving

    def change(self, change: Change) -> None:
        name, *inside = change.path
        if isinstance(change, AddColumn) and not inside:
            self._last += 1
            self._set((*self.schema.columns, Column(self._last, name, change.type)))
            return
        (column,) = (each for each in self.schema.columns if each.name == name)
        kind = changed(column.type, inside, change)
        self._set(
            tuple(
                replace(column, type=kind) if each is column else each
                for each in self.schema.columns
            )
        )

    def drop(self, name: str) -> None:
        self._set(tuple(each for each in self.schema.columns if each.name != name))

    def _set(self, columns: tuple[Column, ...]) -> None:
        self._past |= {(each.name,) for each in self.schema.columns}
        self.schema = TableSchema(self.schema.schema_id + 1, columns)


def changed(kind: pa.DataType, path: list[str], change: Change) -> pa.DataType:
    if not path:
        assert isinstance(change, Widen)
        return change.after
    fields = list(kind)
    if len(path) == 1 and isinstance(change, AddColumn):
        return pa.struct([*fields, pa.field(path[0], change.type)])
    return pa.struct(
        [
            each.with_type(changed(each.type, path[1:], change))
            if each.name == path[0]
            else each
            for each in fields
        ]
    )
