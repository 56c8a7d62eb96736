"""``verify`` over pyiceberg tables and a log in memory: what is planted is found, and named."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from planner.offsets import OffsetRange, OffsetVector
from planner.seam.snapshots import TAG
from planner.seam.watermark import Outcomes, format_watermark, parse_watermark
from planner.verification.findings import Fault, Kind
from tests.doubles.log import MemoryRecord
from tests.fixtures.verification import Make, VerifiedLake


@pytest.fixture
def verified_lake(lake_of: Make) -> VerifiedLake:
    return lake_of()


def faults_of(verified_lake: VerifiedLake, **extent: object) -> dict[Kind, Fault]:
    report = verified_lake.verify(**extent)
    kinds = {finding.kind: finding for finding in report.findings}
    assert len(kinds) == len(report.findings), report.findings
    return kinds


def test_a_sound_table_has_no_findings_and_every_record_one_outcome(lake_of: Make) -> None:
    verified_lake = lake_of(partitions=3, on_error="skip")
    for partition in range(3):
        verified_lake.produce(20, partition)
        verified_lake.put(None, partition)
        verified_lake.put(b"not json", partition)
    verified_lake.tier()
    verified_lake.produce(5, 1)
    verified_lake.tier()
    verified_lake.produce(4, 2)  # untiered: the tail is no business of this
    for with_values in (True, False):
        report = verified_lake.verify(with_values=with_values, window_rows=11, fetch_offsets=17)
        assert report.findings == ()
        assert report.outcomes == Outcomes(rows=65, skipped=3, tombstones=3)
        assert report.compared_offsets == report.covered_offsets == 71
        assert report.cold_rows == 65


#: Of the first record that ``VerifiedLake.produce`` makes, less one.
FIRST_MS = 1_700_000_000_000


def late(verified_lake: VerifiedLake, timestamp_ms: int | None) -> None:
    value = b'{"host": "late"}'
    verified_lake.log.append("flows", 0, MemoryRecord(value, timestamp_ms=timestamp_ms))


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_rows_that_aged_out_are_an_outcome_and_no_fault(lake_of: Make, on_error: str) -> None:
    """Of before the boundary moved, and late ones that never were rows; one without a time stays."""
    verified_lake = lake_of(on_error=on_error)
    late(verified_lake, None)
    verified_lake.produce(10)
    verified_lake.tier()
    verified_lake.age(FIRST_MS + 4)
    late(verified_lake, 0)
    verified_lake.produce(2)
    verified_lake.put(None)
    verified_lake.tier()
    for with_values in (True, False):
        report = verified_lake.verify(with_values=with_values, window_rows=3)
        assert (report.findings, report.changes) == ((), ())
        assert report.outcomes == Outcomes(rows=10, tombstones=1, expired=4)
        assert report.cold_rows == 10


def test_a_row_that_should_have_aged_out_is_a_fault(verified_lake: VerifiedLake) -> None:
    verified_lake.produce(3)
    verified_lake.tier()
    late(verified_lake, 0)
    rows, _ = verified_lake.rows()
    verified_lake.age(FIRST_MS + 2)
    _, mark = verified_lake.rows()
    assert mark.outcomes == Outcomes(expired=1)
    verified_lake.publish(rows, replace(mark, outcomes=Outcomes(rows=rows.num_rows)))
    faults = faults_of(verified_lake)
    assert faults.keys() == {Kind.OUTCOME}
    assert faults[Kind.OUTCOME].message == (
        "partition 0, offset 3: cold has rows of records that are tombstones, are too old or do not decode"
    )


def test_a_row_above_the_boundary_that_went_with_it_is_missing(
    verified_lake: VerifiedLake,
) -> None:
    verified_lake.produce(3)
    verified_lake.tier(skip=(2,))
    verified_lake.age(FIRST_MS + 2)
    faults = faults_of(verified_lake)
    assert faults.keys() == {Kind.MISSING}
    assert faults[Kind.MISSING].offsets == OffsetRange(0, 2, 3)


def test_a_duplicate_is_named_by_offset_and_file(verified_lake: VerifiedLake) -> None:
    verified_lake.produce(10)
    verified_lake.tier(lambda rows: pa.concat_tables([rows, rows.slice(4, 1)]))
    faults = faults_of(verified_lake)
    duplicate = faults.pop(Kind.DUPLICATE)
    assert faults == {Kind.CHAIN: faults[Kind.CHAIN]}  # 11 rows of 10 offsets
    assert duplicate.offsets == OffsetRange(0, 4, 5)
    assert duplicate.message == "partition 0, offset 4: cold has more than one row each"
    assert duplicate.files == tuple(
        task.file.file_path.rsplit("/", 1)[-1]
        for task in verified_lake.table().scan().plan_files()
    )


def test_a_duplicate_is_found_below_the_log_start_too(verified_lake: VerifiedLake) -> None:
    verified_lake.produce(10)
    verified_lake.tier(lambda rows: pa.concat_tables([rows, rows.slice(4, 2)]))
    verified_lake.log.delete_records("flows", 0, 8)
    report = verified_lake.verify(fetch_offsets=3)
    assert [f.offsets for f in report.findings if f.kind is Kind.DUPLICATE] == [
        OffsetRange(0, 4, 6)
    ]
    assert report.unchecked == (
        "partition 0, offsets 0 to 7: the log starts at 8, so only that no row is there twice",
    )


def test_a_hole_is_named(verified_lake: VerifiedLake) -> None:
    verified_lake.produce(10)
    verified_lake.tier(skip=(3, 4, 8))
    report = verified_lake.verify()
    assert [(f.kind, f.offsets) for f in report.findings] == [
        (Kind.MISSING, OffsetRange(0, 3, 5)),
        (Kind.MISSING, OffsetRange(0, 8, 9)),
    ]
    assert report.findings[0].message == (
        "partition 0, offsets 3 to 4: the log has records that cold has not, below the watermark"
    )
    quick = verified_lake.verify(with_values=False)
    assert [(f.kind, f.offsets) for f in quick.findings] == [
        (f.kind, f.offsets) for f in report.findings
    ]


@pytest.mark.parametrize(
    ("column", "value"),
    [("host", "changed"), ("bytes", None), ("load", float("nan")), ("tags", ["a", "b"])],
)
def test_a_changed_value_is_named_by_offset_and_column(
    verified_lake: VerifiedLake, column: str, value: object
) -> None:
    verified_lake.produce(10)

    def spoil(rows: pa.Table) -> pa.Table:
        changed = rows.to_pylist()
        changed[6][column] = value
        return pa.Table.from_pylist(changed, rows.schema)

    verified_lake.tier(spoil)
    faults = faults_of(verified_lake)
    assert faults.keys() == {Kind.VALUE}
    assert faults[Kind.VALUE].message == (
        f"partition 0, offset 6: cold holds other values than the log, in {column}"
    )


def test_a_file_referenced_twice_is_named(verified_lake: VerifiedLake) -> None:
    verified_lake.produce(10)
    verified_lake.tier()
    verified_lake.produce(3)
    _, mark = verified_lake.rows()
    name = verified_lake.reference_again(replace(mark, next=OffsetVector.of([(0, 10)])))
    faults = faults_of(verified_lake)
    assert faults[Kind.FILE_TWICE].files == (name,)
    assert faults[Kind.FILE_TWICE].rows == 10
    assert faults[Kind.DUPLICATE].offsets == OffsetRange(0, 0, 10)


def test_a_text_moved_back_is_found_by_the_rows_above_it(verified_lake: VerifiedLake) -> None:
    verified_lake.produce(10)
    rows, mark = verified_lake.rows()
    verified_lake.publish(rows, replace(mark, next=OffsetVector.of([(0, 7)])))
    faults = faults_of(verified_lake)
    assert faults.keys() == {Kind.ABOVE_WATERMARK, Kind.CHAIN}
    assert faults[Kind.ABOVE_WATERMARK].offsets == OffsetRange(0, 7, 10)


def test_a_text_moved_forward_is_found_by_the_records_it_passes_over(
    verified_lake: VerifiedLake,
) -> None:
    verified_lake.produce(10)
    rows, mark = verified_lake.rows()
    verified_lake.produce(5)
    verified_lake.publish(rows, replace(mark, next=OffsetVector.of([(0, 12)])))
    assert {kind: f.offsets for kind, f in faults_of(verified_lake).items()} == {
        Kind.MISSING: OffsetRange(0, 10, 12)
    }


def test_a_moved_mirror_is_named_with_partition_and_offsets(
    verified_lake: VerifiedLake,
) -> None:
    verified_lake.produce(10)
    head = verified_lake.tier()
    mark = parse_watermark(verified_lake.table().properties["thermocline.watermark"])
    verified_lake.set_mirror(format_watermark(replace(mark, next=OffsetVector.of([(0, 9)]))))
    faults = faults_of(verified_lake)
    assert faults.keys() == {Kind.MIRROR}
    assert faults[Kind.MIRROR].snapshot_id == head
    assert "(partition 0: 9 instead of 10)" in faults[Kind.MIRROR].message
    verified_lake.set_mirror(None)
    assert faults_of(verified_lake).keys() == {Kind.MIRROR}


def test_a_moved_tag_is_named(verified_lake: VerifiedLake) -> None:
    created = verified_lake.head()
    verified_lake.produce(10)
    head = verified_lake.tier()
    verified_lake.set_tag(created)
    faults = faults_of(verified_lake)
    assert faults.keys() == {Kind.TAG}
    assert faults[Kind.TAG].message == (
        f"the newest watermark is in snapshot {head}, the tag is on {created}; after a rollback the next "
        f"publish sets it right"
    )
    verified_lake.table().manage_snapshots().remove_tag(TAG).commit()
    assert "the tag is missing" in faults_of(verified_lake)[Kind.TAG].message


def test_what_another_writer_changed_is_told_from_a_fault(verified_lake: VerifiedLake) -> None:
    verified_lake.produce(10)
    verified_lake.tier(skip=(2,))
    updated = verified_lake.update(5, host="theirs")
    deleted = verified_lake.delete("kafka_offset == 7")
    report = verified_lake.verify()
    assert {(c.snapshot_id, c.changed, c.deleted, c.example) for c in report.changes} == {
        (updated, 1, 0, (0, 5)),
        (deleted, 0, 1, (0, 7)),
    }
    assert [(f.kind, f.offsets) for f in report.findings] == [
        (Kind.MISSING, OffsetRange(0, 2, 3))
    ]


def test_a_row_of_a_tombstone_and_a_row_of_nothing_are_found(
    verified_lake: VerifiedLake,
) -> None:
    verified_lake.produce(4)
    verified_lake.put(None)
    transaction = verified_lake.log.begin()
    transaction.append("flows", 0, verified_lake.record())
    transaction.abort()
    verified_lake.produce(1)

    def invent(rows: pa.Table) -> pa.Table:
        first = rows.slice(0, 1)
        index = rows.schema.get_field_index("kafka_offset")
        added = [
            first.set_column(index, rows.schema.field(index), pa.array([offset], pa.int64()))
            for offset in (4, 5, 6)
        ]
        return pa.concat_tables([rows, *added])

    verified_lake.tier(invent)
    report = verified_lake.verify()
    places = {(f.kind, f.offsets) for f in report.findings}
    assert {
        (Kind.OUTCOME, OffsetRange(0, 4, 5)),
        (Kind.SURPLUS, OffsetRange(0, 5, 7)),
    } <= places
    compacted = verified_lake.verify(compacted=True)
    assert Kind.SURPLUS not in {f.kind for f in compacted.findings}


def test_a_record_below_the_watermark_that_does_not_decode_is_found(lake_of: Make) -> None:
    verified_lake = lake_of(on_error="fail")
    verified_lake.produce(3)
    verified_lake.tier()
    verified_lake.put(b"{broken")
    verified_lake.produce(1)
    verified_lake.advance_over(5)
    report = verified_lake.verify()
    assert {(f.kind, f.offsets) for f in report.findings} == {
        (Kind.OUTCOME, OffsetRange(0, 3, 4)),
        (Kind.MISSING, OffsetRange(0, 4, 5)),
    }


def test_since_compares_only_what_was_tiered_later(verified_lake: VerifiedLake) -> None:
    verified_lake.produce(10)
    verified_lake.tier(skip=(1,))
    between = verified_lake.table().metadata.snapshots[-1].timestamp_ms
    verified_lake.wait_past(between)
    verified_lake.produce(5)
    verified_lake.tier(skip=(12,))
    report = verified_lake.verify(since_ms=between)
    assert [f.offsets for f in report.findings] == [OffsetRange(0, 12, 13)]
    assert report.compared_offsets == 5


def test_rows_tiered_before_a_column_was_added_stay_null_in_it(
    verified_lake: VerifiedLake,
) -> None:
    verified_lake.produce(5, site="early")
    verified_lake.tier()
    verified_lake.add_column("site", pa.string())
    verified_lake.produce(5, site="late")
    verified_lake.tier()
    report = verified_lake.verify()
    assert report.findings == ()
    assert report.unchecked == ()


def test_a_topic_created_again_is_found_and_nothing_is_compared(
    verified_lake: VerifiedLake,
) -> None:
    verified_lake.produce(5)
    verified_lake.tier()
    verified_lake.log.delete_topic("flows")
    verified_lake.log.create_topic("flows")
    report = verified_lake.verify()
    assert [f.kind for f in report.findings] == [Kind.LOG]
    assert report.compared_offsets == 0


def test_rows_of_an_unknown_writer_are_a_finding(verified_lake: VerifiedLake) -> None:
    verified_lake.produce(5)
    verified_lake.tier()
    verified_lake.reference_again()
    kinds = {f.kind for f in verified_lake.verify().findings}
    assert Kind.REFUSED in kinds
    assert Kind.FILE_TWICE in kinds


def test_retention_while_verifying_is_said(lake_of: Make) -> None:
    verified_lake = lake_of()
    verified_lake.produce(40)
    verified_lake.tier()
    verified_lake.expire_on_batch(after=3, before=20)
    report = verified_lake.verify(window_rows=7)
    assert report.findings == ()
    assert report.unchecked[-1] == (
        "partition 0, offsets 0 to 19: retention removed them while they were verified"
    )
