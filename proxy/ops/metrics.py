"""What operators watch, in Prometheus' terms: statements by outcome.

Counters move when calls end; what is a state is read on request (``proxy.ops.states``). Names follow Prometheus'
conventions. No label holds a statement, a user or an address: their number has no bound.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)

from proxy.ops.call_record import CallRecord
from proxy.session import WAITS

#: Seconds: from a point statement in memory to a scan that takes minutes.
_SECONDS = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

disable_created_metrics()  # type: ignore[no-untyped-call]  # doubles every series for the time of its birth


class ServerMetrics:
    """The counters of one server. Thread-safe."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._statements = Counter(
            "thermocline_statements",
            "Statements that ended, by outcome: ok, or the class of the error.",
            ["outcome"],
            registry=self.registry,
        )
        self.running = Gauge(
            "thermocline_statements_running",
            "Statements being executed or streamed.",
            registry=self.registry,
        )
        self._waiting = Gauge(
            "thermocline_statements_waiting",
            "Statements that wait just now, by what for: turn, cut, slot, tail, client.",
            ["waits_for"],
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
        # Looking one up by its label takes a lock and twice the time of counting.
        self._step = lru_cache(self._seconds.labels)
        self._outcome = lru_cache(self._statements.labels)
        self._loads = Counter(
            "thermocline_table_loads",
            "Tables loaded by Iceberg engines, by outcome: ok, or the class of the error.",
            ["outcome"],
            registry=self.registry,
        )
        self._loads.labels("ok")  # served from the start, not from the first load on
        self._load_seconds = Histogram(
            "thermocline_table_load_seconds",
            "Time of a load that succeeded.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.live_metadata = Gauge(
            "thermocline_live_metadata_bytes",
            "What metadata of live tables takes in memory, about: pinned files and answers.",
            registry=self.registry,
        )

    def count_waiting(self, count: Callable[[str], int]) -> None:
        """Have statements counted that wait for one of ``WAITS``, when they are asked for."""
        for what in WAITS:
            self._waiting.labels(what).set_function(partial(count, what))

    def read(self, record: CallRecord) -> None:
        """Count what a call that is over did; a ``Journal``. A statement counts once, where it fails or where it ends."""
        if record.table is not None and record.outcome is not None:
            self._loads.labels(record.outcome).inc()
            if not record.has_failed:
                self._load_seconds.observe(record.seconds)
        if not record.is_executed:
            return
        for name, seconds in record.steps.items():
            self._step(name).observe(seconds)
        self._rows.inc(record.rows)
        self._bytes.inc(record.bytes)
        if record.outcome is not None:
            self._outcome(record.outcome).inc()
