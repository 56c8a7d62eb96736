"""A cut over many partitions: what one costs beside a single raw ``list_offsets`` of the same partitions.

A cut needs the log's ends within the statement; starts, topic ids and the pin are asked for beside it or known.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median

import click
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from benchmarks.options import seed
from benchmarks.report import quantile, recorded
from benchmarks.world import TABLE, TOPIC, World, running_world
from connectors.cuts import cut_tables
from connectors.iceberg.pin_cache import PinCache
from connectors.iceberg.store import IcebergStore
from connectors.kafka.log import KafkaLog

_TIMEOUT_S = 30.0


@click.command()
@click.option("--partitions", type=click.IntRange(1), default=1_000, show_default=True)
@click.option("--brokers", type=click.IntRange(1), default=3, show_default=True)
@click.option("--repeats", type=click.IntRange(5), default=200, show_default=True)
@seed
@click.pass_obj
def command(results: Path, partitions: int, brokers: int, repeats: int, seed: int) -> None:
    """Cut a table whose topic has many partitions."""
    with (
        recorded(results, "cut") as report,
        running_world(partitions=partitions, seed=seed, brokers=brokers) as world,
    ):
        world.produce(partitions * 2)
        took = _side_by_side(world, repeats)
        ours, raw = took["a cut"], took["one raw list_offsets"]
        report.figure(
            f"cut over {partitions:,} partitions of {brokers} brokers / one raw list_offsets",
            median(ours) / median(raw),
            "",
            at_most=2,
        )
        for what, value in took.items():
            report.figure(f"{what}, median", median(value), "ms")
            report.figure(f"{what}, p99", quantile(value, 0.99), "ms")


def _side_by_side(world: World, repeats: int) -> dict[str, list[float]]:
    store = IcebergStore(world.catalogs)
    admin = AdminClient({**world.kafka, "log_level": 2})
    expected = {
        TopicPartition(TOPIC, partition): OffsetSpec.latest()
        for partition in range(world.partitions)
    }

    def raw() -> None:
        request = admin.list_offsets(
            expected, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_TIMEOUT_S
        )
        for future in request.values():
            future.result()

    times: dict[str, list[float]] = defaultdict(list)
    with PinCache(store, refresh_s=3600) as pins, KafkaLog(world.kafka) as log:
        ways: dict[str, Callable[[], object]] = {
            "a cut": lambda: cut_tables(pins, log, [TABLE]),
            "one raw list_offsets": raw,
        }
        for repeat in range(-5, repeats):
            for what, call in ways.items():
                began = time.perf_counter()
                call()
                if repeat >= 0:
                    times[what].append((time.perf_counter() - began) * 1000)
    store.close()
    return times
