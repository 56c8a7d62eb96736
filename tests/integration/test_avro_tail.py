"""Tails of Avro topics behind a real registry: every record by its writer's schema, read by either process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from connectors.iceberg.catalogs import Catalogs
from connectors.iceberg.evolve import evolve_table
from connectors.iceberg.repair_commit import IcebergRepairCommitter
from connectors.repairs import AcceptingSchemas
from planner.evolution.avro import parse_schema
from planner.evolution.changes import Evolving, evolve
from planner.evolution.ledger import SCHEMAS, SchemaLedger
from planner.names import TableName
from planner.schema import Column, TableSchema
from planner.seam.formats import AvroFormat
from proxy.tail.generations import Generation
from proxy.tail.segment import Segment
from tests.fixtures.kafka import Kafka
from tests.fixtures.schema_registry import ApicurioRegistry, running_schema_registry
from tests.fixtures.server import SqlServer, serving, settings_of, sqlite_catalog
from tests.harness.avro_decoder import framed
from tests.harness.scripted_registry import Reply, missing, scripted_registry
from thermocline.config.settings import Settings
from thermocline.serve.assembly import running_server
from thermocline.serve.ingestion import ingesting

pytestmark = pytest.mark.kafka

COLUMNS = [Column(0, "id", pa.int64()), Column(0, "name", pa.string())]
FIRST = '{"type":"record","name":"Order","fields":[{"name":"id","type":"int"},{"name":"name","type":["null","string"]}]}'
SECOND = (
    '{"type":"record","name":"Order","fields":[{"name":"note","type":"string","default":""},'
    '{"name":"id","type":"long"},{"name":"name","type":"string"}]}'
)

Write = Callable[[str, list[dict[str, Any]]], None]


@contextlib.contextmanager
def own_process(settings: Settings) -> Iterator[SqlServer]:
    """A server whose topics are read by a process of their own."""
    with (
        ingesting(settings) as ingestion,
        running_server(settings, ingestion=ingestion) as running,
    ):
        assert ingestion is not None
        yield SqlServer(running, settings)


@pytest.fixture(params=[serving, own_process], ids=["in process", "own process"])
def server(
    request: pytest.FixtureRequest,
    kafka: Kafka,
    schema_registry: ApicurioRegistry,
    tmp_path: Path,
) -> Iterator[SqlServer]:
    settings = settings_of(
        {"lake": sqlite_catalog(tmp_path)}, {"bootstrap.servers": kafka.bootstrap}
    )
    settings.schema_registry["url"] = schema_registry.url
    with request.param(settings) as running:
        yield running


def writer(registry: ApicurioRegistry, kafka: Kafka, topic: str) -> Write:
    """Produce records of a schema."""
    return lambda schema, records: kafka.produce(
        topic, registry.serialized(topic, schema, records)
    )


def rows(server: SqlServer, table: TableName, columns: str = "id, name") -> list[Any]:
    answer = server.ask(f"SELECT {columns} FROM {table} ORDER BY id")
    return [tuple(row.values()) for row in answer.to_pylist()]


def evolved(server: SqlServer, table: TableName) -> None:
    """Have the table follow ``SECOND``, as a tierer does."""

    def decide(schema: TableSchema, *_: object) -> Evolving:
        tree = parse_schema(SECOND)
        return Evolving(evolve(schema, tree).changes, SchemaLedger({77: tree.fingerprint}).text)

    with contextlib.closing(Catalogs(server.settings.catalogs)) as catalogs:
        evolve_table(catalogs, table, decide)
    server.refresh(table)


def schemas_of(table: TableName) -> str:
    return f'{table.catalog}.{table.schema}."{table.name}$schemas"'


def test_each_record_is_read_by_its_writers_schema(
    server: SqlServer, kafka: Kafka, schema_registry: ApicurioRegistry
) -> None:
    topic = kafka.topic()
    write = writer(schema_registry, kafka, topic)
    write(FIRST, [{"id": 1, "name": "a"}, {"id": 2, "name": None}])
    table = server.bind(topic, COLUMNS, format=AvroFormat())
    assert rows(server, table) == [(1, "a"), (2, None)]
    # The follower meets another schema, of another order, in the middle of its work.
    write(SECOND, [{"id": 3, "name": "c", "note": "x"}])
    write(FIRST, [{"id": 4, "name": "d"}])
    assert rows(server, table) == [(1, "a"), (2, None), (3, "c"), (4, "d")]
    # The ledger is empty, since nothing tiers the table; the registry says what the tail had.
    subject = f"{topic}-value"
    schemas = server.ask(
        f"SELECT * EXCLUDE (schema_id) FROM {schemas_of(table)} ORDER BY version"
    )
    # The second schema began a segment, in which the last record of the first one is, too.
    assert [tuple(row.values()) for row in schemas.to_pylist()] == [
        (
            *(subject, version, "Order", "new"),
            [{"partition": 0, "first_offset": first, "last_offset": 3}],
        )
        for version, first in ((1, 0), (2, 2))
    ]


def test_many_records_are_fetched_whatever_their_schemas(
    server: SqlServer, kafka: Kafka, schema_registry: ApicurioRegistry
) -> None:
    """More than a small fetch, and the second schema comes late."""
    topic = kafka.topic()
    write = writer(schema_registry, kafka, topic)
    write(FIRST, [{"id": n, "name": "x"} for n in range(30_000)])
    write(SECOND, [{"id": 30_000, "name": "last", "note": ""}])
    table = server.bind(topic, COLUMNS, format=AvroFormat())
    answer = server.ask(f"SELECT count(*) AS n, sum(id) AS s, max(name) AS m FROM {table}")
    assert answer.to_pylist() == [{"n": 30_001, "s": 30_000 * 30_001 // 2, "m": "x"}]


def test_a_column_of_a_new_schema_has_its_values(
    server: SqlServer, kafka: Kafka, schema_registry: ApicurioRegistry
) -> None:
    topic = kafka.topic()
    write = writer(schema_registry, kafka, topic)
    write(FIRST, [{"id": 1, "name": "a"}])
    write(SECOND, [{"id": 2, "name": "b", "note": "n"}])
    table = server.bind(topic, COLUMNS, format=AvroFormat(evolution="additive"))
    assert rows(server, table) == [(1, "a"), (2, "b")]

    evolved(server, table)
    assert rows(server, table, "id, name, note") == [(1, "a", None), (2, "b", "n")]


def test_rows_without_the_new_field_stay_and_the_others_have_it(
    server: SqlServer,
    kafka: Kafka,
    schema_registry: ApicurioRegistry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A column is added and another widened over a tail that is followed."""
    carried_rows: list[int] = []
    borrow = Generation.borrow

    def counted(self: Generation, segment: Segment, epochs: Mapping[int, int]) -> None:
        carried_rows.append(segment.rows)
        borrow(self, segment, epochs)

    monkeypatch.setattr(Generation, "borrow", counted)
    topic, most = kafka.topic(), 25_000
    write = writer(schema_registry, kafka, topic)
    columns = [Column(0, "id", pa.int32()), COLUMNS[1]]
    write(FIRST, [{"id": n, "name": "x"} for n in range(most)])
    table = server.bind(topic, columns, format=AvroFormat(evolution="additive"))
    assert len(rows(server, table)) == most
    write(SECOND, [{"id": most, "name": "y", "note": "n"}])
    write(FIRST, [{"id": most + 1, "name": "z"}])
    expected = [*((n, "x") for n in range(most)), (most, "y"), (most + 1, "z")]
    with server.cursor() as old:
        old.execute(f"SELECT id, name FROM {table} ORDER BY id")
        evolved(server, table)
        notes = {most: "n"}
        answer = rows(server, table, "id, name, note")
        assert answer == [(*row, notes.get(row[0])) for row in expected]
        assert sum(carried_rows) == most
        assert old.fetchall() == expected
    write(SECOND, [{"id": 2**40, "name": "w", "note": "far"}])
    assert rows(server, table, "id, name, note") == [*answer, (2**40, "w", "far")]


