"""``verify`` of keyed tables over pyiceberg and a log in memory: what is planted is found, and a sound table has nothing."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from planner.offsets import OffsetRange
from planner.schema import Column
from planner.seam.watermark import Outcomes
from planner.verification.findings import Fault, Kind, Report
from tests.doubles.log import MemoryRecord
from tests.fixtures.verified_keys import BINDING, VerifiedKeys
from thermocline import cold_keys

Make = Callable[..., VerifiedKeys]


@pytest.fixture
def keys_of(tmp_path: Path) -> Iterator[Make]:
    """Build a keyed table: ``keys_of(partitions=2, on_error="skip")``."""
    made: list[VerifiedKeys] = []

    def make(
        partitions: int = 1, kind: type[VerifiedKeys] = VerifiedKeys, **binding: object
    ) -> VerifiedKeys:
        root = tmp_path / str(len(made))
        root.mkdir()
        made.append(kind(root, replace(BINDING, **binding), partitions))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def keys(keys_of: Make) -> VerifiedKeys:
    return keys_of()


def faults_of(keys: VerifiedKeys, **extent: object) -> list[tuple[Kind, OffsetRange | None]]:
    """Return the findings, which both ways of verifying share but for values."""
    return [(each.kind, each.offsets) for each in keys.verify(**extent).findings]


def messages(report: Report) -> list[str]:
    return [each.message for each in report.findings]


def test_a_sound_table_has_no_findings(keys_of: Make) -> None:
    keys = keys_of(partitions=2, on_error="skip")
    for key in range(6):
        keys.put_row(key, "new", key % 2)
    keys.publish_changes()
    keys.put_row(0, "again")
    keys.drop_row(1, 1)
    keys.drop_row(2)
    keys.put_row(2, "back")
    keys.drop_row(9, 1)  # never was
    keys.put(b"no JSON, and no key")
    keys.publish_changes()
    keys.drop_row(0)  # untiered: the tail is no business of this
    for with_values in (True, False):
        report = keys.verify(with_values=with_values, window_rows=3, fetch_offsets=5)
        assert (report.findings, report.changes) == ((), ())
        assert report.outcomes == Outcomes(rows=5, deletes=2, superseded=4, skipped=1)
        assert report.compared_offsets == report.covered_offsets == 12
        assert report.cold_rows == 5
    assert keys.verify().unchecked == ()
    assert report.unchecked == ("values: only which keys have a row was asked for",)


def test_an_older_row_is_stale(keys: VerifiedKeys) -> None:
    for key in (1, 2):
        keys.put_row(key, "old")
    keys.publish_changes()
    keys.put_row(1, "new")
    keys.publish_changes(spare={1}, lose={1})
    for with_values in (True, False):
        report = keys.verify(with_values=with_values)
        assert messages(report) == [
            "partition 0, offset 0: cold has a row of a key whose newest change below the watermark is at offset 2"
        ]
        (fault,) = report.findings
        assert (fault.kind, fault.rows, len(fault.files)) == (Kind.STALE, 1, 1)


def test_a_newest_row_that_is_not_there_is_missing(keys: VerifiedKeys) -> None:
    for key in (1, 2, 3):
        keys.put_row(key, "old")
    keys.publish_changes(lose={2, 3})
    for with_values in (True, False):
        assert faults_of(keys, with_values=with_values) == [
            (Kind.MISSING, OffsetRange(0, 1, 3))
        ]
    assert messages(keys.verify()) == [
        "partition 0, offsets 1 to 2: the log has the newest change of a key there, and cold has no row of it"
    ]


def test_a_row_of_a_deleted_key_is_found(keys: VerifiedKeys) -> None:
    keys.put_row(1, "old")
    keys.publish_changes()
    keys.drop_row(1)
    keys.publish_changes(spare={1})
    report = keys.verify()
    assert [each.kind for each in report.findings] == [Kind.UNDELETED]
    assert messages(report) == [
        "partition 0, offset 0: cold has a row of a key that was deleted at offset 1"
    ]


def test_two_rows_of_a_key_are_found_even_below_the_log_start(keys: VerifiedKeys) -> None:
    keys.put_row(1, "old")
    keys.put_row(2, "old")
    keys.publish_changes()
    keys.put_row(1, "new")
    keys.publish_changes(spare={1})
    report = keys.verify()
    assert messages(report) == ["partition 0, offset 2: cold has 2 rows of one key"]
    assert report.findings[0].kind is Kind.DUPLICATE_KEY
    keys.log.delete_records("flows", 0, 3)
    report = keys.verify()
    assert messages(report) == ["partition 0, offset 2: cold has 2 rows of one key"]
    assert report.unchecked == (
        "partition 0, offsets 0 to 2: the log starts at 3, so only that no key is there twice",
    )


def test_an_update_that_gives_a_key_two_rows_is_what_readers_are_told(
    keys: VerifiedKeys,
) -> None:
    keys.put_row(1, "one")
    keys.put_row(2, "two")
    keys.publish_changes()
    keys.foreign(lambda row: row["id"] == 1, lambda row: row | {"id": 2})
    [finding] = keys.verify().findings
    assert finding.kind is Kind.REFUSED
    assert "committed by another writer above the watermark and a key has two rows since" in (
        finding.message
    )


def test_other_values_than_those_of_the_log_are_found(keys: VerifiedKeys) -> None:
    keys.put_row(1, "one")
    keys.put_row(2, "two")
    keys.publish_changes(change=lambda row: row | ({"load": -1.0} if row["id"] == 2 else {}))
    assert messages(keys.verify()) == [
        "partition 0, offset 1: cold holds other values than the log, in load"
    ]
    assert keys.verify(with_values=False).is_clean


def test_what_another_writer_changed_is_no_fault(keys: VerifiedKeys) -> None:
    for key in (1, 2, 3):
        keys.put_row(key, "old")
    keys.publish_changes()
    keys.foreign(lambda row: row["id"] == 1, lambda row: row | {"state": "by hand"})
    keys.foreign(lambda row: row["id"] == 2, lambda row: None)
    report = keys.verify()
    assert report.is_clean
    assert [(each.changed, each.deleted) for each in report.changes] == [(1, 0), (0, 1)]
    # A change of the key makes it a row of ours again.
    keys.put_row(1, "new")
    keys.drop_row(2)
    keys.publish_changes()
    report = keys.verify()
    assert (report.findings, report.changes) == ((), ())


def test_a_row_of_no_change_is_found_where_the_log_is_whole(keys: VerifiedKeys) -> None:
    keys.put_row(1, "one")
    keys.put_row(2, "two")
    keys.publish_changes(change=lambda row: row | ({"id": 7} if row["id"] == 2 else {}))
    report = keys.verify()
    assert [(each.kind, each.offsets) for each in report.findings] == [
        (Kind.VALUE, OffsetRange(0, 1, 2)),
        (Kind.SURPLUS, OffsetRange(0, 1, 2)),
        (Kind.MISSING, OffsetRange(0, 1, 2)),
    ]


def test_keys_that_retention_took_from_the_log_are_no_fault(keys: VerifiedKeys) -> None:
    for key in (1, 2, 3):
        keys.put_row(key, "old")
    keys.publish_changes()
    keys.put_row(1, "new")
    keys.drop_row(2)
    keys.publish_changes()
    keys.log.delete_records("flows", 0, 4)
    report = keys.verify()
    assert report.is_clean
    assert report.outcomes == Outcomes(deletes=1)
    assert report.compared_offsets == 1


def test_retention_during_the_run_takes_what_was_read_before_it(keys: VerifiedKeys) -> None:
    """Of a key's changes the newer may go unread, and the older must not stand for it."""
    keys.put_row(1, "old")
    for key in range(10, 16):
        keys.put_row(key, "x")
    keys.drop_row(1)
    keys.put_row(16, "x")
    keys.publish_changes()
    keys.expire_on_batch(after=1, before=8)
    report = keys.verify(fetch_offsets=4)
    assert report.findings == ()
    assert report.unchecked[-1] == (
        "partition 0, offsets 4 to 7: retention removed them while they were verified"
    )


