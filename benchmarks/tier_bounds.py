"""Upper bounds of one tierer, simulated over the doubles in memory: many tables, and one table of many partitions.

No broker, no catalog, no Spark: what is measured is this program's own work between their answers.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from pathlib import Path

import click
import psutil

from benchmarks.options import seed
from benchmarks.report import Report, quantile, recorded
from connectors.jobs import events
from connectors.jobs.loop import LoopLimits, TableLoop
from connectors.jobs.tier import TieringJob
from planner.names import LEADING_COLUMNS, TableName
from planner.offsets import OffsetVector
from planner.ports import Decoder
from planner.schema import METADATA_TYPES, Column, TableSchema
from planner.seam.binding import Binding
from planner.seam.cut import LogBounds, PartitionBounds, Pin
from planner.seam.snapshots import History, Snapshot
from planner.seam.watermark import (
    SUMMARY_KEY,
    Outcomes,
    Watermark,
    format_watermark,
    parse_watermark,
)
from planner.tiering.plan import TieringBudget, plan_tiering
from planner.tiering.publish import advance, check_publish
from tests.doubles.cold import MemoryColdStore
from tests.doubles.log import MemoryLog
from tests.doubles.tiering import MemoryTieringTarget

_CLUSTER = "cluster-1"
_ROUNDS = 5


class _Level(MemoryLog):
    """Every partition of every topic ends ``lag`` offsets above its start; no records are held."""

    def __init__(self, partitions: int, lag: int) -> None:
        super().__init__(cluster_id=_CLUSTER)
        self._partitions = partitions
        self._lag = lag

    def measure(self, topics: Sequence[str]) -> dict[str, LogBounds]:
        return {
            topic: LogBounds(
                _CLUSTER,
                topic,
                f"id-{topic}",
                tuple(
                    PartitionBounds(index, 0, 1_000_000_000 + self._lag * index, 7)
                    for index in range(self._partitions)
                ),
            )
            for topic in topics
        }


class _Counting:
    """Counts looks; everything else passes."""

    looked = 0

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.TableMeasured():
                self.looked += 1
            case events.TableFailed(error=error):
                raise error
            case events.RoundPublished() | events.RoundRefused():
                raise AssertionError


def _watermark(topic: str, partitions: int) -> Watermark:
    # Offsets that share no digits compress least.
    return Watermark(
        cluster_id=_CLUSTER,
        topic=topic,
        topic_id=f"id-{topic}",
        next=OffsetVector(
            tuple(
                (index, 900_000_000 + 7919 * index % 99_999_989) for index in range(partitions)
            )
        ),
        epochs=OffsetVector(tuple((index, index % 7) for index in range(partitions))),
        shape=Binding(topic).shape,
        run="00000000-0000-1000-8000-000000000000",
        outcomes=Outcomes(rows=10**9),
    )


@click.command()
@click.option("--tables", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--partitions", type=click.IntRange(1), default=10_000, show_default=True)
@seed
@click.pass_obj
def command(results: Path, tables: int, partitions: int, seed: int) -> None:
    """Plan for many tables, and for one of as many partitions as all of them together."""
    with recorded(results, "tier-bounds") as report:
        _many_tables(report, tables, max(1, partitions // tables))
        _one_table(report, partitions)


def _many_tables(report: Report, tables: int, partitions: int) -> None:
    gc.collect()
    before = psutil.Process().memory_info().rss
    log, store, counting = _Level(partitions, 0), MemoryColdStore(), _Counting()
    for number in range(tables):
        topic = f"t{number:05}"
        store.create(
            TableName("lake", ("net",), topic),
            [],
            Binding(topic),
            _watermark(topic, partitions),
        )
    # More rows than that would be due, and be read.
    job = TieringJob(
        log,
        tables=store.tables,
        open_target=lambda name: MemoryTieringTarget(store, name, log, _no_decoder),
    )
    loop = TableLoop(
        job,
        listeners=[counting],
        limits=LoopLimits(refresh_s=1e9),
        random_share=lambda: 0.0,
    )
    loop._add(store.tables())
    for table in loop._tables.values():
        table.bytes_per_offset = 1e-6
    items = []
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        loop._due(time.monotonic())
        items.append(time.perf_counter() - began)
    if counting.looked != tables * _ROUNDS:
        raise RuntimeError("not every table was looked at")
    after = psutil.Process().memory_info().rss
    what = f"{tables:,} tables of {partitions} partitions"
    report.figure(
        f"first look, {what}: pin, survey, measure, decide", items[0], "s", at_most=10
    )
    report.figure(f"a look, {what}", quantile(items[1:], 0.5), "s", at_most=2)
    report.figure(f"driver memory, {what}", (after - before) / 2**20, "MiB", at_most=512)


def _one_table(report: Report, partitions: int) -> None:
    mark = _watermark("wide", partitions)
    table = TableName("lake", ("net",), "wide")
    schema = TableSchema(
        0,
        tuple(
            Column(index, name, METADATA_TYPES[name])
            for index, name in enumerate(LEADING_COLUMNS, 1)
        ),
    )
    pin = Pin(table, "uuid", "memory://0", 1, schema, Binding("wide"), mark)
    bounds = _Level(partitions, 3).measure(["wide"])["wide"]
    began = time.perf_counter()
    plan = plan_tiering(pin, bounds, TieringBudget(max_rows=8_000_000))
    planned_s = time.perf_counter() - began
    text = format_watermark(mark)
    head = Snapshot(1, None, 1, "append", {SUMMARY_KEY: text})
    began = time.perf_counter()
    check_publish(plan, History({1: head}), 1)
    after = format_watermark(advance(plan, Outcomes(rows=1), run=mark.run, head=1))
    published_s = time.perf_counter() - began
    if parse_watermark(text) != mark:
        raise RuntimeError("the watermark text does not read back")
    what = f"one table of {partitions:,} partitions"
    report.figure(f"plan, {what}", planned_s * 1000, "ms", at_most=1000)
    report.figure(f"check and next text, {what}", published_s * 1000, "ms", at_most=1000)
    report.figure(f"watermark text, {what}", len(after) / 1024, "KiB", at_most=256)
    report.figure(f"watermark text, {what}, a partition", len(after) / partitions, "B")


def _no_decoder(*_: object) -> Decoder:
    raise AssertionError
