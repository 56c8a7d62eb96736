"""One chaos run: a broker, a catalog, writers, a tierer, and a list of kills."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.catalog import load_catalog

from connectors.iceberg.create import NewTable, create_table
from connectors.iceberg.store import IcebergStore
from connectors.kafka.log import KafkaLog
from planner.names import TableName
from planner.schema import Column
from planner.seam.binding import Binding
from tests.chaos.kills import Kill, Victim, schedule, victims
from tests.chaos.lakes import Lake, sqlite_lake
from tests.chaos.tierer import Tierer
from tests.chaos.writers import Ledger, Writers
from tests.harness.quick_jvm import quick_jvm
from thermocline.commands.create import first_watermark
from thermocline.demo.broker import Broker
from thermocline.demo.world import QUICK_JVM

TOPIC = "chaos"
TABLE = TableName("lake", ("net",), "chaos")
COLUMNS = (Column(0, "id", pa.int64()), Column(0, "kind", pa.string()))
PARTITIONS = 3
#: Spark in one process, and with an executor in a process of its own, which Spark starts again.
LOCAL, WITH_EXECUTOR = "local[2]", "local-cluster[1,2,512]"
_DRAIN_TIMEOUT_S = 1800.0
_STABLE_TIMEOUT_S = 600.0


@dataclass
class Outcome:
    """What a run came to. ``wrong`` is empty when every invariant of the README holds.

    ``counts`` are kills by victim and point; ``kills`` tells them in order, with seconds since the start.
    """

    seed: int
    master: str
    began: str = ""
    catalogs: list[str] = field(default_factory=list)
    took_s: float = 0.0
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    ledger: dict[str, int] = field(default_factory=dict)
    rows: int = 0
    publishes: int = 0
    refused: int = 0
    starts: int = 0
    wrong: list[str] = field(default_factory=list)
    kills: list[str] = field(default_factory=list)

    def add(self, kill: Kill, at_s: float) -> None:
        where = kill.point or "random moment"
        value = self.counts.setdefault(kill.victim, {})
        value[where] = value.get(where, 0) + 1
        self.kills.append(f"{at_s:.1f} s: {kill.victim}, {where}")

    def write(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(asdict(self), indent=1) + "\n")


def run(
    folder: Path,
    *,
    seed: int,
    count: int,
    master: str = LOCAL,
    lake: Lake | None = None,
    among: Sequence[Victim] = (),
) -> Outcome:
    """Kill ``count`` times; then let the tierer catch up, and compare.

    ``lake``: by default on this disk. ``among``: by default everybody whom there is to kill.
    """
    lake = lake or sqlite_lake(folder, TABLE)
    broker = Broker(folder / "kafka", jvm_flags=quick_jvm("kafka"))
    broker.start_timeout_s = 900
    with broker:
        kafka = {"bootstrap.servers": broker.bootstrap}
        admin = AdminClient({**kafka, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
        among = among or victims(executors=master != LOCAL, store=lake.store is not None)
        kills = schedule(seed, count, among)
        return run_kills(folder, kafka, lake, kills, seed=seed, master=master, broker=broker)


def run_kills(
    folder: Path,
    kafka: dict[str, str],
    lake: Lake,
    kills: Sequence[Kill],
    *,
    seed: int,
    topic: str = TOPIC,
    master: str = LOCAL,
    broker: Broker | None = None,
) -> Outcome:
    """As ``run``, over a topic that is there. Without ``broker`` none of the kills may be of one."""
    began = time.monotonic()
    outcome = Outcome(seed, master, dt.datetime.now(dt.UTC).isoformat(timespec="seconds"))
    outcome.catalogs = [*lake.catalogs]
    chance = random.Random(seed)
    for table in lake.tables:
        create(lake.catalogs[table.catalog], kafka, Binding(topic), table)
    writers = Writers(kafka["bootstrap.servers"], topic, PARTITIONS, seed)
    config = write_config(folder, lake.catalogs, kafka, master=master)
    arguments = ("loop", "--interval", "0.3", *map(str, lake.tables))
    with Tierer(config, folder / "hit", *arguments).running() as tierer:
        writers.start()
        for kill in kills:
            tierer.ensure()
            lake.disturb(chance)
            at_s = time.monotonic() - began
            if _carry_out(kill, tierer, broker, writers, lake, chance):
                outcome.add(kill, at_s)
        ledger = writers.end()
        until_stable(kafka, topic)
        until_level(tierer, lake, kafka, topic)
        outcome.starts = tierer.starts
        outcome.publishes = tierer.said.count(": published ")
        outcome.refused = tierer.said.count("plan again")
    outcome.ledger = ledger.facts()
    for table in lake.tables:
        rows, wrong = compare(
            lake.catalogs[table.catalog], kafka, ledger, table=table, topic=topic
        )
        outcome.rows += rows
        outcome.wrong += [f"{table}: {sentence}" for sentence in wrong]
    outcome.took_s = round(time.monotonic() - began, 1)
    return outcome


def _carry_out(
    kill: Kill,
    tierer: Tierer,
    broker: Broker | None,
    writers: Writers,
    lake: Lake,
    chance: random.Random,
) -> bool:
    """Whether somebody was killed."""
    manager: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
    if kill.point is not None:
        manager = tierer.paused_at(kill.point)
    else:
        if kill.at_work:
            tierer.wait_for_publish()
        time.sleep(kill.wait_s)
    match kill.victim:
        case "driver":
            with manager:
                tierer.kill()
        case "jvm":
            with manager:
                struck = _within(30, tierer.kill_jvm)
            if struck:
                tierer.wait_dead()
            return struck
        case "executor":
            with manager:
                return _within(60, lambda: tierer.kill_executor(chance))
        case "worker":
            with manager:
                return _within(60, lambda: tierer.kill_worker(chance))
        case "broker":
            assert broker is not None
            with manager:
                writers.crash()
                broker.kill()
            time.sleep(kill.outage_s)
            broker.start()
        case "catalog" | "store":
            outages = lake.catalog_outages if kill.victim == "catalog" else (lake.store_outage,)
            with contextlib.ExitStack() as stack:
                with manager:
                    stack.enter_context(chance.choice(outages)())
                time.sleep(kill.outage_s)
    return True


def _within(timeout_s: float, done: Any) -> bool:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if done():
            return True
        time.sleep(0.05)
    return False


def create(
    catalog: Mapping[str, str],
    kafka: dict[str, str],
    binding: Binding | None = None,
    table: TableName = TABLE,
) -> None:
    binding = binding or Binding(TOPIC)
    with KafkaLog(kafka) as log:
        first = first_watermark(log.measure([binding.topic])[binding.topic], binding)
    create_table({table.catalog: catalog}, NewTable(table, COLUMNS, binding), first)


def write_config(
    folder: Path,
    catalogs: Mapping[str, Mapping[str, str]],
    kafka: dict[str, str],
    *,
    master: str = LOCAL,
    max_rows: int = 1_000_000,
) -> Path:
    """``max_rows``: of one publish."""
    config = folder / "thermocline.toml"
    lakes = "".join(
        f"[catalogs.{name}]\n"
        + "".join(f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in fields.items())
        for name, fields in catalogs.items()
    )
    conf = {
        "spark.executor.defaultJavaOptions": " ".join(QUICK_JVM),
        "spark.executor.memory": "512m",
    }
    config.write_text(
        f'{lakes}[kafka]\n"bootstrap.servers" = "{kafka["bootstrap.servers"]}"\n'
        f'[tier]\nmaster = "{master}"\ndriver_memory = "512m"\npoll_s = 0.2\nsplit_rows = 2000\n'
        f"max_rows = {max_rows}\n"
        "[tier.conf]\n"
        + "".join(f'"{key}" = {json.dumps(value)}\n' for key, value in conf.items())
    )
    return config


def until_stable(kafka: dict[str, str], topic: str = TOPIC) -> None:
    """Wait until no transaction is open: the coordinator ends those whose producer is gone after a minute."""
    deadline = time.monotonic() + _STABLE_TIMEOUT_S
    with KafkaLog(kafka, with_high_watermark=True) as log:
        while time.monotonic() < deadline:
            partitions = log.measure([topic])[topic].partitions
            if all(item.log_end == item.high_watermark for item in partitions):
                return
            time.sleep(0.2)
    raise AssertionError("a transaction stays open")


def until_level(tierer: Tierer, lake: Lake, kafka: dict[str, str], topic: str) -> None:
    """Wait until the watermark of each table is at the log's end."""
    with KafkaLog(kafka) as log:
        partitions = log.measure([topic])[topic].partitions
    ends = {item.partition: item.log_end for item in partitions}
    deadline = time.monotonic() + _DRAIN_TIMEOUT_S
    with contextlib.closing(IcebergStore(lake.catalogs)) as store:
        for table in lake.tables:
            while (mark := store.pin(table).watermark) is None or dict(mark.next) != ends:
                assert time.monotonic() < deadline, tierer.said[-2000:]
                tierer.ensure()
                time.sleep(0.3)


