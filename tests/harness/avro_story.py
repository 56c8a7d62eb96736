"""A random history of an Avro table on real parts: Kafka, a registry, a catalog, Spark and a server.

What is expected is what fastavro makes of each record with the schema that it was written with, in the columns that the table
has now. A row that was tiered is NULL in a column that came later.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import fastavro
import pyarrow as pa
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from connectors.iceberg.catalogs import Catalogs
from connectors.iceberg.create import NewTable, create_table
from connectors.iceberg.evolve import evolve_table
from connectors.jobs.loop import LoopLimits, TableLoop
from connectors.jobs.tier import TieringJob, TieringTable
from connectors.kafka.log import KafkaLog
from connectors.registry.client import SchemaRegistry
from connectors.registry.decoders import shipped_decoder
from connectors.registry.following import SchemaFollower
from connectors.spark.publish.target import SparkTieringTarget
from planner.errors import (
    FederationError,
    SchemaRegistryChanged,
    SchemaRegistryUnavailable,
    StalePlan,
    UndecodableRecord,
)
from planner.evolution.ledger import SCHEMAS, UNKNOWN, SchemaLedger
from planner.names import METADATA_COLUMNS, TableName
from planner.offsets import OffsetRange
from planner.ports import Staged, TopicSource
from planner.schema import Column
from planner.seam.binding import Binding
from planner.seam.formats import AvroFormat
from planner.seam.watermark import SUMMARY_KEY, parse_watermark
from planner.tiering.plan import TieringBudget, plan_tiering
from tests.fixtures.kafka import Kafka
from tests.fixtures.schema_registry import ApicurioRegistry
from tests.fixtures.server import SqlServer, serving, settings_of
from tests.fixtures.spark import BoundTable, SparkLake
from tests.harness.tcp_proxy import Mode, TcpProxy
from thermocline.commands.create import first_watermark

Row = dict[str, Any]
#: Fields of a schema: name to type; of the struct ``p`` another such.
Fields = dict[str, Any]

NAMES = ("a", "b", "c", "d")
WIDER = {"int": "long", "float": "double"}
KINDS = ("int", "long", "float", "double", "string")
SQL_TYPES = {
    "int": "bigint",
    "long": "bigint",
    "float": "double",
    "double": "double",
    "string": "string",
}
GRACE_S = 1.0
#: What a client reads of an error.
SENTENCES: Mapping[type[FederationError], str] = {
    SchemaRegistryChanged: "the registry has another schema under id",
    UndecodableRecord: "is not in the registry",
}


@dataclass(frozen=True)
class Version:
    """One schema of the subject, and a producer that has it."""

    id: int
    text: str
    fields: Fields
    serializer: AvroSerializer


class Tierer:
    """One process that tiers the table; it asks the registry through ``url``."""

    def __init__(self, story: AvroStory) -> None:
        self._story = story
        self._catalogs = Catalogs(story.lake.catalogs)
        options = {"url": story.url, "max.retries": "1"}
        self._registry = SchemaRegistry(options, unknown_id_grace_s=GRACE_S)
        self.follower = SchemaFollower(
            lambda *_: self._registry,
            functools.partial(evolve_table, self._catalogs),
            timeout_s=8,
        )

    def target(self) -> SparkTieringTarget:
        lake, name = self._story.lake, self._story.name
        return SparkTieringTarget(
            lake.session,
            lake.store,
            name,
            open_log=functools.partial(KafkaLog, self._story.kafka.settings),
            open_decoder=functools.partial(shipped_decoder, str(name)),
            open_store=lake.store.files.open_store,
            schemas=self.follower,
            task_timeout_s=60,
            max_task_offsets=400,
        )

    def drain(self) -> None:
        """Tier up to the log's end, as ``thermocline tier --once`` does."""
        job = TieringJob(
            self._story.log,
            tables=lambda: [self._story.name],
            open_target=lambda _: self.target(),
            follow=self.follower.follow,
        )
        loop: TableLoop[TieringTable] = TableLoop(
            job, listeners=(), limits=LoopLimits(poll_s=0.1)
        )
        assert loop.drain() == 1

    def stage(self) -> tuple[SparkTieringTarget, Staged]:
        target, topic = self.target(), self._story.topic
        bounds = self._story.log.measure([topic])[topic]
        return target, target.stage(plan_tiering(target.pin(), bounds, TieringBudget()))

    def close(self) -> None:
        self._registry.close()
        self._catalogs.close()


