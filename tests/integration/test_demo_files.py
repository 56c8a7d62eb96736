"""The demo's tables, tiered by the real service, get the data files that the benchmark's simulation counts."""

from __future__ import annotations

import contextlib
import functools
import json
import random
import threading
import time
from collections.abc import Iterator

import pytest

from benchmarks.file_count import simulate
from connectors.decoding.registry import decoder_for
from connectors.iceberg.create import NewTable, create_table
from connectors.jobs.loop import LoopLimits, TableLoop
from connectors.jobs.tier import TieringJob
from connectors.kafka.log import KafkaLog
from connectors.spark.publish.target import SparkTieringTarget
from planner.names import TableName
from planner.schema import Column
from planner.seam.binding import Binding
from planner.seam.watermark import SUMMARY_KEY
from planner.type_text import parse_type
from tests.fixtures.kafka import Kafka
from tests.fixtures.spark import BoundTable, SparkLake
from thermocline.commands.create import first_watermark
from thermocline.demo.feeds import FEEDS, DemoFeed
from thermocline.tiering.console import Lines

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

#: Half of the tail budget presses: so many rows a publish, twenty of them late.
ROWS = 8_000
PUBLISHES = 3
RATE = 100
TIMEOUT_S = 60.0
NOON_MS = 1_763_640_000_000


@pytest.mark.soak  # test_spark_layout.py counts files of each partition, unit/test_file_count.py those of an hour
@pytest.mark.timeout(600)
def test_as_many_files_as_simulated(lake: SparkLake, kafka: Kafka) -> None:
    tables = [(feed, _create(lake, kafka, feed)) for feed in FEEDS]
    with _tiering(lake, kafka, [table.name for _, table in tables]):
        for number in range(1, PUBLISHES + 1):
            for feed, table in tables:
                chance = random.Random(number)
                events = [feed.make(chance, NOON_MS) for _ in range(ROWS)]
                binding = table.store.pin(table.name).binding
                assert binding is not None
                _send(kafka, binding.topic, feed, events)
            for _, table in tables:
                _until_tiered(table, number * ROWS)
    for feed, table in tables:
        expected = simulate(
            feed,
            RATE,
            draws=ROWS,
            seed=1,
            tier_rate=100_000,
            binding=Binding(feed.topic, max_tail_rows=2 * ROWS),
            # A look every two seconds: each publish is due at the first look after its last row.
            seconds=PUBLISHES * (ROWS // RATE + 2) + 2,
            warm_up_s=0,
        )
        added = _files_of_publishes(table)
        assert (len(added), sum(added)) == (expected.publishes, expected.files)


def _create(lake: SparkLake, kafka: Kafka, feed: DemoFeed) -> BoundTable:
    topic = kafka.topic(feed.partitions)
    name = TableName("lake", ("net",), f"{feed.table.name}_{next(lake.numbers)}")
    binding = Binding(topic, max_tail_rows=2 * ROWS)
    with KafkaLog(kafka.settings) as log:
        first = first_watermark(log.measure([topic])[topic], binding)
    create_table(
        lake.catalogs,
        NewTable(
            name,
            [
                Column(0, column, parse_type(kind), epoch_unit="ms" if column == "ts" else None)
                for column, kind in feed.columns.items()
            ],
            binding,
            partition_by=feed.partition_by,
            sort_by=feed.sort_by,
        ),
        first,
    )
    return BoundTable(lake.session, lake.store, lake.catalogs, name)


@contextlib.contextmanager
def _tiering(lake: SparkLake, kafka: Kafka, names: list[TableName]) -> Iterator[None]:
    with KafkaLog(kafka.settings) as log:
        job = TieringJob(
            log,
            tables=lambda: names,
            open_target=lambda name: SparkTieringTarget(
                lake.session,
                lake.store,
                name,
                open_log=functools.partial(KafkaLog, kafka.settings),
                open_decoder=functools.partial(decoder_for, str(name)),
                open_store=lake.store.files.open_store,
            ),
        )
        loop = TableLoop(job, listeners=[Lines(bars=False)], limits=LoopLimits(poll_s=0.1))
        thread = threading.Thread(target=loop.run)
        thread.start()
        try:
            yield
        finally:
            loop.stop()
            thread.join()


def _send(kafka: Kafka, topic: str, feed: DemoFeed, events: list[dict[str, object]]) -> None:
    by_partition: dict[int, list[bytes | None]] = {}
    for event in events:
        by_partition.setdefault(feed.partition_of(event), []).append(json.dumps(event).encode())
    for partition, values in by_partition.items():
        kafka.produce(topic, values, partition=partition)


def _until_tiered(table: BoundTable, rows: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while sum(table.watermark().values()) < rows:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _files_of_publishes(table: BoundTable) -> list[int]:
    summaries = [row["summary"] for row in table.sql("SELECT summary FROM {t}.snapshots")]
    return [
        int(summary["added-data-files"])
        for summary in summaries
        if SUMMARY_KEY in summary and "added-data-files" in summary
    ]
