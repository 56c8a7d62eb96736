"""Asks the running demo the way a client does, and holds every answer against the producers' ledger."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from connectors.kafka.log import KafkaLog
from planner.errors import FederationError, Unavailable
from thermocline.client import Client, connected
from thermocline.demo.devices import TABLE as KEYED
from thermocline.demo.devices import Devices
from thermocline.demo.events import Events
from thermocline.demo.feeds import DemoFeed
from thermocline.demo.ledger import SETTLE_S, Ledger, digest_row
from thermocline.demo.traffic import Traffic
from thermocline.demo.world import World

_MAX_DIFFERENCES = 10
_PUBLISHED = re.compile(r" (\S+): published [\d,]+ rows.* publish \d+ ms")


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition of one answer. Ends are exclusive offsets; rows are counted, not computed from offsets."""

    partition: int
    log_end: int
    cold_rows: int
    rows: int


@dataclass(frozen=True, slots=True)
class ObservedAnswer:
    """What one statement said of one table, and how long it took. ``age_ms`` is of its newest row."""

    partitions: tuple[PartitionView, ...]
    with_later: int
    age_ms: float | None
    took_ms: float
    at: float

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.partitions)

    @property
    def cold_rows(self) -> int:
        return sum(each.cold_rows for each in self.partitions)


@dataclass
class ObservedTable:
    """All that is shown of one table."""

    feed: DemoFeed
    ledger: Ledger = field(default_factory=Ledger)
    answer: ObservedAnswer | None = None
    #: How many answers were counted against the ledger, and by how much the last wrong one was off.
    checked: int = 0
    off_by: int = 0
    publishes: int = 0
    files: int = 0
    #: What became of the field newer agents add; from when it is a column, it is counted.
    later: str = ""
    later_is_column: bool = False
    _unsettled: list[ObservedAnswer] = field(default_factory=list)

    def take(self, answer: ObservedAnswer) -> None:
        self.answer = answer
        self._unsettled.append(answer)

    def settle(self, now: float) -> None:
        """Compare row counts with the ledger, below the very end offsets each answer was cut at.

        An answer may hold rows whose acknowledgement is still on its way, so each waits until the ledger has
        caught up; one that is not equal ``SETTLE_S`` later, or has fewer rows than were acknowledged, is wrong.
        """
        unsettled, self._unsettled = self._unsettled, []
        for answer in unsettled:
            ends = {each.partition: each.log_end for each in answer.partitions}
            difference = answer.rows - self.ledger.rows_below(ends)
            if difference > 0 and now - answer.at <= SETTLE_S:
                self._unsettled.append(answer)
            else:
                self.checked += 1
                self.off_by = difference or self.off_by


@dataclass
class Observation:
    """Everything shown."""

    tables: Sequence[ObservedTable]
    began: float = field(default_factory=time.monotonic)
    devices: Devices | None = None

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.began

    @property
    def all_published(self) -> bool:
        keyed = () if self.devices is None else (self.devices,)
        return all(table.publishes for table in (*self.tables, *keyed))

    def update(self, world: World, client: Client) -> None:
        """Ask for each table once, and look at what the tierer did.

        Raises:
            Unavailable: a part of the demo ended, or the server does not answer.
        """
        world.check()
        published = _PUBLISHED.findall(world.tierer.text())
        try:
            for table in self.tables:
                answer = ask(client, table.feed, with_later=table.later_is_column)
                table.take(answer)
                table.settle(answer.at)
                table.publishes = published.count(str(table.feed.table))
                table.files = world.files(table.feed)
            if self.devices is not None:
                self.devices.look(client)
                self.devices.publishes = published.count(str(KEYED))
        except FederationError as error:
            world.check()
            raise Unavailable(f"the demo's server does not answer: {error}") from None


