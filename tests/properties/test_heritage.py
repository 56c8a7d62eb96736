"""Tails of a topic whose schemas change, with what generations read of one another: always what Kafka says."""

from __future__ import annotations

import io
import json
import os
from random import Random
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from connectors.registry.decoders import Decoders
from connectors.registry.table_schemas import take_up
from planner.errors import UndecodableRecord
from planner.schema import METADATA_TYPES, RAW_SCHEMA, Column, TableSchema
from planner.seam.binding import ON_ERROR
from planner.seam.cut import TableCut
from proxy.tail import followed_table, generations
from tests.doubles.log import MemoryRecord
from tests.doubles.schema_registry import MemoryRegistry
from tests.harness.avro_histories import TABLE, WIDER, Fields, following_table, text_of
from tests.harness.tails import FOLLOWED, TailHarness

EXAMPLES = int(os.environ.get("THERMOCLINE_SEAM_EXAMPLES", "30"))
#: No schema has them.
UNKNOWN_ID, NO_ID = b"\0\0\1\0\0rest", b"nonsense"


#: Of each type, values that the narrower one has, and that it has not.
VALUES: dict[str, tuple[Any, ...]] = {
    "int": (-(2**31), 0, 7, 2**31 - 1),
    "long": (-1, 8, 9, 2**40),
    "float": (-0.5, 0.10000000149011612, 3.0),
    "double": (0.1, 1.5, 1e300),
    "string": ("", "é"),
}


def record(chance: Random, fields: Fields) -> dict[str, Any]:
    return {
        name: None
        if not chance.randint(0, 4)
        else record(chance, kind)
        if isinstance(kind, dict)
        else chance.choice(VALUES[kind])
        for name, kind in fields.items()
    }