def test_a_registry_that_is_away_is_named_and_what_is_known_goes_on(
    kafka: Kafka, tmp_path: Path
) -> None:
    topic, other = kafka.topic(), kafka.topic()
    with running_schema_registry(tmp_path) as registry:
        settings = settings_of(
            {"lake": sqlite_catalog(tmp_path)}, {"bootstrap.servers": kafka.bootstrap}
        )
        settings.schema_registry["url"] = registry.url
        with own_process(settings) as server:
            writer(registry, kafka, topic)(FIRST, [{"id": 1, "name": "a"}])
            writer(registry, kafka, other)(SECOND, [{"id": 5, "name": "e", "note": ""}])
            table = server.bind(topic, COLUMNS, format=AvroFormat())
            unmet = server.bind(other, COLUMNS, format=AvroFormat())
            assert rows(server, table) == [(1, "a")]
            registry.stop()
            assert rows(server, table) == [(1, "a")]
            with pytest.raises(Exception, match="the schema registry"):
                rows(server, unmet)


def test_an_id_that_means_something_else_stops_the_table(
    server: SqlServer, kafka: Kafka, schema_registry: ApicurioRegistry
) -> None:
    topic = kafka.topic()
    writer(schema_registry, kafka, topic)(FIRST, [{"id": 1, "name": "a"}])
    with schema_registry.client() as client:
        number = client.get_latest_version(f"{topic}-value").schema_id
    assert number is not None
    ledger = SchemaLedger({number: parse_schema(SECOND).fingerprint})
    table = server.bind(topic, COLUMNS, format=AvroFormat(ledger=ledger))
    with pytest.raises(Exception, match=f"another schema under id {number} than"):
        rows(server, table)


