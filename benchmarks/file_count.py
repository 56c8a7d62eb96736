"""How many data files an hour leaves, by the planner's own decisions under a simulated clock.

The tables are the demo's: its events, its partitions. The comparison is Kafka Connect's Iceberg sink at a commit
interval of 10 s: four files each, measured on an unpartitioned table.
"""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path

import click
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from benchmarks.options import seed
from benchmarks.report import Report, recorded
from connectors.iceberg.create import DEFAULT_PROPERTIES
from connectors.iceberg.partition_terms import partition_spec
from connectors.iceberg.types import iceberg_type
from planner.offsets import OffsetVector
from planner.schema import TableSchema
from planner.seam.binding import Binding
from planner.seam.cut import LogBounds, PartitionBounds, Pin
from planner.seam.watermark import Watermark
from planner.tiering.layout import plan_layout
from planner.tiering.plan import TieringBudget, plan_tiering
from planner.tiering.triggers import (
    DEFAULT_TAIL_BYTES,
    DEFAULT_TAIL_ROWS,
    ColdSurvey,
    LogRetention,
    decide,
    measure_lag,
    parse_options,
)
from planner.type_text import parse_type
from thermocline.demo.feeds import FEEDS, DemoFeed, Event

HOUR_S = 3600
#: Four files every ten seconds.
CONNECT_FILES = 4 * HOUR_S / 10
#: The goal: one fiftieth.
GOAL_FILES = CONNECT_FILES / 50
_POLL_S = 2.0
_CORES = 2
_TASK_OFFSETS = 4_000_000
_RETENTION = LogRetention(seconds=7 * 86_400)
_NOON = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)


@dataclass
class Hour:
    """What an hour left. ``longest_tail_*`` are what a proxy had to hold at most, publishes under way included."""

    publishes: int = 0
    files: int = 0
    rows: int = 0
    longest_tail_rows: int = 0
    longest_tail_bytes: float = 0.0
    partitions: set[Hashable] = field(default_factory=set)


def partition_of(feed: DemoFeed) -> Callable[[Event], Hashable]:
    """Return what tells an event's partition of the feed's table, by Iceberg's own transforms."""
    schema = Schema(
        *(
            NestedField(number, name, iceberg_type(parse_type(kind), iter(())))
            for number, (name, kind) in enumerate(feed.columns.items(), 1)
        )
    )
    terms = []
    for part in partition_spec(feed.table, schema, feed.partition_by).fields:
        source = schema.find_field(part.source_id)
        # Iceberg counts microseconds, the feeds milliseconds.
        scale = 1000 if feed.columns[source.name] == "timestamptz" else None
        terms.append((source.name, scale, part.transform.transform(source.field_type)))

    def partition(event: Event) -> Hashable:
        return tuple(
            apply(event[name] if scale is None else int(str(event[name])) * scale)
            for name, scale, apply in terms
        )

    return partition


