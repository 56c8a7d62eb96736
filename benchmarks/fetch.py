"""Fetching and decoding: tails of several sizes and everything at once, beside a bare consumer."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import click
import pyarrow as pa

from benchmarks.baseline import BareConsumer
from benchmarks.options import partitions, seed
from benchmarks.report import Report, recorded, summary
from benchmarks.world import TABLE, TOPIC, World, running_world
from connectors.decoding.registry import decoder_for
from connectors.kafka.log import KafkaLog
from planner.offsets import OffsetRange
from planner.ports import TopicSource
from planner.seam.cut import LogBounds

_TAILS = (100, 1_000, 10_000, 100_000)
_TIMEOUT_S = 300.0


@click.command()
@click.option("--rows", type=click.IntRange(1), default=2_000_000, show_default=True)
@click.option(
    "--repeats", type=click.IntRange(1), default=30, show_default=True, help="Of each tail."
)
@click.option(
    "--bulk-repeats",
    type=click.IntRange(1),
    default=5,
    show_default=True,
    help="Of everything at once.",
)
@partitions
@seed
@click.pass_obj
def command(
    results: Path, rows: int, repeats: int, bulk_repeats: int, partitions: int, seed: int
) -> None:
    """Fetch to Arrow as the server and the executors do, and decode strictly on one core."""
    with (
        recorded(results, "fetch") as report,
        running_world(partitions=partitions, seed=seed) as world,
    ):
        world.produce(rows)
        bounds = world.bounds()
        with (
            KafkaLog(world.kafka) as log,
            contextlib.closing(BareConsumer(world.kafka)) as bare,
        ):
            for size in (size for size in _TAILS if size <= rows):
                _tail(report, log, bare, bounds, size, repeats)
            batches = _bulk(report, log, bare, bounds, rows, bulk_repeats)
        _decode(report, world, batches)


def _tail(
    report: Report,
    log: KafkaLog,
    bare: BareConsumer,
    bounds: LogBounds,
    size: int,
    repeats: int,
) -> None:
    ranges = _last(bounds, size)
    bare_s, fetch_s = [], []
    for repeat in range(repeats + 1):
        pair = bare.fetch(ranges), _timed_fetch(log, bounds, ranges)[0]
        # The first connects.
        if repeat:
            bare_s.append(pair[0])
            fetch_s.append(pair[1])
    what = f"tail of {size:,} records"
    report.figure(f"{what}, to Arrow", median(fetch_s) * 1000, "ms")
    report.figure(f"{what}, to Arrow / bare consumer", median(fetch_s) / median(bare_s), "")
    report.details[what] = {"fetch_s": summary(fetch_s), "bare_s": summary(bare_s)}


def _bulk(
    report: Report,
    log: KafkaLog,
    bare: BareConsumer,
    bounds: LogBounds,
    rows: int,
    repeats: int,
) -> list[pa.RecordBatch]:
    ranges = _last(bounds, rows)
    bare_s, fetch_s, bare_cpu_s, fetch_cpu_s = [], [], [], []
    batches: list[pa.RecordBatch] = []
    for _ in range(repeats):
        used = time.process_time()
        bare_s.append(bare.fetch(ranges))
        bare_cpu_s.append(time.process_time() - used)
        used = time.process_time()
        took_s, batches = _timed_fetch(log, bounds, ranges)
        fetch_s.append(took_s)
        fetch_cpu_s.append(time.process_time() - used)
    result = sum(batch.num_rows for batch in batches)
    if result != rows:
        raise RuntimeError(f"{result} rows were fetched, {rows} were sent")
    report.figure("all records, to Arrow", rows / median(fetch_s), "rows/s")
    report.figure("all records, bare consumer", rows / median(bare_s), "rows/s")
    report.figure(
        "all records, to Arrow / bare consumer, time", median(fetch_s) / median(bare_s), ""
    )
    for name, cpu_s in (("to Arrow", fetch_cpu_s), ("bare consumer", bare_cpu_s)):
        report.figure(
            f"all records, {name}, CPU of the reader",
            median(cpu_s) / rows * 1e6,
            "s per million rows",
        )
    report.details["all records"] = {
        "fetch_s": summary(fetch_s),
        "bare_s": summary(bare_s),
        "fetch_cpu_s": summary(fetch_cpu_s),
        "bare_cpu_s": summary(bare_cpu_s),
    }
    return batches


def _decode(report: Report, world: World, batches: Sequence[pa.RecordBatch]) -> None:
    """Decode everything on this thread; CPU seconds, so the rate is per core on any machine."""
    pin = world.pin()
    if pin.binding is None:
        raise RuntimeError("the table is not bound")
    decoder = decoder_for(str(TABLE), pin.schema, pin.binding)
    decoder.decode(batches[0])
    used, rows = time.process_time(), 0
    for batch in batches:
        rows += decoder.decode(batch).rows.num_rows
    cpu_s = time.process_time() - used
    report.figure("strict decoding", rows / cpu_s, "rows/s per core")
    report.figure("strict decoding, CPU", cpu_s / rows * 1e6, "s per million rows")


def _timed_fetch(
    log: KafkaLog, bounds: LogBounds, ranges: Sequence[OffsetRange]
) -> tuple[float, list[pa.RecordBatch]]:
    began = time.perf_counter()
    batches = list(log.fetch(TopicSource(TOPIC, bounds.topic_id), ranges, timeout_s=_TIMEOUT_S))
    return time.perf_counter() - began, batches


def _last(bounds: LogBounds, rows: int) -> tuple[OffsetRange, ...]:
    """The newest ``rows`` offsets, the same share of every partition."""
    count = len(bounds.partitions)
    return tuple(
        OffsetRange(
            value.partition,
            value.log_end - (rows // count + (index < rows % count)),
            value.log_end,
        )
        for index, value in enumerate(bounds.partitions)
    )
