"""The tierer's Prometheus metrics. Seconds and bytes, as Prometheus has them; labels are table names."""

from __future__ import annotations

import math
from dataclasses import asdict

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from connectors.jobs import events

_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_PREFIX = "thermocline_tier_"


class TieringMetrics:
    """A tierer's events as counters and gauges. Thread-safe."""

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
        self._failing_s = self._gauge(
            "failing_seconds",
            "Between the first of its failures in a row and the last; 0 when it works.",
        )
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

    def __call__(self, event: events.Event) -> None:
        name = "" if event.table is None else str(event.table)
        match event:
            case events.TableMeasured(lag=lag):
                self._lag_rows.labels(name).set(lag.rows)
                self._lag_bytes.labels(name).set(lag.log_bytes)
                self._lag_s.labels(name).set(lag.age_s)
                for gauge, value in (
                    (self._headroom_s, lag.headroom_s),
                    (self._headroom_rows, lag.headroom_rows),
                ):
                    gauge.labels(name).set(math.inf if value is None else value)
            case events.RoundPublished(done=done, trigger=trigger):
                self._publish_s.labels(name).observe(done.publish_s)
                self._stage_s.labels(name).inc(done.stage_s)
                self._publishes.labels(name, trigger.kind).inc()
                self._lag_rows.labels(name).set(done.lag)
                for outcome, count in asdict(done.outcomes).items():
                    self._records.labels(name, outcome).inc(count)
            case events.RoundRefused(error=error):
                self._refused.labels(name, type(error).__name__).inc()
            case events.TableFailed(table=table, error=failure, failing_s=failing_s):
                self._failures.labels(name, type(failure).__name__).inc()
                if table is not None:
                    self._failing.labels(name).set(1)
                    self._failing_s.labels(name).set(failing_s)
            case events.TableRecovered():
                self._failing.labels(name).set(0)
                self._failing_s.labels(name).set(0)
            case events.TableRemoved():
                for gauge in (
                    *(self._lag_rows, self._lag_bytes, self._lag_s),
                    *(self._headroom_s, self._headroom_rows),
                    *(self._failing, self._failing_s),
                ):
                    gauge.remove_by_labels({"table": name})

    def _gauge(self, name: str, what: str) -> Gauge:
        return Gauge(_PREFIX + name, what, ["table"], registry=self.registry)

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(_PREFIX + name, what, ["table", *labels], registry=self.registry)
