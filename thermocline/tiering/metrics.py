"""The tierer's Prometheus metrics. Seconds and bytes, as Prometheus has them; labels are table names."""

from __future__ import annotations

import math
from dataclasses import asdict

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from connectors.jobs import events

_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_PREFIX = "thermocline_tier_"


#: Gauges of a table, and what they say.
_GAUGES = {
    "lag_rows": "Offsets above the watermark.",
    "lag_bytes": "Estimated bytes of the records above the watermark.",
    "lag_seconds": "How long the oldest record above the watermark waits, at most.",
    "retention_headroom_seconds": "Time until retention may remove untiered records; +Inf where nothing tells.",
    "retention_headroom_rows": "Offsets retention may still remove before it reaches untiered ones; +Inf without lag.",
    "failing": "1 while the table waits after a failure.",
    "failing_seconds": "Between the first of its failures in a row and the last; 0 when it works.",
}


class TieringMetrics:
    """A tierer's events as counters and gauges. Thread-safe."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._gauges = {
            name: Gauge(_PREFIX + name, what, ["table"], registry=self.registry)
            for name, what in _GAUGES.items()
        }
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
                self._set(
                    name,
                    lag_rows=lag.rows,
                    lag_bytes=lag.log_bytes,
                    lag_seconds=lag.age_s,
                    retention_headroom_seconds=lag.headroom_s,
                    retention_headroom_rows=lag.headroom_rows,
                )
            case events.RoundPublished(done=done, trigger=trigger):
                self._publish_s.labels(name).observe(done.publish_s)
                self._stage_s.labels(name).inc(done.stage_s)
                self._publishes.labels(name, trigger.kind).inc()
                self._set(name, lag_rows=done.lag)
                for outcome, count in asdict(done.outcomes).items():
                    self._records.labels(name, outcome).inc(count)
            case events.RoundRefused(error=error):
                self._refused.labels(name, type(error).__name__).inc()
            case events.TableFailed(table=table, error=failure, failing_s=failing_s):
                self._failures.labels(name, type(failure).__name__).inc()
                if table is not None:
                    self._set(name, failing=1, failing_seconds=failing_s)
            case events.TableRecovered():
                self._set(name, failing=0, failing_seconds=0)
            case events.TableRemoved():
                for gauge in self._gauges.values():
                    gauge.remove_by_labels({"table": name})

    def _set(self, table: str, **values: float | None) -> None:
        for name, value in values.items():
            self._gauges[name].labels(table).set(math.inf if value is None else value)

    def _counter(self, name: str, what: str, *labels: str) -> Counter:
        return Counter(_PREFIX + name, what, ["table", *labels], registry=self.registry)
