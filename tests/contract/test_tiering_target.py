"""What every tiering target does, in memory and on Spark."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from connectors.jobs.round import tier_once
from planner.errors import (
    ForeignCommit,
    LogUnavailable,
    StalePlan,
    TieringConflict,
    UndecodableRecord,
)
from planner.ports import Staged, TieringTarget
from planner.seam.watermark import Watermark
from planner.tiering.plan import TieringBudget, plan_tiering
from tests.fixtures.tiering import TieringHarness
from tests.harness.generated_log import (
    TOPIC,
    GeneratedLog,
    expected_outcomes,
    expected_rows,
    open_decoder_with_bad,
)

BUDGET = TieringBudget(split_rows=600)
ON_SPARK = pytest.mark.spark
#: Both kinds are refused by what one check compares; Spark meets one of them in `make test`.
IN_A_SOAK = (ON_SPARK, pytest.mark.soak)


def staged(tiering: TieringHarness, *ends: int) -> tuple[TieringTarget, Staged]:
    """Pin, measure, plan and stage, as one tierer does."""
    log = GeneratedLog(ends)
    target = tiering.target(log)
    plan = plan_tiering(target.pin(), log.measure([TOPIC])[TOPIC], BUDGET)
    return target, target.stage(plan)


def tier(tiering: TieringHarness, *ends: int) -> Watermark:
    log = GeneratedLog(ends)
    return tier_once(log, tiering.target(log), BUDGET).watermark


def position(tiering: TieringHarness) -> dict[int, int]:
    mark = tiering.pin().watermark
    assert mark is not None
    return mark.next.as_dict()


def test_publishing_makes_rows_and_watermark_visible_together(tiering: TieringHarness) -> None:
    # Iceberg has milliseconds.
    before, began_s = tiering.pin(), time.time() - 0.001
    target, value = staged(tiering, 1500, 40)
    unpublished = tiering.pin()
    assert (unpublished.snapshot_id, unpublished.watermark) == (
        before.snapshot_id,
        before.watermark,
    )
    assert tiering.rows() == []
    mark = target.publish(value)
    after = tiering.pin()
    assert after.watermark == mark
    assert mark.next.as_dict() == {0: 1500, 1: 40}
    assert mark.prev_snapshot_id == before.snapshot_id
    assert mark.outcomes == value.outcomes == expected_outcomes(1500, 40)
    assert mark.run == value.reference
    assert tiering.rows() == expected_rows(1500, 40)
    # A table that was never published has no row to delete.
    assert before.watermark is not None
    assert after.watermark is not None
    assert before.watermark.published_s is None
    assert after.watermark.published_s is not None
    assert began_s <= after.watermark.published_s <= time.time()


def test_rounds_add_up_to_the_log(tiering: TieringHarness) -> None:
    for ends in ((10, 0), (30, 5), (30, 25)):
        tier(tiering, *ends)
        assert position(tiering) == dict(enumerate(ends))
    assert tiering.rows() == expected_rows(30, 25)


def test_a_partition_that_was_created_enters_the_watermark(tiering: TieringHarness) -> None:
    tier(tiering, 10, 10)
    tier(tiering, 10, 10, 0)
    assert position(tiering) == {0: 10, 1: 10, 2: 0}
    tier(tiering, 10, 10, 4)
    assert tiering.rows() == expected_rows(10, 10, 4)


def test_offsets_without_rows_are_an_advance(tiering: TieringHarness) -> None:
    tier(tiering, 1, 0)
    assert position(tiering) == {0: 1, 1: 0}
    assert tiering.rows() == []


@pytest.mark.parametrize(
    ("tiering", "ends"),
    [
        pytest.param("memory", (20, 20), id="memory-rows"),
        pytest.param("memory", (1, 0), id="memory-no rows"),
        pytest.param("spark", (20, 20), id="spark-rows", marks=ON_SPARK),
        pytest.param("spark", (1, 0), id="spark-no rows", marks=IN_A_SOAK),
    ],
    indirect=["tiering"],
)
def test_the_second_of_two_tierers_is_refused_and_carries_on(
    tiering: TieringHarness, ends: tuple[int, int]
) -> None:
    first, content = staged(tiering, *ends)
    second, subject = staged(tiering, *ends)
    first.publish(content)
    before = tiering.pin()
    with pytest.raises(TieringConflict, match="plan again"):
        second.publish(subject)
    assert tiering.pin() == before
    second.discard(subject)
    tier(tiering, 30, 20)
    assert tiering.rows() == expected_rows(30, 20)


def test_publishing_again_after_a_lost_answer_changes_nothing(tiering: TieringHarness) -> None:
    target, value = staged(tiering, 20, 20)
    mark = target.publish(value)
    tier(tiering, 30, 20)
    assert target.publish(value) == mark
    assert position(tiering) == {0: 30, 1: 20}
    assert tiering.rows() == expected_rows(30, 20)


def test_what_was_discarded_cannot_be_published(tiering: TieringHarness) -> None:
    target, value = staged(tiering, 20, 20)
    target.discard(value)
    with pytest.raises(StalePlan):
        target.publish(value)
    assert (tiering.rows(), position(tiering)) == ([], {0: 0, 1: 0})


def test_a_compaction_between_stage_and_publish_passes(tiering: TieringHarness) -> None:
    tier(tiering, 20, 20)
    target, value = staged(tiering, 30, 20)
    tiering.compact()
    target.publish(value)
    assert tiering.rows() == expected_rows(30, 20)
    assert position(tiering) == {0: 30, 1: 20}


def test_a_delete_between_stage_and_publish_passes(tiering: TieringHarness) -> None:
    tier(tiering, 20, 20)
    target, value = staged(tiering, 30, 20)
    tiering.delete(5)
    target.publish(value)
    assert tiering.rows() == [row for row in expected_rows(30, 20) if row[1] != 5]


def test_rows_of_another_writer_between_stage_and_publish_are_not_laundered(
    tiering: TieringHarness,
) -> None:
    tier(tiering, 20, 20)
    target, value = staged(tiering, 30, 20)
    tiering.append((0, 3, "twice", 30))
    with pytest.raises(ForeignCommit, match="roll the table back"):
        target.publish(value)
    assert tiering.rows() == sorted([*expected_rows(20, 20), (0, 3, "twice", 30)])


def test_a_rollback_between_stage_and_publish_is_a_conflict(tiering: TieringHarness) -> None:
    tier(tiering, 20, 20)
    back = tiering.pin().snapshot_id
    assert back is not None
    tier(tiering, 30, 20)
    target, value = staged(tiering, 40, 20)
    tiering.rollback(back)
    with pytest.raises(TieringConflict):
        target.publish(value)
    assert position(tiering) == {0: 20, 1: 20}
    tier(tiering, 40, 20)
    assert tiering.rows() == expected_rows(40, 20)


def test_a_binding_changed_between_stage_and_publish_is_a_conflict(
    tiering: TieringHarness,
) -> None:
    target, value = staged(tiering, 20, 20)
    tiering.set_property("thermocline.on_error", "skip")
    with pytest.raises(TieringConflict, match="binding changed"):
        target.publish(value)
    assert tiering.rows() == []


def test_a_column_added_between_stage_and_publish_is_a_conflict(
    tiering: TieringHarness,
) -> None:
    """The staged rows would be null in it, and the tail has a value for the same records."""
    target, value = staged(tiering, 20, 20)
    tiering.add_column("asn")
    with pytest.raises(TieringConflict):
        target.publish(value)
    assert tiering.rows() == []


def there_and_back(tiering: TieringHarness) -> None:
    tiering.rename("host", "peer")
    tiering.rename("peer", "host")


def another_name(tiering: TieringHarness) -> None:
    tiering.also_call("host", "peer")


@pytest.mark.parametrize(
    ("tiering", "change"),
    [
        pytest.param("memory", there_and_back, id="memory-renames"),
        pytest.param("memory", another_name, id="memory-mapping"),
        pytest.param("spark", there_and_back, id="spark-renames", marks=IN_A_SOAK),
        pytest.param("spark", another_name, id="spark-mapping", marks=ON_SPARK),
    ],
    indirect=["tiering"],
)
def test_names_changed_between_stage_and_publish_are_a_conflict(
    tiering: TieringHarness, change: Callable[[TieringHarness], None]
) -> None:
    """The schema id is the old one; the staged rows would stay null where records have the other name."""
    before = tiering.pin().schema
    target, value = staged(tiering, 20, 20)
    change(tiering)
    after = tiering.pin().schema
    assert (after.schema_id, after.names) == (before.schema_id, before.names)
    with pytest.raises(TieringConflict, match="schema"):
        target.publish(value)
    assert tiering.rows() == []
    tier(tiering, 20, 20)
    assert tiering.rows() == expected_rows(20, 20)


def test_rows_wait_for_a_ledger_that_has_their_schemas(tiering: TieringHarness) -> None:
    target, value = staged(tiering, 20, 20)
    with pytest.raises(TieringConflict, match="what id 7 meant"):
        target.publish(replace(value, schemas={7: "f"}))
    assert tiering.rows() == []


def test_a_record_that_does_not_decode_stops_the_stage(tiering: TieringHarness) -> None:
    log = GeneratedLog((20, 20))
    target = tiering.target(log, decoder=open_decoder_with_bad(0, 5))
    with pytest.raises(UndecodableRecord):
        tier_once(log, target, BUDGET)
    assert (tiering.rows(), position(tiering)) == ([], {0: 0, 1: 0})


def test_a_log_that_fails_while_it_is_read_stops_the_stage(tiering: TieringHarness) -> None:
    log = GeneratedLog((600, 600), broken=True)
    with pytest.raises(LogUnavailable):
        tier_once(log, tiering.target(log), BUDGET)
    assert (tiering.rows(), position(tiering)) == ([], {0: 0, 1: 0})
