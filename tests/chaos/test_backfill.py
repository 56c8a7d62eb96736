"""A table bound to a topic that is full already: tiered in bounded publishes, killed, and continued.

How many records a soak sends: ``THERMOCLINE_RECORDS``.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.catalog import load_catalog

from connectors.failpoints import Failpoint
from connectors.iceberg.store import IcebergStore
from planner.seam.binding import Binding
from tests.chaos.run import PARTITIONS, TABLE, create, write_config
from tests.chaos.tierer import HIT_TIMEOUT_S, Tierer
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import sqlite_catalog

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SEED = int(os.environ.get("THERMOCLINE_SEED", "3"))
_PUBLISHED = re.compile(
    r"published ([\d,]+) rows.* lag ([\d,]+); by \w+(?:; backfill (\d+) %, (.*))?$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Line:
    """What one publish said. ``share`` is None for a table that was never more than one publish behind."""

    rows: int
    lag: int
    share: int | None
    left: str | None


@dataclass
class BackfillSite:
    catalog: dict[str, str]
    tierer: Tierer
    records: int

    def lines(self) -> list[Line]:
        return [
            Line(
                int(rows.replace(",", "")),
                int(lag.replace(",", "")),
                int(share) if share else None,
                left or None,
            )
            for rows, lag, share, left in _PUBLISHED.findall(self.tierer.said)
        ]

    def watermark(self) -> int:
        store = IcebergStore({"lake": self.catalog})
        try:
            mark = store.pin(TABLE).watermark
        finally:
            store.close()
        assert mark is not None
        return sum(offset for _, offset in mark.next)

    def until_level(self) -> None:
        deadline = time.monotonic() + HIT_TIMEOUT_S + self.records / 5_000
        level = "its tail is within the budget again"
        # A publish is told after it was made.
        while (
            self.watermark() < self.records
            or level not in self.tierer.said
            or self.lines()[-1].left != "done"
        ):
            assert time.monotonic() < deadline, self.tierer.said[-2000:]
            self.tierer.ensure()
            time.sleep(0.2)

    def check_rows(self) -> None:
        """The table holds every record once: its number follows from where it is."""
        cold = load_catalog("lake", **self.catalog).load_table((*TABLE.namespace, TABLE.name))
        rows = cold.scan(selected_fields=("kafka_partition", "kafka_offset", "id")).to_arrow()
        assert rows.num_rows == self.records
        places = pc.add(
            pc.multiply(rows["kafka_offset"], PARTITIONS),
            rows["kafka_partition"].cast(pa.int64()),
        )
        assert pc.all(pc.equal(places, rows["id"])).as_py()
        assert len(pc.unique(rows["id"])) == self.records


@contextlib.contextmanager
def site(kafka: Kafka, folder: Path, *, records: int, max_rows: int) -> Iterator[BackfillSite]:
    topic = kafka.topic(PARTITIONS)
    for partition in range(PARTITIONS):
        for first in range(partition, records, PARTITIONS * 20_000):
            numbers = range(first, min(records, first + PARTITIONS * 20_000), PARTITIONS)
            kafka.produce(
                topic,
                [b'{"id": %d, "kind": "abc"}' % number for number in numbers],
                partition=partition,
            )
    catalog = sqlite_catalog(folder)
    # One publish is what a proxy would still serve; before that it refuses.
    create(catalog, kafka.settings, Binding(topic, max_tail_rows=max_rows))
    config = write_config(folder, {"lake": catalog}, kafka.settings, max_rows=max_rows)
    with Tierer(
        config, folder / "hit", "loop", "--interval", "0.3", str(TABLE)
    ).running() as it:
        yield BackfillSite(catalog, it, records)
    kafka.delete_topic(topic)


def _backfill(
    kafka: Kafka, folder: Path, *, records: int, max_rows: int, points: list[Failpoint]
) -> None:
    with site(kafka, folder, records=records, max_rows=max_rows) as pin:
        lives: list[list[Line]] = []
        for point in points:
            pin.tierer.ensure()
            pin.tierer.wait_for_publish()
            with pin.tierer.paused_at(point):
                pin.tierer.kill()
            lives.append(pin.lines()[sum(map(len, lives)) :])
            assert pin.watermark() < records, "killed too late to be in the middle"
        reached = pin.watermark()
        pin.tierer.ensure()
        pin.until_level()
        lives.append(pin.lines()[sum(map(len, lives)) :])
        # It went on from the watermark and did nothing twice.
        assert sum(line.rows for line in lives[-1]) == records - reached
        for life in lives:
            _check_progress(life, max_rows)
        assert lives[-1][-1].left == "done"
        assert "statements on it are refused (TailTooLarge)" in pin.tierer.said
        assert pin.tierer.stop() == 0
        pin.check_rows()


def _check_progress(life: list[Line], max_rows: int) -> None:
    """Bounded publishes; shares rise; there is a time for all but the last."""
    assert all(line.rows <= max_rows for line in life)
    shares = [line.share for line in life if line.share is not None]
    assert shares == sorted(shares)
    assert [line.share is not None for line in life] == [True] * len(life)
    for line in life:
        assert line.left is not None
        assert (
            line.left == "done"
            if not line.lag
            else re.fullmatch(r"[\d.]+ (s|min|h) left", line.left)
        )


# test_kills.py kills tierers, contract and unit tests bound what a publish takes and say how far it is.
@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_backfill_that_is_killed_goes_on_where_it_was(kafka: Kafka, tmp_path: Path) -> None:
    _backfill(kafka, tmp_path, records=60_000, max_rows=12_000, points=["before_commit"])


@pytest.mark.soak
def test_a_large_backfill_is_killed_often(kafka: Kafka, tmp_path: Path) -> None:
    records = int(os.environ.get("THERMOCLINE_RECORDS", "4000000"))
    points: list[Failpoint] = [*get_args(Failpoint)]
    random.Random(SEED).shuffle(points)
    _backfill(kafka, tmp_path, records=records, max_rows=records // 20, points=points)
