"""The real parts a benchmark works on: broker, topic, catalog, bound table, server process, all in one folder."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from pyiceberg.catalog import load_catalog

from benchmarks import records
from benchmarks.shapes import FLOWS, Shape
from connectors import child_guard
from connectors.iceberg.create import NewTable, create_table
from connectors.iceberg.store import IcebergStore
from connectors.kafka.log import KafkaLog
from planner.errors import LogUnavailable
from planner.names import TableName
from planner.seam.binding import Binding
from planner.seam.cut import LogBounds, Pin
from thermocline.commands.create import first_watermark
from thermocline.config.settings import Server, Settings
from thermocline.demo.broker import Broker

TOPIC = "events"
TABLE = TableName("lake", ("bench",), "events")
_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 30.0
_HEAP = ("-Xmx1024m",)
NOTHING: Mapping[str, str] = MappingProxyType({})
NOWHERE: Mapping[str, Mapping[str, str]] = MappingProxyType({})
#: Of a tierer, on a machine that is busy: Spark's start, and a publish.
_FIRST_PUBLISH_S = 180.0


def sqlite_catalogs(folder: Path) -> dict[str, dict[str, str]]:
    """Properties of catalog ``lake``: SQLite and a warehouse in ``folder``."""
    warehouse = folder / "warehouse"
    warehouse.mkdir(parents=True, exist_ok=True)
    return {
        "lake": {
            "type": "sql",
            "uri": f"sqlite:///{folder / 'catalog.db'}",
            "warehouse": warehouse.as_uri(),
        }
    }


@dataclass(frozen=True, slots=True)
class DataFile:
    path: str
    rows: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Serving:
    """A running ``thermocline serve``. ``pid`` is the server's own process. ``rest``: live tables' address, if served."""

    uri: str
    pid: int
    rest: str = ""


@dataclass
class World:
    """A broker with one topic, and the table that is bound to it."""

    folder: Path
    broker: Broker
    partitions: int
    seed: int
    produced: int = 0
    shape: Shape = FLOWS
    #: Catalogs beside ``lake``, by name.
    elsewhere: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def catalogs(self) -> dict[str, dict[str, str]]:
        others = {name: dict(fields) for name, fields in self.elsewhere.items()}
        return sqlite_catalogs(self.folder) | others

    @property
    def kafka(self) -> dict[str, str]:
        return {"bootstrap.servers": self.broker.bootstrap}

    @property
    def roots(self) -> dict[str, int]:
        """Process ids for ``benchmarks.usage``."""
        return {"broker": self.broker.pid} if self.broker.pid else {}

    def create(
        self,
        topic: str,
        table: TableName,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] = NOTHING,
    ) -> None:
        """Create a topic and the table bound to it."""
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 2})
        admin.create_topics([NewTopic(topic, self.partitions, 1)])[topic].result(
            _START_TIMEOUT_S
        )
        self.bind(topic, table, partition_by, properties)

    def bind(
        self,
        topic: str,
        table: TableName,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] = NOTHING,
    ) -> None:
        """Create a table bound to a topic that is there."""
        binding = Binding(topic)
        create_table(
            self.catalogs,
            NewTable(
                table,
                self.shape.columns,
                binding,
                partition_by=partition_by,
                properties=properties,
            ),
            first_watermark(self._led(topic), binding),
        )

    def produce(self, count: int, topic: str = TOPIC) -> float:
        """Append ``count`` records and return the seconds it took; another topic gets ids from 0."""
        began = time.perf_counter()
        start = self.produced if topic == TOPIC else 0
        before = sum(partition.log_end for partition in self.bounds(topic).partitions)
        records.produce(
            self.broker.bootstrap,
            topic,
            partitions=self.partitions,
            start=start,
            stop=start + count,
            seed=self.seed,
            shape=self.shape,
        )
        if topic == TOPIC:
            self.produced += count
        arrived = sum(partition.log_end for partition in self.bounds(topic).partitions) - before
        if arrived != count:
            raise RuntimeError(f"the topic got {arrived} offsets, {count} records were sent")
        return time.perf_counter() - began

    def _led(self, topic: str) -> LogBounds:
        """Bounds of a new topic, as soon as all its partitions have a leader."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while True:
            try:
                return self.bounds(topic)
            except LogUnavailable:
                if time.monotonic() > deadline:
                    raise

    def bounds(self, topic: str = TOPIC) -> LogBounds:
        with KafkaLog(self.kafka) as log:
            return log.measure([topic])[topic]

    def pin(self) -> Pin:
        store = IcebergStore(self.catalogs)
        try:
            return store.pin(TABLE)
        finally:
            store.close()

    def data_files(self, table: TableName = TABLE) -> list[DataFile]:
        """Return the data files of the newest snapshot, as paths any reader on this machine opens."""
        catalog = load_catalog("lake", **self.catalogs["lake"])
        planned = catalog.load_table((*table.namespace, table.name)).scan().plan_files()
        return [
            DataFile(
                task.file.file_path.removeprefix("file://").replace("file:", "", 1),
                task.file.record_count,
                task.file.file_size_in_bytes,
            )
            for task in planned
        ]

    def free_port(self) -> int:
        with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listening:
            port: int = listening.getsockname()[1]
            return port

    def config(
        self,
        name: str = "thermocline",
        iceberg_rest: Mapping[str, object] | None = None,
        /,
        *,
        tail: Mapping[str, object] | None = None,
        **settings: float,
    ) -> Path:
        """Write a settings file of its own ``name``; ``settings`` are those of section ``[server]``."""
        config = self.folder / f"{name}.toml"
        lake = "".join(
            f"{key} = {json.dumps(value)}\n" for key, value in self.catalogs["lake"].items()
        )
        chosen = "".join(f"{key} = {value}\n" for key, value in settings.items())
        sections = "".join(
            f"[{section}]\n" + "".join(f"{key} = {json.dumps(own[key])}\n" for key in own)
            for section, own in (("tail", tail), ("iceberg_rest", iceberg_rest))
            if own  # what an older server does not know it need not read
        )
        config.write_text(
            f'[catalogs.lake]\n{lake}\n[kafka]\n"bootstrap.servers" = "{self.broker.bootstrap}"\n\n'
            f"[server]\nport = 0\n{chosen}\n{sections}"
        )
        return config

    def settings(self, **server: Any) -> Settings:
        """What ``server`` serves, for parts in this process; ``server`` are settings of that section."""
        chosen = Server(port=0, **server)
        return Settings(catalogs=self.catalogs, kafka=self.kafka, server=chosen)

    @contextlib.contextmanager
    def server(
        self,
        iceberg_rest: Mapping[str, object] | None = None,
        /,
        *,
        tail: Mapping[str, object] | None = None,
        **settings: float,
    ) -> Iterator[Serving]:
        """Run the server in a process of its own; ``settings`` are those of section ``[server]``."""
        config = self.config("thermocline", iceberg_rest, tail=tail, **settings)
        log = self.folder / "server.log"
        with serving(config, log, has_rest=iceberg_rest is not None) as running:
            yield running