def test_a_compacted_log_says_nothing_of_what_it_cleaned(keys: VerifiedKeys) -> None:
    for key in (1, 2, 3):
        keys.put_row(key, "old")
    keys.put_row(1, "new")
    keys.publish_changes()
    keys.put_row(2, "above the watermark")
    keys.put_row(4, "above the watermark")
    keys.log.compact("flows", 0)
    report = keys.verify(compacted=True)
    assert report.is_clean
    assert report.unchecked == (
        "1 rows whose keys have no change in the log from there to the watermark: the log cleaner removed them, for a newer "
        "change, or with a delete that it removed, too",
    )
    # Of a topic that is not compacted it is a row of no record.
    assert faults_of(keys) == [(Kind.SURPLUS, OffsetRange(0, 1, 2))]


def test_a_cleaner_that_works_meanwhile_makes_no_row_missing(keys: VerifiedKeys) -> None:
    """It takes a key's row after it was read, and its delete before."""
    keys.put_row(1, "old")
    for key in range(10, 24):
        keys.put_row(key, "x")
    keys.drop_row(1)
    keys.put_row(25, "x")
    keys.publish_changes()
    keys.put_row(1, "above the watermark")
    keys.put_row(26, "x")
    batches = iter(range(1))

    def clean() -> None:
        if next(batches, None) is None:
            keys.log.compact("flows", 0)

    keys.on_batch = clean
    report = keys.verify(compacted=True)
    assert report.is_clean
    assert report.outcomes.rows == 16  # the old row was taken for the newest of its key


