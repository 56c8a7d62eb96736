"""Tiering of keyed tables on real Spark and Iceberg: the newest row of each key, whatever happens between two steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial

import pytest

from connectors import failpoints
from connectors.jobs.round import RoundResult, rebuild_once, tier_once
from connectors.registry.decoders import shipped_decoder
from connectors.spark.metadata import identifier
from connectors.spark.publish.target import SparkTieringTarget
from planner.errors import (
    BadBinding,
    ForeignCommit,
    KeyInTwoPartitions,
    SnapshotExpired,
    StalePlan,
    TailGap,
    TieringConflict,
)
from planner.ports import Staged
from planner.seam.binding import MIRROR
from planner.seam.snapshots import TAG, live_rows
from planner.seam.watermark import SUMMARY_KEY, Outcomes, parse_watermark
from planner.tiering.plan import plan_rebuild, plan_tiering
from tests.fixtures.spark import BUDGET, BoundTable, SparkLake
from tests.harness.generated_log import TOPIC
from tests.harness.keyed_log import DEVICES as LOG
from tests.harness.keyed_log import (
    KEYED,
    KEYED_COLUMNS,
    Change,
    KeyedLog,
    KeyedRow,
)

pytestmark = pytest.mark.spark
SOAK = pytest.mark.soak


@pytest.fixture
def devices(lake: SparkLake) -> BoundTable:
    return lake.create(0, 0, columns=KEYED_COLUMNS, binding=KEYED, key=("id",))


def target(table: BoundTable, log: KeyedLog) -> SparkTieringTarget:
    return table.target(log, decoder=partial(shipped_decoder, str(table.name)))


def tier(table: BoundTable, log: KeyedLog) -> RoundResult:
    return tier_once(log, target(table, log), BUDGET)


def stage(table: BoundTable, log: KeyedLog) -> tuple[SparkTieringTarget, Staged]:
    own = target(table, log)
    return own, own.stage(plan_tiering(own.pin(), log.measure([TOPIC])[TOPIC], BUDGET))


def rows(table: BoundTable) -> list[KeyedRow]:
    columns = ("kafka_partition", "kafka_offset", "id", "state")
    read = table.session.table(identifier(table.name)).select(*columns).collect()
    return sorted((tuple(row) for row in read), key=lambda row: row[2])


def operations(table: BoundTable) -> list[str]:
    state = table.state()
    return [each.operation for each in state.history.line(state.head)]


def test_each_publish_leaves_the_newest_row_of_each_key(devices: BoundTable) -> None:
    for ends in ((60, 0), (60, 200), (150, 200), (300, 300)):
        log = LOG.to(*ends)
        result = tier(devices, log)
        assert rows(devices) == log.rows
        assert devices.branches() == []
        state = devices.state()
        head = state.history.snapshots[state.head or 0]
        text = head.summary[SUMMARY_KEY]
        assert (state.refs[TAG], state.properties[MIRROR]) == (head.snapshot_id, text)
        assert parse_watermark(text) == result.watermark
        assert result.watermark.next.as_dict() == dict(enumerate(ends))
        assert live_rows(head) == len(log.rows)
        assert result.outcomes.rows == head.count("added-records")
    # What a table whose files were never rewritten has been through.
    assert operations(devices)[0] == "overwrite"


def test_a_key_may_have_the_name_of_an_alias(lake: SparkLake) -> None:
    columns = (dataclasses.replace(KEYED_COLUMNS[0], name="t"), *KEYED_COLUMNS[1:])
    devices = lake.create(0, 0, columns=columns, binding=KEYED, key=("t",))
    for ends in ((60, 60), (150, 200)):
        log = LOG.to(*ends)
        tier(devices, log)
        read = devices.session.table(identifier(devices.name)).select("t", "state").collect()
        assert sorted(map(tuple, read)) == [row[2:] for row in log.rows]


def test_nothing_of_a_fold_stays_on_executors(devices: BoundTable) -> None:
    def persistent() -> set[int]:
        return set(devices.session.sparkContext._jsc.getPersistentRDDs().keySet())

    before = persistent()
    tier(devices, LOG.to(20, 20))
    assert persistent() == before


def test_every_change_has_one_outcome(devices: BoundTable) -> None:
    changes = (
        Change(0, 0, 2, "a"),
        Change(0, 1, 2, "b"),
        Change(0, 2, 4, "c"),
        Change(0, 3, 4, None),
        Change(0, 4, 6, None),
        Change(0, 5, 6, "d"),
    )
    log = KeyedLog(changes, (6, 0))
    assert tier(devices, log).outcomes == Outcomes(rows=2, deletes=1, superseded=3)
    assert rows(devices) == [(0, 1, 2, "b"), (0, 5, 6, "d")]


def test_changes_that_only_delete_and_ranges_without_changes_are_published(
    devices: BoundTable,
) -> None:
    changes = (Change(0, 0, 2, "a"), Change(0, 5, 2, None), Change(0, 6, 4, None))
    log = KeyedLog(changes, (1, 0))
    tier(devices, log)
    assert tier(devices, log.to(7, 0)).outcomes == Outcomes(deletes=2)
    assert rows(devices) == []
    result = tier(devices, log.to(20, 3))
    assert result.outcomes == Outcomes()
    assert devices.watermark() == {0: 20, 1: 3}
    assert operations(devices)[:3] == ["append", "delete", "append"]


@pytest.mark.parametrize("first", [(1, 0), (0, 0)], ids=["in cold", "in one publish"])
def test_a_key_in_two_partitions_is_no_guess(
    devices: BoundTable, first: tuple[int, int]
) -> None:
    log = KeyedLog((Change(0, 0, 2, "a"), Change(1, 3, 2, "b")), (1, 4))
    if any(first):
        tier(devices, log.to(*first))
    before = devices.state()
    with pytest.raises(KeyInTwoPartitions) as caught:
        tier(devices, log)
    assert caught.value.message == (
        f"{devices.name}: the key of offset 3 of partition 1 has a change in partition 0, too, so which is the newest is not "
        f"known; have producers choose the partition by the key alone, and bind a new table to a topic that was written so."
    )
    assert devices.state().head == before.head
    assert devices.branches() == []


@pytest.mark.parametrize(
    "in_cold",
    [
        pytest.param(False, id="none in cold"),
        pytest.param(True, id="some in cold", marks=pytest.mark.soak),
    ],
)
def test_two_tierers_of_the_same_keys_publish_them_once(
    devices: BoundTable, in_cold: bool
) -> None:
    if in_cold:
        tier(devices, LOG.to(100, 100))
    (one, first), (two, second) = (stage(devices, LOG.to(200, 200)) for _ in range(2))
    one.publish(first)
    with pytest.raises(TieringConflict, match="another tierer published first"):
        two.publish(second)
    two.discard(second)
    assert rows(devices) == LOG.to(200, 200).rows
    tier(devices, LOG)
    assert rows(devices) == LOG.rows
    assert devices.branches() == []


@pytest.mark.soak
def test_two_tierers_of_other_keys_publish_both(devices: BoundTable) -> None:
    one, first = stage(devices, LOG.to(200, 0))
    two, second = stage(devices, LOG.to(0, 200))
    one.publish(first)
    with pytest.raises(TieringConflict):
        two.publish(second)
    tier(devices, LOG.to(200, 200))
    assert rows(devices) == LOG.to(200, 200).rows


def _delete_one(table: BoundTable) -> None:
    table.sql("DELETE FROM {t} WHERE id = (SELECT min(id) FROM {t})")


def _update_one(table: BoundTable) -> None:
    # The row is in a new file then, which no staged delete names.
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.update.mode' = 'merge-on-read')")
    table.sql("UPDATE {t} SET state = 'foreign' WHERE id = 3")


def _rewrite_deletes(table: BoundTable) -> None:
    table.call("rewrite_position_delete_files", "options => map('rewrite-all', 'true')")


#: What another writer does between stage and publish, and whether the publish then holds.
FOREIGN: dict[str, tuple[Callable[[BoundTable], object], bool]] = {
    "expiry": (BoundTable.expire_to_one, True),
    "delete": (_delete_one, False),
    "update": (_update_one, False),
    "compaction": (BoundTable.compact, False),
    "rewrite of deletes": (_rewrite_deletes, False),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("update", "compaction") else pytest.mark.soak)
        for name in FOREIGN
    ],
)
def test_another_writer_between_stage_and_publish_costs_no_row(
    devices: BoundTable, name: str
) -> None:
    act, holds = FOREIGN[name]
    tier(devices, LOG.to(60, 60))
    before = 60
    # Deletes of before would show a compaction by themselves: it drops them.
    if name != "compaction":
        before = 100
        tier(devices, LOG.to(100, 100))
    own, staged = stage(devices, LOG.to(200, 200))
    act(devices)
    changed = rows(devices)
    if holds:
        own.publish(staged)
    else:
        with pytest.raises(StalePlan) as caught:
            own.publish(staged)
        assert type(caught.value) is TieringConflict
        assert rows(devices) == changed
        own.discard(staged)
        tier(devices, LOG.to(200, 200))
    # What the other writer did stays, but for keys that have changed since.
    since = {each.key for each in LOG.changes if before <= each.offset < 200}
    expected = [row for row in LOG.to(200, 200).rows if row[2] in since]
    expected += [row for row in changed if row[2] not in since]
    assert rows(devices) == sorted(expected, key=lambda row: row[2])
    tier(devices, LOG)
    assert devices.branches() == []


#: Statements after which there are as many rows as before, and two of key {a}.
DOUBLING = {
    "update": "UPDATE {t} SET id = {a} WHERE id = {b}",
    "merge": "MERGE INTO {t} AS old USING (SELECT {b} AS id) AS new ON old.id = new.id WHEN MATCHED THEN UPDATE SET id = {a}",
}


@pytest.mark.parametrize("mode", ["copy-on-write", pytest.param("merge-on-read", marks=SOAK)])
@pytest.mark.parametrize("kind", ["update", pytest.param("merge", marks=SOAK)])
def test_a_key_that_another_writer_gave_two_rows_stops_the_table_until_it_is_undone(
    devices: BoundTable, kind: str, mode: str
) -> None:
    options = f"'write.update.mode' = '{mode}', 'write.merge.mode' = '{mode}'"
    devices.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({options})")
    tier(devices, LOG.to(100, 100))
    devices.sql("UPDATE {t} SET state = 'foreign' WHERE id < 9")
    tier(devices, LOG.to(150, 150))
    own, staged = stage(devices, LOG.to(200, 200))
    before = devices.state().head
    one, other = (row[2] for row in rows(devices)[:2])
    devices.sql(DOUBLING[kind].replace("{a}", str(one)).replace("{b}", str(other)))
    assert len(rows(devices)) == len({row[2] for row in rows(devices)}) + 1
    with pytest.raises(
        ForeignCommit, match="and a key has two rows since; roll the table back"
    ):
        own.publish(staged)
    own.discard(staged)
    devices.compact()
    with pytest.raises(
        ForeignCommit, match="and a key has two rows since; roll the table back"
    ):
        tier(devices, LOG)
    devices.call("rollback_to_snapshot", f"snapshot_id => {before}")
    tier(devices, LOG)
    since = {each.key for each in LOG.changes if each.offset >= 100}
    assert [row for row in rows(devices) if row[2] in since] == [
        row for row in LOG.rows if row[2] in since
    ]


@pytest.mark.soak
def test_a_compaction_of_other_files_lets_the_publish_pass(lake: SparkLake) -> None:
    devices = lake.create(
        0,
        0,
        columns=KEYED_COLUMNS,
        binding=KEYED,
        key=("id",),
        partition_by=["kafka_partition"],
    )
    tier(devices, LOG.to(50, 50))
    tier(devices, LOG.to(50, 100))
    own, staged = stage(devices, LOG.to(100, 100))
    devices.call(
        "rewrite_data_files",
        "where => 'kafka_partition = 1'",
        "options => map('rewrite-all', 'true')",
    )
    own.publish(staged)
    assert rows(devices) == LOG.to(100, 100).rows


def test_a_stage_that_dies_between_its_commits_leaves_nothing_that_counts(
    devices: BoundTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die(point: str) -> None:
        if point == "after_deletes":
            raise Killed

    tier(devices, LOG.to(100, 100))
    with monkeypatch.context() as patched:
        patched.setattr(failpoints, "reach", die)
        patched.setattr(SparkTieringTarget, "_drop", lambda *_: None)
        with pytest.raises(Killed):
            stage(devices, LOG.to(200, 200))
    assert rows(devices) == LOG.to(100, 100).rows
    left = devices.branches()
    assert len(left) == 2
    devices.compact()
    devices.expire_to_one()
    tier(devices, LOG)
    assert rows(devices) == LOG.rows
    assert sorted(devices.branches()) == sorted(left)
    assert set(target(devices, LOG).drop_stale(older_than_s=0)) == set(left)
    assert devices.branches() == []


@pytest.mark.soak
def test_a_branch_that_is_gone_is_planned_again(devices: BoundTable) -> None:
    tier(devices, LOG.to(100, 100))
    for name in ("", "_d"):
        own, staged = stage(devices, LOG.to(200, 200))
        devices.sql(f"ALTER TABLE {{t}} DROP BRANCH `tc_stage_{staged.reference}{name}`")
        with pytest.raises(SnapshotExpired, match="stage them again"):
            own.publish(staged)
        own.discard(staged)
    assert rows(devices) == LOG.to(100, 100).rows
    assert devices.branches() == []


def test_deletes_that_would_rewrite_files_are_refused(devices: BoundTable) -> None:
    devices.sql("ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.mode' = 'copy-on-write')")
    with pytest.raises(BadBinding, match="is tiered with merge-on-read: set it so"):
        tier(devices, LOG)
    assert devices.branches() == []


@pytest.mark.parametrize("version", ["2", pytest.param("3", marks=pytest.mark.soak)])
def test_deletes_replace_those_of_before_in_both_format_versions(
    devices: BoundTable, version: str
) -> None:
    devices.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('format-version' = '{version}')")
    for end in (100, 130, 160):
        tier(devices, LOG.to(end, end))
    state = devices.state()
    head = state.history.snapshots[state.head or 0]
    assert head.count("removed-delete-files")
    assert rows(devices) == LOG.to(160, 160).rows
    devices.compact()
    assert rows(devices) == LOG.to(160, 160).rows
    tier(devices, LOG)
    assert rows(devices) == LOG.rows


@pytest.mark.parametrize(
    "starts",
    [
        pytest.param((0, 0), id="whole log", marks=pytest.mark.soak),
        pytest.param((90, 20), id="compacted"),
    ],
)
def test_a_rebuild_leaves_what_the_log_says_and_nothing_else(
    devices: BoundTable, starts: tuple[int, int]
) -> None:
    tier(devices, LOG.to(60, 60))
    tier(devices, LOG.to(80, 80))
    devices.sql("UPDATE {t} SET state = 'foreign' WHERE id < 20")
    log = dataclasses.replace(LOG, starts=starts)
    if any(starts):
        # A compacted log has the newest change of each key, wherever it begins.
        newest = {change.key: change for change in LOG.changes}
        changes = [each for each in LOG.changes if each.offset >= starts[each.partition]]
        log = dataclasses.replace(log, changes=tuple(changes))
        assert set(newest.values()) <= set(changes)
        with pytest.raises(TailGap):
            tier(devices, log)
    result = rebuild_once(log, target(devices, log), 100)
    assert rows(devices) == LOG.rows
    state = devices.state()
    head = state.history.snapshots[state.head or 0]
    assert live_rows(head) == head.count("total-records") == len(LOG.rows)
    assert head.count("total-delete-files") == 0
    assert result.outcomes.records == len(log.changes)
    assert devices.watermark() == {0: 300, 1: 300}
    assert devices.branches() == []
    more = KeyedLog((*LOG.changes, Change(1, 300, 3, "later")), (300, 301))
    tier(devices, more)
    assert rows(devices) == more.rows


@pytest.mark.soak
def test_a_rebuild_and_a_tierer_are_not_both_published(devices: BoundTable) -> None:
    tier(devices, LOG.to(100, 100))
    own = target(devices, LOG)
    rebuild = own.stage(plan_rebuild(own.pin(), LOG.measure([TOPIC])[TOPIC], 100))
    tier(devices, LOG.to(200, 200))
    with pytest.raises(TieringConflict, match="another tierer published first"):
        own.publish(rebuild)
    own.discard(rebuild)
    assert rows(devices) == LOG.to(200, 200).rows


def test_an_empty_log_rebuilds_to_an_empty_table(devices: BoundTable) -> None:
    tier(devices, LOG.to(50, 50))
    empty = KeyedLog((), (50, 50), starts=(50, 50))
    assert rebuild_once(empty, target(devices, empty), 100).outcomes == Outcomes()
    assert rows(devices) == []
