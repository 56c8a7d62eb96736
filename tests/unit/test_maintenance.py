"""What is due at a table, decided from facts: files, manifests, snapshots; and what is promised stays."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import BadBinding
from planner.maintenance.compaction import (
    Backlog,
    CompactionRules,
    backlogs,
    next_step,
)
from planner.maintenance.expiry import Retention, expirable, expire_before_ms, promised
from planner.maintenance.facts import (
    MAIN,
    MAINTAIN_KEY,
    FileSize,
    HeadFiles,
    MaintenanceFacts,
    SnapshotRef,
)
from planner.maintenance.options import COMPACT, parse_maintain
from planner.maintenance.standing import CareStanding
from planner.maintenance.steps import (
    Compaction,
    Expiry,
    LogLength,
    ManifestRewrite,
    OrphanRemoval,
    Situation,
    StepResult,
    WatermarkRenewal,
    plan_upkeep,
)
from planner.names import TableName
from planner.seam.boundary import RetentionBoundary
from planner.seam.snapshots import History, Snapshot
from tests.harness.builders import schema, watermark
from tests.harness.builders import snapshot as seam_snapshot

TABLE = TableName("lake", ("net",), "flows")
MB = 1024**2
TARGET = 512 * MB
RULES = CompactionRules(TARGET, 2 * TARGET)
NOW = 1_800_000_000_000
HOUR = 3_600_000
DAY = 24 * HOUR
GRACE = 2 * HOUR
OLD = tuple(30 * DAY - number for number in range(12))


def file(megabytes: int, partition: object = 1, **facts: int) -> FileSize:
    return FileSize((partition,), megabytes * MB, 1_000, **facts)


# --- files ---


def test_five_small_files_are_due_and_four_are_not() -> None:
    assert backlogs([file(10)] * 4, RULES) == ()
    [backlog] = backlogs([file(10)] * 5, RULES)
    assert (backlog.partition, backlog.files, backlog.left) == ((1,), 5, 1)
    assert backlog.score == 1.0


def test_a_file_of_three_quarters_of_the_target_is_large_enough() -> None:
    assert backlogs([file(384)] * 9, RULES) == ()
    assert backlogs([file(383)] * 9, RULES) != ()


def test_a_rewrite_that_leaves_as_many_files_is_none() -> None:
    # Iceberg's own rule takes these: more than a file's worth of small files.
    assert backlogs([file(300), file(300)], RULES) == ()
    assert backlogs([file(200), file(200), file(200)], RULES) != ()


def test_files_of_several_partitions_are_counted_apart() -> None:
    small = [file(1, day) for day in range(5) for _ in range(day + 1)]
    assert [backlog.partition for backlog in backlogs(small, RULES)] == [(4,)]


def test_deleted_rows_and_many_delete_files_are_a_reason_at_any_size() -> None:
    rules = replace(RULES, max_delete_files=5)
    assert backlogs([file(600, deleted_rows=299, delete_files=1)], rules) == ()
    assert backlogs([file(600, deleted_rows=300, delete_files=1)], rules)[0].deleted == 1
    assert backlogs([file(600, delete_files=4)], rules) == ()
    assert backlogs([file(600, delete_files=5)], rules)[0].deleted == 1


def test_all_delete_files_go_where_what_they_touch_fits_one_step() -> None:
    few = [file(400, delete_files=1), file(400)]
    many = [file(400, delete_files=1)] * 5
    assert CompactionRules.of(TARGET, 0, few).max_delete_files == 1
    assert CompactionRules.of(TARGET, 0, many).max_delete_files == 5
    assert CompactionRules.of(TARGET, 2000 * MB, many).max_delete_files == 1


def test_a_step_takes_partitions_up_to_its_budget_and_one_at_least() -> None:
    waiting = [Backlog((day,), 5, 400 * MB, 1, 0) for day in range(4)]
    assert next_step(waiting, RULES) == (tuple(waiting[:2]), None)
    huge = Backlog((1,), 100, 10 * TARGET, 10, 0)
    assert next_step([huge, *waiting], RULES) == ((huge,), 20)
    few = Backlog((1,), 6, 20 * TARGET, 2, 6)
    assert next_step([few], RULES) == ((few,), 5)


def test_a_step_takes_a_bounded_number_of_partitions() -> None:
    waiting = [Backlog((day,), 5, 5 * 1024, 1, 0) for day in range(10_000)]
    assert next_step(waiting, RULES) == (tuple(waiting[:50]), None)


# --- snapshots ---


def snapshot(number: int, operation: str = "append", **summary: str) -> Snapshot:
    return Snapshot(number, number - 1 or None, number, operation, summary)


def facts(
    *ages_ms: int, log: tuple[tuple[int, int], ...] | None = None, **other: object
) -> MaintenanceFacts:
    """Snapshots 1, 2, ... in a line, of these ages."""
    snapshots = {number: snapshot(number) for number in range(1, len(ages_ms) + 1)}
    committed = {number: NOW - age for number, age in enumerate(ages_ms, 1)}
    usual: dict[str, object] = {
        "table": TABLE,
        "head": len(ages_ms),
        "history": History(snapshots, tagged_id=len(ages_ms)),
        "committed_ms": committed,
        "refs": {MAIN: SnapshotRef(len(ages_ms), is_branch=True)},
        "log": log or tuple((at_ms, number) for number, at_ms in committed.items()),
    }
    return MaintenanceFacts(**(usual | other))  # type: ignore[arg-type]


def test_what_was_current_within_the_grace_is_promised_however_old_it_is() -> None:
    # The second was replaced a minute ago, after nine days.
    table = facts(10 * DAY, 9 * DAY, 60_000)
    assert promised(table, GRACE, NOW) == {2, 3}
    retention = Retention(max_age_ms=HOUR)
    before_ms = expire_before_ms(table, retention, GRACE, NOW)
    assert expirable(table, retention, before_ms, NOW) == {1}


def test_a_snapshot_that_a_rollback_left_a_minute_ago_is_promised() -> None:
    log = ((NOW - 10 * DAY, 1), (NOW - 9 * DAY, 2), (NOW - 60_000, 1))
    table = facts(
        10 * DAY, 9 * DAY, head=1, log=log, refs={MAIN: SnapshotRef(1, is_branch=True)}
    )
    assert promised(table, GRACE, NOW) == {1, 2}
    before_ms = expire_before_ms(table, Retention(), GRACE, NOW)
    assert expirable(table, Retention(), before_ms, NOW) == frozenset()


def test_what_a_log_does_not_tell_is_promised() -> None:
    # Another writer expired what was the head in between, and the log begins after it.
    table = facts(10 * DAY, 9 * DAY, 60_000, log=((NOW - 60_000, 3),))
    assert promised(table, GRACE, NOW) == {1, 2, 3}
    assert promised(table, GRACE, NOW + 3 * HOUR) == {3}


def test_an_age_of_zero_lets_go_what_is_not_promised() -> None:
    properties = {"history.expire.max-snapshot-age-ms": "0"}
    properties |= {
        "history.expire.min-snapshots-to-keep": "0",
        "history.expire.max-ref-age-ms": "0",
    }
    retention = Retention.of(TABLE, properties)
    assert retention == Retention(max_age_ms=0, min_snapshots=1, max_ref_age_ms=0)
    table = facts(10 * DAY, 9 * DAY, 60_000)
    assert expire_before_ms(table, retention, GRACE, NOW) == NOW - 9 * DAY
    swept = facts(*OLD, 60_000, properties=SWEPT | properties)
    assert kinds(swept) == [Expiry]


def test_tags_and_branches_keep_what_they_name_and_the_table_a_number() -> None:
    ages = (9 * DAY, 8 * DAY, 7 * DAY, 6 * DAY, 3 * HOUR)
    before_ms = NOW - 4 * HOUR
    plain = facts(*ages)
    assert expirable(plain, Retention(), before_ms, NOW) == {1, 2, 3, 4}
    assert expirable(plain, Retention(min_snapshots=3), before_ms, NOW) == {1, 2}
    main = SnapshotRef(5, is_branch=True)
    tagged = replace(plain, refs={MAIN: main, "month": SnapshotRef(2, is_branch=False)})
    assert expirable(tagged, Retention(), before_ms, NOW) == {1, 3, 4}
    branched = replace(plain, refs={MAIN: main, "audit": SnapshotRef(3, True, min_snapshots=2)})
    assert expirable(branched, Retention(), before_ms, NOW) == {1, 4}


def test_a_tag_goes_only_by_an_age_that_somebody_set() -> None:
    table = facts(9 * DAY, 8 * DAY, 3 * HOUR)
    tag = SnapshotRef(1, is_branch=False)
    main = SnapshotRef(3, is_branch=True)
    tagged = replace(table, refs={MAIN: main, "old": tag})
    retention = Retention(max_ref_age_ms=DAY)
    assert 1 in expirable(tagged, retention, NOW - 4 * HOUR, NOW)
    forever = replace(tagged, refs={MAIN: main, "old": replace(tag, max_age_ms=10 * DAY)})
    assert 1 not in expirable(forever, retention, NOW - 4 * HOUR, NOW)


def test_a_snapshot_of_no_branch_stays_while_it_is_young() -> None:
    table = facts(9 * DAY, 8 * DAY, head=1, refs={MAIN: SnapshotRef(1, is_branch=True)})
    assert expirable(table, Retention(), NOW - 8 * DAY, NOW) == frozenset()
    assert expirable(table, Retention(), NOW - HOUR, NOW) == {2}


# --- what people see ---


def test_how_well_a_table_is_looked_after() -> None:
    ours = snapshot(2, "replace", **{MAINTAIN_KEY: "run", "removed-files-size": "600"})
    appends = [snapshot(number, **{"added-files-size": "500"}) for number in (1, 3, 4)]
    table = facts(2 * HOUR, 30 * 60_000, 20 * 60_000, 60_000, files=HeadFiles((file(10),) * 5))
    history = History({each.snapshot_id: each for each in (*appends, ours)})
    table = replace(table, history=history)
    # Withheld or not, the files wait.
    for properties in ({}, {"thermocline.maintain.mode": "off"}):
        each = replace(table, properties=properties)
        standing = CareStanding.of(each, plan_upkeep(each, IN_TIER), NOW)
        assert (standing.backlog_files, standing.backlog_bytes) == (5, 50 * MB)
        assert (standing.snapshots, standing.oldest_snapshot_s) == (4, 7_200)
        # The first publish is two hours old.
        assert standing.compacted_ratio == 600 / 1_000
        assert (standing.last_run_s, standing.orphan_bytes) == (1_800, None)
    swept = {**SWEPT, "thermocline-maintain.orphan-bytes": "0"}
    each = replace(table, properties=swept)
    standing = CareStanding.of(each, plan_upkeep(each, IN_TIER), NOW)
    assert (standing.last_run_s, standing.orphan_bytes) == (0, 0)
    deleted = {**table.history.snapshots, 4: snapshot(4, "delete", **{"added-files-size": "9"})}
    each = replace(table, history=History(deleted))
    # What a DELETE adds is no publish.
    assert CareStanding.of(each, plan_upkeep(each, IN_TIER), NOW).compacted_ratio == 600 / 500
    quiet = facts(2 * HOUR)
    standing = CareStanding.of(quiet, plan_upkeep(quiet, IN_TIER), NOW)
    assert (standing.compacted_ratio, standing.last_run_s) == (None, None)


def test_it_tells_which_rows_aged_out_and_when() -> None:
    boundary = RetentionBoundary(3, 20 * 86_400_000_000)
    marks = [
        watermark(1),
        watermark(1, boundary=boundary),
        None,
        watermark(2, boundary=boundary),
    ]
    ages = (3 * HOUR, 2 * HOUR, HOUR, 60_000)
    history = History(
        {
            number: seam_snapshot(number, number - 1 or None, mark=mark)
            for number, mark in enumerate(marks, 1)
        }
    )
    table = replace(facts(*ages), history=history, boundary=boundary, schema=schema())

    def boundary_of(table: MaintenanceFacts) -> tuple[str | None, str | None, float | None]:
        standing = CareStanding.of(table, plan_upkeep(table, IN_TIER), NOW)
        return standing.expired_before, standing.expired_by, standing.expired_s

    assert boundary_of(table) == ("1970-01-21", "kafka_timestamp", 7_200)
    # What it was before is not retained.
    left = {number: each for number, each in history.snapshots.items() if number > 2}
    assert boundary_of(replace(table, history=History(left))) == (
        "1970-01-21",
        "kafka_timestamp",
        60,
    )
    dropped = replace(table, boundary=replace(boundary, field_id=99))
    assert boundary_of(dropped) == ("1970-01-21", None, 60)
    assert boundary_of(replace(table, boundary=None)) == (None, None, None)


# --- what is due ---

BY_COMMAND = Situation(NOW, by_command=True)
IN_TIER = Situation(NOW)
SWEPT = {"thermocline-maintain.orphans-ms": str(NOW)}


def kinds(table: MaintenanceFacts, situation: Situation = BY_COMMAND) -> list[type]:
    return [type(step) for step in plan_upkeep(table, situation).steps]


def test_nothing_is_due_at_a_new_table() -> None:
    assert plan_upkeep(facts(HOUR, properties=SWEPT), BY_COMMAND).steps == ()


def test_the_watermark_is_renewed_after_rewrites_and_before_an_expiry() -> None:
    files = HeadFiles((file(10),) * 5, manifests=(MB,) * 50)
    table = facts(*OLD, 60_000, needs_watermark=True, files=files)
    assert kinds(table) == [
        Compaction,
        ManifestRewrite,
        WatermarkRenewal,
        Expiry,
        OrphanRemoval,
    ]
    assert kinds(replace(table, needs_watermark=False))[2] is Expiry


def test_inside_tier_nothing_is_removed_unless_the_table_says_so() -> None:
    files = HeadFiles((file(10),) * 5)
    table = facts(*OLD, 60_000, files=files, properties={COMPACT: "true"})
    upkeep = plan_upkeep(table, IN_TIER)
    assert [type(step) for step in upkeep.steps] == [Compaction]
    assert upkeep.withheld == (
        "expire snapshots: only by `thermocline maintain`, or with thermocline.maintain.mode = on",
        "remove orphans: only by `thermocline maintain`, or with thermocline.maintain.mode = on",
    )
    on = replace(table, properties={"thermocline.maintain.mode": "on"})
    assert kinds(on, IN_TIER) == [Compaction, Expiry, OrphanRemoval]


def test_inside_tier_a_table_that_create_did_not_make_is_left_alone() -> None:
    table = facts(HOUR, files=HeadFiles((file(10),) * 5), versions_ms=(NOW,) * 75)
    upkeep = plan_upkeep(replace(table, properties=SWEPT), IN_TIER)
    assert upkeep.steps == ()
    why = (
        "only by `thermocline maintain`, or with thermocline-maintain.compact = true, as `thermocline create` sets it, "
        "or thermocline.maintain.mode = on"
    )
    assert upkeep.withheld == (f"compact files: {why}", f"keep metadata files: {why}")
    for properties in ({COMPACT: "true"}, {"thermocline.maintain.mode": "on"}):
        due = kinds(replace(table, properties=SWEPT | properties), IN_TIER)
        assert due == [Compaction, LogLength]
    assert kinds(replace(table, properties=SWEPT)) == [Compaction, LogLength]


def test_mode_off_means_nothing_by_the_command_either() -> None:
    table = facts(HOUR, properties={"thermocline.maintain.mode": "off"})
    upkeep = plan_upkeep(table, BY_COMMAND)
    assert upkeep.steps == ()
    assert upkeep.withheld == ("everything: thermocline.maintain.mode = off",)


def test_rewrites_step_back_from_another_writers_unless_told_otherwise() -> None:
    foreign = snapshot(2, "replace", **{"added-data-files": "1"})
    ours = snapshot(2, "replace", **{"added-data-files": "1", MAINTAIN_KEY: "run"})
    dangling = snapshot(2, "replace", **{"removed-delete-files": "1"})
    table = facts(DAY, 3 * HOUR, properties=SWEPT, files=HeadFiles((file(10),) * 5))
    for second, due in ((foreign, []), (ours, [Compaction]), (dangling, [Compaction])):
        history = History({1: snapshot(1), 2: second})
        assert kinds(replace(table, history=history)) == due
    rewritten = replace(table, history=History({1: snapshot(1), 2: foreign}))
    assert plan_upkeep(rewritten, BY_COMMAND).withheld == (
        "compact files: another writer rewrote files 3 h ago; thermocline.maintain.mode = on does it all the same",
    )
    on = {**SWEPT, "thermocline.maintain.mode": "on"}
    assert kinds(replace(rewritten, properties=on)) == [Compaction]
    long_ago = replace(rewritten, committed_ms={1: NOW - 10 * DAY, 2: NOW - 9 * DAY})
    assert Compaction in kinds(long_ago)


def test_few_snapshots_wait_for_others_and_not_for_ever() -> None:
    young = facts(5 * DAY + HOUR, 60_000, properties=SWEPT)
    young = replace(young, log=((NOW - 5 * DAY - HOUR, 1), (NOW - 5 * DAY, 2)))
    assert kinds(young) == []
    old = facts(5 * DAY + 3 * HOUR, 60_000, log=((NOW - 9 * DAY, 1), (NOW - 5 * DAY, 2)))
    assert Expiry in kinds(old)


def test_a_long_history_goes_a_thousand_snapshots_at_a_time() -> None:
    ages = [30 * DAY - number for number in range(2_500)]
    table = facts(*ages, 60_000, properties=SWEPT)
    [step] = plan_upkeep(table, BY_COMMAND).steps
    assert isinstance(step, Expiry)
    # One is promised: it was the head until a minute ago.
    assert step.snapshots == 2_499
    assert expirable(table, Retention(), step.before_ms, NOW) == frozenset(range(1, 1_001))


def test_a_long_history_of_a_branch_lets_nothing_go_that_is_promised() -> None:
    # A branch with an age of its own: its snapshots go, and are younger than the head of a minute ago.
    table = facts(9 * DAY, 60_000, properties=SWEPT)
    branch = {number: snapshot(number) for number in range(3, 2_000)}
    ages = {number: NOW - 8 * DAY + number for number in branch}
    last = SnapshotRef(1_999, is_branch=True, max_snapshot_age_ms=DAY)
    table = replace(
        table,
        history=History({**table.history.snapshots, **branch}),
        committed_ms={**table.committed_ms, **ages},
        refs={**table.refs, "audit": last},
    )
    [step] = plan_upkeep(table, BY_COMMAND).steps
    assert isinstance(step, Expiry)
    assert step.before_ms <= table.committed_ms[1]


def test_an_expiry_that_is_left_out_needs_no_renewal() -> None:
    table = facts(*OLD, 60_000, needs_watermark=True, properties=SWEPT)
    upkeep = plan_upkeep(table, BY_COMMAND)
    assert list(map(type, upkeep.steps)) == [WatermarkRenewal, Expiry]
    assert upkeep.without({Expiry}).steps == ()


def test_a_branch_with_a_shorter_life_than_the_promise_stops_the_expiry_by_name() -> None:
    table = facts(30 * DAY, 9 * DAY, 60_000, properties=SWEPT)
    short = SnapshotRef(3, is_branch=True, max_snapshot_age_ms=HOUR)
    upkeep = plan_upkeep(replace(table, refs={MAIN: short}), BY_COMMAND)
    assert upkeep.steps == ()
    assert upkeep.withheld == (
        "expire snapshots: branch main has a max-snapshot-age-ms or min-snapshots-to-keep of its own, by which 1 "
        "snapshots would go that servers may still read; remove it, and set history.expire.max-snapshot-age-ms of the "
        "table",
    )


def test_nothing_is_removed_where_other_tables_may_have_the_files() -> None:
    table = facts(*OLD, 60_000, properties={"gc.enabled": "false"})
    upkeep = plan_upkeep(table, BY_COMMAND)
    assert upkeep.steps == ()
    assert upkeep.withheld == (
        "expire snapshots: gc.enabled = false",
        "remove orphans: gc.enabled = false",
    )


def test_orphans_are_looked_for_once_a_day() -> None:
    def swept(at_ms: int) -> MaintenanceFacts:
        return facts(HOUR, properties={"thermocline-maintain.orphans-ms": str(at_ms)})

    assert kinds(swept(NOW - DAY)) == [OrphanRemoval]
    assert kinds(swept(NOW - DAY + 1)) == []


VERSIONS, OWN = "write.metadata.previous-versions-max", "thermocline-maintain.own-versions"


def log_length(
    commits: int, older: int = 0, present: int = 100, own: int | None = None
) -> tuple[int, int] | None:
    """What the log gets for so many commits within the grace, and so many older ones: its length and the table's own."""
    properties = {VERSIONS: str(present)} | ({} if own is None else {OWN: str(own)})
    log = (*[NOW - GRACE - 1] * older, *[NOW - HOUR] * commits)
    table = facts(HOUR, properties=SWEPT | properties, versions_ms=log)
    steps = plan_upkeep(table, BY_COMMAND).steps
    if not steps:
        return None
    [step] = steps
    assert isinstance(step, LogLength)
    return step.versions, step.own


