"""Writers' schemas that travel with work, and how often a registry is asked for them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from connectors.registry.decoders import FORGOTTEN_AFTER_S, Decoders, shipped_decoder
from connectors.registry.following import LOOK_S, SchemaFollower
from connectors.registry.shipping import SILENCE_S, VERSIONS_TIMEOUT_S, SchemaShipping
from connectors.registry.texts import Format, WriterText
from planner.errors import (
    SchemaIncompatible,
    SchemaRegistryChanged,
    SchemaRegistryUnavailable,
    TieringConflict,
    TooManySchemas,
)
from planner.evolution.avro import parse_schema
from planner.evolution.changes import Decide, Evolving
from planner.evolution.ledger import MAX_IDS, SCHEMAS, UNKNOWN, UNREADABLE, SchemaLedger
from planner.names import KAFKA_ERROR, KAFKA_VALUE, TableName
from planner.schema import METADATA_TYPES, Column, TableSchema
from planner.seam.binding import Binding
from planner.seam.formats import SCHEMA_EVOLUTION, AvroFormat
from tests.doubles.evolving_table import EvolvingTable
from tests.doubles.schema_registry import MemoryRegistry
from tests.harness.avro_decoder import framed, raw_batch
from tests.harness.clock import Clock

TABLE, OTHER = (TableName("lake", ("shop",), name) for name in ("orders", "returns"))
SCHEMA = TableSchema(1, (Column(1, "id", pa.int64()),))


def text(kind: str) -> str:
    fields = [{"name": "id", "type": kind}]
    return json.dumps({"type": "record", "name": "Order", "fields": fields})


LONG = text("long")
FINGERPRINT = parse_schema(LONG).fingerprint


def binding(ledger: dict[int, str] | None = None, **options: Any) -> Binding:
    form = AvroFormat(evolution="additive", ledger=SchemaLedger(ledger or {}))
    return Binding("orders", format=replace(form, **options))


def test_a_task_that_lacks_a_schema_reads_on_for_ids_alone() -> None:
    bound = replace(binding(), on_error="fail", skips=((0, 2),))
    answers = {7: WriterText(7, LONG, {}, "AVRO")}
    decoder = shipped_decoder("t", SCHEMA, bound, answers)
    one = framed(7, b"\2")
    assert decoder.decode(raw_batch(one, None)).rows.column("id").to_pylist() == [1]
    met = decoder.decode(raw_batch(one, framed(8, b"\2")))
    assert (met.needs, met.rows.num_rows) == (frozenset({8}), 0)
    # Records that are bad now may not be once there is the schema; one that a person gave up needs none.
    bad = framed(7, b"")
    ids = decoder.decode(raw_batch(bad, b"no id", framed(9, b""), framed(10, b""), None))
    assert (ids.needs, ids.rows.num_rows) == (frozenset({10}), 0)


def test_a_task_without_the_fixed_schema_needs_it() -> None:
    decoder = shipped_decoder("t", SCHEMA, binding(fixed=("orders-value", 1)))
    for _ in range(2):
        assert decoder.decode(raw_batch(b"\2")).needs == {-1}


def test_ids_of_a_ledger_are_asked_for_once() -> None:
    registry = MemoryRegistry({7: LONG})
    shipping = SchemaShipping(registry.of)
    bound = binding({7: FINGERPRINT, 8: FINGERPRINT, 9: UNKNOWN})
    for _ in range(3):
        shipment = shipping.of_ledger(TABLE, bound)
    assert registry.requests == [[7, 8]]
    # Of 8, which was deleted, nothing is known: records may have none of it. 9 is decided by the ledger alone.
    assert list(shipment.answers) == [7]
    assert shipment.fingerprints == {7: FINGERPRINT, 9: UNKNOWN}


def test_an_outage_stops_nothing_that_needs_no_schema() -> None:
    registry, clock = MemoryRegistry({7: LONG}, is_up=False), Clock()
    shipping = SchemaShipping(registry.of, clock=clock)
    bound = binding({7: FINGERPRINT})
    for _ in range(3):
        assert shipping.of_ledger(TABLE, bound).answers == {}
    assert len(registry.requests) == 1
    registry.is_up, clock.now = True, clock.now + SILENCE_S
    assert list(shipping.of_ledger(TABLE, bound).answers) == [7]


def test_a_ledger_with_another_schema_under_an_id_stops_its_table() -> None:
    bound = binding({7: "1:another"})
    shipping = SchemaShipping(MemoryRegistry({7: LONG}).of)
    for ship in (shipping.of_ledger, shipping.of_tail):
        with pytest.raises(SchemaRegistryChanged, match="another schema under id 7"):
            ship(TABLE, bound)
    # Also where another tierer has it in the ledger since.
    registry, table = MemoryRegistry({7: LONG}), EvolvingTable(SCHEMA, bound)
    with pytest.raises(SchemaRegistryChanged, match="another schema under id 7"):
        SchemaFollower(registry.of, table.commit).take_up(TABLE, binding(), [7])
    assert table.commits == []


def test_a_schema_that_was_late_is_asked_for_again_once_the_ledger_has_it() -> None:
    registry = MemoryRegistry()
    decoders = Decoders(registry.of)
    decoders.ask(str(TABLE), binding(), [7])
    registry.answers[7] = LONG
    bound = binding({7: FINGERPRINT})
    for _ in range(2):
        decoder = decoders(str(TABLE), SCHEMA, bound)
    assert registry.requests == [[7], [7]]
    assert decoder.decode(raw_batch(framed(7, b"\2"))).rows.column("id").to_pylist() == [1]
    registry.answers[8] = text("int")
    with pytest.raises(SchemaRegistryChanged, match="under id 8"):
        decoders.ask(str(TABLE), binding({8: FINGERPRINT}), [8])


@pytest.mark.parametrize(
    ("kind", "text", "body"),
    [
        # As Confluent's serializers frame them: behind the id the message's index, or the document itself.
        ("PROTOBUF", 'syntax = "proto3"; message Order { int64 id = 1; }', b"\0\x08\1"),
        ("PROTOBUF", LONG, b"\2"),
        ("JSON", '{"type": "object"}', b'{"id": NaN}'),
        ("JSON", LONG, b'{"id": 1}'),
    ],
)
def test_a_schema_of_another_format_reads_nothing(kind: Format, text: str, body: bytes) -> None:
    bound = replace(binding(), on_error="null")
    extra = (KAFKA_ERROR, KAFKA_VALUE)
    columns = [Column(at, name, METADATA_TYPES[name]) for at, name in enumerate(extra, 2)]
    schema = TableSchema(1, (*SCHEMA.columns, *columns))
    decoder = shipped_decoder("t", schema, bound, {7: WriterText(7, text, {}, kind)})
    (row,) = decoder.decode(raw_batch(framed(7, body))).rows.to_pylist()
    reason = f"schema id 7 is of the type {kind}, not AVRO"
    assert (row["id"], row["kafka_error"]) == (None, reason)


def test_a_copy_of_a_registry_with_ids_of_its_own_reads_nothing_by_them() -> None:
    """Registries give imported schemas new ids, without a word: records still have the old one."""
    registry = MemoryRegistry({21: LONG})
    bound = binding({777: FINGERPRINT})
    decoder = Decoders(registry.of)(str(TABLE), SCHEMA, bound)
    rows = decoder.decode(raw_batch(framed(21, b"\2"))).rows
    assert rows.column("id").to_pylist() == [1]
    with pytest.raises(SchemaRegistryChanged, match="under id 777"):
        decoder.decode(raw_batch(framed(777, b"\2")))


def test_versions_go_on_behind_those_that_were_deleted() -> None:
    table = EvolvingTable(SCHEMA, binding({7: FINGERPRINT}))
    registry = MemoryRegistry({7: LONG, 9: text("int")}, {"orders-value": {6: 9}})
    SchemaFollower(registry.of, table.commit).follow(TABLE, binding({7: FINGERPRINT}))
    assert sorted(json.loads(table.properties[SCHEMAS])) == ["7", "9"]


def test_fields_of_other_records_are_none_that_a_person_dropped() -> None:
    other = '{"type":"record","name":"Refund","fields":[{"name":"why","type":"string"}]}'
    texts = {7: LONG, 8: other, 9: f"[{LONG},{other}]"}
    entries = {number: parse_schema(each).fingerprint for number, each in texts.items()}
    decoders = Decoders(MemoryRegistry({**texts}).of)
    for record, paths in (("Order", {("id",)}), ("Refund", {("why",)})):
        bound = binding(entries, record=record)
        assert decoders.paths_of_ledger(str(TABLE), bound) == paths


def test_fields_of_a_schema_that_came_under_an_id_of_before_are_new_ones() -> None:
    other = '{"type":"record","name":"Order","fields":[{"name":"why","type":"string"}]}'
    bound = binding({7: FINGERPRINT, 8: "1:another", 9: FINGERPRINT})
    decoders = Decoders(MemoryRegistry({7: LONG, 8: other}).of)
    assert decoders.paths_of_ledger(str(TABLE), bound) == {("id",)}


def test_a_table_follows_its_record_among_those_of_a_union() -> None:
    wider = LONG.replace("}]", '},{"name":"sum","type":"double"}]')
    other = '{"type":"record","name":"Refund","fields":[{"name":"why","type":"string"}]}'
    bound = binding(record="Order")
    table = EvolvingTable(SCHEMA, bound)
    registry = MemoryRegistry({7: f"[{other},{wider}]"}, {"orders-value": {1: 7}})
    done = SchemaFollower(registry.of, table.commit).follow(TABLE, bound)
    assert done is not None
    assert [str(change) for each in done for change in each.changes] == ["add sum double"]


def test_a_table_of_json_ships_nothing_and_asks_nothing() -> None:
    registry = MemoryRegistry()
    shipping = SchemaShipping(registry.of)
    assert shipping.of_ledger(TABLE, Binding("flows")).answers == {}
    assert shipping.of_tail(TABLE, Binding("flows")) == {}
    assert registry.requests == []


def test_a_tail_has_the_schemas_of_its_subject_and_says_when_none_can_be_had() -> None:
    registry, clock = (
        MemoryRegistry({7: LONG, 8: text("int")}, {"orders-value": {1: 8}}),
        Clock(),
    )
    shipping = SchemaShipping(registry.of, clock=clock)
    registry.is_up = False
    with pytest.raises(SchemaRegistryUnavailable):
        shipping.of_tail(TABLE, binding({7: FINGERPRINT}))
    registry.is_up, clock.now = True, clock.now + SILENCE_S
    assert list(shipping.of_tail(TABLE, binding({7: FINGERPRINT}))) == [7, 8]
    registry.is_up = False
    assert list(shipping.of_tail(TABLE, binding({7: FINGERPRINT}))) == [7]


def test_a_tail_goes_on_over_records_whose_id_the_ledger_has_as_unknown() -> None:
    registry = MemoryRegistry({7: LONG}, {"orders-value": {1: 7}})
    bound = replace(binding({7: FINGERPRINT, 9: UNKNOWN}), on_error="skip")
    answers = SchemaShipping(registry.of).of_tail(TABLE, bound)
    decoder = shipped_decoder(str(TABLE), SCHEMA, bound, answers)
    decoded = decoder.decode(raw_batch(framed(7, b"\2"), framed(9, b"\2")))
    assert (decoded.needs, decoded.rows.column("id").to_pylist()) == (frozenset(), [1])
    # So does a task that reads for ids alone.
    assert decoder.decode(raw_batch(framed(8, b"\2"))).needs == {8}
    assert decoder.decode(raw_batch(framed(9, b"\2"), framed(10, b"\2"))).needs == {10}


def test_versions_are_asked_for_now_and_then_and_a_silent_registry_by_one_table() -> None:
    table = EvolvingTable(SCHEMA, binding())
    registry, clock = MemoryRegistry({7: LONG}, {"orders-value": {1: 7}}), Clock()
    follower = SchemaFollower(registry.of, table.commit, clock=clock)
    done = follower.follow(TABLE, binding())
    assert done is not None
    assert [each.changes for each in done] == [()]
    assert json.loads(table.properties[SCHEMAS]) == {"7": FINGERPRINT}
    assert follower.follow(TABLE, binding({7: FINGERPRINT})) is None
    clock.now += LOOK_S
    assert follower.follow(TABLE, binding({7: FINGERPRINT})) == ()
    assert registry.requests == ["orders-value", [7], "orders-value"]
    registry.is_up, clock.now = False, clock.now + LOOK_S
    with pytest.raises(SchemaRegistryUnavailable):
        follower.follow(TABLE, binding())
    assert follower.follow(OTHER, binding()) is None
    for quiet in (
        binding(evolution="none"),
        binding(fixed=("orders-value", 1)),
        Binding("flows"),
    ):
        clock.now += LOOK_S
        assert follower.follow(TABLE, quiet) is None
    assert registry.requests[3:] == ["orders-value"]
    assert SCHEMA_EVOLUTION in table.properties


def test_all_ids_of_a_publish_are_one_commit() -> None:
    table = EvolvingTable(SCHEMA, binding())
    registry = MemoryRegistry({7: LONG, 8: text("int")})
    follower = SchemaFollower(registry.of, table.commit)
    follower.take_up(TABLE, binding(), range(7, 40))
    assert len(table.commits) == 1
    ledger = SchemaLedger.parse(TABLE, table.properties[SCHEMAS])
    assert (ledger.fingerprints[7], ledger.unknown) == (FINGERPRINT, frozenset(range(9, 40)))


def test_a_schema_builds_on_those_that_are_taken_up_with_it() -> None:
    first = LONG.replace("}]", '},{"name":"sum","type":"int"}]')
    registry = MemoryRegistry({7: first, 8: first.replace('"int"', '"long"')})
    table = EvolvingTable(SCHEMA, binding())
    SchemaFollower(registry.of, table.commit).take_up(TABLE, binding(), [7, 8])
    (evolving,) = table.commits
    assert list(map(str, evolving.changes)) == ["add sum int", "widen sum from int to long"]


def test_ids_of_another_era_than_the_rounds_are_not_taken_up() -> None:
    registry, accepted = MemoryRegistry({7: LONG}), binding()
    assert isinstance(accepted.format, AvroFormat)
    accepted = replace(accepted, format=replace(accepted.format, ledger=SchemaLedger({}, 1)))
    table = EvolvingTable(SCHEMA, accepted)
    with pytest.raises(TieringConflict) as refused:
        SchemaFollower(registry.of, table.commit).take_up(TABLE, binding(), [7])
    assert refused.value.message == (
        "lake.shop.orders: a person accepted that ids mean other schemas; plan again."
    )
    assert table.commits == []


def test_a_version_that_cannot_be_read_is_taken_up_once() -> None:
    table = EvolvingTable(SCHEMA, binding())
    registry = MemoryRegistry({7: "[]"}, {"orders-value": {1: 7}})
    calls: list[TableName] = []

    def commit(name: TableName, decide: Decide) -> Evolving | None:
        calls.append(name)
        return table.commit(name, decide)

    follower = SchemaFollower(registry.of, commit, look_s=0)
    for _ in range(3):
        follower.follow(TABLE, table.binding)
    assert json.loads(table.properties[SCHEMAS]) == {"7": UNREADABLE}
    # Each is a request to the catalog.
    assert calls == [TABLE]


def test_what_does_not_fit_stops_none_of_those_before_it() -> None:
    table = EvolvingTable(SCHEMA, binding())
    registry = MemoryRegistry({7: LONG, 8: text("string"), 9: text("int")})
    follower = SchemaFollower(registry.of, table.commit)
    with pytest.raises(SchemaIncompatible) as refused:
        follower.take_up(TABLE, binding(), registry.answers)
    assert refused.value.message == (
        "lake.shop.orders: schema id 8 (Order) does not fit: field id is string, and its column long, which no change makes "
        "one. `thermocline schemas plan lake.shop.orders` shows its subject; register a schema there that fits, or set the "
        "table's property thermocline.schema.on_incompatible to error, by which such records are bad ones."
    )
    assert json.loads(table.properties[SCHEMAS]) == {"7": FINGERPRINT}


def test_more_ids_than_a_ledger_takes_are_named_and_not_asked_for() -> None:
    ledger = dict.fromkeys(range(1, MAX_IDS - 1), "x")
    registry, table = MemoryRegistry(), EvolvingTable(SCHEMA, binding(ledger))
    follower = SchemaFollower(registry.of, table.commit)
    with pytest.raises(TooManySchemas) as refused:
        follower.take_up(TABLE, binding(ledger), range(MAX_IDS - 10, MAX_IDS + 1000))
    assert refused.value.message == (
        "lake.shop.orders: its records have 1,001 schema ids (9999, 10000, 10001, 10002, 10003) beside the 9,998 of its "
        "ledger, which takes 10,000; if they are no Avro behind ids of its registry, correct their producer and skip them (`thermocline skip "
        'lake.shop.orders`); entries of property thermocline.schemas that are "unknown" may be removed once their records '
        "are tiered."
    )
    assert (registry.requests, table.commits) == ([], [])
    # Those of several statements count together.
    decoders = Decoders(registry.of)
    decoders.ask(str(TABLE), binding(ledger), [50_000, 50_001])
    with pytest.raises(TooManySchemas, match="its records have 3 schema ids"):
        decoders.ask(str(TABLE), binding(ledger), [50_002])


def test_ids_of_records_that_are_gone_count_no_more() -> None:
    """Else a process would have to be restarted after all that the error asks for was done."""
    ledger = binding(dict.fromkeys(range(1, MAX_IDS - 1), "x"))
    registry, clock = MemoryRegistry({50_000: LONG}), Clock()
    decoders = Decoders(registry.of, clock=clock)
    decoders.ask(str(TABLE), ledger, [50_000, 50_001])
    clock.now += FORGOTTEN_AFTER_S - 1
    with pytest.raises(TooManySchemas, match="its records have 3 schema ids"):
        decoders.ask(str(TABLE), ledger, [50_002])
    assert decoders.met(str(TABLE), ledger) == {50_000, 50_001}
    clock.now += 1
    decoders.ask(str(TABLE), ledger, [50_002])
    # One that is there stays.
    assert decoders.met(str(TABLE), ledger) == {50_000, 50_002}
    with pytest.raises(TooManySchemas, match="its records have 3 schema ids"):
        decoders.ask(str(TABLE), ledger, [50_003])
    # What was forgotten is asked for again where a record has it.
    assert decoders.writers(str(TABLE), ledger).get(50_001) is None


def test_schemas_of_versions_are_waited_for_as_briefly_as_versions() -> None:
    """Other tables wait, too."""
    table, clock = EvolvingTable(SCHEMA, binding()), Clock()
    registry = MemoryRegistry({}, {"orders-value": {1: 7}})
    follower = SchemaFollower(registry.of, table.commit, clock=clock)
    # Listed, and not there yet: no table takes it up, and no look waits for it.
    assert follower.follow(TABLE, binding()) == ()
    registry.answers[7], registry.up_to, clock.now = LONG, 3, clock.now + LOOK_S
    with pytest.raises(SchemaRegistryUnavailable):
        follower.follow(TABLE, binding())
    assert registry.requests == ["orders-value", [7]] * 2
    assert registry.longest_s == VERSIONS_TIMEOUT_S
    # Nor is the registry asked for the next table.
    assert follower.follow(OTHER, binding()) is None
    registry.up_to, clock.now = None, clock.now + max(SILENCE_S, LOOK_S)
    follower.follow(TABLE, binding())
    assert json.loads(table.properties[SCHEMAS]) == {"7": FINGERPRINT}


def test_an_unknown_id_that_was_registered_since_is_taken_up() -> None:
    table = EvolvingTable(SCHEMA, binding({7: UNKNOWN}))
    registry = MemoryRegistry({7: LONG}, {"orders-value": {1: 7}})
    follower = SchemaFollower(registry.of, table.commit)
    follower.follow(TABLE, binding({7: UNKNOWN}))
    assert json.loads(table.properties[SCHEMAS]) == {"7": FINGERPRINT}


def test_thousands_of_ids_without_a_schema_are_asked_for_in_turns_and_taken_up_at_once() -> (
    None
):
    table = EvolvingTable(SCHEMA, binding())
    registry = MemoryRegistry({7: LONG})
    follower = SchemaFollower(registry.of, table.commit)
    ids = [7, *range(1_000, 3_000)]
    follower.take_up(TABLE, binding(), ids)
    entries = json.loads(table.properties[SCHEMAS])
    assert entries == {str(each): UNKNOWN for each in ids} | {"7": FINGERPRINT}
    assert len(table.commits) == 1
    assert [each for some in registry.requests for each in some] == ids
    assert max(map(len, registry.requests)) == 300
    # What was answered before the registry went away is not asked for again.
    late = MemoryRegistry({7: LONG})
    decoders = Decoders(late.of)
    late.up_to = 2
    with pytest.raises(SchemaRegistryUnavailable):
        decoders.ask(str(TABLE), binding(), ids)
    assert len(decoders.answers(str(TABLE), binding())) == 600


@pytest.mark.parametrize("newest", [{}, {7: UNKNOWN}])
def test_a_publish_builds_on_a_ledger_with_the_schemas_of_its_tasks(
    newest: dict[int, str],
) -> None:
    SchemaLedger({7: FINGERPRINT, 8: "x"}).check_published(TABLE, {7: FINGERPRINT})
    with pytest.raises(TieringConflict, match="what id 7 meant"):
        SchemaLedger(newest).check_published(TABLE, {7: FINGERPRINT})
    with pytest.raises(SchemaRegistryChanged):
        SchemaLedger({7: "another"}).check_published(TABLE, {7: FINGERPRINT})
