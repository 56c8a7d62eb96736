from dataclasses import replace

import pytest

from planner.errors import (
    BadParameter,
    ForeignCommit,
    LogTruncated,
    TailGap,
    TieringConflict,
    TopicRecreated,
    WatermarkMissing,
)
from planner.evolution.ledger import UNKNOWN, SchemaLedger
from planner.offsets import OffsetRange, OffsetVector
from planner.repairs import (
    MAX_SKIPS,
    AddedRows,
    accept_foreign,
    accept_gap,
    accept_schemas,
    accept_shape,
    decided,
    lost_ranges,
    skip_record,
)
from planner.seam.binding import Binding, OnError
from planner.seam.cut import Pin, check_log
from planner.seam.formats import AvroFormat
from planner.seam.snapshots import History, Snapshot
from planner.seam.watermark import LastPublish, Outcomes, Skip
from tests.harness.builders import BINDING, FLOWS, bounds, pin, snapshot, vector, watermark

GONE = bounds((5, 20), (30, 40), (7, 9))
LOST = (OffsetRange(1, 20, 30), OffsetRange(2, 0, 7))


def test_a_gap_is_given_up_per_partition_also_of_partitions_born_later() -> None:
    value = pin(10, 20)
    assert value.watermark is not None
    assert lost_ranges(value.watermark, GONE) == LOST
    after = accept_gap(value, GONE, LOST, run="gap")
    assert after.next == vector(10, 30, 7)
    assert after.gaps == LOST
    assert (after.run, after.prev_snapshot_id, after.outcomes) == ("gap", 1, Outcomes())
    assert (after.shape, after.topic_id) == (value.watermark.shape, value.watermark.topic_id)
    check_log(FLOWS, after, GONE)
    again = accept_gap(
        replace(value, watermark=after), bounds((11, 20), (30, 40), (7, 9)),
        (OffsetRange(0, 10, 11),), run="again",
    )  # fmt: skip
    assert again.gaps == (*LOST, OffsetRange(0, 10, 11))


def test_a_decision_leaves_the_deletes_of_a_keyed_table_as_old_as_they_are() -> None:
    value = pin(10, 20)
    assert value.watermark is not None
    mark = replace(value.watermark, key=(1,), published_s=7.5, outcomes=Outcomes(rows=3))
    after = decided(mark, 1, "skip")
    assert after.publish == LastPublish(7500, None, Outcomes(rows=3))
    assert decided(replace(after, published_s=9.0), 2, "again").publish == after.publish


def test_leader_epochs_are_taken_over_with_a_gap() -> None:
    measured = bounds((12, 20))
    measured = replace(measured, partitions=(replace(measured.partitions[0], leader_epoch=4),))
    after = accept_gap(pin(10), measured, (OffsetRange(0, 10, 12),), run="gap")
    assert after.epochs == OffsetVector.of([(0, 4)])


def test_a_gap_that_is_none_or_another_is_refused() -> None:
    with pytest.raises(BadParameter, match="there is no gap"):
        accept_gap(pin(10), bounds((10, 20)), (), run="gap")
    with pytest.raises(TieringConflict, match="not the one that was shown"):
        accept_gap(pin(10), bounds((15, 20)), (OffsetRange(0, 10, 14),), run="gap")
    with pytest.raises(BadParameter, match="not bound"):
        accept_gap(pin(10, binding=None), GONE, LOST, run="gap")


def test_another_log_is_no_gap() -> None:
    with pytest.raises(TopicRecreated):
        accept_gap(pin(10), bounds((15, 20), topic_id="other"), LOST, run="gap")
    with pytest.raises(LogTruncated):
        accept_gap(pin(10, 20), bounds((15, 20), (0, 5)), LOST, run="gap")


def test_a_skipped_record_moves_the_shape_and_not_the_watermark() -> None:
    value = pin(10, 20)
    after = skip_record(
        value, bounds((0, 15), (0, 25)), [Skip(1, 21, "bad"), Skip(0, 14)], run="skip"
    )
    assert after.next == vector(10, 20)
    assert after.skips == (Skip(0, 14), Skip(1, 21, "bad"))
    assert after.shape == replace(BINDING, skips=((0, 14), (1, 21))).shape != BINDING.shape
    assert (after.run, after.prev_snapshot_id) == ("skip", 1)


