"""A column is added to a table whose tail is followed: how long until the first right answer that has it.

Records are Avro. The time begins when the commit is there, and the server looks at the table at once.
"""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import click
import fastavro
import pyarrow as pa
from confluent_kafka import Producer

from benchmarks.options import partitions, seed
from benchmarks.report import recorded
from benchmarks.world import TOPIC, World, running_world
from connectors.iceberg.catalogs import Catalogs
from connectors.iceberg.create import NewTable, create_table
from connectors.iceberg.evolve import evolve_table
from planner.evolution.avro import parse_schema
from planner.evolution.changes import Evolving, evolve
from planner.evolution.ledger import SchemaLedger
from planner.names import TableName
from planner.schema import Column, TableSchema
from planner.seam.binding import Binding
from planner.seam.formats import AvroFormat
from tests.harness.scripted_registry import Reply, missing, scripted_registry
from thermocline.commands.create import first_watermark
from thermocline.config.settings import Server, Settings
from thermocline.serve.assembly import RunningServer, running_server
from thermocline.serve.ingestion import ingesting

TABLE = TableName("lake", ("net",), "evolving")
COLUMNS = {
    "id": ("long", pa.int64()),
    "packets": ("int", pa.int32()),
    "ratio": ("double", pa.float64()),
    "encrypted": ("boolean", pa.bool_()),
    "host": ("string", pa.string()),
    "note": ("string", pa.string()),
}
_GOAL_S = 1.0
_DISTINCT, _CHUNK, _QUEUED, _FLUSH_S = 1_000, 50_000, 400_000, 120.0
_FILL_S = 1_800.0


@click.command()
@click.option("--rows", type=click.IntRange(1), default=5_000_000, show_default=True)
@click.option(
    "--with-field",
    type=click.IntRange(0),
    default=10_000,
    show_default=True,
    help="As many records that have the field follow the others.",
)
@partitions
@seed
@click.pass_obj
def command(results: Path, rows: int, with_field: int, partitions: int, seed: int) -> None:
    """Add a column over a tail that is followed."""
    with recorded(results, "evolving") as report:
        for newer in (0, with_field):
            with running_world(partitions=partitions, seed=seed) as world:
                took_s = _measure(world, rows, newer)
            what = f"add a column over {rows:,} rows, of {newer:,} more that have it"
            goal = {} if newer else {"at_most": _GOAL_S}
            report.figure(f"{what}, to the first right answer", took_s, "s", **goal)


def _measure(world: World, rows: int, newer: int) -> float:
    form = AvroFormat(evolution="additive")
    binding = Binding(TOPIC, form)
    columns = tuple(Column(0, name, kind) for name, (_, kind) in COLUMNS.items())
    mark = first_watermark(world.bounds(), binding)
    create_table(world.catalogs, NewTable(TABLE, columns, binding), mark)
    texts = {1: _schema(), 2: _schema(port="int")}
    _produce(world, 1, texts[1], rows)
    with _serving(world, texts, rows + newer) as server:
        _ask(server, "count(*)", rows)
        if newer:
            _produce(world, 2, texts[2], newer)
            _ask(server, "count(*)", rows + newer)
        writer = parse_schema(texts[2])

        def decide(schema: TableSchema, *_: object) -> Evolving:
            ledger = SchemaLedger({2: writer.fingerprint}).text
            return Evolving(evolve(schema, writer).changes, ledger)

        with contextlib.closing(Catalogs(world.catalogs)) as catalogs:
            evolve_table(catalogs, TABLE, decide)
        began = time.perf_counter()
        server.pins.refresh(TABLE)
        _ask(server, "count(port)", newer)
        took_s = time.perf_counter() - began
        _ask(server, "count(*)", rows + newer)
        return took_s


def _schema(**more: str) -> str:
    kinds = {name: kind for name, (kind, _) in COLUMNS.items()} | more
    fields = [{"name": name, "type": kind} for name, kind in kinds.items()]
    return json.dumps({"type": "record", "name": "Flow", "fields": fields})


def _produce(world: World, schema_id: int, text: str, count: int) -> None:
    """Append some records, the same ones over and over, to the partitions in turn."""
    schema, values = fastavro.parse_schema(json.loads(text)), []
    for number in range(_DISTINCT):
        row: dict[str, Any] = {"id": number, "packets": number * 7, "ratio": number / 3}
        row |= {"encrypted": number % 2 == 0, "host": f"host-{number}.example.org", "port": 443}
        body = io.BytesIO()
        fastavro.schemaless_writer(body, schema, {**row, "note": f"{number:03d} " * 20})
        values.append({"value": b"\0" + schema_id.to_bytes(4) + body.getvalue()})
    chunk = values * (_CHUNK // _DISTINCT)
    options = {"acks": "all", "linger.ms": 50, "queue.buffering.max.messages": 2 * _QUEUED}
    producer = Producer({"bootstrap.servers": world.broker.bootstrap, **options})
    for at, start in enumerate(range(0, count, _CHUNK)):
        while len(producer) > _QUEUED:
            producer.poll(0.01)
        some = chunk[: count - start]
        if producer.produce_batch(TOPIC, some, partition=at % world.partitions) != len(some):
            raise RuntimeError("records were not queued")
    if producer.flush(_FLUSH_S):
        raise RuntimeError("records were not acknowledged")


@contextlib.contextmanager
def _serving(world: World, texts: Mapping[int, str], rows: int) -> Iterator[RunningServer]:
    """Serve the table from this process; topics are read by one of its own."""
    paths = {f"/schemas/ids/{number}": text for number, text in texts.items()}

    def answer(path: str) -> Reply:
        text = paths.get(path.partition("?")[0])
        return missing() if text is None else Reply({"schema": text})

    with scripted_registry(answer) as registry:
        settings = Settings(
            catalogs=world.catalogs,
            kafka=world.kafka,
            schema_registry={"url": registry.url},
            server=Server(port=0, max_tail_rows=2 * rows, max_tail_bytes=rows * 1_000),
        )
        with (
            ingesting(settings) as ingestion,
            running_server(settings, ingestion=ingestion) as server,
        ):
            yield server


def _ask(server: RunningServer, what: str, expected: int) -> None:
    """Ask until there is an answer, which must be the right one."""
    end = time.monotonic() + _FILL_S
    with (
        adbc.connect(f"grpc://127.0.0.1:{server.port}", autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        while True:
            try:
                cursor.execute(f"SELECT {what} FROM {TABLE}")
                [(answer,)] = cursor.fetchall()
                break
            except adbc.Error:
                # The statement's time is over before the tail is read.
                if time.monotonic() > end:
                    raise
    if answer != expected:
        raise RuntimeError(f"{what} is {answer}, {expected} were sent")
