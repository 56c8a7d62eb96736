"""A server's parts over a real broker, without the Flight protocol."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from connectors.iceberg.create import NewTable, create_table
from connectors.kafka.log import KafkaLog
from planner.names import TableName
from planner.schema import Column
from planner.seam.binding import Binding
from proxy.session import Deadline, Session
from proxy.tail.reader.child import Ingestion
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import settings_of, sqlite_catalog
from thermocline.commands.create import first_watermark
from thermocline.serve.assembly import running_components
from thermocline.serve.components import Components
from thermocline.serve.ingestion import ingesting

FETCH_TIMEOUT_S = 4.0
_START_S = 60.0
COLUMNS = (Column(0, "n", pa.int64()),)


@contextmanager
def parts_over(
    folder: Path, settings: dict[str, str], *, fetch_timeout_s: float = FETCH_TIMEOUT_S
) -> Iterator[Components]:
    configured = settings_of(
        {"lake": sqlite_catalog(folder)}, settings, fetch_timeout_s=fetch_timeout_s
    )
    with (
        ingesting(configured) as ingestion,
        running_components(configured, ingestion=ingestion) as components,
    ):
        # Until then statements fetch for themselves, and nothing that is followed would be tested.
        wait_until_ready(ingestion)
        yield components


def wait_until_ready(ingestion: Ingestion | None) -> None:
    """Wait until topics are read by the process of their own."""
    deadline = time.monotonic() + _START_S
    while not (ingestion is not None and ingestion.is_ready):
        assert time.monotonic() < deadline, "the process that reads topics does not start"
        time.sleep(0.02)


def bind(
    kafka: Kafka, folder: Path, topic: str, columns: tuple[Column, ...], **options: Any
) -> TableName:
    table, binding = (
        TableName("lake", ("net",), topic.replace("-", "_")),
        Binding(topic, **options),
    )
    with KafkaLog(kafka.settings) as log:
        first = first_watermark(log.measure([topic])[topic], binding)
    create_table({"lake": sqlite_catalog(folder)}, NewTable(table, columns, binding), first)
    return table


def ask(components: Components, sql: str) -> pa.Table:
    session = Session("test")
    planned = components.statements.plan(session, sql, None, Deadline(60))
    stream = components.statements.open(session, planned.ticket, Deadline(60))
    try:
        return pa.Table.from_batches(list(stream), stream.schema)
    finally:
        stream.close()


def count(components: Components, table: TableName) -> int:
    return ask(components, f"SELECT count(*) AS held FROM {table}")["held"][0].as_py()


class Writer:
    """Writes past the proxy; knows how many records are acknowledged, and how many are on their way at most."""

    def __init__(self, kafka: Kafka, topic: str) -> None:
        self._kafka = kafka
        self._topic = topic
        self.acknowledged = self.sent = 0

    def write(self, count: int) -> None:
        values = [json.dumps({"n": self.sent + at}).encode() for at in range(count)]
        self.sent += count
        self._kafka.produce(self._topic, values, partition=0)
        self.acknowledged += count