@dataclass
class AvroStory:
    """``step(kind)`` goes on; after each ``check`` holds the answer against the oracle. Use ``telling``."""

    rng: random.Random
    lake: SparkLake
    kafka: Kafka
    registry: ApicurioRegistry
    proxy: TcpProxy
    #: How often what happened: an answer, an error by name, a step that could be done.
    events: Counter[str] = field(default_factory=Counter)
    versions: list[Version] = field(default_factory=list)
    is_down: bool = False

    def __post_init__(self) -> None:
        self.topic = self.kafka.topic(2)
        self.subject = f"{self.topic}-value"
        self.name = TableName("lake", ("net",), f"story_{next(self.lake.numbers)}")
        self.log = KafkaLog(self.kafka.settings)
        self.table = BoundTable(
            self.lake.session, self.lake.store, self.lake.catalogs, self.name
        )
        self.proxy.target = ("127.0.0.1", self.registry.port)
        self.url = self.registry.url.replace(str(self.registry.port), str(self.proxy.port))
        #: All records by partition, as their producers' schemas have them, with their ids.
        self._records: dict[int, list[tuple[int, Row]]] = {0: [], 1: []}
        #: By partition and offset, the field ids that the table had when the row was tiered.
        self._tiered: dict[tuple[int, int], frozenset[int]] = {}
        self._snapshots: set[int] = set()
        self._deleted_softly: set[int] = set()
        #: Ids of records that the server has answered with.
        self._met: set[int] = set()
        self._ever: Fields = {}
        self._staged: list[tuple[SparkTieringTarget, Staged]] = []
        self._stack = contextlib.ExitStack()
        binding = Binding(self.topic, AvroFormat(evolution="additive"))
        first = first_watermark(self.log.measure([self.topic])[self.topic], binding)
        columns = [Column(0, "id", pa.int32())]
        create_table(self.lake.catalogs, NewTable(self.name, columns, binding), first)
        self.catalogs = Catalogs(self.lake.catalogs)
        self._producers = SchemaRegistryClient({"url": self.registry.url, "timeout": 60})
        self.new_processes()

    def close(self) -> None:
        self._stack.close()
        self.catalogs.close()
        self.log.close()
        self._producers.__exit__(None, None, None)

    def new_processes(self) -> None:
        """End the server and both tierers, and start others that know nothing."""
        self._stack.close()
        self._staged.clear()
        self._met.clear()
        settings = settings_of(self.lake.catalogs, self.kafka.settings)
        settings.schema_registry["url"] = self.url
        self.server: SqlServer = self._stack.enter_context(serving(settings))
        self.tierers = [Tierer(self), Tierer(self)]
        for tierer in self.tierers:
            self._stack.callback(tierer.close)

    # --- steps ---

    def step(self, kind: str) -> None:
        getattr(self, kind)()
        self.events[kind] += 1

    def register(self) -> None:
        """A compatible next version: fields come, go, widen and change places."""
        fields: Fields = dict(self.versions[-1].fields) if self.versions else {"id": "int"}
        if "p" in fields:
            fields["p"] = self._next(fields["p"], ("x", "y"), self._ever["p"])
        fields = {"id": fields.pop("id"), **self._next(fields, NAMES, self._ever)}
        if self.rng.random() < 0.2 and "p" not in self._ever:
            fields["p"] = {"x": "int"}
            self._ever["p"] = {"x": "int"}
        names = list(fields)
        self.rng.shuffle(names)
        fields = {name: fields[name] for name in names}
        text = text_of(fields)
        if text not in (each.text for each in self.versions):
            self._add(text, fields)

    def _next(self, fields: Fields, names: Sequence[str], ever: Fields) -> Fields:
        fields = dict(fields)
        for name, kind in list(fields.items()):
            if kind in WIDER.values() or isinstance(kind, dict):
                continue
            if kind in WIDER and self.rng.random() < 0.3:
                fields[name] = ever[name] = WIDER[kind]
            elif len(fields) > 1 and self.rng.random() < 0.2:
                del fields[name]
        for name in names:
            if name not in fields and self.rng.random() < 0.35:
                fields[name] = ever.setdefault(name, self.rng.choice(KINDS))
        return fields

    def _add(self, text: str, fields: Fields) -> None:
        schema_id = self.registry.register(self.subject, text)
        serializer = AvroSerializer(self._producers, text)
        # From now on it asks nothing.
        serializer(self._record(fields, 0), self._context)
        self.versions.append(Version(schema_id, text, fields, serializer))

    @property
    def _context(self) -> SerializationContext:
        return SerializationContext(self.topic, MessageField.VALUE)

    def produce(self) -> None:
        """With any schema that there ever was, or several."""
        if not self.versions:
            self.register()
        for _ in range(self.rng.randint(1, 2)):
            version = self.rng.choice(self.versions)
            self._produce(version, self.rng.choice((1, 3, 40)))

    def _produce(self, version: Version, count: int) -> None:
        values = [
            version.serializer(self._record(version.fields, at), self._context)
            for at in range(count)
        ]
        partition = self.rng.randrange(2)
        self.kafka.produce(self.topic, values, partition=partition)

    def _record(self, fields: Fields, at: int) -> Row:
        return {
            name: at
            if name == "id"
            else None
            if self.rng.random() < 0.2
            else self._record(kind, at)
            if isinstance(kind, dict)
            else self._value(kind)
            for name, kind in fields.items()
        }

    def _value(self, kind: str) -> Any:
        rng = self.rng
        match kind:
            case "int":
                return rng.randint(-(2**31), 2**31 - 1)
            case "long":
                return (
                    rng.randint(-(2**63), 2**63 - 1)
                    if rng.random() < 0.3
                    else rng.randint(0, 9)
                )
            case "float" | "double":
                return rng.randint(-1000, 1000) / 8
            case _:
                return rng.choice(("", "ä", "text"))

    def tier(self) -> None:
        with self._outage():
            self.rng.choice(self.tierers).drain()

    def tier_twice_at_once(self) -> None:
        errors: list[BaseException] = []

        def drain(tierer: Tierer) -> None:
            try:
                with self._outage():
                    tierer.drain()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=drain, args=(each,)) for each in self.tierers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for error in errors:
            raise error

    @contextlib.contextmanager
    def _outage(self) -> Iterator[None]:
        """A tierer that needs a schema may say so while the registry is away, and then changes nothing."""
        try:
            yield
        except SchemaRegistryUnavailable:
            assert self.is_down
            self.events["tiering waits"] += 1

    def stage(self) -> None:
        with self._outage():
            for _ in range(4):
                with contextlib.suppress(StalePlan):
                    self._staged.append(self.rng.choice(self.tierers).stage())
                    return

    def publish(self) -> None:
        """What was staged at any time before; an expiry may have taken its files' snapshot."""
        if self._staged:
            target, staged = self._staged.pop(self.rng.randrange(len(self._staged)))
            try:
                target.publish(staged)
            except StalePlan as error:
                self.events[type(error).__name__] += 1

    def alter(self) -> None:
        """A person drops a column, renames one, or adds one by a name that was or may come."""
        columns = {each.name for each in self.lake.store.pin(self.name).schema.payload}
        own = sorted(columns & {*NAMES})
        absent = sorted({*NAMES} - columns - self._renamed())
        if own and self.rng.random() < 0.6:
            name = self.rng.choice(own)
            if self.rng.random() < 0.7:
                self.table.sql(f"ALTER TABLE {{t}} DROP COLUMN {name}")
            else:
                self.table.sql(
                    f"ALTER TABLE {{t}} RENAME COLUMN {name} TO {name}_{len(columns)}"
                )
        elif absent:
            name = self.rng.choice(absent)
            kind = SQL_TYPES[self._ever.setdefault(name, "string")]
            self.table.sql(f"ALTER TABLE {{t}} ADD COLUMN {name} {kind}")

    def _renamed(self) -> set[str]:
        schema = self.lake.store.pin(self.name).schema
        return {key for column in schema.payload for key in column.keys}

    def expire(self) -> None:
        self.table.expire_to_one()

    def compact(self) -> None:
        self.table.compact()

    def kill(self) -> None:
        self.new_processes()

    def go_away(self) -> None:
        """The product does not reach the registry; producers need it no more."""
        self.is_down = not self.is_down
        self.proxy.set(Mode.CLOSED if self.is_down else Mode.OPEN)

    def _come_back(self) -> None:
        if self.is_down:
            self.go_away()

    def delete_softly(self) -> None:
        if self.versions:
            version = self.rng.choice(self.versions)
            if version.id not in self._deleted_softly:
                self._delete(version, is_for_good=False)
                self._deleted_softly.add(version.id)

    def _delete(self, version: Version, *, is_for_good: bool) -> None:
        with self.registry.client() as client:
            for number in client.get_versions(self.subject):
                if client.get_version(self.subject, number).schema_id == version.id:
                    client.delete_version(self.subject, number)
                    if is_for_good:
                        client.delete_version(self.subject, number, permanent=True)
                    return
        raise AssertionError(f"no version has id {version.id}")

    def delete_for_good(self) -> None:
        """New processes do without it, or stop by name; with the schema its id comes back."""
        alive = [each for each in self.versions if each.id not in self._deleted_softly]
        if not alive:
            return
        self._come_back()
        version = self.rng.choice(alive)
        self._delete(version, is_for_good=True)
        self.new_processes()
        needs = version.id in self._tail_ids() or version.id in self._ledger().fingerprints
        self._stopped(SchemaRegistryChanged, UndecodableRecord, where=needs)
        assert self.registry.register(self.subject, version.text) == version.id
        self.new_processes()

    def swap(self) -> None:
        """An empty registry gives the ids to other schemas: the table stops by name until the old one is back."""
        if not self.versions:
            return
        self._come_back()
        self.tierers[0].drain()
        self._produce(self.rng.choice(self.versions), 2)
        self._refill(lambda each: text_of({**each.fields, f"decoy{each.id}": "string"}))
        self._stopped(SchemaRegistryChanged, where=True)
        self._refill(lambda each: each.text)
        self._deleted_softly.clear()

    def _refill(self, text: Callable[[Version], str]) -> None:
        """Start an empty registry that has these texts under the ids of all versions; new processes ask it."""
        self.registry.stop()
        self.registry.start()
        last_id = 0
        for version in self.versions:
            # One that comes back after it was deleted for good takes a number beside its own.
            while last_id + 1 < version.id:
                filler = text_of({"id": "int", f"filler{last_id}": "int"})
                last_id = self.registry.register(f"{self.topic}-fillers", filler)
            last_id = self.registry.register(self.subject, text(version))
            assert last_id == version.id
        self.new_processes()

    def _stopped(self, *kinds: type[FederationError], where: bool) -> None:
        """The answer is right or of one of these errors, and so is a round; a table that needs nothing goes on."""
        answer, error = self._outcome()
        assert not error or where, error
        if error:
            assert any(SENTENCES[kind] in error for kind in kinds), error
            self.events["stopped by name"] += 1
        else:
            assert answer == self.expected()
            self.events["answers all the same"] += 1
        try:
            self.tierers[0].drain()
        except kinds:
            assert where
            self.events["tiering stopped by name"] += 1

    # --- what is expected ---

    def check(self) -> None:
        """Hold the answer against the oracle; an error must have its cause."""
        self._note_tiered()
        answer, error = self._outcome()
        if "is new to the table, so wait for its tierer" in error:
            # A number in the tail has a wider type than its column, which no tierer has widened yet.
            assert self._ledger().lacks(self._tail_ids()), error
            self.events["column is narrow"] += 1
            if self.is_down:
                return
            self.tierers[0].drain()
            self._note_tiered()
            answer, error = self._outcome()
        ids = self._tail_ids()
        if error:
            assert self.is_down, error
            assert "the schema registry" in error, error
            assert ids - self._met, error
            self.events["answer waits"] += 1
            return
        self._met |= ids
        self.events["answers without the registry"] += self.is_down
        expected = self.expected()
        assert len(answer) == len(expected)
        for one, other in zip(answer, expected, strict=True):
            assert one == other
        self.events["equal"] += 1

    def _outcome(self) -> tuple[list[Row], str]:
        """Return the answer, or the error's text."""
        try:
            return self._answer(), ""
        except adbc.Error as error:
            return [], str(error)

    def _answer(self) -> list[Row]:
        self.server.refresh(self.name)
        table = self.server.ask(
            f"SELECT * FROM {self.name} ORDER BY kafka_partition, kafka_offset"
        )
        left_out = {*METADATA_COLUMNS} - {"kafka_partition", "kafka_offset"}
        return [
            {key: each for key, each in row.items() if key not in left_out}
            for row in table.to_pylist()
        ]

    def expected(self) -> list[Row]:
        """Decode all records, each with its writer's schema, into the columns of now."""
        self._read_on()
        columns = self.lake.store.pin(self.name).schema.payload
        rows = []
        for partition, records in self._records.items():
            for offset, (_, record) in enumerate(records):
                ids = self._tiered.get((partition, offset))
                row = {
                    column.name: conformed(column.type, value_of(column, record))
                    if ids is None or column.field_id in ids
                    else None
                    for column in columns
                }
                rows.append({**row, "kafka_partition": partition, "kafka_offset": offset})
        return rows

    def _read_on(self) -> None:
        ends = self.log.measure([self.topic])[self.topic].partitions
        spans = [
            OffsetRange(each.partition, len(self._records[each.partition]), each.log_end)
            for each in ends
            if each.log_end > len(self._records[each.partition])
        ]
        schemas = {
            each.id: fastavro.parse_schema(json.loads(each.text)) for each in self.versions
        }
        for batch in (
            self.log.fetch(TopicSource(self.topic), spans, timeout_s=60) if spans else ()
        ):
            for raw in batch.to_pylist():
                number = int.from_bytes(raw["kafka_value"][1:5])
                body = io.BytesIO(raw["kafka_value"][5:])
                value: Any = fastavro.schemaless_reader(body, schemas[number], None)
                assert raw["kafka_offset"] == len(self._records[raw["kafka_partition"]])
                self._records[raw["kafka_partition"]].append((number, value))

    def _note_tiered(self) -> None:
        """Note which fields the table had when rows were tiered."""
        table = self.catalogs.load(self.name)
        schemas = {
            key: frozenset(each.field_id for each in schema.fields)
            for key, schema in table.schemas().items()
        }
        for snapshot in sorted(table.snapshots(), key=lambda each: each.sequence_number or 0):
            text = snapshot.summary and snapshot.summary.additional_properties.get(SUMMARY_KEY)
            if snapshot.snapshot_id in self._snapshots or not text:
                continue
            self._snapshots.add(snapshot.snapshot_id)
            for partition, end in parse_watermark(text).next:
                for offset in range(end):
                    ids = schemas[snapshot.schema_id or 0]
                    self._tiered.setdefault((partition, offset), ids)

    def _tail_ids(self) -> set[int]:
        self._note_tiered()
        self._read_on()
        return {
            number
            for partition, records in self._records.items()
            for offset, (number, _) in enumerate(records)
            if (partition, offset) not in self._tiered
        }

    def _ledger(self) -> SchemaLedger:
        properties: Mapping[str, str] = self.catalogs.load(self.name).properties
        ledger = SchemaLedger.parse(self.name, properties.get(SCHEMAS))
        own = {at: each for at, each in ledger.fingerprints.items() if each != UNKNOWN}
        return SchemaLedger(own, ledger.era)


