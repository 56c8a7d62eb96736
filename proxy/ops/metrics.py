"""What operators watch, in Prometheus' terms: statements by outcome.

Counters move as statements run; what is a state is read when somebody asks (``proxy.ops.states``). Names follow Prometheus' conventions: base units, ``_total``
for counters. No label holds a statement, a user or an address: their number has no bound.
"""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)

#: Seconds: from a point statement in memory to a scan that takes minutes.
_SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

disable_created_metrics()  # type: ignore[no-untyped-call]  # doubles every series for the time of its birth


class ServerMetrics:
    """The counters of one server. Thread-safe."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        #: By what they count: looking one up by its label takes a lock and twice the time of counting.
        self._steps: dict[str, Histogram] = {}
        self._outcomes: dict[str, Counter] = {}
        ProcessCollector(registry=self.registry)
        self._statements = Counter(
            "thermocline_statements",
            "Statements that ended, by outcome: ok, or the class of the error.",
            ["outcome"],
            registry=self.registry,
        )
        self._running = Gauge(
            "thermocline_statements_running",
            "Statements being executed or streamed.",
            registry=self.registry,
        )
        self._seconds = Histogram(
            "thermocline_statement_seconds",
            "Time of a step: plan (pin, measure, cut), first (until rows can be read), stream.",
            ["step"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._rows = Counter(
            "thermocline_rows_sent", "Rows sent to clients.", registry=self.registry
        )
        self._bytes = Counter(
            "thermocline_bytes_sent", "Arrow bytes sent to clients.", registry=self.registry
        )

    def step(self, name: str, seconds: float) -> None:
        """Note how long a step of a statement took."""
        histogram = self._steps.get(name)
        if histogram is None:
            histogram = self._steps[name] = self._seconds.labels(name)
        histogram.observe(seconds)

    def ended(self, outcome: str) -> None:
        """Count a statement that ended."""
        counter = self._outcomes.get(outcome)
        if counter is None:
            counter = self._outcomes[outcome] = self._statements.labels(outcome)
        counter.inc()

    def sent(self, rows: int, size_bytes: int) -> None:
        """Count what went out in one batch."""
        self._rows.inc(rows)
        self._bytes.inc(size_bytes)

    def running(self, change: int) -> None:
        """Count a statement in (1) or out (-1)."""
        self._running.inc(change)
