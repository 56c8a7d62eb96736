"""A random history of an Avro table on real parts: Kafka, a registry, a catalog, Spark and a server.

What is expected is in tests/harness/avro_oracle.py.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from connectors.iceberg.catalogs import Catalogs
from connectors.iceberg.create import NewTable, create_table
from connectors.kafka.log import KafkaLog
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
from planner.ports import Staged
from planner.schema import Column, TableSchema
from planner.seam.binding import Binding
from planner.seam.formats import AvroFormat
from tests.fixtures.kafka import Kafka
from tests.fixtures.schema_registry import ApicurioRegistry
from tests.fixtures.server import SqlServer, serving, settings_of
from tests.fixtures.spark import BoundTable, SparkLake
from tests.harness.avro_histories import WIDER, Fields, text_of
from tests.harness.avro_oracle import AvroOracle, Row
from tests.harness.avro_tierer import AvroTierer
from tests.harness.tcp_proxy import Mode, TcpProxy
from thermocline.commands.create import first_watermark

NAMES = ("a", "b", "c", "d")
KINDS = ("int", "long", "float", "double", "string")
SQL_TYPES = {
    "int": "bigint",
    "long": "bigint",
    "float": "double",
    "double": "double",
    "string": "string",
}
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
        self._deleted_softly: set[int] = set()
        #: Ids of records that the server has answered with.
        self._met: set[int] = set()
        self._ever: Fields = {}
        self.catalogs = Catalogs(self.lake.catalogs)
        self._oracle = AvroOracle(self.catalogs, self.log, self.name, self.topic)
        self._staged: list[tuple[SparkTieringTarget, Staged]] = []
        self._stack = contextlib.ExitStack()
        binding = Binding(self.topic, AvroFormat(evolution="additive"))
        first = first_watermark(self.log.measure([self.topic])[self.topic], binding)
        columns = [Column(0, "id", pa.int32())]
        create_table(self.lake.catalogs, NewTable(self.name, columns, binding), first)
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
        parts = self.lake, self.kafka, self.name, {"url": self.url}
        self.tierers = [AvroTierer(*parts), AvroTierer(*parts)]
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
        self._oracle.texts[schema_id] = text

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

        def drain(tierer: AvroTierer) -> None:
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
        columns = {each.name for each in self._schema().payload}
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
        return {key for column in self._schema().payload for key in column.keys}

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
        needs = (
            version.id in self._oracle.tail_ids() or version.id in self._ledger().fingerprints
        )
        self._stopped(SchemaRegistryChanged, UndecodableRecord, where=needs)
        assert self.registry.register(self.subject, version.text) == version.id
        self.new_processes()
        # If none of its records was tiered before, the ledger has it as unknown.
        self.tierers[0].look()

    def swap(self) -> None:
        """An empty registry gives the ids to other schemas: the table stops by name until the old one is back."""
        if not self.versions:
            return
        self._come_back()
        version = self.rng.choice(self.versions)
        # Its id is in the ledger then: of another id the table cannot say what it meant.
        self._produce(version, 1)
        self.tierers[0].drain()
        self._produce(version, 2)
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
        self._oracle.note_tiered()
        answer, error = self._outcome()
        if "is new to the table, so wait for its tierer" in error:
            # A number in the tail has a wider type than its column, which no tierer has widened yet.
            assert self._ledger().lacks(self._oracle.tail_ids()), error
            self.events["column is narrow"] += 1
            if self.is_down:
                return
            self.tierers[0].drain()
            self._oracle.note_tiered()
            answer, error = self._outcome()
        ids = self._oracle.tail_ids()
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
        return self._oracle.expected(self._schema())

    def _schema(self) -> TableSchema:
        return self.lake.store.pin(self.name).schema

    def _ledger(self) -> SchemaLedger:
        properties: Mapping[str, str] = self.catalogs.load(self.name).properties
        ledger = SchemaLedger.parse(self.name, properties.get(SCHEMAS))
        own = {at: each for at, each in ledger.fingerprints.items() if each != UNKNOWN}
        return SchemaLedger(own, ledger.era)


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