def test_the_metadata_log_gets_as_long_as_the_grace() -> None:
    assert log_length(74, older=26) is None
    assert log_length(75, older=25) == (200, 100)
    assert log_length(150, present=200, own=100) == (400, 100)
    # A publish a minute: it stays.
    assert log_length(360, present=800, own=100) is None
    assert log_length(5_000, present=5000, own=100) is None
    assert log_length(5_000, present=4000) == (5_000, 4_000)
    table = facts(HOUR, properties=SWEPT, versions_ms=(NOW,) * 75)
    assert plan_upkeep(table, BY_COMMAND).steps[0].reason == (
        "75 commits within the grace of 7,200 s; write.metadata.previous-versions-max = 200"
    )


def test_a_burst_of_commits_lengthens_the_log_for_a_while_only() -> None:
    # A hundred in a second are a hundred, not a pace.
    assert log_length(100) == (200, 100)
    assert log_length(40, older=160, present=200, own=100) is None
    assert log_length(37, older=163, present=200, own=100) == (100, 100)
    assert log_length(3, older=997, present=3200, own=100) == (100, 100)
    # Iceberg takes 0 for one.
    assert log_length(0, present=0) is None
    assert log_length(1, present=0) == (2, 1)
    # What a person set is the table's own.
    assert log_length(3, present=3200) is None
    assert log_length(3, present=50, own=100) is None