def simulate(
    feed: DemoFeed,
    rate: int,
    *,
    draws: int,
    seed: int,
    tier_rate: int,
    binding: Binding | None = None,
    seconds: int = HOUR_S,
    warm_up_s: int = HOUR_S,
) -> Hour:
    """Run the triggers, the plan and the layout over ``seconds`` of steady events.

    ``draws`` events of each publish are made, to see which partitions it writes to; a partition that was once
    written to counts in every later publish, so the number of files is an upper bound. The seconds of
    ``warm_up_s``, in which the table learns its own sizes, are not counted. ``tier_rate`` is how many rows a second
    are tiered: the tail goes on growing meanwhile.
    """
    binding = binding or Binding(feed.topic)
    chance = random.Random(seed)
    partition = partition_of(feed)
    log_bytes = _bytes_per_event(feed, seed)
    mark = OffsetVector(tuple((index, 0) for index in range(feed.partitions)))
    hour, cold = (
        Hour(),
        ColdSurvey(parse_options(feed.table, DEFAULT_PROPERTIES), partitioned=True),
    )
    published_s, moving, moved_s = 0.0, mark, 0.0
    for tick in range(int((warm_up_s + seconds) / _POLL_S)):
        now_s = tick * _POLL_S
        if now_s == warm_up_s:
            hour = Hour(partitions=hour.partitions)
        if now_s >= moved_s:
            mark = moving
        end = int(now_s * rate / feed.partitions)
        bounds = LogBounds(
            *("c", feed.topic, "t"),
            tuple(PartitionBounds(index, 0, end) for index in range(feed.partitions)),
        )
        pin = Pin(
            *(feed.table, "uuid", "memory://", 1, TableSchema(0, ()), binding),
            Watermark("c", feed.topic, "t", mark, binding.shape, "r"),
        )
        lag = measure_lag(
            *(pin, bounds, cold, _RETENTION),
            bytes_per_offset=log_bytes,
            age_s=now_s - published_s,
        )
        hour.longest_tail_rows = max(hour.longest_tail_rows, lag.rows)
        hour.longest_tail_bytes = max(hour.longest_tail_bytes, lag.log_bytes)
        if now_s < moved_s or decide(lag, cold, binding, _RETENTION) is None:
            continue
        plan = plan_tiering(
            *(pin, bounds, TieringBudget(_CORES * _TASK_OFFSETS, split_rows=500_000)),
            bytes_per_offset=log_bytes,
        )
        layout = plan_layout(
            *(plan.offsets, cold),
            bytes_per_offset=log_bytes,
            parallelism=_CORES,
            max_task_offsets=_TASK_OFFSETS,
        )
        now_ms = int((_NOON.timestamp() + now_s) * 1000)
        hour.partitions.update(
            partition(feed.make(chance, now_ms)) for _ in range(min(draws, plan.offsets))
        )
        values = len(hour.partitions)
        hour.publishes += 1
        # Each task writes a file of its own in every partition, unless rows were brought together first.
        hour.files += values * (layout.tasks if layout.distribution == "none" else 1)
        hour.rows += plan.offsets
        moving, moved_s, published_s = plan.next, now_s + plan.offsets / tier_rate, now_s
        rows = cold.rows + plan.offsets
        cold = ColdSurvey(
            *(cold.options, rows, int(rows * cold.bytes_per_row(log_bytes)), None, True, values)
        )
    return hour


def _bytes_per_event(feed: DemoFeed, seed: int, count: int = 1_000) -> float:
    chance, now_ms = random.Random(seed), int(_NOON.timestamp() * 1000)
    return sum(len(json.dumps(feed.make(chance, now_ms))) for _ in range(count)) / count


@click.command()
@click.option("--rate", type=click.IntRange(1), default=5_000, show_default=True)
@click.option(
    "--draws",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    help="Events made of each publish.",
)
@click.option(
    "--tier-rate",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    help="Rows a second that are tiered.",
)
@seed
@click.pass_obj
def command(results: Path, rate: int, draws: int, tier_rate: int, seed: int) -> None:
    """Count files over an hour of steady events into the demo's tables, with default triggers and budgets."""
    with recorded(results, "file-count") as report:
        for feed in FEEDS:
            hour = simulate(feed, rate, draws=draws, seed=seed, tier_rate=tier_rate)
            _report(report, f"{feed.table} at {rate:,} events/s", [hour])
        share = rate // len(FEEDS)
        both = [
            simulate(feed, share, draws=draws, seed=seed, tier_rate=tier_rate) for feed in FEEDS
        ]
        _report(report, f"both tables at {share:,} events/s each", both)


def _report(report: Report, what: str, hours: list[Hour]) -> None:
    files = sum(hour.files for hour in hours)
    report.figure(f"data files after an hour, {what}", files, "files", at_most=GOAL_FILES)
    report.figure(f"Kafka Connect's, 4 each 10 s, over ours, {what}", CONNECT_FILES / files, "")
    report.figure(f"publishes, {what}", sum(hour.publishes for hour in hours), "")
    report.figure(
        f"longest tail, {what}",
        max(hour.longest_tail_rows for hour in hours),
        "rows",
        at_most=DEFAULT_TAIL_ROWS,
    )
    report.figure(
        f"longest tail, {what}, in the log's bytes",
        max(hour.longest_tail_bytes for hour in hours),
        "B",
        at_most=DEFAULT_TAIL_BYTES,
    )
