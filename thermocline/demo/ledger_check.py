"""The demo's last word: the whole answer, or its count, against what the producers know."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from thermocline.client import open_cursor
from thermocline.demo.feeds import DemoFeed
from thermocline.demo.ledger import Difference, Ledger, digest_bytes, digest_event
from thermocline.demo.observer import Observer
from thermocline.demo.traffic import Traffic
from thermocline.demo.world import World, wait_until_stable

_MAX_DIFFERENCES = 10


def verdict(
    world: World,
    ledgers: Mapping[str, Ledger],
    traffics: Mapping[str, Traffic],
    observer: Observer,
    say: Callable[[str], None],
    *,
    whole: bool,
) -> bool:
    """Compare every row by (partition, offset, payload hash) if ``whole``, else report the counts so far.

    True when nothing differs. The producers have stopped.
    """
    equal = True
    world.check()
    for view in observer.moment().feeds:
        feed, ledger = view.feed, ledgers[view.feed.topic]
        failures = traffics[feed.topic].failures
        for failure in failures[:_MAX_DIFFERENCES]:
            say(f"producer: {failure}")
        differences: list[Difference] = []
        if whole:
            wait_until_stable(world.bootstrap, feed.topic)
            differences = _differences(world, feed, ledger)
            for difference in differences[:_MAX_DIFFERENCES]:
                say(
                    f"{difference.what}: {feed.topic}/{difference.partition} offset {difference.offset}"
                )
        facts = (
            f"{ledger.rows:,} rows over {feed.partitions} partitions, {view.published.count} publishes; "
            f"{ledger.bad:,} bad records kept with their error, {ledger.tombstones:,} tombstones, "
            f"{ledger.aborted:,} aborted records absent"
        )
        if differences or failures or view.off_by:
            equal = False
            counted = (
                f"{len(differences):,} rows differ"
                if whole
                else f"off by {view.off_by:+,} rows"
            )
            say(f"DIFFERENT: {feed.table}: {counted}; {facts}")
        elif whole:
            say(f"EQUAL: {feed.table}: the answer is the ledger; {facts}")
        else:
            say(
                f"EXACT: {feed.table}: {view.checked:,} answers counted against the ledger; {facts}"
            )
    return equal


def _differences(world: World, feed: DemoFeed, ledger: Ledger) -> list[Difference]:
    with open_cursor(world.uri) as cursor:
        cursor.execute(f"SELECT * FROM {feed.table}")  # noqa: S608
        reader = cursor.fetch_record_batch()
        return ledger.differences(_rows(feed, reader))


def _rows(feed: DemoFeed, reader: Any) -> Iterator[tuple[int, int, int]]:
    for batch in reader:
        for row in batch.to_pylist():
            yield row["kafka_partition"], row["kafka_offset"], _digest(feed, row)


def _digest(feed: DemoFeed, row: Mapping[str, Any]) -> int:
    """Hash a row as its event was. A wrong value in the later column is a changed row; NULL there is right."""
    if row["kafka_error"] is not None:
        return digest_bytes(row["kafka_value"])
    event = {name: row[name] for name in feed.columns}
    event["ts"] = round(row["ts"].timestamp() * 1000)
    if row.get(feed.later) not in (None, feed.later_of(event)):
        return -1
    return digest_event(event)