def test_manifests_are_written_anew_where_there_are_many_small_ones() -> None:
    def with_manifests(*sizes: int) -> MaintenanceFacts:
        return facts(HOUR, properties=SWEPT, files=HeadFiles(manifests=sizes))

    assert kinds(with_manifests(*[MB] * 49)) == []
    assert kinds(with_manifests(*[MB] * 50)) == [ManifestRewrite]
    assert kinds(with_manifests(*[8 * MB] * 50)) == []


def test_each_step_says_why_and_what_it_costs() -> None:
    small = (file(10),) * 5
    dead = (FileSize((2,), 600 * MB, 1_000, 300, 1),)
    files = HeadFiles((*small, *dead), (MB,) * 60, delete_files=1)
    assert files.bytes == 650 * MB
    table = facts(*OLD, 60_000, needs_watermark=True, files=files)
    steps = plan_upkeep(table, BY_COMMAND).steps
    assert [(step.reason, step.cost_bytes, step.backlog, step.score) for step in steps] == [
        ("5 small files and 1 files with deleted rows in 2 partitions", 650 * MB, 6, 2.0),
        ("60 manifests", 60 * MB, 60, 1.2),
        ("commits above the watermark, which expiry would hide", 0, 1, 1.0),
        ("11 snapshots", 60 * MB, 11, 1.1),
        ("not looked for within a day", 0, 1, 1.0),
    ]
    assert isinstance(steps[0], Compaction)
    assert steps[0].drops_deletes
    upkeep = plan_upkeep(table, BY_COMMAND)
    assert upkeep.urgency == (2.0,)
    left = upkeep.without({Compaction})
    assert left.steps == steps[1:]
    # An expiry without the renewal would be refused each time.
    assert upkeep.without({WatermarkRenewal}).steps == (steps[0], steps[1], steps[4])
    assert StepResult() == StepResult(0, 0, 0.0)


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        (
            "thermocline.maintain.mood",
            "on",
            "unknown property thermocline.maintain.mood; known are thermocline.maintain.mode, "
            "thermocline.maintain.pin_grace_s, thermocline.maintain.max_step_s.",
        ),
        (
            "thermocline.maintain.mode",
            "yes",
            "property thermocline.maintain.mode is 'yes'; it must be one of off, auto, on.",
        ),
        (
            "thermocline.maintain.pin_grace_s",
            "2h",
            "property thermocline.maintain.pin_grace_s is '2h'; it must be a whole number above 0.",
        ),
        (
            "history.expire.max-snapshot-age-ms",
            "-1",
            "property history.expire.max-snapshot-age-ms is '-1'; it must be a whole number from 0 on.",
        ),
        (
            "thermocline.maintain.max_step_s",
            "9" * 5_000,
            "property thermocline.maintain.max_step_s has 5000 digits; it must be a whole number below 2^63.",
        ),
        (
            "thermocline.maintain.pin_grace_s",
            str(2**63),
            "property thermocline.maintain.pin_grace_s has 19 digits; it must be a whole number below 2^63.",
        ),
    ],
)
def test_a_property_that_does_not_fit_is_refused_by_name(
    key: str, value: str, what: str
) -> None:
    with pytest.raises(BadBinding) as refused:
        plan_upkeep(facts(HOUR, properties={key: value}), BY_COMMAND)
    assert refused.value.message == f"lake.net.flows: {what}"


