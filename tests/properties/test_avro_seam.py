"""Random histories of an Avro topic: schemas come, tables follow, rows are tiered. Each record is one row, the same before and after.

The registry is away at times, loses schemas or has others for a while; processes of the product start anew.
Registry, table and log are doubles in memory; decoder, decisions and ledger are the real ones. fastavro says what a record holds.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections.abc import Mapping
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from connectors.decoding.registry import decoder_for
from connectors.registry.decoders import Decoders
from connectors.registry.table_schemas import take_up
from planner.errors import SchemaRegistryChanged, SchemaRegistryUnavailable, UndecodableRecord
from planner.evolution.ledger import SchemaLedger
from planner.schema import RAW_SCHEMA
from planner.seam.formats import AvroFormat
from tests.doubles.schema_registry import MemoryRegistry
from tests.harness.avro_histories import (
    TABLE,
    WIDER,
    Fields,
    conformed,
    following_table,
    text_of,
)

EXAMPLES = int(os.environ.get("THERMOCLINE_SEAM_EXAMPLES", "30"))
NAMES = ("a", "b", "c", "d")
VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False),
    "double": st.floats(allow_nan=False),
    "string": st.text(max_size=3),
}


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.registry, self.table = MemoryRegistry(), following_table()
        self.schemas: list[Fields] = []
        self.log: list[tuple[int, dict[str, Any]]] = []
        self.watermark = 0
        #: Rows by offset: values by field id, as they were when the row was tiered.
        self.cold: list[dict[int, Any]] = []
        #: Names of columns that a person dropped.
        self.dropped: set[str] = set()
        # The server's, and those of two tierers; each starts anew now and then.
        self.server = self._started()
        self.tierers = [self._started(), self._started()]

    def _started(self) -> Decoders:
        return Decoders(self.registry.of)

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
        self.registry.answers[len(self.schemas)] = text_of(self.schemas[-1])

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

    @rule(count=st.integers(1, 5), number=st.integers(0, 1), starts_anew=st.booleans())
    def tier(self, count: int, number: int, starts_anew: bool) -> None:
        if starts_anew:
            self.tierers[number] = self._started()
        stop = min(len(self.log), self.watermark + count)
        if stop == self.watermark:
            return
        try:
            self._publish(self.tierers[number], stop)
        except SchemaRegistryUnavailable:
            assert not self.registry.is_up

    def _publish(self, tierer: Decoders, stop: int) -> None:
        while True:
            schema, binding = self.table.schema, self.table.binding
            decoder = decoder_for(
                str(TABLE), schema, binding, tierer.writers(str(TABLE), binding)
            )
            decoded = decoder.decode(self._raw(self.watermark, stop))
            ids = {at for at, _ in self.log[self.watermark : stop]}
            assert isinstance(binding.format, AvroFormat)
            unmet = decoded.needs | binding.format.ledger.lacks(ids)
            if not unmet:
                break
            take_up(TABLE, binding, unmet, tierer, self.table.commit)
        names = {column.name: column.field_id for column in schema.columns}
        for row in decoded.rows.to_pylist():
            self.cold.append({names[name]: value for name, value in row.items()})
        self.watermark = stop

    @precondition(lambda self: self.registry.is_up)
    @rule(number=st.integers(0, 1))
    def take_up_versions(self, number: int) -> None:
        """As a tierer does with versions that no record has yet."""
        ids = range(1, len(self.schemas) + 1)
        take_up(TABLE, self.table.binding, ids, self.tierers[number], self.table.commit)

    @rule()
    def come_and_go(self) -> None:
        """The registry is away, until this comes again."""
        self.registry.is_up = not self.registry.is_up

    @rule()
    def start_the_server_anew(self) -> None:
        self.server = self._started()

    @precondition(lambda self: self.registry.is_up and self._ledger().fingerprints)
    @rule(has_others=st.booleans())
    def replace_the_registry(self, has_others: bool) -> None:
        """For a while ids mean other schemas, or none: processes that start then stop at what they need, by name."""
        own = self.registry.answers
        decoys = ({**fields, "decoy": "int"} for fields in self.schemas)
        self.registry.answers = (
            {at: text_of(fields) for at, fields in enumerate(decoys, 1)} if has_others else {}
        )
        ledger = self._ledger()
        ids = {at for at, _ in self.log[self.watermark :]} & ledger.fingerprints.keys()
        changed = pytest.raises(SchemaRegistryChanged, match="the registry has another schema")
        with changed if ids else contextlib.nullcontext():
            self._started().ask(str(TABLE), self.table.binding, ids)
        if ids:
            decoder = self._started()(str(TABLE), self.table.schema, self.table.binding)
            with pytest.raises(SchemaRegistryChanged):
                decoder.decode(self._raw(self.watermark, len(self.log)))
        self.registry.answers = own

    def _ledger(self) -> SchemaLedger:
        form = self.table.binding.format
        assert isinstance(form, AvroFormat)
        return form.ledger

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
                body, fastavro.parse_schema(json.loads(text_of(self.schemas[at - 1]))), record
            )
            value = b"\0" + at.to_bytes(4) + body.getvalue()
            rows.append({"kafka_partition": 0, "kafka_offset": offset, "kafka_value": value})
        return pa.RecordBatch.from_pylist(rows, RAW_SCHEMA)

    def _hot(self) -> list[dict[str, Any]] | None:
        """Read the tail as a server does; None: it waits for the registry, as it must.

        A number may be of a wider type than its column, while no tierer has widened that: an error by name.
        """
        if self.watermark == len(self.log):
            return []
        ids = {at for at, _ in self.log[self.watermark :]}
        is_met = all(map(self.server.writers(str(TABLE), self.table.binding).get, ids))
        try:
            return self._read_tail()
        except SchemaRegistryUnavailable:
            assert not self.registry.is_up
            assert not is_met
            return None
        except UndecodableRecord as error:
            assert "is new to the table" in error.message  # noqa: PT017 - most tails have none
            assert self._ledger().lacks(ids)
        if not self.registry.is_up:
            return None
        self.take_up_versions(0)
        return self._read_tail()

    def _read_tail(self) -> list[dict[str, Any]]:
        decoder = self.server(str(TABLE), self.table.schema, self.table.binding)
        rows: list[dict[str, Any]] = decoder.decode(
            self._raw(self.watermark, len(self.log))
        ).rows.to_pylist()
        return rows

    @invariant()
    def what_a_person_dropped_stays_dropped(self) -> None:
        assert self.dropped.isdisjoint(self.table.schema.names)

    @invariant()
    def every_record_is_its_row(self) -> None:
        hot = self._hot()
        schema = self.table.schema
        records = self.log[: self.watermark] if hot is None else self.log
        for offset, (_, record) in enumerate(records):
            for column in schema.payload:
                expected = conformed(column.type, record.get(column.name))
                if hot is not None and offset >= self.watermark:
                    value = hot[offset - self.watermark][column.name]
                elif column.field_id in self.cold[offset]:
                    value = conformed(column.type, self.cold[offset][column.field_id])
                else:
                    # Added after the row was tiered: its record had no such field.
                    assert record.get(column.name) is None
                    continue
                assert value == expected, (offset, column.name)


Histories.TestCase.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=30, deadline=None
)
TestHistories = Histories.TestCase