@contextlib.contextmanager
def serving(
    config: Path, log: Path, *, has_rest: bool = False, checkout: Path | None = None
) -> Iterator[Serving]:
    """Run ``thermocline serve`` in a process of its own; ``log`` gets what it writes.

    ``has_rest``: live tables, too. ``checkout``: with the modules of another checkout.
    """
    log.write_text("")
    command = [sys.executable, "-m", "thermocline", "--config", str(config), "serve"]
    if checkout is not None:
        command = ["env", f"PYTHONPATH={checkout}", *command]
    # It ends with this process, however that ends.
    # The folder that a Python runs in has the first say where its modules are, of its children, too.
    with child_guard.start(log, [*command, "--no-supervisor"], folder=checkout) as process:
        try:
            pid = child_guard.command_id(process)
            assert pid is not None
            rest = _listening(process, log, r"http://\S+") if has_rest else ""
            yield Serving(_listening(process, log), pid, rest)
        finally:
            child_guard.release(process)
            process.wait(_STOP_TIMEOUT_S)


@contextlib.contextmanager
def tiering(world: World, interval_s: int) -> Iterator[None]:
    """Run ``thermocline tier`` in a process of its own, which publishes every ``interval_s`` or so.

    The block begins after its first publish: Spark's start is over then.
    """
    config = world.config("tier")
    command = [sys.executable, "-m", "thermocline", "--config", str(config)]
    log = world.folder / "tier.log"
    before = world.pin().snapshot_id
    with child_guard.start(log, [*command, "tier", "--interval", str(interval_s)]) as process:
        try:
            deadline = time.monotonic() + _FIRST_PUBLISH_S + interval_s
            while world.pin().snapshot_id == before:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"nothing was tiered: see {log}")
                time.sleep(1)
            yield
        finally:
            child_guard.release(process)
            process.wait(_STOP_TIMEOUT_S)


@contextlib.contextmanager
def running_world(
    *,
    partitions: int,
    seed: int,
    partition_by: Sequence[str] = (),
    shape: Shape = FLOWS,
    brokers: int = 1,
    elsewhere: Mapping[str, Mapping[str, str]] = NOWHERE,
    properties: Mapping[str, str] = NOTHING,
) -> Iterator[World]:
    """Start brokers of one cluster, create topic and table; everything is removed at the end.

    ``elsewhere``: further catalogs, without tables.
    """
    with tempfile.TemporaryDirectory(
        prefix="thermocline-bench-", ignore_cleanup_errors=True
    ) as name:
        folder = Path(name)
        with contextlib.ExitStack() as stack:
            broker = stack.enter_context(Broker(folder / "kafka", jvm_flags=_HEAP))
            for node in range(2, brokers + 1):
                more = Broker(
                    folder / f"kafka-{node}",
                    jvm_flags=_HEAP,
                    properties={"node.id": str(node)},
                    controlled_by=broker,
                )
                stack.enter_context(more)
            world = World(folder, broker, partitions, seed, shape=shape, elsewhere=elsewhere)
            world.create(TOPIC, TABLE, partition_by, properties)
            yield world


@contextlib.contextmanager
def world_of(
    folder: Path, *, partitions: int, seed: int, partition_by: Sequence[str] = ()
) -> Iterator[World]:
    """Go on with the world in ``folder``, or start one there that stays."""
    with Broker(folder / "kafka", jvm_flags=_HEAP) as broker:
        world = World(folder, broker, partitions, seed)
        # Written last: a world that was not finished is not gone on with.
        finished = folder / "created"
        if not finished.exists():
            world.create(TOPIC, TABLE, partition_by)
            finished.touch()
        world.produced = sum(partition.log_end for partition in world.bounds().partitions)
        yield world


def _listening(process: subprocess.Popen[bytes], log: Path, sought: str = r"grpc://\S+") -> str:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        items = re.search(sought, log.read_text(errors="replace"))
        if items:
            return items[0]
        time.sleep(0.05)
    raise RuntimeError(f"the server did not start: {log.read_text(errors='replace')[-500:]}")
