"""The same rows as Avro and as JSON on real parts: what it takes a server to follow them, and Spark to tier them.

Processor time in turns, since other work on the machine slows both. Two figures are time that passes: from a registered version
to its column in answers, and of statements while versions become columns, beside windows in which none does.
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean, median

import adbc_driver_flightsql.dbapi as adbc
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from benchmarks.report import Report
from benchmarks.tierer import Round, Tierer, running_tierer
from benchmarks.usage import cpu_s
from benchmarks.world import World, serving
from connectors import child_guard
from connectors.decoding.avro.columns import columns_from
from connectors.decoding.json.wishes import Wishes
from connectors.iceberg.catalogs import Catalogs
from connectors.iceberg.create import NewTable, create_table
from connectors.iceberg.evolve import evolve_table
from connectors.registry.following import SchemaFollower
from connectors.registry.registries import SchemaRegistries
from planner.names import TableName
from planner.schema import Column
from planner.seam.binding import Binding
from planner.seam.formats import AvroFormat, JsonFormat, RecordFormat
from planner.tiering.triggers import MAX_AGE_S
from thermocline.commands.create import first_watermark
from thermocline.demo.broker import Broker
from thermocline.demo.registry import RegistryProcess
from thermocline.demo.world import java_of_extra
from thermocline.schema_columns import registered

_PARTITIONS = 2
_FLUSH_S = 120.0
_START_S = 300.0
_COLUMN_S = 120.0
_POLL_S = 0.1
_PUBLISHES = 4
_WARM_ROWS = 1_000
#: A tierer looks at versions every ten seconds.
_WINDOW_S = 15.0
#: What was produced stays in the tail while statements are measured.
_TIER_OPTIONS = {MAX_AGE_S: "3600"}
#: Versions that come while statements are asked, one in a window.
VERSIONS = 6


@dataclass(frozen=True, slots=True)
class Topic:
    """One format's records, their topic and table. ``purpose``: rows or warm."""

    format: str
    values: Sequence[bytes]
    purpose: str = "rows"

    @property
    def name(self) -> str:
        return f"{self.purpose}-{self.format.lower()}"

    @property
    def table(self) -> TableName:
        return TableName("lake", ("bench",), f"{self.purpose}_{self.format.lower()}")

    @property
    def warm(self) -> Topic:
        """A small topic of the same format: a server that has read it has loaded all that it needs."""
        return Topic(self.format, self.values[:_WARM_ROWS], "warm")


class Parts:
    """A broker and a registry, on which both topics and their tables are made."""

    def __init__(self, world: World, registry: RegistryProcess) -> None:
        self.world = world
        self.registry = registry

    def register(self, topic: Topic, text: str) -> int:
        with SchemaRegistryClient({"url": self.registry.url}) as client:
            return client.register_schema(f"{topic.name}-value", Schema(text))

    def create(self, topic: Topic, columns: Sequence[Column]) -> None:
        """Create topic and table; of Avro, by the subject's newest schema."""
        form: RecordFormat = JsonFormat()
        if topic.format == "Avro":
            with SchemaRegistries({"": {"url": self.registry.url}}) as registries:
                schema = registered(registries.of(""), f"{topic.name}-value")
            columns = columns_from(schema.writer, Wishes()).columns
            form = schema.format("", None, is_fixed=False)
            assert isinstance(form, AvroFormat)
        admin = AdminClient(self.world.kafka | {"log_level": 2})
        admin.create_topics([NewTopic(topic.name, _PARTITIONS, 1)])[topic.name].result(_FLUSH_S)
        binding = Binding(topic.name, form)
        mark = first_watermark(self.world.bounds(topic.name), binding)
        new = NewTable(topic.table, list(columns), binding, properties=_TIER_OPTIONS)
        create_table(self.world.catalogs, new, mark)

    def produce(self, topic: Topic) -> None:
        producer = Producer(
            self.world.kafka | {"linger.ms": 20, "queue.buffering.max.messages": 10_000_000}
        )
        for at, value in enumerate(topic.values):
            producer.produce(topic.name, value, partition=at % _PARTITIONS)
        if producer.flush(_FLUSH_S):
            raise RuntimeError("records were not acknowledged in time")

    def config(self) -> Path:
        config = self.world.config("formats", pin_refresh_s=1.0)
        url = json.dumps(self.registry.url)
        config.write_text(f"{config.read_text()}\n[schema_registry]\nurl = {url}\n")
        return config


@contextlib.contextmanager
def running_parts(seed: int) -> Iterator[Parts]:
    with tempfile.TemporaryDirectory(
        prefix="thermocline-bench-", ignore_cleanup_errors=True
    ) as name:
        folder = Path(name)
        with Broker(folder / "kafka", jvm_flags=("-Xmx1024m",)) as broker:
            log = folder / "registry.log"
            registry = RegistryProcess(log, java_of_extra(), (), child_guard.start)
            try:
                registry.wait()
                yield Parts(World(folder, broker, _PARTITIONS, seed), registry)
            finally:
                registry.stop()


