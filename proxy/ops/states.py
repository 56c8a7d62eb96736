"""Pins and tails as they are on request: for the metrics, and for ``/readyz``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from connectors.iceberg.pin_cache import PinStatus
from proxy.tail.budget import TailState

#: A tail that is whole sooner is not worth telling of: each one is behind by some records now and then.
_SOON_S = 1.0

Pins = Callable[[], Sequence[PinStatus]]
Tails = Callable[[], Sequence[TailState]]

#: Name, description and value of what is told of each table.
_OF_PINS: tuple[tuple[str, str, Callable[[PinStatus], float]], ...] = (
    ("age_seconds", "Time since the catalog confirmed the pin.", lambda pin: pin.age_s),
    (
        "current",
        "1 while refreshing the table's pin works, else 0.",
        lambda pin: pin.error is None,
    ),
    (
        "failing_seconds",
        "Time since refreshing the table's pin first failed; 0 while it works.",
        lambda pin: pin.failing_s or 0.0,
    ),
)
_OF_TAILS: tuple[tuple[str, str, Callable[[TailState], float]], ...] = (
    ("rows", "Decoded rows held of the table's tail.", lambda tail: tail.rows),
    ("bytes", "What those rows take, as Arrow bytes.", lambda tail: tail.size),
    (
        "packed_bytes",
        "The part of them that is compressed in memory.",
        lambda tail: tail.packed,
    ),
    ("disk_bytes", "The part of them that is on disk.", lambda tail: tail.on_disk),
    (
        "lag_rows",
        "Offsets between what is held and the log end a statement saw last.",
        lambda tail: tail.lag,
    ),
    (
        "bad_records",
        "Records decoded since the start that became no row.",
        lambda tail: tail.outcomes.bad,
    ),
    (
        "failing",
        "Followers of the table that an error has stopped.",
        lambda tail: tail.error is not None,
    ),
)
_S = TypeVar("_S", PinStatus, TailState)


@dataclass(frozen=True, slots=True)
class ProcessState:
    """The watchdog's wait for the engine, the readers of topics, and whether the sandbox was in force when tried."""

    engine_silent_s: float
    readers_lost: int
    reader_peak_bytes: int
    file_system_locked: bool = False


class States(Collector):
    """The gauges of pins, tails and engine. A table's generations are told as one."""

    def __init__(self, pins: Pins, tails: Tails, process: Callable[[], ProcessState]) -> None:
        self._pins, self._tails, self._process = pins, tails, process

    def collect(self) -> Iterable[Metric]:
        process = self._process()
        yield GaugeMetricFamily(
            "thermocline_engine_silent_seconds",
            "Time since the engine last answered the watchdog.",
            process.engine_silent_s,
        )
        yield CounterMetricFamily(
            "thermocline_readers_lost",
            "Processes that read topics and died or hung; each was replaced.",
            process.readers_lost,
        )
        yield GaugeMetricFamily(
            "thermocline_reader_peak_bytes",
            "Most resident memory of the process that reads topics, since it started; 0 before its first answer.",
            process.reader_peak_bytes,
        )
        yield GaugeMetricFamily(
            "thermocline_file_system_locked",
            "1 while the kernel refuses the server files it does not need, tried just now; else 0.",
            process.file_system_locked,
        )
        yield from _per_table("pin", _OF_PINS, self._pins())
        yield from _per_table("tail", _OF_TAILS, self._tails())


def degraded(pins: Pins, tails: Tails) -> list[dict[str, object]]:
    """Tables that answer from an old pin or fetch their tail per statement, or not at all, and why: the class only.

    Another process would fare no better, so none of this makes a process unhealthy.
    """
    documents: list[dict[str, object]] = [
        {
            "table": str(pin.table),
            "what": "pin",
            "error": type(pin.error).__name__,
            "age_s": round(pin.age_s, 1),
            "answers": pin.pin is not None,
        }
        for pin in pins()
        if pin.error is not None
    ]
    documents += [
        {
            "table": str(tail.table),
            "what": "tail",
            "error": type(tail.error).__name__,
            "lag_rows": tail.lag,
        }
        for tail in tails()
        if tail.error is not None
    ]
    return documents


def reading(tails: Tails) -> list[dict[str, object]]:
    """Tails that are being read and take a second or more to be whole: how many offsets are left, and for how long."""
    return [
        {"table": str(tail.table), "lag_rows": tail.lag, "rest_s": round(tail.rest_s, 1)}
        for tail in tails()
        if tail.rest_s is not None and tail.rest_s >= _SOON_S
    ]


def _per_table(
    kind: str, gauges: Iterable[tuple[str, str, Callable[[_S], float]]], states: Sequence[_S]
) -> Iterable[Metric]:
    for name, says, value in gauges:
        family = GaugeMetricFamily(f"thermocline_{kind}_{name}", says, labels=["table"])
        sums: defaultdict[str, float] = defaultdict(float)
        for state in states:
            sums[str(state.table)] += value(state)
        for table, total in sums.items():
            family.add_metric([table], total)
        yield family