def ask(client: Client, feed: DemoFeed, *, with_later: bool) -> ObservedAnswer:
    """Ask once through Flight SQL; the clock runs until the last row is here."""
    began = time.monotonic()
    rows = list(client.rows(statement(feed, with_later=with_later)))
    now = time.monotonic()
    utc = dt.datetime.now(dt.UTC)
    ages = [(utc - row["newest"]).total_seconds() for row in rows if row["newest"] is not None]
    return ObservedAnswer(
        partitions=tuple(PartitionView(*list(row.values())[:4]) for row in rows),
        with_later=sum(row["later"] or 0 for row in rows),
        age_ms=min(ages) * 1000 if ages else None,
        took_ms=(now - began) * 1000,
        at=now,
    )


def statement(feed: DemoFeed, *, with_later: bool) -> str:
    """One statement, one cut: rows of the table, rows in cold and the log's end, per partition."""
    later = f"count({feed.later})" if with_later else "0"
    return f"""
WITH whole AS (SELECT kafka_partition, count(*) AS n, max(ts) AS newest, {later} AS later FROM {feed.table} GROUP BY 1),
     cold AS (SELECT kafka_partition, count(*) AS n FROM {feed.side_table("cold")} GROUP BY 1)
SELECT s.kafka_partition, s.log_end, coalesce(cold.n, 0) AS cold_rows, coalesce(whole.n, 0) AS all_rows,
       whole.newest, whole.later
FROM {feed.side_table("seam")} s LEFT JOIN whole USING (kafka_partition) LEFT JOIN cold USING (kafka_partition)
ORDER BY 1"""  # noqa: S608


def verdict(
    world: World,
    demo: Observation,
    traffics: Sequence[Traffic],
    say: Callable[[str], None],
    *,
    whole: bool,
) -> bool:
    """Compare every row by (partition, offset, payload hash) if ``whole``, else report the counts so far.

    True when nothing differs. The producers have stopped.
    """
    equal = True
    world.check()
    if demo.devices is not None:
        equal, said = demo.devices.verdict()
        say(said)
    for table, traffic in zip(demo.tables, traffics, strict=True):
        feed, counts = table.feed, table.ledger.counts
        table.settle(time.monotonic())
        for failure in traffic.failures[:_MAX_DIFFERENCES]:
            say(f"producer: {failure}")
        differences = _differences(world, table, traffic.events) if whole else []
        for partition, offset, what in differences[:_MAX_DIFFERENCES]:
            say(f"{what}: {feed.topic}/{partition} offset {offset}")
        if differences or traffic.failures or table.off_by:
            equal, result = False, "DIFFERENT"
            counted = (
                f"{len(differences):,} rows differ"
                if whole
                else f"off by {table.off_by:+,} rows"
            )
        elif whole:
            result, counted = "EQUAL", "the answer is the ledger"
        else:
            result, counted = "EXACT", f"{table.checked:,} answers counted against the ledger"
        say(
            f"{result}: {feed.table}: {counted}; {table.ledger.rows:,} rows over {feed.partitions} partitions, "
            f"{table.publishes} publishes; {counts['bad']:,} bad records kept with their error, "
            f"{counts['tombstone']:,} tombstones, {counts['aborted']:,} aborted records absent"
        )
    return equal


def _differences(
    world: World, table: ObservedTable, events: Events
) -> list[tuple[int, int, str]]:
    # A commit is acknowledged before its markers are in the partitions.
    topic = table.feed.topic
    with KafkaLog(world.settings.kafka, with_high_watermark=True) as log:
        while any(
            p.log_end != p.high_watermark for p in log.measure([topic])[topic].partitions
        ):
            time.sleep(0.1)
    with connected(world.uri) as client:
        return table.ledger.differences(
            (
                row["kafka_partition"],
                row["kafka_offset"],
                digest_row(table.feed, row, is_later_exact=events.is_later_exact),
            )
            for row in client.rows(f"SELECT * FROM {table.feed.table}")  # noqa: S608
        )
