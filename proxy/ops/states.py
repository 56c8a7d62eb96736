"""Pins and tails as they are on request: for the metrics, and for ``/readyz``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from connectors.iceberg.pin_cache import PinStatus
from proxy.tail.budget import TailState

#: A tail that is whole sooner is not worth telling of: each one is behind by some records now and then.
_SOON_S = 1.0

Pins = Callable[[], Sequence[PinStatus]]
Tails = Callable[[], Sequence[TailState]]


class States(Collector):
    """The gauges of pins, tails and engine. A table's generations are told as one."""

    def __init__(
        self,
        pins: Pins,
        tails: Tails,
        engine_silent_s: Callable[[], float],
        readers_lost: Callable[[], int],
        reader_peak_bytes: Callable[[], int],
        file_system_locked: Callable[[], bool] = lambda: False,
    ) -> None:
        self._pins = pins
        self._tails = tails
        self._engine_silent_s = engine_silent_s
        self._readers_lost = readers_lost
        self._reader_peak_bytes = reader_peak_bytes
        self._file_system_locked = file_system_locked

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily(
            "thermocline_engine_silent_seconds",
            "Time since the engine last answered the watchdog.",
            value=self._engine_silent_s(),
        )
        yield CounterMetricFamily(
            "thermocline_readers_lost",
            "Processes that read topics and died or hung; each was replaced.",
            value=self._readers_lost(),
        )
        yield GaugeMetricFamily(
            "thermocline_reader_peak_bytes",
            "Most resident memory of the process that reads topics, since it started; 0 before its first answer.",
            value=self._reader_peak_bytes(),
        )
        yield GaugeMetricFamily(
            "thermocline_file_system_locked",
            "1 while the kernel refuses the server files it does not need, tried just now; else 0.",
            value=float(self._file_system_locked()),
        )
        pins = self._pins()
        yield _per_table(
            "thermocline_pin_age_seconds",
            "Time since the catalog confirmed the pin.",
            [(pin, pin.age_s) for pin in pins],
        )
        yield _per_table(
            "thermocline_pin_current",
            "1 while refreshing the table's pin works, else 0.",
            [(pin, float(pin.error is None)) for pin in pins],
        )
        yield _per_table(
            "thermocline_pin_failing_seconds",
            "Time since refreshing the table's pin first failed; 0 while it works.",
            [(pin, pin.failing_s or 0.0) for pin in pins],
        )
        tails = self._tails()
        for name, says, value in (
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
        ):
            yield _per_table(
                f"thermocline_tail_{name}", says, [(tail, float(value(tail))) for tail in tails]
            )


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
    name: str, says: str, values: Iterable[tuple[PinStatus | TailState, float]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, says, labels=["table"])
    sums: defaultdict[str, float] = defaultdict(float)
    for labels, value in values:
        sums[str(labels.table)] += value
    for table, value in sums.items():
        family.add_metric([table], value)
    return family
