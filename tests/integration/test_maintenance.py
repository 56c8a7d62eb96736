"""Maintenance on real tables: each step, in any order with tiering and other writers, leaves answers as they were."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

from connectors.iceberg.maintenance_facts import MaintenanceReader
from connectors.spark.maintenance.target import SparkMaintenance
from connectors.spark.metadata import identifier, survey
from planner.errors import BadBinding, TieringConflict, Unavailable
from planner.maintenance.expiry import promised
from planner.maintenance.steps import (
    Compaction,
    Expiry,
    OrphanRemoval,
    WatermarkRenewal,
)
from planner.seam.cut import ColdSlice, Pin
from planner.seam.watermark import Outcomes
from tests.fixtures.spark import BoundTable, SparkLake
from tests.harness.generated_log import GeneratedLog, Row, expected_rows
from tests.harness.maintaining import Care, aged, folder_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def care(flows: BoundTable) -> Iterator[Care]:
    with contextlib.closing(MaintenanceReader(flows.catalogs)) as reader:
        yield Care(flows, reader)


@contextlib.contextmanager
def caring(table: BoundTable) -> Iterator[Care]:
    with contextlib.closing(MaintenanceReader(table.catalogs)) as reader:
        yield Care(table, reader)


def read(table: BoundTable, pin: Pin) -> list[Row]:
    """The cold rows of a pin, as Spark reads its snapshot."""
    columns = ("kafka_partition", "kafka_offset", "host", "bytes")
    frame = table.session.read.option("versionAsOf", pin.snapshot_id)
    return sorted(
        tuple(row) for row in frame.table(identifier(table.name)).select(*columns).collect()
    )


def test_small_files_become_one_and_the_rows_stay(care: Care) -> None:
    table = care.table
    for end in range(100, 600, 100):
        table.tier(end, end)
    pin = table.store.pin(table.name)
    before, mark = len(care.facts().files.files), table.watermark()
    assert care.maintain() == [Compaction, OrphanRemoval]
    assert (before, len(care.facts().files.files)) == (5, 1)
    assert table.rows() == expected_rows(500, 500)
    assert table.watermark() == mark == {0: 500, 1: 500}
    assert read(table, pin) == expected_rows(500, 500)
    # What compaction left above the watermark does not stop a publish.
    table.tier(600, 600)
    assert table.rows() == expected_rows(600, 600)


def test_partitions_are_compacted_by_themselves_and_sorted(lake: SparkLake) -> None:
    table = lake.create(0, 0, partition_by=("kafka_partition",), sort_by=("bytes desc",))
    with caring(table) as care:
        for end in range(100, 600, 100):
            table.tier(end, 0)
        table.tier(500, 100)
        assert [type(step) for step in care.steps()] == [Compaction, OrphanRemoval]
        step = care.step(Compaction)
        assert isinstance(step, Compaction)
        assert [backlog.partition for backlog in step.backlogs] == [(0,)]
        target = care.target
        result = target.take(step)
        assert result.files == 5
        # Its jobs are those that a cancel ends.
        tracker = table.session.sparkContext._jsc.sc().statusTracker()
        assert len(tracker.getJobIdsForTag(target._tag)) > 0
        # The other partition has one file, and it was left alone.
        assert {file.partition for file in care.facts().files.files} == {(0,), (1,)}
        assert len(care.facts().files.files) == 2
    name = identifier(table.name)
    written = [
        row.bytes
        for row in table.session.table(name)
        .where("kafka_partition = 0")
        .select("bytes")
        .collect()
    ]
    assert written == sorted(written, reverse=True)
    assert table.rows() == expected_rows(500, 100)


@pytest.mark.parametrize("version", ["2", pytest.param("3", marks=pytest.mark.soak)])
def test_deleted_rows_go_from_files_and_do_not_come_back(lake: SparkLake, version: str) -> None:
    table = lake.create(0, 0, properties={"write.delete.mode": "merge-on-read"})
    table.tier(200, 200)
    table.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('format-version' = '{version}')")
    table.sql("DELETE FROM {t} WHERE kafka_offset = 50")
    rows = [row for row in expected_rows(200, 200) if row[1] != 50]
    with caring(table) as care:
        assert care.facts().files.delete_files
        assert care.maintain() == [Compaction, OrphanRemoval]
        assert care.facts().files.delete_files == 0
    assert table.rows() == rows
    assert table.watermark() == {0: 200, 1: 200}


def test_the_watermark_outlives_an_expiry_and_is_no_publish(care: Care) -> None:
    table = care.table
    for end in range(100, 600, 100):
        table.tier(end, end)
    before = survey(table.name, table.state())
    target, staged = table.stage(GeneratedLog((600, 600)))
    [branch] = table.branches()
    care.target.take(care.step(Compaction))
    # An expiry now would hide what lies above the watermark.
    with pytest.raises(TieringConflict) as refused:
        care.target.take(care.step(Expiry, hours=24 * 30))
    assert refused.value.message == (
        f"{table.name}: another writer committed above the watermark; nothing was expired, plan again."
    )
    kinds = care.maintain(hours=24 * 30)
    assert kinds == [WatermarkRenewal, Expiry, OrphanRemoval]
    # Its job lives: no day has passed.
    assert table.branches() == [branch]
    state = table.state()
    # Somebody else's expiry after it hides nothing either: the head carries the watermark by itself.
    table.expire_to_one()
    assert table.watermark() == {0: 500, 1: 500}
    assert table.rows() == expected_rows(500, 500)
    # When to publish next, and by which writer, is decided by the last publish.
    after = survey(table.name, state)
    assert (after.published_at_s, after.partition_values) == (
        before.published_at_s,
        before.partition_values,
    )
    mark = table.store.pin(table.name).watermark
    assert mark is not None
    assert mark.outcomes == Outcomes()
    assert mark.publish_outcomes.rows == len(expected_rows(500, 500)) - len(
        expected_rows(400, 400)
    )
    target.publish(staged)
    assert table.rows() == expected_rows(600, 600)
    mark = table.store.pin(table.name).watermark
    assert mark is not None
    assert (mark.next.as_dict(), mark.publish) == ({0: 600, 1: 600}, None)


def test_what_servers_may_still_read_stays(lake: SparkLake) -> None:
    properties = {
        "thermocline.maintain.pin_grace_s": "3600",
        "history.expire.max-snapshot-age-ms": "1",
    }
    table = lake.create(0, 0, properties=properties)
    with caring(table) as care:
        table.tier(100, 100)
        table.sql("ALTER TABLE {t} CREATE TAG month")
        table.tier(200, 200)
        pin = table.store.pin(table.name)
        table.tier(300, 300)
        # Two hours on, all but the newest were replaced longer ago than the grace; nothing is due yet before that.
        assert Expiry not in [type(step) for step in care.steps(hours=0.5)]
        care.maintain(hours=2)
        left = table.state()
        assert left.refs["month"] in left.history.snapshots
        assert pin.snapshot_id not in left.history.snapshots
        assert table.rows() == expected_rows(300, 300)
        tagged = ColdSlice(pin.table, pin.metadata_location, left.refs["month"], pin.schema)
        assert tagged.snapshot_id is not None
        frame = table.session.read.option("versionAsOf", "month").table(identifier(table.name))
        assert frame.count() == len(expected_rows(100, 100))


SOON_OLD = {
    "thermocline.maintain.pin_grace_s": "3600",
    "history.expire.max-snapshot-age-ms": "1",
}


def test_an_expiry_that_was_planned_before_a_rollback_is_planned_again(lake: SparkLake) -> None:
    table = lake.create(0, 0, properties=SOON_OLD)
    with caring(table) as care:
        table.tier(100, 100)
        before = table.store.pin(table.name).snapshot_id
        table.tier(200, 200)
        planned = care.step(Expiry, hours=3)
        table.call("rollback_to_snapshot", f"snapshot_id => {before}")
        table.tier(300, 300)
        with pytest.raises(TieringConflict) as refused:
            care.target.take(planned)
        assert refused.value.message == (
            f"{table.name}: the table was rolled back since its expiry was planned; nothing was expired, plan again."
        )
        # Servers answered from it a moment ago.
        assert before in table.state().history.snapshots


def test_a_table_of_two_names_and_two_histories_expires_nothing(
    lake: SparkLake, tmp_path: Path
) -> None:
    table = lake.create(0, 0, properties=SOON_OLD)
    table.tier(100, 100)
    again = {**lake.catalogs["lake"], "uri": f"sqlite:///{tmp_path}/again.db"}
    with contextlib.closing(load_catalog("again", **again)) as catalog:
        catalog.create_namespace("net")
        location = table.store.pin(table.name).metadata_location
        copy = catalog.register_table(("net", "copy"), location)
        table.tier(200, 200)
        # What the copy reads is named by old snapshots alone.
        table.compact()
        both = {**lake.catalogs, "again": again}
        with contextlib.closing(MaintenanceReader(both)) as reader:
            care = Care(table, reader)
            care.target.take(care.step(WatermarkRenewal, hours=3))
            with pytest.raises(BadBinding) as refused:
                care.target.take(care.step(Expiry, hours=3))
        assert refused.value.message == (
            f"{table.name}: the same table is registered as again.net.copy, at another metadata file, so nothing tells which "
            f"files are live there; nothing was expired. Take one of the names out of its catalog."
        )
        assert copy.scan().to_arrow().num_rows == len(expected_rows(100, 100))


# --- orphans ---


def test_orphans_go_and_whatever_is_named_or_young_stays(care: Care) -> None:
    table = care.table
    table.tier(100, 100)
    # Staged and not published, on a branch: as old as an orphan may be.
    target, staged = table.stage(GeneratedLog((200, 200)))
    folder = folder_of(table)
    for path in folder.rglob("*"):
        if path.is_file():
            aged(path)
    gone = aged(folder / "data" / "killed.parquet")
    live = aged(folder / f"thermocline-live-{'0' * 32}" / "tail.parquet")
    young = folder / "data" / "in-flight.parquet"
    young.write_bytes(b"task")
    assert care.maintain() == [OrphanRemoval]
    jobs = table.session._jsparkSession.sparkContext().statusStore().jobsList(None)
    of_orphans = {str(jobs.apply(number).name()) for number in range(jobs.size())}
    # However many there are, the driver has no list of all.
    assert not any("collectAsList at DeleteOrphanFiles" in each for each in of_orphans)
    assert not gone.exists()
    assert live.exists()
    assert young.exists()
    target.publish(staged)
    assert table.rows() == expected_rows(200, 200)
    # Not again within a day.
    assert care.steps() == ()


@pytest.mark.soak
def test_ten_thousand_files_in_flight_stay(care: Care) -> None:
    table = care.table
    table.tier(100, 100)
    data = folder_of(table) / "data"
    flight = [data / f"in-flight-{number}.parquet" for number in range(10_000)]
    for path in flight:
        path.write_bytes(b"task")
    gone = [aged(data / f"killed-{number}.parquet") for number in range(1_000)]
    assert care.maintain() == [OrphanRemoval]
    assert all(path.exists() for path in flight)
    assert not any(path.exists() for path in gone)
    assert table.rows() == expected_rows(100, 100)


def test_a_table_with_another_in_its_folder_removes_nothing(lake: SparkLake) -> None:
    outer = lake.create(0, 0)
    inside = f"{outer.java().location()!s}/inner"
    lake.create(0, 0, location=inside)
    gone = aged(folder_of(outer) / "data" / "killed.parquet")
    with (
        caring(outer) as care,
        pytest.raises(BadBinding, match="lies or writes in its folder"),
    ):
        care.target.take(OrphanRemoval())
    assert gone.exists()


def test_a_folder_that_was_moved_and_linked_removes_nothing(lake: SparkLake) -> None:
    table = lake.create(0, 0)
    table.tier(100, 100)
    folder = folder_of(table)
    moved = folder.with_name(f"{folder.name}-moved")
    folder.rename(moved)
    folder.symlink_to(moved)
    table.sql(f"ALTER TABLE {{t}} SET LOCATION '{moved.as_uri()}'")
    for path in moved.rglob("*.parquet"):
        aged(path)
    with caring(table) as care, pytest.raises(BadBinding, match="live by another name of it"):
        care.target.take(OrphanRemoval())
    assert table.rows() == expected_rows(100, 100)


def test_a_clock_that_is_a_day_ahead_removes_nothing(care: Care) -> None:
    table = care.table
    gone = aged(folder_of(table) / "data" / "killed.parquet")
    ahead = SparkMaintenance(
        table.session, table.name, care.reader.neighbours.of, clock=lambda: time.time() + 86_400
    )
    for step in (OrphanRemoval(), Expiry(0, 1, 0, 1)):
        with pytest.raises(
            Unavailable, match=r"clock is 86,[34][0-9]{2} s ahead of the store's"
        ):
            ahead.take(step)
    assert gone.exists()


# --- any order ---


def storm(care: Care, seed: int, steps: int) -> None:
    """Maintenance, publishes and other writers in any order; rows at each snapshot that is promised are as they were."""
    chance = random.Random(seed)
    table, end = care.table, 100
    table.sql(
        "ALTER TABLE {t} SET TBLPROPERTIES ('thermocline.maintain.mode' = 'on', "
        "'thermocline.maintain.pin_grace_s' = '5', 'history.expire.max-snapshot-age-ms' = '1')"
    )
    table.tier(end, end)
    rows = {row[:2]: row for row in expected_rows(end, end)}
    by_snapshot = {care.facts().head: sorted(rows.values())}
    ends = {care.facts().head: end}
    for number in range(steps):
        match chance.choice(
            ("tier", "tier", "delete", "compact", "tag", "back", "care", "care")
        ):
            case "tier":
                before, end = end, end + 20
                table.tier(end, end)
                rows |= {
                    row[:2]: row for row in expected_rows(end, end, starts=(before, before))
                }
            case "delete" if rows:
                key = chance.choice(sorted(rows))
                table.sql(
                    f"DELETE FROM {{t}} WHERE kafka_partition = {key[0]} AND kafka_offset = {key[1]}"
                )
                del rows[key]
            case "compact":
                table.compact()
            case "tag":
                table.sql(f"ALTER TABLE {{t}} CREATE OR REPLACE TAG tag_{number}")
            case "back":
                line = [
                    each.snapshot_id for each in table.state().history.line(table.state().head)
                ]
                to = chance.choice([each for each in line if each in by_snapshot][:4])
                table.call("rollback_to_snapshot", f"snapshot_id => {to}")
                rows, end = {row[:2]: row for row in by_snapshot[to]}, ends[to]
            case "care":
                due = care.steps()
                if due:
                    care.target.take(
                        chance.choice(due) if WatermarkRenewal not in map(type, due) else due[0]
                    )
        facts = care.facts()
        by_snapshot[facts.head], ends[facts.head] = sorted(rows.values()), end
        assert table.rows() == by_snapshot[facts.head], (seed, number)
        assert table.watermark() == {0: end, 1: end}, (seed, number)
        stays = promised(facts, 5_000, int(time.time() * 1000)) | {
            ref.snapshot_id for ref in facts.refs.values()
        }
        assert stays <= facts.committed_ms.keys()
    for snapshot_id, expected in by_snapshot.items():
        if snapshot_id in stays:
            columns = ("kafka_partition", "kafka_offset", "host", "bytes")
            frame = table.session.read.option("versionAsOf", snapshot_id)
            cold = frame.table(identifier(table.name)).select(*columns).collect()
            assert sorted(map(tuple, cold)) == expected, (seed, snapshot_id)


@pytest.mark.soak
def test_a_short_storm(care: Care) -> None:
    storm(care, seed=3, steps=8)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(6))
def test_a_long_storm(care: Care, seed: int) -> None:
    storm(care, seed=seed, steps=80)