def measure(
    report: Report,
    parts: Parts,
    topics: Sequence[Topic],
    later: Sequence[tuple[str, str]],
    turns: int,
) -> None:
    """Add the figures; both topics have as many records. ``later`` are versions that come, each with its new column."""
    count = len(topics[0].values)
    follow = _followed(parts, topics, turns)
    for name, took in follow.items():
        report.figure(f"{name}: a server's CPU to follow a row", took / count * 1e6, "us")
    ratio = follow["JSON"] / follow["Avro"]
    report.figure("follow rate, Avro / JSON, by CPU", ratio, "x", at_least=1.5)
    tier = _tiered(parts, topics)
    for name, took in tier.items():
        report.figure(f"{name}: Spark's CPU to tier a row", took * 1e6, "us")
    ratio = tier["JSON"] / tier["Avro"]
    report.figure("tiering rate, Avro / JSON, by CPU", ratio, "x", at_least=1.3)
    [avro] = [each for each in topics if each.format == "Avro"]
    parts.produce(avro)
    (text, column), *others = later
    config, log = parts.config(), parts.world.folder / "tier.log"
    with serving(config, parts.world.folder / "column.log") as server, _tier(config, log):
        took_s = _column_s(parts, avro, server.uri, text, column)
        windows = _windows(parts, avro, server.uri, others)
    report.figure("version registered to its column in answers", took_s, "s", at_most=15)
    report.details[
        "ms of a statement, in windows of which each second one has a new version"
    ] = [1e3 * each for each in windows]
    quiet = map(mean, pairwise(windows[::2]))
    slowed = median(one / other for one, other in zip(windows[1::2], quiet, strict=True))
    what = "time of a statement while a version becomes a column / while none does"
    report.figure(what, slowed, "x", at_most=1.1)


def _followed(parts: Parts, topics: Sequence[Topic], turns: int) -> dict[str, float]:
    """Return the least seconds of a new server, and of its reader, that answers with all rows of a tail once it is warm."""
    config, best = parts.config(), {each.format: float("inf") for each in topics}
    for turn in range(turns):
        for topic in topics:
            log = parts.world.folder / f"follow-{turn}-{topic.format}.log"
            with serving(config, log) as server:
                _ask(server.uri, f"SELECT count(*) FROM {topic.warm.table}")
                before = sum(_cpu(server.pid).values())
                rows = _ask(server.uri, f"SELECT count(*) FROM {topic.table}")
                if rows != len(topic.values):
                    raise RuntimeError(f"{len(topic.values)} records are {rows} rows")
                took = sum(_cpu(server.pid).values()) - before
                best[topic.format] = min(best[topic.format], took)
    return best


def _cpu(pid: int) -> Mapping[str, float]:
    used = cpu_s({"server": pid})
    return {role: seconds for role, seconds in used.items() if role.startswith("server")}


def _tiered(parts: Parts, topics: Sequence[Topic]) -> dict[str, float]:
    """Return seconds a row of JVM and workers, over all publishes but each table's first."""
    catalogs = Catalogs(parts.world.catalogs)
    with (
        contextlib.closing(catalogs),
        SchemaRegistries({"": {"url": parts.registry.url}}) as registries,
        running_tierer(parts.world) as tierer,
    ):
        follower = SchemaFollower(registries.of, functools.partial(evolve_table, catalogs))
        rounds = {each.format: _rounds(tierer, each, follower) for each in topics}
        used = dict.fromkeys(rounds, 0.0)
        rows = dict.fromkeys(rounds, 0)
        for number in range(_PUBLISHES):
            for name, publishes in rounds.items():
                done = next(publishes)
                if number:
                    used[name] += sum(
                        seconds
                        for role, seconds in done.cpu_s.items()
                        if role.startswith("spark")
                    )
                    rows[name] += done.rows
    return {name: used[name] / rows[name] for name in rounds}


def _rounds(tierer: Tierer, topic: Topic, follower: SchemaFollower) -> Iterator[Round]:
    return tierer.rounds(len(topic.values) // _PUBLISHES, topic.table, follower)


def _column_s(parts: Parts, topic: Topic, uri: str, text: str, column: str) -> float:
    """Return the seconds from the registration of a version to the first answer with its column."""
    parts.register(topic, text)
    began = time.monotonic()
    while time.monotonic() < began + _COLUMN_S:
        with contextlib.suppress(adbc.Error):
            _ask(uri, f"SELECT count({column}) FROM {topic.table}")
            return time.monotonic() - began
        time.sleep(_POLL_S)
    raise RuntimeError(f"no column {column} came: see {parts.world.folder}")


def _windows(
    parts: Parts, topic: Topic, uri: str, versions: Sequence[tuple[str, str]]
) -> list[float]:
    """Return the mean seconds of a statement in windows: one without a version before and after each that has one."""
    sql = f"SELECT count(*), max(packets) FROM {topic.table}"
    with adbc.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:

        def window() -> float:
            began, count = time.perf_counter(), 0
            while (took := time.perf_counter() - began) < _WINDOW_S:
                cursor.execute(sql)
                cursor.fetchall()
                count += 1
            return took / count

        window()
        means = [window()]
        for text, column in versions:
            parts.register(topic, text)
            means.append(window())
            # It came in that window, or this fails.
            _ask(uri, f"SELECT count({column}) FROM {topic.table}")
            means.append(window())
    return means


@contextlib.contextmanager
def _tier(config: Path, log: Path) -> Iterator[None]:
    """Run ``thermocline tier`` in a process of its own; the block begins when Spark is up."""
    command = [sys.executable, "-m", "thermocline", "--config", str(config), "tier", "loop"]
    with child_guard.start(log, command) as process:
        try:
            deadline = time.monotonic() + _START_S
            while not log.exists() or "tiering on Spark" not in log.read_text():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"no tierer: see {log}")
                time.sleep(_POLL_S)
            yield
        finally:
            child_guard.release(process)
            process.wait(_FLUSH_S)


def _ask(uri: str, sql: str) -> int:
    with adbc.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        count: int = cursor.fetch_arrow_table().column(0)[0].as_py()
        return count
