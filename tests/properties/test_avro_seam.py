"""Random histories of an Avro topic: schemas come, tables follow, rows are tiered. Each record is one row, the same before and after.

Registry, table and log are doubles in memory; decoder, decisions and ledger are the real ones. fastavro says what a record holds.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import fastavro
import pyarrow as pa
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from connectors.decoding.registry import decoder_for
from connectors.registry.decoders import Answer, Decoders
from connectors.registry.table_schemas import take_up
from connectors.registry.texts import WriterText
from planner.errors import UndecodableRecord
from planner.evolution.changes import AddColumn, Change, Decide, Evolving, Widen
from planner.evolution.ledger import SCHEMAS
from planner.names import TableName
from planner.schema import METADATA_TYPES, RAW_SCHEMA, Column, TableSchema
from planner.seam.binding import Binding, parse_binding
from planner.seam.formats import AvroFormat

TABLE = TableName("lake", ("shop",), "orders")
EXAMPLES = int(os.environ.get("THERMOCLINE_SEAM_EXAMPLES", "30"))
LEAD = tuple(
    Column(at, name, METADATA_TYPES[name])
    for at, name in enumerate(("kafka_partition", "kafka_offset", "kafka_timestamp"), 1)
)
NAMES = ("a", "b", "c", "d")
#: Types of a field, each with those that it may become.
WIDER = {"int": "long", "float": "double"}
VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=3),
}

#: Fields of a schema: name to type; of the struct ``p`` another such.
Fields = dict[str, Any]


def text_of(fields: Fields, name: str = "R") -> str:
    members = []
    for each, kind in fields.items():
        written = json.loads(text_of(kind, "P")) if isinstance(kind, dict) else kind
        members.append({"name": each, "type": ["null", written], "default": None})
    return json.dumps({"type": "record", "name": name, "fields": members})


class Registry:
    """``connectors.registry.decoders.Registry`` in memory."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def by_ids(self, ids: Collection[int], *, timeout_s: float) -> dict[int, Answer]:
        del timeout_s
        return {each: WriterText(each, self.texts[each - 1], {}, "AVRO") for each in ids}

    def by_subject(self, subject: str, version: int, *, timeout_s: float) -> Answer:
        raise NotImplementedError


class Table:
    """A table whose schema and properties change as pyiceberg would change them."""

    def __init__(self) -> None:
        self.schema = TableSchema(0, LEAD)
        form = AvroFormat(evolution="additive")
        self.properties = Binding("orders", form).properties()
        self._last = 10

    @property
    def binding(self) -> Binding:
        binding = parse_binding(TABLE, self.properties)
        assert binding is not None
        return binding

    def commit(self, table: TableName, decide: Decide) -> Evolving | None:
        assert table == TABLE
        evolving = decide(self.schema, self.properties)
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