class Heritages(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(generations, "SEGMENT_ROWS", 4)
        self.patch.setattr(followed_table, "FETCHED_RECORDS", 12)
        self.registry, self.table = MemoryRegistry(), following_table()
        self.decoders = Decoders(self.registry.of)
        self.tails = TailHarness(following=FOLLOWED, threads=False, decoders=self.decoders)
        self.schemas: list[Fields] = []
        self.past: list[TableSchema] = []
        self.evolved = 0
        self.raw: list[list[bytes]] = [[], []]
        self.watermark = [0, 0]

    def teardown(self) -> None:
        self.tails.tails.close()
        self.patch.undo()
        assert self.tails.segments() == 0

    @initialize(policy=st.sampled_from(["fail", "null", "skip"]))
    def bind(self, policy: str) -> None:
        self.table.properties[ON_ERROR] = policy
        names = ("kafka_value", "kafka_error")
        ours = (Column(at, name, METADATA_TYPES[name]) for at, name in enumerate(names, 4))
        self.table.schema = TableSchema(0, (*self.table.schema.columns, *ours))
        self._register({"a": "int", "b": "float"})
        self.evolve()

    def _register(self, fields: Fields) -> None:
        self.schemas.append(fields)
        self.registry.answers[len(self.schemas)] = text_of(fields)

    @rule(data=st.data())
    def register(self, data: st.DataObject) -> None:
        """A next version: fields come, go, widen and change places; one has fields itself."""
        fields = dict(self.schemas[-1])
        kinds: dict[str, Any] = {}
        for each in self.schemas:
            kinds |= each
        for name, kind in list(fields.items()):
            if isinstance(kind, str) and kind in WIDER and data.draw(st.booleans()):
                fields[name] = WIDER[kind]
            elif len(fields) > 1 and data.draw(st.integers(0, 4)) == 0:
                del fields[name]
        for name in ("a", "b", "c"):
            if name not in fields and data.draw(st.booleans()):
                fields[name] = kinds.get(name) or data.draw(st.sampled_from(sorted(VALUES)))
        if data.draw(st.integers(0, 3)) == 0:
            fields["p"] = fields.get("p", {}) | {data.draw(st.sampled_from("xyz")): "int"}
        order = data.draw(st.permutations(list(fields)))
        self._register({name: fields[name] for name in order})

    @rule(chance=st.randoms(), partition=st.integers(0, 1), count=st.integers(1, 9))
    def produce(self, chance: Random, partition: int, count: int) -> None:
        """With any schema that there ever was; under other policies than ``fail`` also what is no record."""
        at = chance.randint(1, len(self.schemas))
        schema = fastavro.parse_schema(json.loads(text_of(self.schemas[at - 1])))
        for _ in range(count):
            body = io.BytesIO()
            fastavro.schemaless_writer(body, schema, record(chance, self.schemas[at - 1]))
            self._append(partition, b"\0" + at.to_bytes(4) + body.getvalue())
        if self.table.properties[ON_ERROR] != "fail" and not chance.randint(0, 3):
            self._append(partition, chance.choice([UNKNOWN_ID, NO_ID]))

    def _append(self, partition: int, value: bytes) -> None:
        self.raw[partition].append(value)
        self.tails.log.append("flows", partition, MemoryRecord(value))

    @precondition(lambda self: self.evolved < len(self.schemas))
    @rule()
    def evolve(self) -> None:
        self.evolved = len(self.schemas)
        self.past.append(self.table.schema)
        ids = range(1, len(self.schemas) + 1)
        take_up(TABLE, self.table.binding, ids, self.decoders, self.table.commit)

    @precondition(lambda self: len(self.table.schema.payload) > 1)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        self.past.append(self.table.schema)
        names = [each.name for each in self.table.schema.payload]
        self.table.drop(data.draw(st.sampled_from(names)))

    @rule(partition=st.integers(0, 1), count=st.integers(1, 6))
    def tier(self, partition: int, count: int) -> None:
        self.watermark[partition] = min(
            self.watermark[partition] + count, len(self.raw[partition])
        )
        self.tails.tails.note_pin(self._pin(self.table.schema))

    @rule()
    def follow(self) -> None:
        self.tails.followers.step()

    @rule(seconds=st.integers(0, 1000))
    def keep(self, seconds: int) -> None:
        """As the keeper's threads do."""
        self.tails.now_s += seconds
        self.tails.tails.tend()
        for _ in range(2):
            self.tails.tails.pack()

    @precondition(lambda self: self.past)
    @rule(data=st.data())
    def read_by_an_old_ticket(self, data: st.DataObject) -> None:
        self._check(data.draw(st.sampled_from(self.past[-3:])))

    @invariant()
    def every_row_is_what_kafka_says(self) -> None:
        self._check(self.table.schema)

    def _check(self, schema: TableSchema) -> None:
        cut = self._cut(schema)
        try:
            expected = self._decoded(schema)
        except UndecodableRecord:
            with pytest.raises(UndecodableRecord):
                self._read(cut)
        else:
            assert self._read(cut) == expected

    def _read(self, cut: TableCut) -> list[dict[str, Any]]:
        with self.tails.tails.read(cut, lambda: None) as tail:
            engine = self.tails.engine.cursor()
            answers = [engine.execute(part.sql).to_arrow_table() for part in tail.relations]
        rows = [row for answer in answers for row in answer.to_pylist()]
        return sorted(rows, key=lambda row: (row["kafka_partition"], row["kafka_offset"]))

    def _decoded(self, schema: TableSchema) -> list[dict[str, Any]]:
        """Decode the tail anew, each partition as one batch."""
        decoder = self.decoders(str(TABLE), schema, self.table.binding)
        rows = []
        for partition, start in enumerate(self.watermark):
            values = self.raw[partition]
            raw = [
                {
                    "kafka_partition": partition,
                    "kafka_offset": at,
                    "kafka_timestamp": 0,
                    "kafka_value": values[at],
                }
                for at in range(start, len(values))
            ]
            batch = pa.RecordBatch.from_pylist(raw, RAW_SCHEMA)
            rows += decoder.decode(batch).rows.to_pylist()
        return rows

    def _pin(self, schema: TableSchema) -> Any:
        self.tails.binding = self.table.binding
        return self.tails.pin(*self.watermark, columns=schema, table=TABLE)

    def _cut(self, schema: TableSchema) -> TableCut:
        self.tails.binding = self.table.binding
        return self.tails.cut(*self.watermark, columns=schema, table=TABLE)


Heritages.TestCase.settings = settings(
    max_examples=EXAMPLES, stateful_step_count=30, deadline=None
)
TestHeritages = Heritages.TestCase
