"""Live tables by ``thermocline serve`` as a process: over TLS, locked by the kernel, killed at its work."""

from __future__ import annotations

import json
import os
import shutil
import signal
import ssl
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

from connectors.iceberg.create import NewTable, create_table
from connectors.kafka.log import KafkaLog
from planner.names import TableName
from planner.seam.binding import Binding
from proxy.process.landlock import NoLandlock, version
from tests.fixtures.certificates import Authority
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import sqlite_catalog
from tests.harness.events import EVENT, events
from tests.harness.server_process import SOON_S, ServerProcess
from thermocline.commands.create import first_watermark

pytestmark = pytest.mark.kafka

FLOWS = TableName("lake", ("net",), "flows")
TTL_S = 4


def lock() -> str:
    try:
        version()
    except NoLandlock:
        return "auto"
    return "required"


class LiveProcess(ServerProcess):
    """A process that serves live tables, and one client of it."""

    def __init__(self, folder: Path, kafka: Kafka) -> None:
        bootstrap = kafka.settings["bootstrap.servers"]
        self._more = (
            f'[kafka]\n"bootstrap.servers" = "{bootstrap}"\n'
            f"[iceberg_rest]\nport = 0\nlive_ttl_s = {TTL_S}\n"
        )
        super().__init__(folder)
        self.rest_port = int(self.says(r"serving live tables on https://127\.0\.0\.1:(\d+)")[1])

    def write(self, rest: str, server: str = "") -> None:
        super().write(rest + self._more, f'{server}landlock = "{lock()}"\n')

    def load(self, authority: Authority | None = None) -> dict[str, Any]:
        trust = (authority or self.authority).certificate.decode()
        address = f"https://localhost:{self.rest_port}/v1/lake/namespaces/net/tables/flows"
        context = ssl.create_default_context(cadata=trust)
        with urllib.request.urlopen(address, context=context, timeout=SOON_S) as answer:
            document: dict[str, Any] = json.load(answer)
        return document

    def rows(self) -> pa.Table:
        return StaticTable.from_metadata(self.load()["metadata-location"]).scan().to_arrow()

    @property
    def children(self) -> list[int]:
        own = self.process.pid
        return [*map(int, Path(f"/proc/{own}/task/{own}/children").read_text().split())]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the supervisor and what it supervises."""
        for pid in (self.process.pid, *self.children):
            os.kill(pid, number)

    def kill(self) -> None:
        """SIGKILL the process that serves; its supervisor starts another."""
        for child in self.children:
            os.kill(child, signal.SIGKILL)
        self.port = int(self.says(r"serving Flight SQL on grpc\+tls://127\.0\.0\.1:(\d+)")[1])
        self.rest_port = int(self.says(r"serving live tables on https://127\.0\.0\.1:(\d+)")[1])


def bound(kafka: Kafka, folder: Path, rows: int) -> str:
    """Bind a table to a new topic with so many rows; return the topic."""
    topic = kafka.topic(2)
    binding = Binding(topic)
    with KafkaLog(kafka.settings) as log:
        first = first_watermark(log.measure([topic])[topic], binding)
    create_table({"lake": sqlite_catalog(folder)}, NewTable(FLOWS, EVENT, binding), first)
    kafka.produce(topic, events(0, rows))
    return topic


@pytest.mark.soak
def test_a_process_that_stood_still_answers_with_files_that_are_there(
    kafka: Kafka, tmp_path: Path
) -> None:
    bound(kafka, tmp_path, 100)
    server = LiveProcess(tmp_path, kafka)
    try:
        assert server.rows().num_rows == 100
        (own,) = (tmp_path / "warehouse-live").iterdir()
        serving = server.children
        server.signal(signal.SIGSTOP)
        try:
            time.sleep(2 * TTL_S + 1)
            shutil.rmtree(own)  # as another replica does
        finally:
            server.signal(signal.SIGCONT)
        assert server.rows().num_rows == 100
        assert not own.exists()
        assert server.children == serving
    finally:
        server.stop()


def test_a_process_writes_where_it_may_and_a_killed_one_leaves_nothing(
    kafka: Kafka, tmp_path: Path
) -> None:
    topic = bound(kafka, tmp_path, 1_000)
    server = LiveProcess(tmp_path, kafka)
    try:
        assert server.rows().num_rows == 1_000
        live = tmp_path / "warehouse-live"
        (own,) = live.iterdir()
        assert own.stat().st_mode & 0o777 == 0o700
        stopped = threading.Event()

        def load_on() -> None:
            while not stopped.is_set():
                kafka.produce(topic, events(0, 50), partition=1)
                try:
                    server.load()
                except (OSError, urllib.error.URLError):
                    time.sleep(0.05)

        loading = threading.Thread(target=load_on)
        loading.start()
        try:
            time.sleep(1)
            server.kill()
        finally:
            stopped.set()
            loading.join()
        rows = server.rows()
        places = {(row["kafka_partition"], row["kafka_offset"]) for row in rows.to_pylist()}
        assert len(places) == rows.num_rows == 1_000 + kafka.high_watermark(topic, 1)
        until = time.monotonic() + 60
        while own.exists() and time.monotonic() < until:
            server.load()
            time.sleep(0.5)
        assert not own.exists()
        # A new certificate is shown without a new process.
        before, server.authority = server.authority, Authority("the second")
        server.write_certificate()
        server.says("the certificate was replaced")
        assert server.load()["metadata"]["format-version"] == 2
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            server.load(before)
    finally:
        server.stop()