def text_of(fields: Fields, name: str = "Order") -> str:
    members = []
    for each, kind in fields.items():
        written: Any = json.loads(text_of(kind, "P")) if isinstance(kind, dict) else kind
        if each != "id":
            written = ["null", written]
        members.append({"name": each, "type": written})
    return json.dumps({"type": "record", "name": name, "fields": members})


def value_of(column: Column, record: Row) -> Any:
    """Return a record's value for a column, which may have had other names."""
    return next((record[key] for key in (column.name, *column.keys) if key in record), None)


def conformed(kind: pa.DataType, value: Any) -> Any:
    """Return a value as a column of a wider type holds it: members that it lacks are NULL."""
    if pa.types.is_struct(kind) and value is not None:
        return {each.name: conformed(each.type, value.get(each.name)) for each in kind}
    return value


#: How often each step is drawn, of a hundred.
STEPS: Mapping[str, int] = {
    "produce": 30,
    "register": 14,
    "tier": 17,
    "tier_twice_at_once": 5,
    "stage": 4,
    "publish": 4,
    "alter": 8,
    "kill": 4,
    "expire": 2,
    "compact": 2,
    "go_away": 6,
    "delete_softly": 2,
    "delete_for_good": 1,
    "swap": 1,
}


def schedule(rng: random.Random, count: int) -> list[str]:
    """Draw steps such that each kind comes at least once."""
    steps = rng.choices(list(STEPS), list(STEPS.values()), k=max(0, count - len(STEPS)))
    steps += STEPS
    rng.shuffle(steps)
    return steps


@contextlib.contextmanager
def telling(story: AvroStory) -> Iterator[Callable[[str], None]]:
    """Yield what makes a step and checks it."""

    def tell(kind: str) -> None:
        story.step(kind)
        story.check()

    with contextlib.closing(story):
        yield tell
