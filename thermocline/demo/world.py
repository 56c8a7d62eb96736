"""The demo's parts as real processes in one folder: broker, server, tierer. All end with this process."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.catalog import load_catalog
from pyiceberg.types import StringType

from connectors import jars
from connectors.iceberg.create import create_table
from connectors.kafka.log import KafkaLog
from planner.binding import Binding
from planner.errors import LogUnavailable, Unavailable
from planner.schema import Column
from planner.typetext import parse_type
from thermocline.commands.create import first_watermark
from thermocline.config.settings import Settings, load
from thermocline.demo.broker import Broker
from thermocline.demo.feeds import FEEDS, DemoFeed
from thermocline.demo.processes import Child, Janitor, start

START_TIMEOUT_S = 90.0
SPARK_HEAP = "1g"
_POLL_S = 0.05
#: A demo is over before the optimising compiler has paid for itself: half the processor time until it answers.
QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")


class Steps(Protocol):
    """Told how set-up goes. ``share`` runs from 0 to 1 where it is known."""

    def begin(self, step: str, share: float | None = None) -> None: ...

    def done(self, step: str) -> None: ...


@dataclass(frozen=True, slots=True)
class World:
    """Everything up: where clients connect, and what runs."""

    folder: Path
    settings: Settings
    broker: Broker
    port: int
    server: Child
    tierer: Child

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    @property
    def uri(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"

    def check(self) -> None:
        """Raise if a part ended."""
        if not self.broker.running:
            raise LogUnavailable("the demo's Kafka broker ended.")
        self.server.check()
        self.tierer.check()

    def add_column(self, feed: DemoFeed) -> None:
        """Add the field newer agents send to the table, as its owner would, while everything runs."""
        catalog = load_catalog("lake", **self.settings.catalogs["lake"])
        try:
            table = catalog.load_table((*feed.table.namespace, feed.table.name))
            with table.update_schema() as update:
                update.add_column(feed.later, StringType())
        finally:
            catalog.close()

    def files(self, feed: DemoFeed) -> tuple[int, int]:
        """Count data files of a table, and their bytes."""
        data = self.folder / "warehouse" / Path(*feed.table.namespace, feed.table.name) / "data"
        sizes = []
        for path in data.rglob("*.parquet"):
            with contextlib.suppress(FileNotFoundError):
                sizes.append(path.stat().st_size)
        return len(sizes), sum(sizes)


@contextlib.contextmanager
def running_world(
    folder: Path, port: int, *, interval_s: float, steps: Steps, janitor: Janitor | None
) -> Iterator[World]:
    """Start broker, tables, server and tierer in ``folder``; stop them in the opposite order.

    Server and Spark start while the broker does: they need it only later.

    Raises:
        FederationError: a part did not start; says which and why.
    """
    for name in ("kafka", "iceberg"):
        step = f"{name.capitalize()} jars"
        steps.begin(step, 0.0)
        jars.resolve(name, progress=lambda share, step=step: steps.begin(step, share))  # type: ignore[misc]
        steps.done(step)
    watched = janitor.wait_for if janitor is not None else _nobody
    with contextlib.ExitStack() as stack:
        broker = Broker(folder / "kafka", jvm_flags=QUICK_JVM)
        stack.callback(broker.stop)
        config = _write_config(folder, broker.bootstrap, port)
        settings = load(str(config))
        steps.begin("Spark")
        tierer = start(
            folder, config, "tierer", "tier", "loop", "--interval", f"{interval_s:g}"
        )
        stack.callback(tierer.stop)
        watched(tierer.process.pid)
        steps.begin("Flight SQL server")
        server = start(folder, config, "server", "serve")
        stack.callback(server.stop)
        watched(server.process.pid)
        # Both are asked before either is waited for.
        stack.callback(server.ask_to_stop)
        stack.callback(tierer.ask_to_stop)
        steps.begin("Kafka broker")
        broker.start()
        watched(broker.pid)
        steps.done("Kafka broker")
        steps.begin("Iceberg tables")
        _create_topics(broker.bootstrap, FEEDS)
        _create_tables(settings, FEEDS)
        steps.done("Iceberg tables")
        _wait_for(port, server)
        steps.done("Flight SQL server")
        yield World(folder, settings, broker, port, server, tierer)


def _nobody(pid: int | None) -> None:
    """A folder that is kept needs no janitor."""
    del pid


def wait_until_stable(bootstrap: str, topic: str) -> None:
    """Wait until no transaction is open: a commit is acknowledged before its markers are in the partitions.

    Raises:
        LogUnavailable: they did not arrive in time.
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    with KafkaLog({"bootstrap.servers": bootstrap}, with_high_watermark=True) as log:
        while time.monotonic() < deadline:
            parts = log.measure([topic])[topic].partitions
            if all(item.log_end == item.high_watermark for item in parts):
                return
            time.sleep(0.1)
    raise LogUnavailable(
        f"topic {topic} still has open transactions after {START_TIMEOUT_S:g} s."
    )


def _create_topics(bootstrap: str, feeds: Sequence[DemoFeed]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    futures = admin.create_topics([NewTopic(feed.topic, feed.partitions, 1) for feed in feeds])
    for future in futures.values():
        future.result(START_TIMEOUT_S)


def _create_tables(settings: Settings, feeds: Sequence[DemoFeed]) -> None:
    with KafkaLog(settings.kafka) as log:
        measured = log.measure([feed.topic for feed in feeds])
    for feed in feeds:
        binding = Binding(feed.topic, on_error="null")
        create_table(
            settings.catalogs,
            feed.table,
            [
                Column(0, name, parse_type(kind), epoch_unit="ms" if name == "ts" else None)
                for name, kind in feed.columns.items()
            ],
            binding,
            first_watermark(measured[feed.topic], binding),
            partition_by=feed.partition_by,
            sort_by=feed.sort_by,
            comment=feed.comment,
        )


def _write_config(folder: Path, bootstrap: str, port: int) -> Path:
    warehouse = folder / "warehouse"
    warehouse.mkdir(parents=True)
    java_options = " ".join((f"-Djava.io.tmpdir={folder / 'tmp'}", *QUICK_JVM))
    file = folder / "thermocline.toml"
    file.write_text(
        f"[catalogs.lake]\n"
        f'type = "sql"\n'
        f"uri = {json.dumps(f'sqlite:///{folder}/catalog.db')}\n"
        f"warehouse = {json.dumps(warehouse.as_uri())}\n\n"
        f"[kafka]\n"
        f'"bootstrap.servers" = {json.dumps(bootstrap)}\n\n'
        f"[server]\n"
        f"port = {port}\n"
        f"pin_refresh_s = 1.0\n\n"
        f"[tier]\n"
        f'driver_memory = "{SPARK_HEAP}"\n'
        f"poll_s = 1.0\n"
        f"stop_s = 2.0\n\n"
        f"[tier.conf]\n"
        f'"spark.driver.defaultJavaOptions" = {json.dumps(java_options)}\n'
    )
    return file


def _wait_for(port: int, server: Child) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        server.check()
        time.sleep(_POLL_S)
    raise Unavailable(
        f"the demo's server did not listen on port {port} within {START_TIMEOUT_S:g} s."
    )