def test_keys_are_joined_bucket_by_bucket(
    keys: VerifiedKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in range(20):
        keys.put_row(key, "old")
    keys.publish_changes(lose={5})
    for key in range(10):
        keys.drop_row(key)
    keys.publish_changes(spare={7})
    monkeypatch.setattr(cold_keys, "BUCKET_ENTRIES", 6)
    report = keys.verify()
    assert report.outcomes == Outcomes(rows=10, deletes=10, superseded=10)
    assert [(each.kind, each.offsets) for each in report.findings] == [
        (Kind.UNDELETED, OffsetRange(0, 7, 8))
    ]


def test_a_key_in_two_partitions_is_said_and_not_judged(keys_of: Make) -> None:
    """Deleted in one and written in the other is what a tierer lets pass."""
    keys = keys_of(partitions=2)
    keys.put_row(1, "old")
    keys.publish_changes()
    keys.drop_row(1)
    keys.publish_changes()
    keys.put_row(1, "moved", 1)
    keys.publish_changes()
    report = keys.verify()
    assert report.is_clean
    said = ("1 keys with changes in two partitions: offsets do not say which is the newest",)
    assert report.unchecked == said
    keys.log.delete_records("flows", 1, 1)
    assert keys.verify().is_clean


def test_a_rebuilt_table_is_compared_as_it_was_rebuilt(keys: VerifiedKeys) -> None:
    for key in (1, 2, 3):
        keys.put_row(key, "old", late=key)
    keys.publish_changes()
    keys.put_row(1, "new", late=9)
    keys.publish_changes()
    keys.add_column("late", pa.int64())
    # What was tiered before stays NULL in the column.
    assert keys.verify().is_clean
    keys.put_row(2, "new", late=9)
    keys.publish_changes()
    assert keys.verify().is_clean
    keys.publish_changes(rebuild=True)
    report = keys.verify()
    assert (report.findings, report.unchecked) == ((), ())
    keys.put_row(3, "new", late=9)
    keys.publish_changes(change=lambda row: row | {"late": 0})
    assert messages(keys.verify()) == [
        "partition 0, offset 5: cold holds other values than the log, in late"
    ]


def test_a_column_of_the_key_may_be_renamed(keys: VerifiedKeys) -> None:
    keys.put_row(1, "old")
    keys.put_row(2, "old")
    keys.publish_changes()
    with keys.table().update_schema() as update:
        update.rename_column("id", "p")  # as ours are named
    assert keys.verify().is_clean
    keys.put_row(1, "new")
    keys.publish_changes(lose={1})
    assert faults_of(keys) == [(Kind.MISSING, OffsetRange(0, 2, 3))]


class Composite(VerifiedKeys):
    """Its key is of every kind of value that another engine may take for another one."""

    columns = (
        Column(0, "code", pa.uuid()),
        Column(0, "p", pa.string()),
        Column(0, "n", pa.decimal128(20, 3)),
        Column(0, "day", pa.date32()),
        Column(0, "t", pa.timestamp("us", tz="UTC")),
        Column(0, "raw", pa.binary()),
        Column(0, "state", pa.string()),
        Column(0, "load", pa.float64()),
    )
    key = ("code", "p", "n", "day", "t", "raw")


def test_keys_of_many_kinds_are_joined(keys_of: Make) -> None:
    keys = keys_of(kind=Composite)
    one = {
        "code": "00000000-0000-0000-0000-0000000000ff",
        "p": "a",
        "n": 1,
        "day": "2026-01-01",
        "t": "2026-01-01T00:00:00Z",
        "raw": "0001",
    }
    others = [
        one | {"code": "ff000000-0000-0000-0000-000000000000"},
        one | {"p": "A"},
        one | {"p": "a "},
        one | {"p": ""},
        one | {"n": 1.001},
        one | {"day": "2026-01-02"},
        one | {"t": "2026-01-01T00:00:00.000001Z"},
        one | {"raw": "0000"},
    ]
    for key in (one, *others):
        keys.put_row(key, "new")
    keys.publish_changes()
    keys.put_row(one, "again")
    keys.drop_row(others[0])
    keys.publish_changes()
    report = keys.verify()
    assert (report.findings, report.cold_rows) == ((), 8)
    assert report.outcomes == Outcomes(rows=8, deletes=1, superseded=2)
    keys.foreign(lambda row: row["p"] == "A", lambda row: row | {"p": "a "})
    assert [each.kind for each in keys.verify().findings] == [Kind.REFUSED]


def test_a_record_that_a_person_gave_up_is_no_change(keys: VerifiedKeys) -> None:
    keys.put_row(1, "old")
    keys.put(b"no JSON, and no key")
    skipped = keys.put_row(1, "new")
    keys.skip((0, 1), (0, skipped))
    keys.publish_changes()
    report = keys.verify()
    assert (report.findings, report.decisions) == (
        (),
        ("record skipped: partition 0, offset 1", "record skipped: partition 0, offset 2"),
    )
    assert report.outcomes == Outcomes(rows=1, skipped=2)


def test_only_what_was_tiered_since_is_compared(keys: VerifiedKeys) -> None:
    for key in (1, 2):
        keys.put_row(key, "old")
    keys.publish_changes(lose={2})
    head = keys.table().metadata.current_snapshot()
    assert head is not None
    keys.wait_past(head.timestamp_ms)
    keys.put_row(1, "new")
    keys.publish_changes()
    assert keys.verify(since_ms=head.timestamp_ms).is_clean
    assert faults_of(keys) == [(Kind.MISSING, OffsetRange(0, 1, 2))]


def test_what_does_not_decode_below_the_watermark_is_found(keys: VerifiedKeys) -> None:
    keys.put_row(1, "old")
    keys.put(json.dumps({"state": "without a key"}).encode())
    keys.advance_over(2)
    report = keys.verify()
    assert [(each.kind, each.offsets) for each in report.findings] == [
        (Kind.OUTCOME, OffsetRange(0, 1, 2)),
        (Kind.MISSING, OffsetRange(0, 0, 1)),
    ]


def test_another_way_to_read_keys_is_what_readers_are_told(keys: VerifiedKeys) -> None:
    keys.put_row(1, "old")
    keys.publish_changes()
    with keys.table().transaction() as changed:
        changed.set_properties({"thermocline.on_error": "skip"})
    report = keys.verify()
    (fault,) = report.findings
    assert isinstance(fault, Fault)
    assert fault.kind is Kind.REFUSED
    assert "`thermocline rebuild lake.net.flows`" in fault.message
    assert report.unchecked == ("the rows: see the refusal",)


#: (kind, partition, offset)
Finding = tuple[Kind, int, int]


class Story:
    """Random changes of ten keys, publishes that go wrong now and then, and what a dictionary says is wrong."""

    def __init__(self, keys: VerifiedKeys, seed: int) -> None:
        self.keys = keys
        self.chance = random.Random(seed)
        #: By key, partition and offset of its newest change, and whether it is a row.
        self.newest: dict[int, tuple[int, int, bool]] = {}
        self.tiered: dict[int, tuple[int, int, bool]] = {}

    def change(self) -> None:
        key = self.chance.randrange(10)
        partition = key % 2
        is_row = self.chance.random() < 2 / 3
        if is_row:
            at = self.keys.put_row(key, f"s{self.chance.random()}", partition)
        else:
            at = self.keys.drop_row(key, partition)
        self.newest[key] = partition, at, is_row

    def abort(self) -> None:
        transaction = self.keys.log.begin()
        transaction.append("flows", 0, MemoryRecord(b'{"state": "aborted"}', b"2"))
        transaction.abort()

    def publish(self) -> None:
        few = self.chance.choice((0, 0, 3))
        lose, spare = (self.chance.sample(range(10), few) for _ in range(2))
        self.keys.publish_changes(lose=lose, spare=spare)
        self.tiered = dict(self.newest)

    def findings(self, starts: Sequence[int]) -> set[Finding]:
        """What is wrong with the newest changes of the log from ``starts`` on."""
        rows: dict[int, list[int]] = {}
        for row in self.keys.table().scan().to_arrow().to_pylist():
            rows.setdefault(row["id"], []).append(row["kafka_offset"])
        faults: set[Finding] = set()
        for key in rows.keys() | self.tiered.keys():
            partition, at, is_row = self.tiered[key]
            is_retained = at >= starts[partition]
            match rows.get(key, []):
                case [] if is_row and is_retained:
                    faults.add((Kind.MISSING, partition, at))
                case [row] if row < at and is_retained:
                    faults.add((Kind.STALE if is_row else Kind.UNDELETED, partition, row))
                case [_, _, *_] as several:
                    faults.add((Kind.DUPLICATE_KEY, partition, max(several)))
                case _:
                    pass
        return faults


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(each, marks=pytest.mark.soak) for each in range(4, 80))]
)
def test_what_a_dictionary_says_is_wrong_is_what_is_found(keys_of: Make, seed: int) -> None:
    keys = keys_of(partitions=2, on_error="skip")
    story = Story(keys, seed)
    for _ in range(4):
        for _ in range(story.chance.randrange(1, 16)):
            story.change()
        if story.chance.random() < 0.5:
            story.abort()
            keys.put(b"no change")
        story.publish()
    starts = [0, 0]
    if story.chance.random() < 0.5:
        starts = [story.chance.randrange(8), story.chance.randrange(8)]
        ends = {
            each.partition: each.log_end
            for each in keys.log.measure(["flows"])["flows"].partitions
        }
        starts = [min(start, ends[at]) for at, start in enumerate(starts)]
        for at, start in enumerate(starts):
            keys.log.delete_records("flows", at, start)
    is_compacted = story.chance.random() < 0.5
    if is_compacted:
        for at in range(2):
            keys.log.compact("flows", at)
    expected = story.findings(starts)
    report = keys.verify(compacted=is_compacted, window_rows=5, fetch_offsets=9)
    findings = {
        (fault.kind, fault.offsets.partition, at)
        for fault in report.findings
        if fault.offsets is not None
        for at in range(fault.offsets.start, fault.offsets.stop)
    }
    assert findings == expected
    assert keys.verify(compacted=is_compacted, with_values=False).is_clean is not bool(expected)
