"""Tables of a schema registry, tiered on real parts: Kafka, Apicurio, Spark, Iceberg, and confluent's own serializer."""

from __future__ import annotations

import io
import json
import pickle
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import pyarrow as pa
import pytest
from click.testing import CliRunner

from connectors.iceberg.catalogs import Catalogs
from connectors.iceberg.create import NewTable, create_table
from connectors.jobs import events
from connectors.kafka.log import KafkaLog
from connectors.spark.lake.lake import Lake
from connectors.spark.options import LakeSettings
from connectors.spark.publish import stage
from connectors.spark.publish.splits import map_in_arrow
from planner.errors import (
    FederationError,
    SchemaIncompatible,
    SchemaRegistryChanged,
    SchemaRegistryUnavailable,
    SchemasNeeded,
    TieringConflict,
    UndecodableRecord,
)
from planner.evolution.ledger import SCHEMAS, UNKNOWN, SchemaLedger
from planner.names import METADATA_COLUMNS, TableName
from planner.offsets import OffsetRange, OffsetVector
from planner.ports import ArrowRelation, TopicSource
from planner.schema import Column
from planner.seam.binding import Binding
from planner.seam.formats import ON_INCOMPATIBLE, AvroFormat
from planner.seam.watermark import Watermark
from tests.fixtures.cold import cold_slice
from tests.fixtures.kafka import Kafka
from tests.fixtures.schema_registry import ApicurioRegistry, running_schema_registry
from tests.fixtures.spark import SparkLake
from tests.harness.avro_decoder import framed
from tests.harness.avro_histories import conformed
from tests.harness.avro_tierer import AvroTierer
from thermocline.cli import app

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(300)]

Row = dict[str, Any]
LOGIN = "ann:hush-hush"
FOLLOWS = AvroFormat(evolution="additive")


def record(**fields: Any) -> str:
    items = [{"name": name, "type": kind} for name, kind in fields.items()]
    schema = {"type": "record", "name": "Order", "namespace": "shop", "fields": items}
    return json.dumps(schema, separators=(",", ":"))


def point(**fields: Any) -> Any:
    items = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "Point", "fields": items}


V1 = record(id="int", at=point(x="float"), tags={"type": "array", "items": "string"})
V2 = record(
    id="long",
    at=point(x="double", y=["null", {"type": "map", "values": "long"}]),
    note=["null", "string"],
)


def first(n: int) -> Row:
    return {"id": n, "at": {"x": n}, "tags": [f"t{n}", ""]}


def second(n: int) -> Row:
    y = {"k": n} if n % 3 else None
    return {"id": n + 2**40, "at": {"x": n / 7, "y": y}, "note": f"n{n}" if n % 2 else None}


@dataclass
class Orders:
    """A topic of Avro records, its table, and one process that tiers it."""

    lake: SparkLake
    kafka: Kafka
    duck: duckdb.DuckDBPyConnection
    registry: ApicurioRegistry
    name: TableName
    topic: str
    catalogs: Catalogs
    stack: ExitStack

    def __post_init__(self) -> None:
        self.log = self.stack.enter_context(closing(KafkaLog(self.kafka.settings)))
        self.tierer = self.other()

    def other(self) -> AvroTierer:
        """Return another process that tiers it."""
        options = {"url": self.registry.url, "basic.auth.user.info": LOGIN}
        # A look at versions every second.
        tierer = AvroTierer(self.lake, self.kafka, self.name, options, speed=10)
        return self.stack.enter_context(closing(tierer))

    def tier(self) -> None:
        self.tierer.drain()

    def fails(self, kind: type[FederationError], tierer: AvroTierer | None = None) -> str:
        with pytest.raises(kind) as caught:
            (tierer or self.tierer).drain()
        return caught.value.message

    def register(self, text: str) -> int:
        return self.registry.register(f"{self.topic}-value", text)

    def serialized(self, text: str, rows: Sequence[Row]) -> list[bytes]:
        return self.registry.serialized(self.topic, text, rows)

    def produce(self, text: str, rows: Sequence[Row], partition: int = 0) -> None:
        self.kafka.produce(self.topic, self.serialized(text, rows), partition=partition)

    def set_property(self, key: str, text: str) -> None:
        with self.catalogs.load(self.name).transaction() as transaction:
            transaction.set_properties({key: text})

    def properties(self) -> Mapping[str, str]:
        return self.catalogs.load(self.name).properties

    def ledger(self) -> Mapping[int, str]:
        return SchemaLedger.parse(self.name, self.properties().get(SCHEMAS)).fingerprints

    def columns(self) -> list[tuple[str, str]]:
        schema = self.lake.store.pin(self.name).schema
        return [(column.name, str(column.type)) for column in schema.payload]

    def cold(self) -> list[Row]:
        relation = self.lake.store.scan(cold_slice(self.lake.store.pin(self.name)))
        if isinstance(relation, ArrowRelation):
            return relation.table.to_pylist()
        rows = self.duck.cursor().execute(relation.sql).to_arrow_table().to_pylist()
        return sorted(rows, key=lambda row: (row["kafka_partition"], row["kafka_offset"]))

    def expected(self) -> list[Row]:
        """All records, decoded by fastavro each with its writer's schema, in the columns that the table has now."""
        ends = self.log.measure([self.topic])[self.topic].partitions
        spans = [OffsetRange(each.partition, 0, each.log_end) for each in ends if each.log_end]
        schemas: dict[int, Any] = {}
        columns = self.lake.store.pin(self.name).schema.payload
        rows = []
        for batch in self.log.fetch(TopicSource(self.topic), spans, timeout_s=30):
            for raw in batch.to_pylist():
                number = int.from_bytes(raw["kafka_value"][1:5])
                if number not in schemas:
                    with self.registry.client() as client:
                        text = client.get_schema(number).schema_str
                    assert text is not None
                    schemas[number] = fastavro.parse_schema(json.loads(text))
                body = io.BytesIO(raw["kafka_value"][5:])
                value: Any = fastavro.schemaless_reader(body, schemas[number], None)
                own = {
                    each.name: conformed(each.type, value.get(each.name)) for each in columns
                }
                rows.append(
                    {
                        **own,
                        "kafka_partition": raw["kafka_partition"],
                        "kafka_offset": raw["kafka_offset"],
                    }
                )
        return sorted(rows, key=lambda row: (row["kafka_partition"], row["kafka_offset"]))


