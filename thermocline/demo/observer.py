"""Asks the running demo the way a client does, and holds every answer against the producers' ledger."""

from __future__ import annotations

import datetime as dt
import re
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from planner.errors import Unavailable
from thermocline.client import open_cursor
from thermocline.demo.feeds import DemoFeed
from thermocline.demo.ledger import Ledger
from thermocline.demo.world import World

#: Acknowledgements may come this much later than an answer that has the rows already.
SETTLE_S = 5.0
ASK_EVERY_S = 0.5
_FILES_EVERY_S = 2.0
_LATENCIES = 600
_PUBLISHED = re.compile(r" (\S+): published ([\d,]+) rows.* publish (\d+) ms", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition of one answer. Ends are exclusive offsets; rows are counted, not computed from offsets."""

    partition: int
    watermark: int
    log_end: int
    cold_rows: int
    rows: int


@dataclass(frozen=True, slots=True)
class ObservedAnswer:
    """What one statement said of one table, and how long it took. ``age_ms`` is of its newest row."""

    partitions: tuple[PartitionView, ...]
    rows: int
    with_later: int | None
    age_ms: float | None
    took_ms: float
    at: float

    @property
    def cold_rows(self) -> int:
        return sum(part.cold_rows for part in self.partitions)

    @property
    def ends(self) -> dict[int, int]:
        return {part.partition: part.log_end for part in self.partitions}


@dataclass(frozen=True, slots=True)
class Published:
    """Publishes of one table so far; ``at_s`` is when the last one was seen, since the start."""

    count: int = 0
    last_rows: int = 0
    last_ms: int = 0
    at_s: float = 0.0


@dataclass(slots=True)
class CountCheck:
    """Compares row counts of answers with the ledger, below the very end offsets each answer was cut at.

    An answer may hold rows whose acknowledgement is still on its way, so each waits until the ledger has
    caught up; one that is not equal ``SETTLE_S`` later, or has fewer rows than were acknowledged, is wrong.
    """

    ledger: Ledger
    checked: int = 0
    off_by: int = 0
    _waiting: deque[ObservedAnswer] = field(default_factory=deque)

    def add(self, answer: ObservedAnswer) -> None:
        self._waiting.append(answer)

    def settle(self, now: float) -> None:
        for _ in range(len(self._waiting)):
            answer = self._waiting.popleft()
            difference = answer.rows - self.ledger.rows_below(answer.ends)
            if difference == 0:
                self.checked += 1
            elif difference < 0 or now - answer.at > SETTLE_S:
                self.checked += 1
                self.off_by = difference
            else:
                self._waiting.append(answer)


@dataclass(frozen=True, slots=True)
class FeedView:
    """Everything shown of one table at one moment."""

    feed: DemoFeed
    answer: ObservedAnswer | None = None
    published: Published = Published()
    files: int = 0
    file_bytes: int = 0
    checked: int = 0
    off_by: int = 0
    sent: int = 0
    later: str = ""


@dataclass(frozen=True, slots=True)
class Moment:
    """Everything shown at one moment. Latencies and ages are the newest ones, oldest first."""

    elapsed_s: float
    rate: int
    feeds: tuple[FeedView, ...]
    latencies_ms: tuple[float, ...] = ()
    ages_ms: tuple[float, ...] = ()
    answers: int = 0
    spark_up: bool = False


class Observer:
    """One thread that asks, again and again. ``moment`` may be called from another thread."""

    def __init__(
        self, world: World, ledgers: Mapping[str, Ledger], feeds: Iterable[DemoFeed], rate: int
    ) -> None:
        self._world = world
        self._feeds = tuple(feeds)
        self._checks = {feed.topic: CountCheck(ledgers[feed.topic]) for feed in self._feeds}
        self._ledgers = ledgers
        self._views = {feed.topic: FeedView(feed) for feed in self._feeds}
        self._latencies: deque[float] = deque(maxlen=_LATENCIES)
        self._ages: deque[float] = deque(maxlen=_LATENCIES)
        self._answers = 0
        self._rate = rate
        self._began = time.monotonic()
        self._evolved: set[str] = set()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 5.0) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def note(self, feed: DemoFeed, text: str, *, is_column: bool) -> None:
        """Say what becomes of the field newer agents add; from when it is a column, it is counted."""
        with self._lock:
            self._views[feed.topic] = replace(self._views[feed.topic], later=text)
            if is_column:
                self._evolved.add(feed.topic)

    def moment(self) -> Moment:
        """What is known now.

        Raises:
            Unavailable: asking failed.
        """
        if self._failure is not None:
            self._world.check()
            raise Unavailable(f"the demo's server does not answer: {self._failure}") from None
        now = time.monotonic()
        tierer = self._world.tierer.text()
        published = _published(tierer)
        with self._lock:
            for topic, view in self._views.items():
                check = self._checks[topic]
                check.settle(now)
                last_published = published.get(str(view.feed.table), Published())
                if last_published.count > view.published.count:
                    view = replace(
                        view, published=replace(last_published, at_s=now - self._began)
                    )
                self._views[topic] = replace(
                    view,
                    checked=check.checked,
                    off_by=check.off_by,
                    sent=self._ledgers[topic].rows,
                )
            return Moment(
                elapsed_s=now - self._began,
                rate=self._rate,
                feeds=tuple(self._views.values()),
                latencies_ms=tuple(self._latencies),
                ages_ms=tuple(self._ages),
                answers=self._answers,
                spark_up="tiering on Spark" in tierer,
            )

    def _run(self) -> None:
        try:
            with open_cursor(self._world.uri) as cursor:
                files_due = 0.0
                while not self._stop.is_set():
                    began = time.monotonic()
                    for feed in self._feeds:
                        self._keep(
                            feed, ask(cursor, feed, with_later=feed.topic in self._evolved)
                        )
                    if began >= files_due:
                        files_due = began + _FILES_EVERY_S
                        self._count_files()
                    self._stop.wait(max(0.0, ASK_EVERY_S - (time.monotonic() - began)))
        except Exception as error:  # noqa: BLE001 - told by ``moment``, on the thread that shows it
            if not self._stop.is_set():
                self._failure = error

    def _keep(self, feed: DemoFeed, answer: ObservedAnswer) -> None:
        with self._lock:
            self._views[feed.topic] = replace(self._views[feed.topic], answer=answer)
            self._checks[feed.topic].add(answer)
            self._latencies.append(answer.took_ms)
            if answer.age_ms is not None:
                self._ages.append(answer.age_ms)
            self._answers += 1

    def _count_files(self) -> None:
        for feed in self._feeds:
            files, file_bytes = self._world.files(feed)
            with self._lock:
                self._views[feed.topic] = replace(
                    self._views[feed.topic], files=files, file_bytes=file_bytes
                )


def statement(feed: DemoFeed, *, with_later: bool) -> str:
    """One statement, one cut: rows of the table, rows in cold and the seam, per partition."""
    table, side = (
        str(feed.table),
        f'{feed.table.catalog}.{feed.table.schema}."{feed.table.name}',
    )
    later = f"count({feed.later})" if with_later else "0"
    return f"""
WITH held AS (SELECT kafka_partition, count(*) AS n, max(ts) AS newest, {later} AS later FROM {table} GROUP BY 1),
     cold AS (SELECT kafka_partition, count(*) AS n FROM {side}$cold" GROUP BY 1)
SELECT s.kafka_partition, s.watermark, s.log_end, coalesce(cold.n, 0), coalesce(held.n, 0), held.newest, held.later
FROM {side}$seam" s LEFT JOIN held USING (kafka_partition) LEFT JOIN cold USING (kafka_partition)
ORDER BY 1"""  # noqa: S608


def ask(cursor: Any, feed: DemoFeed, *, with_later: bool) -> ObservedAnswer:
    """Ask once through Flight SQL; the clock runs until the last row is here."""
    began = time.monotonic()
    cursor.execute(statement(feed, with_later=with_later))
    rows = cursor.fetchall()
    now = time.monotonic()
    newest = max((row[5] for row in rows if row[5] is not None), default=None)
    age_ms = None
    if newest is not None:
        age_ms = (dt.datetime.now(dt.UTC) - newest).total_seconds() * 1000
    return ObservedAnswer(
        partitions=tuple(PartitionView(*row[:5]) for row in rows),
        rows=sum(row[4] for row in rows),
        with_later=sum(row[6] or 0 for row in rows) if with_later else None,
        age_ms=age_ms,
        took_ms=(now - began) * 1000,
        at=now,
    )


def _published(log: str) -> dict[str, Published]:
    published: dict[str, Published] = {}
    for table, rows, ms in _PUBLISHED.findall(log):
        count = published.get(table, Published()).count + 1
        published[table] = Published(count, int(rows.replace(",", "")), int(ms))
    return published