@pytest.mark.parametrize(
    ("skip", "why"),
    [
        (Skip(0, 9), "is below the watermark 10, it was tiered"),
        (Skip(0, 15), "is not in the log"),
        (Skip(3, 0), "is not in the log"),
        (Skip(0, 12), "is skipped already"),
    ],
)
def test_only_an_untiered_record_of_the_log_is_skipped_once(skip: Skip, why: str) -> None:
    value = pin(10)
    mark = skip_record(value, bounds((0, 15)), [Skip(0, 12)], run="skip")
    value = replace(value, watermark=mark, binding=replace(BINDING, skips=mark.skipped))
    with pytest.raises(BadParameter, match=why):
        skip_record(value, bounds((0, 15)), [skip], run="again")


def test_skipping_needs_a_log_that_fits_and_a_shape_that_is_the_bindings() -> None:
    with pytest.raises(TailGap, match=r"thermocline gap accept lake\.net\.flows"):
        skip_record(pin(10), bounds((12, 15)), [Skip(0, 13)], run="skip")
    with pytest.raises(BadParameter, match="another shape"):
        skip_record(
            pin(10, binding=Binding("flows", on_error="null")),
            bounds((0, 15)), [Skip(0, 13)], run="skip",
        )  # fmt: skip


def test_more_skips_than_a_text_should_hold_are_refused() -> None:
    many = [Skip(0, 10 + index) for index in range(MAX_SKIPS + 1)]
    with pytest.raises(BadParameter, match="1001 skipped records are more than 1000"):
        skip_record(pin(10), bounds((0, 5000)), many, run="skip")


BASE = snapshot(1, None, mark=watermark(10, 20), total_records=30)
APPENDED = snapshot(2, 1, added_records=3, total_records=33)


def history(*snapshots: Snapshot) -> History:
    return History({snapshot.snapshot_id: snapshot for snapshot in snapshots})


def rows(*offsets: int, without: int = 0) -> AddedRows:
    return AddedRows(3, vector(*offsets), without)


def test_an_accepted_snapshot_is_written_into_the_next_text() -> None:
    after = accept_foreign(FLOWS, history(BASE, APPENDED), 2, [2], {2: rows(10, 20)}, run="yes")
    assert after.next == vector(10, 20)
    assert (after.accepted, after.run, after.prev_snapshot_id) == ((2,), "yes", 2)


def test_rows_that_the_tail_has_too_are_refused() -> None:
    with pytest.raises(ForeignCommit, match="partition 1, offset 20, and the watermark is 20"):
        accept_foreign(FLOWS, history(BASE, APPENDED), 2, [2], {2: rows(3, 21)}, run="yes")
    with pytest.raises(ForeignCommit, match="cannot be read"):
        accept_foreign(FLOWS, history(BASE, APPENDED), 2, [2], {2: None}, run="yes")


def test_every_foreign_snapshot_must_be_named() -> None:
    value = history(BASE, APPENDED, snapshot(3, 2, added_records=1, total_records=34))
    with pytest.raises(ForeignCommit, match="--snapshot 3"):
        accept_foreign(FLOWS, value, 3, [2], {2: rows()}, run="yes")
    both = accept_foreign(FLOWS, value, 3, [3, 2], {2: rows(), 3: rows()}, run="yes")
    assert both.accepted == (2, 3)


def test_what_needs_no_acceptance_is_refused() -> None:
    value = history(BASE, APPENDED, snapshot(3, 2, "replace"))
    with pytest.raises(BadParameter, match="snapshot 3 needs no acceptance; refused are 2"):
        accept_foreign(FLOWS, value, 3, [3], {3: rows()}, run="yes")
    with pytest.raises(BadParameter, match="refused are none"):
        accept_foreign(FLOWS, history(BASE), 1, [1], {1: rows()}, run="yes")
    with pytest.raises(WatermarkMissing):
        accept_foreign(FLOWS, history(snapshot(1, None)), 1, [1], {1: rows()}, run="yes")


