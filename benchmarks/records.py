"""Processes that produce records fast, of the shapes of ``benchmarks.shapes``.

Partition p of P holds the ids p, p + P, p + 2 P and so on, in order.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Event

import duckdb
from confluent_kafka import KafkaError, Message, Producer

from benchmarks.shapes import FLOWS, TRAFFIC_ID, Shape

_TICK_S = 0.01

_CHUNK_RECORDS = 50_000
_QUEUED_RECORDS = 400_000
#: Half of what a producer queues by itself: at a rate beyond the broker's it is as fast as that.
_STREAMED_RECORDS = 50_000
_FLUSH_TIMEOUT_S = 120.0


class Generator:
    """Makes values. Not thread-safe."""

    def __init__(self, seed: int, shape: Shape = FLOWS) -> None:
        self._seed = seed
        self._shape = shape
        self._connection = duckdb.connect(config={"threads": "1"})

    def values(self, first: int, count: int, step: int = 1) -> list[str]:
        """Return the values of ids ``first``, ``first + step`` and so on."""
        request = {"seed": self._seed, "first": first, "count": count, "step": step}
        values: list[str] = (
            self._connection.execute(self._shape.generate, request)
            .to_arrow_table()
            .column(0)
            .to_pylist()
        )
        return values


@dataclass(frozen=True, slots=True)
class _Share:
    bootstrap: str
    topic: str
    partitions: tuple[int, ...]
    of_partitions: int
    start: int
    stop: int
    seed: int
    shape: Shape


def produce(
    bootstrap: str,
    topic: str,
    *,
    partitions: int,
    start: int,
    stop: int,
    seed: int,
    shape: Shape = FLOWS,
) -> None:
    """Produce the records of ids ``start <= id < stop``, acknowledged, from one process per core."""
    processes = min(os.cpu_count() or 1, partitions)
    shares = [
        _Share(
            bootstrap,
            topic,
            tuple(range(index, partitions, processes)),
            partitions,
            start,
            stop,
            seed,
            shape,
        )
        for index in range(processes)
    ]
    # Not by fork: librdkafka's threads do not survive it.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawn) as pool:
        list(pool.map(_produce_share, shares))


def _produce_share(share: _Share) -> None:
    failed: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer(
        {
            "bootstrap.servers": share.bootstrap,
            "acks": "all",
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 2 * _QUEUED_RECORDS,
            # Without the callback per record, which costs as much as the record; failures still call it.
            "delivery.report.only.error": True,
            "log_level": 2,
        }
    )
    generator = Generator(share.seed, share.shape)
    step = share.of_partitions
    # First id of each partition that is not below the start.
    after = {p: share.start + (p - share.start) % step for p in share.partitions}
    while after:
        for partition, first in list(after.items()):
            count = min(_CHUNK_RECORDS, -(-(share.stop - first) // step))
            if count <= 0:
                del after[partition]
                continue
            while len(producer) > _QUEUED_RECORDS:
                producer.poll(0.01)
            values = generator.values(first, count, step)
            queued = producer.produce_batch(
                share.topic,
                [{"value": value} for value in values],
                partition=partition,
                on_delivery=delivered,
            )
            if queued != count:
                raise RuntimeError(f"{count - queued} records were not queued")
            after[partition] = first + count * step
    if producer.flush(_FLUSH_TIMEOUT_S) or failed:
        raise RuntimeError(f"records were not acknowledged: {failed[:1] or 'no answer'}")


@contextmanager
def traffic(
    bootstrap: str,
    topic: str,
    *,
    partitions: int,
    rate: int,
    seed: int,
    shape: Shape = FLOWS,
    sticky: bool = False,
) -> Iterator[None]:
    """Produce ``rate`` records a second, or as many as go, evenly, from a process of its own, until the block ends.

    ``sticky``: to one partition for a hundredth of a second each, as clients do, which spares the broker requests.
    """
    spawn = multiprocessing.get_context("spawn")
    stop = spawn.Event()
    process = spawn.Process(
        target=_stream,
        args=(bootstrap, topic, partitions, rate, seed, shape, sticky, stop),
        daemon=True,
    )
    process.start()
    try:
        yield
        if process.exitcode is not None:
            raise RuntimeError(f"the background producer ended with {process.exitcode}")
    finally:
        stop.set()
        process.join(_FLUSH_TIMEOUT_S)


def _stream(
    bootstrap: str,
    topic: str,
    partitions: int,
    rate: int,
    seed: int,
    shape: Shape,
    sticky: bool,
    stop: Event,
) -> None:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "log_level": 2}
    )
    generator = Generator(seed, shape)
    sent, began = 0, time.monotonic()
    values: list[str] = []
    ticks = 0
    while not stop.wait(_TICK_S):
        ticks += 1
        due = int(rate * (time.monotonic() - began)) - sent
        for _ in range(min(due, _STREAMED_RECORDS - len(producer))):
            if not values:
                values = generator.values(TRAFFIC_ID + 2 * sent, min(rate, _CHUNK_RECORDS), 2)
            number = ticks if sticky else sent
            producer.produce(topic, values.pop(), partition=number % partitions)
            sent += 1
        producer.poll(0)
    producer.flush(_FLUSH_TIMEOUT_S)