@pytest.mark.parametrize("server", [own_process], indirect=True)
def test_an_unknown_id_is_a_bad_record(
    server: SqlServer, kafka: Kafka, schema_registry: ApicurioRegistry
) -> None:
    topic = kafka.topic()
    writer(schema_registry, kafka, topic)(FIRST, [{"id": 1, "name": "a"}])
    kafka.produce(topic, [b"\x00\x7f\x00\x00\x01rest"])
    table = server.bind(topic, COLUMNS, format=AvroFormat(), on_error="skip")
    assert rows(server, table) == [(1, "a")]


def test_a_running_server_takes_what_is_decided_of_an_id(kafka: Kafka, tmp_path: Path) -> None:
    """An id that was unknown is taken up; then the registry is replaced, and a person accepts it."""
    late, replacement = (
        '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}',
        '{"type":"record","name":"Order","fields":[{"name":"name","type":"string"},{"name":"id","type":"long"}]}',
    )
    texts = {7: FIRST}

    answer_is = {"up": True}

    def answer(path: str) -> Reply:
        if not answer_is["up"]:
            return Reply(status=500)
        match path.strip("/").split("/"):
            case ["schemas", "ids", number] if int(number) in texts:
                return Reply({"schema": texts[int(number)]})
            case [*_, "versions"]:
                return Reply([])
        return missing()

    topic = kafka.topic()
    kafka.produce(topic, [framed(7, b"\2\2\2a"), framed(8, b"\4")])
    settings = settings_of(
        {"lake": sqlite_catalog(tmp_path)}, {"bootstrap.servers": kafka.bootstrap}
    )
    with scripted_registry(answer) as registry:
        settings.schema_registry.update(url=registry.url, unknown_id_grace_s="0.2")
        with own_process(settings) as server:
            table = server.bind(topic, COLUMNS, format=AvroFormat(), on_error="skip")
            assert rows(server, table) == [(1, "a")]
            texts[8] = late
            marks = {at: parse_schema(text).fingerprint for at, text in texts.items()}
            with server.catalog() as catalog:
                loaded = catalog.load_table((*table.namespace, table.name))
                with loaded.transaction() as transaction:
                    transaction.set_properties({SCHEMAS: SchemaLedger(marks).text})
            server.refresh(table)
            assert rows(server, table) == [(1, "a"), (2, None)]
            schemas = server.ask(f"SELECT schema_id, record, state FROM {schemas_of(table)}")
            assert [tuple(row.values()) for row in schemas.to_pylist()] == [
                (7, "Order", "same"),
                (8, "Order", "same"),
            ]
            seam = f'"{table.name}$seam"'
            seam_rows = server.ask(
                f"SELECT schema_ids, schema_era FROM lake.{table.schema}.{seam}"
            )
            assert seam_rows.to_pylist() == [{"schema_ids": 2, "schema_era": 0}]
            texts[7] = replacement
            kafka.produce(topic, [framed(7, b"\2z\6")])
            today = {**marks, 7: parse_schema(replacement).fingerprint}
            accepting = AcceptingSchemas(lambda _: today)
            committer = IcebergRepairCommitter(settings.catalogs)
            committer.amend(table, accepting, accepting.properties)
            server.refresh(table)
            # The first record was written before, and is none of today's schema.
            assert rows(server, table) == [(2, None), (3, "z")]
            # Of an outage it says what it knows.
            texts.clear()
            answer_is["up"] = False
            states = server.ask(f"SELECT schema_id, state FROM {schemas_of(table)}")
            assert states.to_pylist() == [
                {"schema_id": 7, "state": "new"},
                {"schema_id": 8, "state": "same"},
            ]