def test_a_step_as_long_as_can_be_said_is_one_of_all_there_is() -> None:
    """Iceberg never expires snapshots of this age; both are numbers that it reads."""
    longest = str(2**63 - 1)
    properties = {
        "thermocline.maintain.max_step_s": longest,
        "thermocline.maintain.pin_grace_s": longest,
        "history.expire.max-snapshot-age-ms": longest,
        "thermocline-maintain.orphans-ms": longest,
    }
    table = facts(*OLD, files=HeadFiles((file(10),) * 5), properties=properties)
    [step] = plan_upkeep(table, BY_COMMAND).steps
    assert isinstance(step, Compaction)
    assert step.rules.budget_bytes < 2**63
    assert step.max_files is None


@given(
    st.lists(st.integers(1, 99), min_size=2, max_size=60)
    | st.lists(st.integers(60, 74), min_size=2, max_size=12),
    st.sampled_from([None, 1, 2, 8]),
    st.integers(0, 2_000),
)
def test_what_is_due_comes_out_as_fewer_files(
    sizes: list[int], cores: int | None, step_bytes: int
) -> None:
    """By Iceberg's ``BinPackRewriteFilePlanner`` (1.12) for files of these sizes, the target being 100."""
    files = [FileSize((1,), size, 1) for size in sizes]
    rules = CompactionRules.of(100, step_bytes, files)
    for backlog in backlogs(files, rules):
        small = [each.bytes for each in files if rules.is_small(each)]
        assert len(small) == backlog.files
        groups = [
            group for group in packed(small, rules.group_bytes(cores)) if is_rewritten(group)
        ]
        assert sum(map(output_files, groups)) < sum(map(len, groups))


def packed(sizes: list[int], limit: int) -> list[list[int]]:
    """``BinPacking.ListPacker`` with a lookback of one and the largest bins first."""
    bins: list[list[int]] = []
    for size in sizes:
        if not bins or sum(bins[-1]) + size > limit:
            bins.append([])
        bins[-1].append(size)
    return bins


def is_rewritten(group: list[int]) -> bool:
    """``SizeBasedFileRewritePlanner``: enough files, enough content, or too much."""
    return len(group) > 1 and (len(group) >= 5 or sum(group) > 100)


def output_files(group: list[int]) -> int:
    """``SizeBasedFileRewritePlanner.expectedOutputFiles``, where the largest file is 180 % of the target."""
    size = sum(group)
    if size < 100:
        return 1
    above, below = -(-size // 100), size // 100
    if size % 100 > 75:
        return above
    return below if size / below < 110 else above


def test_options_have_their_defaults() -> None:
    options = parse_maintain(TABLE, {})
    assert (options.mode, options.pin_grace_s, options.max_step_s) == ("auto", 7_200, 60)
