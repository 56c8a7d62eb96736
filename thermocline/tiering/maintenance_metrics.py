"""The Prometheus metrics of maintenance. Seconds and bytes, as Prometheus has them; labels are table names."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge

from connectors.jobs import events
from planner.maintenance.standing import CareStanding
from planner.maintenance.steps import TITLES

_PREFIX = "thermocline_maintain_"

#: Gauges of a table, and what they say.
_GAUGES = {
    "backlog_files": "Files that wait to be compacted.",
    "backlog_bytes": "Bytes of the files that wait to be compacted.",
    "delete_files": "Delete files and deletion vectors of the newest snapshot.",
    "snapshots": "Snapshots that the table retains.",
    "oldest_snapshot_seconds": "Age of the oldest snapshot that the table retains.",
    "compacted_ratio": "Bytes compacted within an hour, by bytes published; NaN while none are.",
    "orphan_bytes": "Bytes of orphans that the last look removed; NaN before the first.",
    "boundary_timestamp_seconds": "Rows of before this time, since 1970, aged out; NaN where none did.",
    "last_step_timestamp_seconds": "When the last step was taken, since 1970.",
    "failing": "1 while maintenance of the table waits after a failure.",
}


class MaintenanceMetrics:
    """The events of a maintenance loop as counters and gauges. Thread-safe."""

    def __init__(
        self, registry: CollectorRegistry, now_s: Callable[[], float] = time.time
    ) -> None:
        self._now_s = now_s
        self._last_s: dict[str, float] = {}
        self._gauges = {
            name: Gauge(_PREFIX + name, what, ["table"], registry=registry)
            for name, what in _GAUGES.items()
        }
        labels = ["table", "step"]
        self._steps = Counter(f"{_PREFIX}steps", "Steps taken.", labels, registry=registry)
        self._seconds = Counter(
            f"{_PREFIX}step_seconds", "Time spent in steps.", labels, registry=registry
        )
        self._bytes = Counter(
            f"{_PREFIX}rewritten_bytes",
            "Bytes that rewrites read.",
            ["table"],
            registry=registry,
        )

    def __call__(self, event: events.Event) -> None:
        name = "" if event.table is None else str(event.table)
        match event:
            case events.TableSurveyed(facts=facts, upkeep=upkeep):
                now_s = self._now_s()
                standing = CareStanding.of(facts, upkeep, int(now_s * 1000))
                boundary = facts.boundary
                boundary_s = None if boundary is None else boundary.before_us / 1e6
                self._set(
                    name,
                    backlog_files=standing.backlog_files,
                    backlog_bytes=standing.backlog_bytes,
                    delete_files=standing.delete_files,
                    snapshots=standing.snapshots,
                    oldest_snapshot_seconds=standing.oldest_snapshot_s,
                    compacted_ratio=_or_nan(standing.compacted_ratio),
                    orphan_bytes=_or_nan(standing.orphan_bytes),
                    boundary_timestamp_seconds=_or_nan(boundary_s),
                )
                ago_s = standing.last_run_s
                self._note_step(name, 0.0 if ago_s is None else now_s - ago_s)
            case events.StepDone(step=step, result=result):
                title = TITLES[type(step)]
                self._steps.labels(name, title).inc()
                self._seconds.labels(name, title).inc(result.seconds)
                self._bytes.labels(name).inc(result.bytes)
                self._note_step(name, self._now_s())
            case events.TableFailed(table=table) if table is not None:
                self._set(name, failing=1)
            case events.TableRecovered():
                self._set(name, failing=0)
            case events.TableRemoved():
                self._last_s.pop(name, None)
                for gauge in self._gauges.values():
                    gauge.remove_by_labels({"table": name})

    def _note_step(self, table: str, at_s: float) -> None:
        """A table itself does not tell of each kind of step."""
        self._last_s[table] = max(at_s, self._last_s.get(table, 0.0))
        self._set(table, last_step_timestamp_seconds=self._last_s[table])

    def _set(self, table: str, **values: float) -> None:
        for name, value in values.items():
            self._gauges[name].labels(table).set(value)


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
