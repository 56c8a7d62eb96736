"""Measures where the tables stand that people look at, again and again while they look.

A statement in its path never waits for any of it. Pins of tables in use are the server's own; those of others are read here, so
many at a time, and kept for a minute or longer. A round that took much of a processor is followed by a longer pause.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from connectors.bounds_cache import Measures
from connectors.iceberg.pin_cache import PinCache
from connectors.kafka.samples import Sample
from connectors.table_standings import (
    PINS_AT_ONCE,
    BrokerLook,
    Survey,
    SurveyedCluster,
    SurveyedTable,
    by_topic,
    logs_of,
    measured,
    or_error,
    partitions,
    published_ms,
    refused,
    standing,
    untiered_of,
    waiting_of,
)
from planner.errors import FederationError, UnknownTopic
from planner.names import TableName, cluster_of
from planner.offsets import OffsetRange
from planner.ports import ColdStore
from planner.seam.cut import LogBounds, Pin
from planner.tiering.triggers import LogRetention

_log = logging.getLogger(__name__)

#: Seconds between two rounds at least, and how many times as long as a round's work the pause is.
_PAUSE_S, _PAUSES = 1.0, 20
#: Ends after so long without a look.
_IDLE_S = 60.0
#: How long one who looks at tables for the first time waits for a round.
FIRST_S = 5.0
#: Age at which a pin of a table that is not in use is read again, and how many times as long as reading all of them takes.
_PIN_AGE_S, _PIN_AGES = 60.0, 50
#: Seconds that a round reads pins.
_PINS_S = 1.0
#: First records read in one round, and seconds until what a broker did not answer is tried again.
_SAMPLES, _AGAIN_S = 256, 30.0
#: Seconds that a missing topic and the settings of topics are remembered.
_MISSING_S, _RETENTION_S = 30.0, 300.0


class Brokers(Protocol):
    """What ``connectors.table_standings.BrokerFacts`` answers."""

    def samples(
        self, ranges: Mapping[str, tuple[OffsetRange, ...]]
    ) -> Mapping[tuple[str, int], Sample]: ...

    def retention(self, topics: Sequence[str], /) -> Mapping[str, LogRetention]: ...

    def newest(
        self, topics: Mapping[str, Sequence[int]], /
    ) -> Mapping[tuple[str, int], int]: ...


@dataclass(frozen=True, slots=True)
class _Pinned:
    """A pin or why there is none, and when it was read, by the clock. ``is_due``: it is read again in the next round."""

    pin: Pin | FederationError
    read_s: float
    catalog_error: str | None = None
    is_due: bool = False


class TableSurvey:
    """Thread-safe. The caller stops it."""

    def __init__(
        self,
        store: ColdStore,
        pins: PinCache,
        log: Measures,
        brokers: Callable[[], Brokers],
        *,
        clock: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        processor_s: Callable[[], float] = time.thread_time,
    ) -> None:
        """``brokers`` connects to clusters; called at the first round. ``processor_s``: what the calling thread computed."""
        self._store, self._pin_cache, self._log = store, pins, log
        self._make_brokers = brokers
        self._clock, self._now_ms, self._processor_s = clock, now_ms, processor_s
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        #: Those who look, by the identity of their list of tables, and when they looked last.
        self._looking: dict[int, tuple[Collection[TableName], float]] = {}
        self._newest = Survey()
        self._rounds = 0
        #: Someone looks at tables that no round had.
        self._has_new = False
        # Of the thread alone.
        self._brokers: Brokers | None = None
        self._pins: dict[TableName, _Pinned] = {}
        #: The snapshot seen last, and when it became the current one: a metadata file may have to be read for that.
        self._published: dict[TableName, tuple[int | None, int | None]] = {}
        self._pin_cost_s = 0.0
        self._missing: dict[str, tuple[UnknownTopic, float]] = {}
        self._retained: dict[str, LogRetention] = {}
        self._retained_s: dict[str, float] = {}
        self._samples: dict[tuple[str, int], tuple[int, Sample | None, float]] = {}
        self._dated: dict[str, tuple[LogBounds, dict[tuple[str, int], int]]] = {}

    def look(self, tables: Collection[TableName], check: Callable[[], None]) -> Survey:
        """Return the newest round; who looks at ``tables`` for the first time waits for the next, ``FIRST_S`` at most.

        ``check`` is called while it waits, and raises to end that.
        """
        now_s = self._clock()
        with self._changed:
            is_new = id(tables) not in self._looking
            self._looking[id(tables)] = tables, now_s
            self._begin()
            if is_new and any(table not in self._newest.tables for table in tables):
                self._has_new = True
                self._changed.notify_all()
                # A round under way may have begun before.
                awaited, until_s = self._rounds + 2, now_s + FIRST_S
                while self._rounds < awaited and (left_s := until_s - self._clock()) > 0:
                    if all(table in self._newest.tables for table in tables):
                        break
                    self._changed.wait(min(left_s, 0.1))
                    check()
            return self._newest

    def stop(self) -> None:
        self._stopped.set()
        with self._changed:
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join(FIRST_S)

    def _begin(self) -> None:
        if self._thread is None and not self._stopped.is_set():
            self._thread = threading.Thread(target=self._run, name="survey", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while (names := self._of_next_round()) is not None:
            began_s = self._processor_s()
            worked_s = 0.0
            try:
                survey, worked_s = self.measure(names)
                with self._changed:
                    self._newest = survey
                    self._rounds += 1
                    self._changed.notify_all()
            except Exception:  # noqa: BLE001  a bug of ours must not end what others look at
                _log.exception("surveying tables failed")
            worked_s += self._processor_s() - began_s
            with self._changed:
                pause_s = max(_PAUSE_S, _PAUSES * worked_s)
                self._changed.wait_for(lambda: self._stopped.is_set() or self._has_new, pause_s)
                self._has_new = False

    def _of_next_round(self) -> Collection[TableName] | None:
        """Return what to measure; None: the thread is over, and who looks next waits for a round of then."""
        with self._changed:
            names = self._in_view()
            if names is not None and not self._stopped.is_set():
                return names
            self._thread, self._newest = None, Survey()
            brokers, self._brokers = self._brokers, None
        del brokers  # with the lock free: clients that end wait for their threads
        return None

    def _in_view(self) -> Collection[TableName] | None:
        """Return the tables that were looked at lately; None: there were none."""
        since_s = self._clock() - _IDLE_S
        self._looking = {
            key: entry for key, entry in self._looking.items() if entry[1] > since_s
        }
        if not self._looking:
            return None
        return set().union(*(tables for tables, _ in self._looking.values()))

    def measure(self, names: Collection[TableName]) -> tuple[Survey, float]:
        """Do one round; return it with the processor time that other threads computed for it."""
        worked_s = self._read_pins(names)
        marks = {}
        for name in names:
            entry = self._pins.get(name)
            if entry is not None and isinstance(entry.pin, Pin) and entry.pin.watermark:
                marks[name] = entry.pin.watermark
        bounds = self._bounds({mark.address for mark in marks.values()})
        untiered = {
            name: untiered_of(name, mark, bounds[mark.address]) for name, mark in marks.items()
        }
        look = self._look(waiting_of(marks, untiered), bounds)
        now_ms, now_s = self._now_ms(), self._clock()
        tables: dict[TableName, SurveyedTable | None] = {}
        for name in names:
            entry = self._pins.get(name)
            if entry is None:
                continue
            pin = entry.pin
            if isinstance(pin, FederationError):
                tables[name] = SurveyedTable(refused(name, None, pin))
            elif name not in untiered:
                tables[name] = None
            else:
                if isinstance(spans := untiered[name], FederationError):
                    status = refused(name, pin, spans)
                    # Its pin may be older than what retention has removed.
                    self._pins[name] = replace(entry, is_due=True)
                else:
                    _, at_ms = self._published[name]
                    status = standing(pin, spans, look, published_ms=at_ms, now_ms=now_ms)
                error, age_s = entry.catalog_error, now_s - entry.read_s
                tables[name] = SurveyedTable(status, pin.binding, age_s, error)
        return Survey(tables, self._clusters(bounds), now_ms), worked_s

    def _read_pins(self, names: Collection[TableName]) -> float:
        now_s = self._clock()
        in_use = set()
        for status in self._pin_cache.status():
            pin = status.error if status.pin is None else status.pin
            if status.table in names and pin is not None:
                error = None if status.error is None else type(status.error).__name__
                entry = self._pinned(status.table, pin, now_s - status.age_s)
                self._pins[status.table] = replace(entry, catalog_error=error)
                in_use.add(status.table)
        self._pins = {name: entry for name, entry in self._pins.items() if name in names}
        age_s = max(_PIN_AGE_S, _PIN_AGES * self._pin_cost_s * len(names))
        entries = {name: self._pins.get(name) for name in names if name not in in_use}
        read_s = {
            name: -math.inf if entry is None or entry.is_due else entry.read_s
            for name, entry in entries.items()
        }
        due = [
            name
            for name in sorted(read_s, key=read_s.__getitem__)
            if read_s[name] < now_s - age_s
        ]
        due = self._answering(due)
        worked_s, until_s = 0.0, now_s + _PINS_S
        with ThreadPoolExecutor(PINS_AT_ONCE) as pool:
            for start in range(0, len(due), PINS_AT_ONCE):
                chunk = due[start : start + PINS_AT_ONCE]
                for name, (pin, took_s) in zip(chunk, pool.map(self._pin, chunk), strict=True):
                    self._pins[name] = self._pinned(name, pin, self._clock())
                    self._pin_cost_s = max(took_s, 0.9 * self._pin_cost_s)
                    worked_s += took_s
                if self._clock() > until_s or self._stopped.is_set():
                    break
        # After a pause, what is not read again yet may be too old to tell anything by.
        self._pins = {
            name: entry
            for name, entry in self._pins.items()
            if name in in_use or entry.catalog_error or entry.read_s >= now_s - 2 * age_s
        }
        return worked_s

    def _answering(self, names: Sequence[TableName]) -> list[TableName]:
        """Leave out the tables of catalogs that did not answer the last time: each of them would be waited for."""
        catalogs = {name.catalog for name in names}
        check = self._pin_cache.check_listed
        errors = {catalog: or_error(partial(check, catalog)) for catalog in catalogs}
        for name in names:
            error = errors[name.catalog]
            if error is not None:
                entry = self._pins.get(name, _Pinned(error, self._clock(), is_due=True))
                self._pins[name] = replace(entry, catalog_error=type(error).__name__)
        return [name for name in names if errors[name.catalog] is None]

    def _pinned(self, name: TableName, pin: Pin | FederationError, read_s: float) -> _Pinned:
        if isinstance(pin, Pin):
            snapshot_id, _ = self._published.get(name, (-1, None))
            if snapshot_id != pin.snapshot_id:
                self._published[name] = pin.snapshot_id, published_ms(self._store, pin)
        return _Pinned(pin, read_s)

    def _pin(self, name: TableName) -> tuple[Pin | FederationError, float]:
        began_s = self._processor_s()
        pin = or_error(lambda: self._store.pin(name))
        return pin, self._processor_s() - began_s

    def _bounds(self, topics: set[str]) -> dict[str, LogBounds | FederationError]:
        now_s = self._clock()
        self._missing = {
            topic: entry for topic, entry in self._missing.items() if entry[1] > now_s
        }
        bounds: dict[str, LogBounds | FederationError] = {
            topic: self._missing[topic][0] for topic in topics if topic in self._missing
        }
        bounds |= measured(self._log, topics - bounds.keys())
        for topic, each in bounds.items():
            if isinstance(each, UnknownTopic):
                self._missing.setdefault(topic, (each, now_s + _MISSING_S))
        return bounds

    def _look(
        self,
        waiting: Mapping[tuple[str, int], OffsetRange],
        bounds: Mapping[str, LogBounds | FederationError],
    ) -> BrokerLook:
        """Ask brokers for what is not known of these topics, or has changed."""
        logs = logs_of(bounds)
        if not logs:
            return BrokerLook()
        if self._brokers is None:
            self._brokers = self._make_brokers()
        now_s = self._clock()
        self._dated = {topic: entry for topic, entry in self._dated.items() if topic in logs}
        stale = [
            topic for topic in logs if self._retained_s.get(topic, -1e9) < now_s - _RETENTION_S
        ]
        if stale:
            answered = self._brokers.retention(stale)
            self._retained |= answered
            soon_s = now_s - _RETENTION_S + _AGAIN_S
            self._retained_s |= {
                topic: now_s if topic in answered else soon_s for topic in stale
            }
        moved = [
            topic
            for topic in logs
            if topic not in self._dated or self._dated[topic][0] != logs[topic]
        ]
        if moved:
            newest = self._brokers.newest({topic: partitions(logs[topic]) for topic in moved})
            self._dated |= {topic: (logs[topic], {}) for topic in moved}
            for key, at_ms in newest.items():
                self._dated[key[0]][1][key] = at_ms
        return BrokerLook(
            self._sample(waiting, now_s),
            {key: at for _, dated in self._dated.values() for key, at in dated.items()},
            self._retained,
        )

    def _sample(
        self, waiting: Mapping[tuple[str, int], OffsetRange], now_s: float
    ) -> dict[tuple[str, int], Sample]:
        """Return the first records known, after reading those of some ranges that begin elsewhere than at the last time."""
        assert self._brokers is not None  # noqa: S101
        self._samples = {key: entry for key, entry in self._samples.items() if key in waiting}
        due = []
        for key, span in waiting.items():
            start, first, tried_s = self._samples.get(key, (None, None, 0.0))
            if start != span.start or (first is None and tried_s < now_s - _AGAIN_S):
                due.append((tried_s, key))
        # The longest untried first: else ranges that move all the time would have every sample.
        new = {key: waiting[key] for _, key in sorted(due)[:_SAMPLES]}
        read = self._brokers.samples(by_topic(new)) if new else {}
        for key, span in new.items():
            self._samples[key] = span.start, read.get(key), now_s
        return {
            key: first
            for key, (start, first, _) in self._samples.items()
            if first is not None and start == waiting[key].start
        }

    def _clusters(
        self, bounds: Mapping[str, LogBounds | FederationError]
    ) -> dict[str, SurveyedCluster]:
        """Say of each cluster whether it answered in this round; that a topic is missing is an answer, too."""
        clusters, now_s = dict(self._newest.clusters), self._clock()
        errors = {
            cluster_of(topic): type(each).__name__
            for topic, each in bounds.items()
            if isinstance(each, FederationError) and not isinstance(each, UnknownTopic)
        }
        for topic, each in bounds.items():
            name = cluster_of(topic)
            before = clusters.get(name, SurveyedCluster())
            cluster_id = each.cluster_id if isinstance(each, LogBounds) else before.cluster_id
            clusters[name] = (
                replace(before, error=errors[name])
                if name in errors
                else SurveyedCluster(cluster_id, now_s)
            )
        return clusters