def test_an_expired_snapshot_cannot_be_accepted() -> None:
    hidden = replace(APPENDED, is_retained=False)
    with pytest.raises(ForeignCommit, match="say what they cover with `thermocline covers"):
        accept_foreign(FLOWS, history(BASE, hidden), 2, [2], {2: None}, run="yes")


SKIPPING = replace(BINDING, on_error="skip")


def test_a_shape_moves_and_nothing_else_does() -> None:
    value = replace(pin(10, 20), binding=SKIPPING)
    after = accept_shape(value, value, run="shape")
    assert (after.shape, after.next, after.prev_snapshot_id) == (
        SKIPPING.shape,
        vector(10, 20),
        1,
    )
    assert (after.run, after.outcomes) == ("shape", Outcomes())


def test_a_shape_that_is_another_or_none_is_refused() -> None:
    value = replace(pin(10), binding=SKIPPING)
    with pytest.raises(TieringConflict, match="is not the one that was shown any more"):
        accept_shape(value, pin(10), run="shape")
    with pytest.raises(BadParameter, match="there is nothing to accept"):
        accept_shape(pin(10), pin(10), run="shape")
    with pytest.raises(BadParameter, match="not bound"):
        accept_shape(pin(10, binding=None), pin(10, binding=None), run="shape")


def test_a_shape_of_what_is_not_bound_any_more_is_another() -> None:
    value = replace(pin(10), binding=SKIPPING)
    with pytest.raises(TieringConflict, match="is not the one that was shown any more"):
        accept_shape(value, pin(10, binding=None), run="shape")


def of_avro(on_error: OnError = "fail") -> Pin:
    """A pin whose ledger has 7, 8 and an unknown 9; its rows are of policy ``fail``."""
    form = AvroFormat(ledger=SchemaLedger({7: "1:a", 8: "1:b", 9: UNKNOWN}, 2))
    bound = Binding("flows", form)
    value = replace(pin(10, 20), watermark=watermark(10, 20, shape=bound.shape))
    return replace(value, binding=replace(bound, on_error=on_error))


def test_ids_that_mean_something_else_leave_the_ledger_in_another_era() -> None:
    value = of_avro()
    after, ledger = accept_schemas(value, {7: "1:a", 8: UNKNOWN, 9: "1:c"}, run="yes")
    assert ledger == SchemaLedger({7: "1:a", 9: UNKNOWN}, 3)
    assert value.binding is not None
    assert value.watermark is not None
    then = replace(value.binding, format=AvroFormat(ledger=ledger))
    assert after.shape == then.shape != value.watermark.shape
    assert (after.next, after.run, after.prev_snapshot_id) == (vector(10, 20), "yes", 1)


def test_a_ledger_without_ids_is_accepted_and_begins_an_era() -> None:
    value = of_avro()
    assert value.binding is not None
    empty = AvroFormat(ledger=SchemaLedger({}, 2))
    value = replace(value, binding=replace(value.binding, format=empty))
    _, ledger = accept_schemas(value, {}, run="yes")
    assert ledger == SchemaLedger({}, 3)


def test_schemas_are_accepted_where_they_changed_and_rows_are_the_bindings() -> None:
    today = {7: "1:other", 8: "1:b"}
    with pytest.raises(BadParameter, match="there is nothing to accept"):
        accept_schemas(of_avro(), {7: "1:a", 8: "1:b", 9: "1:c"}, run="yes")
    with pytest.raises(BadParameter, match="restore the table properties, or run `thermocline"):
        accept_schemas(of_avro("skip"), today, run="yes")
    with pytest.raises(BadParameter, match="its records are not Avro, so it has no schemas"):
        accept_schemas(pin(10), today, run="yes")
    with pytest.raises(BadParameter, match="not bound"):
        accept_schemas(pin(10, binding=None), today, run="yes")