def compare(
    catalog: Mapping[str, str],
    kafka: dict[str, str],
    ledger: Ledger,
    *,
    deleted: frozenset[int] = frozenset(),
    table: TableName = TABLE,
    topic: str = TOPIC,
) -> tuple[int, list[str]]:
    """Return the number of rows, and what is wrong. ``deleted``: numbers that another writer removed from cold."""
    cold = load_catalog(table.catalog, **catalog).load_table((*table.namespace, table.name))
    rows = cold.scan(selected_fields=("kafka_partition", "kafka_offset", "id")).to_arrow()
    items = list(zip(*(column.to_pylist() for column in rows.columns), strict=True))
    committed = [
        record for record in committed_records(kafka, topic) if record[2] not in deleted
    ]
    wrong = []
    if len(items) != len(set(items)):
        wrong.append(f"{len(items) - len(set(items))} rows twice")
    # Positions as (partition, offset, number).
    missing, surplus = set(committed) - set(items), set(items) - set(committed)
    if missing:
        wrong.append(f"{len(missing)} committed records missing: {sorted(missing)[:5]}")
    if surplus:
        wrong.append(f"{len(surplus)} rows of no committed record: {sorted(surplus)[:5]}")
    places = {number: (partition, offset) for partition, offset, number in items}
    lost = [
        number
        for number, place in ledger.acknowledged.items()
        if number not in deleted and places.get(number) != place
    ]
    if lost:
        wrong.append(f"{len(lost)} acknowledged records not at their place: {lost[:5]}")
    undead = ledger.aborted & places.keys()
    if undead:
        wrong.append(f"{len(undead)} records of aborted transactions: {sorted(undead)[:5]}")
    if len(places) != len(items):
        wrong.append("a record number is in the table twice")
    return len(items), wrong


def committed_records(kafka: dict[str, str], topic: str = TOPIC) -> list[tuple[int, int, int]]:
    """What a stock consumer reads of committed records over the whole log: (partition, offset, number) each."""
    consumer = Consumer(
        {
            **kafka,
            "group.id": "oracle",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    with contextlib.closing(consumer):
        partitions = consumer.list_topics(topic, timeout=120).topics[topic].partitions
        consumer.assign(
            [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in partitions]
        )
        items, open_ends = [], set(partitions)
        while open_ends:
            # It waits for as many, or the time: the last call has fewer.
            for message in consumer.consume(10_000, timeout=0.5):
                error = message.error()
                if error is None:
                    number = json.loads(message.value() or b"")["id"]
                    items.append((message.partition() or 0, message.offset() or 0, number))
                elif error.code() == KafkaError._PARTITION_EOF:
                    open_ends.discard(message.partition())
                else:
                    raise KafkaException(error)
        return items
