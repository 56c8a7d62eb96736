"""Rules of Avro tables: what decodes a record, what a ledger says, what columns a schema brings."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from connectors.decoding.registry import decoder_for
from connectors.decoding.writers import Writers
from connectors.registry.client import SchemaRegistry
from connectors.registry.decoders import Decoders
from connectors.registry.shipping import SchemaShipping
from connectors.registry.table_schemas import take_up
from connectors.registry.texts import WriterText
from planner.errors import SchemaRegistryChanged, SchemaRegistryUnavailable, TieringConflict
from planner.evolution.avro import parse_schema
from planner.evolution.ledger import SchemaLedger
from planner.names import TableName
from planner.schema import Column, TableSchema
from planner.seam.binding import Binding
from planner.seam.formats import AvroFormat
from planner.tiering.publish import check_schemas
from tests.doubles.evolving_table import EvolvingTable
from tests.doubles.schema_registry import MemoryRegistry
from tests.harness.avro_decoder import framed, raw_batch
from tests.harness.clock import Clock
from tests.harness.scripted_registry import Reply, by_id, missing, scripted_registry

TABLE = TableName("lake", ("shop",), "orders")
SCHEMA = TableSchema(1, (Column(1, "a", pa.int64()), Column(2, "b", pa.string())))
NARROW = TableSchema(1, SCHEMA.columns[:1])


def text(**fields: Any) -> str:
    items = [{"name": name, "type": kind} for name, kind in fields.items()]
    return json.dumps({"type": "record", "name": "Order", "fields": items})


#: Fields of the same bytes in another order: only the writer's schema tells which is which.
ONE, OTHER = text(b="string", a="long"), text(a="long", b="string")
FINGERPRINT = parse_schema(ONE).fingerprint


def body(schema: str, **values: Any) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(json.loads(schema)), values)
    return buffer.getvalue()


def binding(ledger: Mapping[int, str] | None = None, era: int = 0) -> Binding:
    form = AvroFormat(evolution="additive", ledger=SchemaLedger(ledger or {}, era))
    return Binding("orders", form)


@pytest.mark.parametrize("count", [4, 400], ids=["exact", "fast"])
def test_a_record_is_decoded_with_the_schema_it_was_written_with(count: int) -> None:
    writers = Writers()
    writers.add(7, ONE, {})
    writers.add(8, OTHER, {})
    decoder = decoder_for("t", SCHEMA, binding(), writers)
    values = [
        framed(7, body(ONE, a=n, b=f"b{n}"))
        if n % 2
        else framed(8, body(OTHER, a=n, b=f"b{n}"))
        for n in range(count)
    ]
    rows = decoder.decode(raw_batch(*values)).rows
    assert rows.column("a").to_pylist() == list(range(count))
    assert rows.column("b").to_pylist() == [f"b{n}" for n in range(count)]


def test_tasks_get_no_schema_that_the_ledger_lacks() -> None:
    """Though this process knows it: a row of it could be published before the ledger has it."""
    shipping = SchemaShipping(MemoryRegistry({7: ONE, 8: OTHER}).of)
    bound = binding({7: FINGERPRINT})
    shipping.decoders.ask(str(TABLE), bound, [7, 8])
    shipment = shipping.of_ledger(TABLE, bound)
    assert list(shipment.answers) == [7]
    assert shipment.fingerprints == {7: FINGERPRINT}


def test_a_schema_is_in_the_ledger_with_its_columns_also_where_it_brings_none() -> None:
    table = EvolvingTable(NARROW, binding())
    registry = MemoryRegistry({7: text(a="long"), 8: ONE})
    for number in (7, 8):
        take_up(TABLE, table.binding, [number], Decoders(registry.of), table.commit)
    ledgers = [SchemaLedger.parse(TABLE, each.ledger) for each in table.commits]
    assert [sorted(each.fingerprints) for each in ledgers] == [[7], [7, 8]]
    assert [[str(change) for change in each.changes] for each in table.commits] == [
        [],
        ["add b string"],
    ]


def test_rows_are_not_published_where_the_ledger_lacks_their_schema() -> None:
    check_schemas(TABLE, {7: FINGERPRINT}, binding({7: FINGERPRINT, 8: "x"}))
    for lost in (binding(), None):
        with pytest.raises(TieringConflict, match="no longer what id 7 meant"):
            check_schemas(TABLE, {7: FINGERPRINT}, lost)


def test_a_registry_that_gives_an_id_to_another_schema_stops_readers_and_tierers() -> None:
    registry = MemoryRegistry({7: OTHER})
    bound = binding({7: FINGERPRINT})
    decoder = Decoders(registry.of)(str(TABLE), SCHEMA, bound)
    with pytest.raises(SchemaRegistryChanged, match="another schema under id 7"):
        decoder.decode(raw_batch(framed(7, body(OTHER, a=1, b="x"))))
    with pytest.raises(SchemaRegistryChanged, match="another schema under id 7"):
        SchemaShipping(registry.of).of_ledger(TABLE, bound)


def test_a_dropped_column_stays_dropped_under_a_later_schema() -> None:
    """Though the registry has lost the schema that brought it."""
    table = EvolvingTable(NARROW, binding())
    registry = MemoryRegistry({7: text(a="long", c="int"), 8: text(a="long", c="int", d="int")})
    take_up(TABLE, table.binding, [7], Decoders(registry.of), table.commit)
    table.drop("c")
    del registry.answers[7]
    take_up(TABLE, table.binding, [8], Decoders(registry.of), table.commit)
    assert table.schema.names == ("a", "d")


def test_a_field_without_a_column_from_the_start_has_none_under_a_later_schema() -> None:
    """``create --leave-out`` makes such a table."""
    seven, eight = text(a="long", c="int"), text(a="long", c="int", d="int")
    table = EvolvingTable(NARROW, binding({7: parse_schema(seven).fingerprint}))
    decoders = Decoders(MemoryRegistry({7: seven, 8: eight}).of)
    take_up(TABLE, table.binding, [8], decoders, table.commit)
    assert table.schema.names == ("a", "d")


def test_a_schema_of_the_ledger_brings_no_column_again() -> None:
    """An earlier process took it up; then a person dropped the column."""
    table = EvolvingTable(NARROW, binding())
    registry = MemoryRegistry({7: text(a="long", c="int")})
    for _ in range(2):
        take_up(TABLE, table.binding, [7], Decoders(registry.of), table.commit)
        table.drop("c")
    assert len(table.commits) == 1


def test_an_id_is_asked_for_until_its_grace_is_over() -> None:
    clock = Clock()

    def sleep(seconds: float) -> None:
        clock.now += seconds

    with scripted_registry(missing()) as scripted:
        scripted.answer = lambda _: (
            missing() if len(scripted.paths) < 4 else Reply({"schema": ONE})
        )
        with SchemaRegistry({"url": scripted.url}, clock=clock, sleep=sleep) as registry:
            assert by_id(registry, 7, timeout_s=60) == WriterText(7, ONE, {}, "AVRO")


def test_a_registry_that_is_away_is_no_unknown_id() -> None:
    with (
        scripted_registry(Reply("", 503)) as scripted,
        SchemaRegistry({"url": scripted.url, "max.retries": "0"}) as registry,
    ):
        decoder = Decoders(lambda *_: registry)(str(TABLE), SCHEMA, binding())
        with pytest.raises(SchemaRegistryUnavailable):
            decoder.decode(raw_batch(framed(7, body(ONE, a=1, b="x"))))


def test_another_era_is_another_shape() -> None:
    assert binding(era=0).shape != binding(era=1).shape
    assert binding({7: "x"}).shape == binding({7: "y"}).shape
