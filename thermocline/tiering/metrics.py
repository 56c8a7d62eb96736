"""The tierer's Prometheus metrics. Seconds and bytes, as Prometheus has them; labels are table names."""

from __future__ import annotations

import math
from dataclasses import asdict

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from connectors.tiering.round import RoundResult
from planner.binding import Binding
from planner.errors import FederationError, StalePlan
from planner.names import TableName
from planner.schedule import Backfill
from planner.triggers import Lag, Trigger

_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_PREFIX = "thermocline_tier_"


class TieringMetrics:
    """``connectors.tiering.events.Events`` as counters and gauges. Thread-safe."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._lag_rows = self._gauge("lag_rows", "Offsets above the watermark.")
        self._lag_bytes = self._gauge(
            "lag_bytes", "Estimated bytes of the records above the watermark."
        )
        self._lag_s = self._gauge(
            "lag_seconds", "How long the oldest record above the watermark waits, at most."
        )
        self._headroom_s = self._gauge(
            "retention_headroom_seconds",
            "Time until retention may remove untiered records; +Inf where nothing tells.",
        )
        self._headroom_rows = self._gauge(
            "retention_headroom_rows",
            "Offsets retention may still remove before it reaches untiered ones; +Inf without lag.",
        )
        self._failing = self._gauge("failing", "1 while the table waits after a failure.")
        self._publish_s = Histogram(
            f"{_PREFIX}publish_seconds",
            "Time of the commit alone.",
            ["table"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._stage_s = self._counter("stage_seconds", "Time spent reading and writing files.")
        self._publishes = self._counter(
            "publishes", "Publishes, by what started them.", "trigger"
        )
        self._records = self._counter("records", "Records tiered, by outcome.", "outcome")
        self._refused = self._counter(
            "refused_publishes", "Publishes refused, nothing changed.", "error"
        )
        self._failures = self._counter("failures", "Failures, by error.", "error")

    def measured(self, table: TableName, lag: Lag, binding: Binding) -> None:
        del binding
        name = str(table)
        self._lag_rows.labels(name).set(lag.rows)
        self._lag_bytes.labels(name).set(lag.log_bytes)
        self._lag_s.labels(name).set(lag.age_s)
        for gauge, value in (
            (self._headroom_s, lag.headroom_s),
            (self._headroom_rows, lag.headroom_rows),
        ):
            gauge.labels(name).set(math.inf if value is None else value)

    def published(
        self, table: TableName, done: RoundResult, trigger: Trigger, backfill: Backfill | None
    ) -> None:
        del backfill
        name = str(table)
        self._publish_s.labels(name).observe(done.publish_s)
        self._stage_s.labels(name).inc(done.stage_s)
        self._publishes.labels(name, trigger.kind).inc()
        self._lag_rows.labels(name).set(done.lag)
        for outcome, count in asdict(done.outcomes).items():
            self._records.labels(name, outcome).inc(count)

    def refused(self, table: TableName, error: StalePlan) -> None:
        self._refused.labels(str(table), type(error).__name__).inc()

    def failed(self, table: TableName | None, error: FederationError, retry_s: float) -> None:
        del retry_s
        self._failures.labels("" if table is None else str(table), type(error).__name__).inc()
        if table is not None:
            self._failing.labels(str(table)).set(1)

    def recovered(self, table: TableName) -> None:
        self._failing.labels(str(table)).set(0)

    def removed(self, table: TableName) -> None:
        for gauge in (
            *(self._lag_rows, self._lag_bytes, self._lag_s),
            *(self._headroom_s, self._headroom_rows, self._failing),
        ):
            gauge.remove_by_labels({"table": str(table)})

    def _gauge(self, name: str, what: str) -> Gauge:
        return Gauge(_PREFIX + name, what, ["table"], registry=self.registry)

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(_PREFIX + name, what, ["table", *labels], registry=self.registry)