def payload(rows: Sequence[Row]) -> list[Row]:
    names = {*METADATA_COLUMNS} - {"kafka_partition", "kafka_offset"}
    return [{key: each for key, each in row.items() if key not in names} for row in rows]


Bind = Callable[..., Orders]


@pytest.fixture
def bind(
    lake: SparkLake,
    kafka: Kafka,
    duck: duckdb.DuckDBPyConnection,
    schema_registry: ApicurioRegistry,
) -> Iterator[Bind]:
    """Create a table of one column that follows its topic: ``bind(**binding options, registry=, form=)``."""
    with ExitStack() as stack:
        catalogs = stack.enter_context(closing(Catalogs(lake.catalogs)))

        def bound(
            *,
            registry: ApicurioRegistry = schema_registry,
            form: AvroFormat = FOLLOWS,
            **options: Any,
        ) -> Orders:
            topic = kafka.topic(2)
            binding = Binding(topic, format=form, **options)
            with closing(KafkaLog(kafka.settings)) as log:
                measured = log.measure([topic])[topic]
            name = TableName("lake", ("net",), f"avro_{next(lake.numbers)}")
            mark = Watermark(
                cluster_id=measured.cluster_id,
                topic=topic,
                topic_id=measured.topic_id,
                next=OffsetVector.of((each.partition, 0) for each in measured.partitions),
                shape=binding.shape,
                run="created",
            )
            columns = [Column(0, "id", pa.int32())]
            create_table(lake.catalogs, NewTable(name, columns, binding), mark)
            return Orders(lake, kafka, duck, registry, name, topic, catalogs, stack)

        yield bound


