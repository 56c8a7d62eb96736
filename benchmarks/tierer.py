"""Spark tiering of the benchmark's table, and the figures of each publish."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from types import MappingProxyType
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.report import Report
from benchmarks.usage import HERE, cpu_s, java_child
from benchmarks.world import TABLE, World
from connectors import jars
from connectors.iceberg.store import IcebergStore
from connectors.jobs.round import tier_once
from connectors.kafka.log import KafkaLog
from connectors.registry.decoders import shipped_decoder
from connectors.registry.following import SchemaFollower
from connectors.spark.catalogs import jar_sets
from connectors.spark.publish.target import SparkTieringTarget
from connectors.spark.session import SparkSettings, start_session
from planner.names import TableName
from planner.tiering.plan import TieringBudget

#: As ``thermocline.config.settings.Tier.split_rows``.
_SPLIT_ROWS = 500_000
NO_SERVERS: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Round:
    """One publish. ``took_s`` is its whole round: pin, measure, plan, stage, publish."""

    rows: int
    took_s: float
    stage_s: float
    publish_s: float
    cpu_s: dict[str, float]

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "took_s": self.took_s,
            "stage_s": self.stage_s,
            "publish_s": self.publish_s,
            "rows_per_s": self.rows / self.took_s,
            "cpu_s": self.cpu_s,
        }


@dataclass
class Tierer:
    world: World
    session: SparkSession
    store: IcebergStore
    #: Processes of this one's that are no part of Spark, by role.
    servers: Mapping[str, int] = field(default_factory=dict)

    @property
    def roots(self) -> dict[str, int]:
        """Process ids for ``benchmarks.usage``: Spark's JVM with its Python workers, the broker, and ``servers``."""
        jvm = java_child(besides=self.servers.values())
        return self.world.roots | dict(self.servers) | ({"spark": jvm} if jvm else {})

    def used_s(self) -> float:
        """Return the processor time so far of this process and of Spark, whose JVM is up."""
        return sum(
            seconds
            for role, seconds in cpu_s(self.roots).items()
            if role.startswith(("spark", HERE))
        )

    def drain(self, publish_rows: int, table: TableName = TABLE) -> list[Round]:
        """Tier up to the log's end in publishes of at most so many rows."""
        return list(self.rounds(publish_rows, table))

    def rounds(
        self, publish_rows: int, table: TableName = TABLE, schemas: SchemaFollower | None = None
    ) -> Iterator[Round]:
        """As ``drain``, one publish at a time; ``schemas`` where the table is of a registry."""
        budget = TieringBudget(max_rows=publish_rows, split_rows=_SPLIT_ROWS)
        target = SparkTieringTarget(
            self.session,
            self.store,
            table,
            open_log=functools.partial(KafkaLog, self.world.kafka),
            open_decoder=functools.partial(shipped_decoder, str(table)),
            open_store=self.store.files.open_store,
            schemas=schemas,
        )
        with KafkaLog(self.world.kafka) as log:
            while True:
                used, began = cpu_s(self.roots), time.perf_counter()
                done = tier_once(log, target, budget)
                if not done.published:
                    return
                took_s = time.perf_counter() - began
                used = {
                    role: seconds - used.get(role, 0.0)
                    for role, seconds in cpu_s(self.roots).items()
                }
                if done.outcomes.rows != done.plan.offsets:
                    raise RuntimeError(
                        f"{done.plan.offsets} records became {done.outcomes.rows} rows"
                    )
                yield Round(done.outcomes.rows, took_s, done.stage_s, done.publish_s, used)
                if done.lag == 0:
                    return


@contextlib.contextmanager
def running_tierer(world: World, servers: Mapping[str, int] = NO_SERVERS) -> Iterator[Tierer]:
    """Start Spark in this process, as ``thermocline tier`` does; its JVM ends with this process.

    ``servers``: ids of other processes that this one has started, by role.
    """
    needed = [jar for name in jar_sets(world.catalogs) for jar in jars.resolve(name)]
    spark = start_session(SparkSettings(), world.catalogs, needed)
    store = IcebergStore(world.catalogs)
    try:
        yield Tierer(world, spark, store, servers)
    finally:
        store.close()
        spark.stop()


def steady(rounds: list[Round]) -> list[Round]:
    """The publishes between the first, which warms Spark up, and the last, which may be small."""
    return rounds[1:-1] or rounds[-1:]


def report_rounds(
    report: Report, rounds: list[Round], *, goal_rows_per_s: float | None
) -> None:
    """Add the figures of tiering, over the steady publishes."""
    middle = steady(rounds)
    rows = sum(value.rows for value in middle)
    took_s = sum(value.took_s for value in middle)
    used_s = sum(
        seconds for value in middle for role, seconds in value.cpu_s.items() if role != "broker"
    )
    broker_s = sum(value.cpu_s.get("broker", 0.0) for value in middle)
    report.figure(
        f"tiering, {len(middle)} steady of {len(rounds)} publishes of {middle[0].rows:,} rows",
        rows / took_s,
        "rows/s",
        at_least=goal_rows_per_s,
    )
    publishes = [value.publish_s * 1000 for value in middle]
    report.figure("publish, median", median(publishes), "ms")
    report.figure("publish, longest", max(publishes), "ms")
    report.figure("CPU of driver, JVM and workers", used_s / rows * 1e6, "s per million rows")
    report.figure("CPU of the broker meanwhile", broker_s / rows * 1e6, "s per million rows")
    report.details["publishes"] = [value.facts for value in rounds]