def as_column(value: Any, kind: pa.DataType) -> Any:
    """What a column of a type shows of a value: members that it does not have are NULL."""
    if pa.types.is_struct(kind) and value is not None:
        return {each.name: as_column(value.get(each.name), each.type) for each in kind}
    return value


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.registry, self.table = Registry(), Table()
        self.schemas: list[Fields] = []
        self.log: list[tuple[int, dict[str, Any]]] = []
        self.watermark = 0
        #: Rows by offset: values by field id, as they were when the row was tiered.
        self.cold: list[dict[int, Any]] = []
        #: Names of columns that a person dropped.
        self.dropped: set[str] = set()
        # The server's, and that of a tierer, which starts anew now and then.
        self.server = Decoders(lambda *_: self.registry)
        self.tierer = Decoders(lambda *_: self.registry)

    @rule(data=st.data())
    def register(self, data: st.DataObject) -> None:
        """A compatible next version: fields come, go, widen and change places."""
        fields = dict(self.schemas[-1]) if self.schemas else {}
        for name, kind in list(fields.items()):
            if isinstance(kind, dict):
                fields[name] = self._next(data, kind)
        fields = self._next(data, fields)
        if data.draw(st.booleans()) and "p" not in self._ever():
            fields["p"] = self._next(data, {"x": "int"})
        order = data.draw(st.permutations(list(fields)))
        self.schemas.append({name: fields[name] for name in order})
        self.registry.texts.append(text_of(self.schemas[-1]))

    def _ever(self) -> dict[str, Any]:
        """The widest type that each name has had."""
        ever: dict[str, Any] = {}
        for fields in self.schemas:
            for name, kind in fields.items():
                if isinstance(kind, str) and ever.get(name) not in WIDER.values():
                    ever[name] = kind
                ever.setdefault(name, kind)
        return ever

    def _next(self, data: st.DataObject, fields: Fields) -> Fields:
        fields = dict(fields)
        for name, kind in list(fields.items()):
            if isinstance(kind, str) and kind in WIDER and data.draw(st.booleans()):
                fields[name] = WIDER[kind]
            elif len(fields) > 1 and data.draw(st.integers(0, 4)) == 0:
                del fields[name]
        inside = "x" in fields or "y" in fields
        for name in ("x", "y") if inside else NAMES:
            if name not in fields and data.draw(st.booleans()):
                before = None if inside else self._ever().get(name)
                kinds = [before] if before else ["int"] if inside else sorted(VALUES)
                fields[name] = data.draw(st.sampled_from(kinds))
        return fields

    @precondition(lambda self: self.schemas)
    @rule(data=st.data())
    def produce(self, data: st.DataObject) -> None:
        """With any schema that there ever was."""
        at = data.draw(st.integers(1, len(self.schemas)))
        for _ in range(data.draw(st.integers(1, 3))):
            self.log.append((at, self._record(data, self.schemas[at - 1])))

    def _record(self, data: st.DataObject, fields: Fields) -> dict[str, Any]:
        return {
            name: None
            if data.draw(st.integers(0, 4)) == 0
            else self._record(data, kind)
            if isinstance(kind, dict)
            else data.draw(VALUES[kind])
            for name, kind in fields.items()
        }

    @rule(count=st.integers(1, 5), starts_anew=st.booleans())
    def tier(self, count: int, starts_anew: bool) -> None:
        if starts_anew:
            self.tierer = Decoders(lambda *_: self.registry)
        stop = min(len(self.log), self.watermark + count)
        if stop == self.watermark:
            return
        while True:
            schema, binding = self.table.schema, self.table.binding
            decoder = decoder_for(
                str(TABLE), schema, binding, self.tierer.writers(str(TABLE), binding)
            )
            decoded = decoder.decode(self._raw(self.watermark, stop))
            ids = {at for at, _ in self.log[self.watermark : stop]}
            assert isinstance(binding.format, AvroFormat)
            unmet = decoded.needs | binding.format.ledger.lacks(ids)
            if not unmet:
                break
            take_up(TABLE, binding, unmet, self.tierer, self.table.commit)
        names = {column.name: column.field_id for column in schema.columns}
        for row in decoded.rows.to_pylist():
            self.cold.append({names[name]: value for name, value in row.items()})
        self.watermark = stop

    @rule()
    def take_up_versions(self) -> None:
        """As a tierer does with versions that no record has yet."""
        ids = range(1, len(self.schemas) + 1)
        take_up(TABLE, self.table.binding, ids, self.tierer, self.table.commit)

    @precondition(lambda self: any(each.name in NAMES for each in self.table.schema.columns))
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        names = [each.name for each in self.table.schema.columns if each.name in NAMES]
        name = data.draw(st.sampled_from(names))
        self.table.drop(name)
        self.dropped.add(name)

    def _raw(self, start: int, stop: int) -> pa.RecordBatch:
        rows = []
        for offset in range(start, stop):
            at, record = self.log[offset]
            body = io.BytesIO()
            fastavro.schemaless_writer(
                body, fastavro.parse_schema(json.loads(self.registry.texts[at - 1])), record
            )
            value = b"\0" + at.to_bytes(4) + body.getvalue()
            rows.append({"kafka_partition": 0, "kafka_offset": offset, "kafka_value": value})
        return pa.RecordBatch.from_pylist(rows, RAW_SCHEMA)

    def _hot(self) -> list[dict[str, Any]]:
        """Read the tail as a server does. A number may be beyond its column while no tierer has widened that: an error by name."""
        if self.watermark == len(self.log):
            return []
        raw = self._raw(self.watermark, len(self.log))
        decoder = self.server(str(TABLE), self.table.schema, self.table.binding)
        try:
            return decoder.decode(raw).rows.to_pylist()
        except UndecodableRecord as error:
            form = self.table.binding.format
            assert isinstance(form, AvroFormat)
            assert "is beyond" in error.message  # noqa: PT017 - most tails have none
            assert form.ledger.lacks({at for at, _ in self.log[self.watermark :]})
        self.take_up_versions()
        decoder = self.server(str(TABLE), self.table.schema, self.table.binding)
        return decoder.decode(raw).rows.to_pylist()

    @invariant()
    def what_a_person_dropped_stays_dropped(self) -> None:
        assert self.dropped.isdisjoint(self.table.schema.names)

    @invariant()
    def every_record_is_its_row(self) -> None:
        hot = self._hot()
        schema = self.table.schema
        for offset, (_, record) in enumerate(self.log):
            for column in schema.payload:
                expected = as_column(record.get(column.name), column.type)
                if offset >= self.watermark:
                    value = hot[offset - self.watermark][column.name]
                elif column.field_id in self.cold[offset]:
                    value = as_column(self.cold[offset][column.field_id], column.type)
                else:
                    # Added after the row was tiered: its record had no such field.
                    assert record.get(column.name) is None
                    continue
                assert value == expected, (offset, column.name)


Histories.TestCase.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=30, deadline=None
)
TestHistories = Histories.TestCase