def command(orders: Orders, folder: Path, arguments: Sequence[str]) -> str:
    """Run a command with settings of its own."""
    file = folder / "thermocline.toml"
    sections = {
        "catalogs.lake": orders.lake.catalogs["lake"],
        "kafka": orders.kafka.settings,
        "schema_registry": {"url": orders.registry.url},
    }
    lines = []
    for name, options in sections.items():
        lines += [
            f"[{name}]",
            *(f'"{key}" = {json.dumps(each)}' for key, each in options.items()),
        ]
    file.write_text("\n".join(lines))
    result = CliRunner().invoke(app, ["--config", str(file), *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def events_of(orders: Orders, kind: type[events.Event]) -> list[Any]:
    return [event for event in orders.tierer.events if isinstance(event, kind)]


def test_each_record_is_tiered_with_the_schema_it_was_written_with(
    bind: Bind, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = bind()
    mixed = [
        each
        for pair in zip(
            orders.serialized(V1, [first(n) for n in range(400)]),
            orders.serialized(V2, [second(n) for n in range(400)]),
            strict=True,
        )
        for each in pair
    ]
    orders.kafka.produce(orders.topic, mixed)
    orders.produce(V1, [first(n) for n in range(3)], partition=1)
    pickled = []

    def shipped(rows: Any, function: Any, schema: Any) -> Any:
        pickled.append(pickle.dumps(function.reader))
        return map_in_arrow(rows, function, schema)

    monkeypatch.setattr(stage, "map_in_arrow", shipped)
    orders.tier()
    assert payload(orders.cold()) == orders.expected()
    assert orders.columns() == [
        ("id", "int64"),
        ("at", "struct<x: double, y: map<string, int64>>"),
        ("tags", "list<element: string>"),
        ("note", "string"),
    ]
    # All new ids of a stage are taken up at once.
    assert [type(each.error) for each in events_of(orders, events.RoundRefused)] == [
        SchemasNeeded
    ]
    assert len(orders.ledger()) == 2
    # What tasks get: schemas, and neither the registry's address nor its login.
    assert len(pickled) == 2
    assert b"shop" in pickled[1]
    for each in pickled:
        assert str(orders.registry.port).encode() not in each
        assert b"hush" not in each
    # Removed fields are NULL, and a column that a person dropped stays dropped: its schema is known.
    orders.lake.session.sql(f"ALTER TABLE {orders.name} DROP COLUMN note")
    orders.produce(V2, [second(n) for n in range(5)], partition=1)
    orders.other().drain()
    assert "note" not in dict(orders.columns())
    assert payload(orders.cold()) == orders.expected()
    # Spark's reader of the lake has the tail from the same schemas, read by this process and by executors.
    orders.produce(V1, [first(n) for n in range(300)])
    # The last one is of a subject that the table does not follow, so nothing is known of it until it is met.
    number = orders.registry.register(f"elsewhere-{orders.topic}", record(id="long"))
    orders.kafka.produce(orders.topic, [framed(number, b"\xd8\x04")])
    settings = LakeSettings(
        orders.lake.catalogs,
        {"": orders.kafka.settings},
        registries={"": {"url": orders.registry.url}},
    )
    for local_bytes in (1 << 20, 0):
        with Lake(orders.lake.session, settings, tail_local_bytes=local_bytes) as lake:
            frame = lake.at(str(orders.name)).table(str(orders.name), side="tail")
            ids = sorted(row["id"] for row in frame.collect())
            assert ids == list(range(301))


def test_a_registered_version_becomes_a_column_without_a_record(bind: Bind) -> None:
    orders = bind()
    orders.register(V1)
    loop = orders.tierer.loop()
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        wait_until(lambda: events_of(orders, events.TableEvolved))
        orders.register(V2)
        wait_until(lambda: len(events_of(orders, events.TableEvolved)) == 2, timeout_s=20)
    finally:
        loop.stop()
        thread.join()
    assert [name for name, _ in orders.columns()] == ["id", "at", "tags", "note"]
    assert len(orders.ledger()) == 2
    assert events_of(orders, events.TableFailed) == []


def wait_until(happened: Callable[[], Any], timeout_s: float = 60) -> None:
    pause = threading.Event()
    for _ in range(int(timeout_s * 20)):
        if happened():
            return
        pause.wait(0.05)
    raise AssertionError("it did not happen")


def test_two_tierers_end_with_one_column_and_one_ledger(bind: Bind) -> None:
    orders = bind()
    # Iceberg's Spark writer sorts; elsewhere tasks write files themselves.
    orders.lake.session.sql(f"ALTER TABLE {orders.name} WRITE ORDERED BY id")
    other = orders.other()
    orders.produce(V1, [first(n) for n in range(50)])
    orders.produce(V2, [second(n) for n in range(50)], partition=1)
    threads = [threading.Thread(target=each.drain) for each in (orders.tierer, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [name for name, _ in orders.columns()] == ["id", "at", "tags", "note"]
    assert len(orders.ledger()) == 2
    assert payload(orders.cold()) == orders.expected()


def test_rows_are_published_only_on_a_ledger_that_has_their_schemas(bind: Bind) -> None:
    orders = bind()
    orders.produce(V1, [first(n) for n in range(5)])
    orders.tier()
    [(number, fingerprint)] = orders.ledger().items()
    orders.produce(V1, [first(n) for n in range(5, 9)])
    target, value = orders.tierer.stage()
    assert value.schemas == {number: fingerprint}
    whole = orders.properties()[SCHEMAS]
    orders.set_property(SCHEMAS, "{}")
    with pytest.raises(TieringConflict, match=f"what id {number} meant"):
        target.publish(value)
    orders.set_property(SCHEMAS, json.dumps({str(number): f"1:{0:032x}"}))
    with pytest.raises(SchemaRegistryChanged, match=f"another schema under id {number}"):
        target.publish(value)
    orders.set_property(SCHEMAS, whole)
    target.publish(value)
    assert payload(orders.cold()) == orders.expected()


def test_an_outage_stops_what_needs_a_new_schema_and_a_changed_registry_all(
    bind: Bind, tmp_path: Path
) -> None:
    with running_schema_registry(tmp_path) as registry:
        orders = bind(registry=registry)
        orders.produce(V1, [first(n) for n in range(5)])
        orders.tier()
        old, new = (
            orders.serialized(V1, [first(5)]),
            orders.serialized(V2, [second(n) for n in range(3)]),
        )
        before = orders.columns()
        registry.stop()
        # Schemas that this process has met are tiered all the same.
        orders.kafka.produce(orders.topic, old)
        orders.tier()
        assert len(orders.cold()) == 6
        orders.kafka.produce(orders.topic, new)
        assert "the schema registry" in orders.fails(SchemaRegistryUnavailable)
        # So does a process that has met none, with a table of which it needs none.
        another = bind(registry=registry)
        another.tier()
        assert (len(orders.cold()), orders.columns()) == (6, before)
        # It goes on when the registry is back.
        registry.start()
        assert [orders.register(text) for text in (V1, V2)] == sorted(
            [*orders.ledger(), max(orders.ledger()) + 1]
        )
        orders.tier()
        assert payload(orders.cold()) == orders.expected()
        # One that is empty again gives the same id to another schema.
        registry.stop()
        registry.start()
        orders.produce(record(id="int", other="string"), [{"id": 1, "other": "x"}])
        before_it = orders.cold()
        message = orders.fails(SchemaRegistryChanged, orders.other())
        assert message.startswith(f"{orders.name}: the registry has another schema under id 1 ")
        assert orders.cold() == before_it


def test_a_schema_that_does_not_fit_stops_its_table_or_makes_bad_records(bind: Bind) -> None:
    orders = bind(on_error="null")
    orders.produce(V1, [first(n) for n in range(3)])
    orders.tier()
    orders.produce(record(id="string", more="int"), [{"id": "x", "more": 1}])
    assert "field id is string, and its column int" in orders.fails(SchemaIncompatible)
    assert (len(orders.cold()), len(orders.ledger())) == (3, 1)
    orders.set_property(ON_INCOMPATIBLE, "error")
    orders.tier()
    assert [row["id"] for row in orders.cold()] == [0, 1, 2, None]
    assert "id" in orders.cold()[-1]["kafka_error"]
    assert len(orders.ledger()) == 2


def test_an_id_that_the_registry_lacks_is_a_bad_record_after_the_grace_time(bind: Bind) -> None:
    orders = bind(on_error="null")
    orders.produce(V1, [first(n) for n in range(3)])
    orders.kafka.produce(orders.topic, [b"\0" + (999_999).to_bytes(4) + b"\2"])
    orders.tier()
    rows = orders.cold()
    assert [row["id"] for row in rows] == [0, 1, 2, None]
    assert rows[-1]["kafka_error"] == "schema id 999999 is not in the registry"
    assert orders.ledger()[999_999] == UNKNOWN


def test_verify_and_skip_decode_by_the_registry(bind: Bind, tmp_path: Path) -> None:
    orders = bind()
    orders.produce(V1, [first(n) for n in range(20)])
    orders.tier()
    orders.produce(V2, [second(n) for n in range(20)])
    orders.tier()
    bad = orders.serialized(V2, [second(0)])[0][:-2]
    orders.kafka.produce(orders.topic, [bad])
    assert "offset 40 does not decode" in orders.fails(UndecodableRecord)
    skip = ["skip", str(orders.name), "--partition", "0", "--offset", "40"]
    assert "skipped partition 0, offset 40" in command(orders, tmp_path, skip)
    orders.tier()
    [report] = json.loads(command(orders, tmp_path, ["verify", str(orders.name), "--json"]))
    assert (report["outcomes"]["rows"], report["outcomes"]["skipped"]) == (40, 1)
    assert report["findings"] == []


def test_a_fixed_schema_has_no_id_in_front(
    bind: Bind, schema_registry: ApicurioRegistry
) -> None:
    schema_registry.register("fixed orders-value", V1)
    form = AvroFormat(evolution="additive", fixed=("fixed orders-value", 1))
    orders = bind(form=form)
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(json.loads(V1)), first(7))
    orders.kafka.produce(orders.topic, [body.getvalue()])
    orders.tier()
    [row] = orders.cold()
    assert (row["id"], row["at"], row["tags"]) == (7, {"x": 7}, ["t7", ""])
    assert list(orders.ledger()) == [-1]
