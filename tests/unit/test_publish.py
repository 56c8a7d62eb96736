import dataclasses

import pytest

from planner.errors import ForeignCommit, TieringConflict
from planner.offsets import OffsetRange
from planner.seam.keys import RecordKey, Upsert
from planner.seam.snapshots import History, Snapshot
from planner.seam.watermark import Outcomes
from planner.tiering.plan import TieringBudget, TieringPlan, plan_tiering
from planner.tiering.publish import advance, check_publish
from tests.harness.builders import BINDING, bounds, pin, snapshot, watermark


def plan(*offsets: int) -> TieringPlan:
    return plan_tiering(
        pin(*offsets), bounds(*((0, offset + 5) for offset in offsets)), TieringBudget()
    )


def history(*snapshots: Snapshot) -> History:
    return History({snapshot.snapshot_id: snapshot for snapshot in snapshots})


def test_the_watermark_the_plan_started_from_may_be_advanced() -> None:
    check_publish(plan(10), history(snapshot(1, None, mark=watermark(10))), 1)


def test_a_compaction_in_between_passes() -> None:
    value = history(snapshot(1, None, mark=watermark(10)), snapshot(2, 1, "replace"))
    check_publish(plan(10), value, 2)


@pytest.mark.parametrize(
    "mark",
    [
        watermark(15),
        watermark(9),
        watermark(10, shape="moved"),
        watermark(10, topic_id="other"),
    ],
)
def test_any_other_watermark_is_a_conflict(mark: object) -> None:
    with pytest.raises(TieringConflict, match="plan again"):
        check_publish(plan(10), history(snapshot(1, None, mark=mark)), 1)  # type: ignore[arg-type]


def test_a_table_without_a_snapshot_is_a_conflict() -> None:
    with pytest.raises(TieringConflict):
        check_publish(plan(10), history(), None)


def test_publishing_never_launders_a_foreign_commit() -> None:
    value = history(
        snapshot(1, None, mark=watermark(10)), snapshot(2, 1, "append", added_records=1)
    )
    with pytest.raises(ForeignCommit):
        check_publish(plan(10), value, 2)
    check_publish(plan(10), value, 2, accepted={2})


def test_the_new_watermark_keeps_what_people_accepted() -> None:
    start = watermark(10, gaps=(OffsetRange(0, 3, 5),), accepted=(7,))
    value = advance(
        dataclasses.replace(plan(10), start=start),
        Outcomes(rows=4, skipped=1),
        run="r2",
        head=9,
    )
    assert value.next.as_dict() == {0: 15}
    assert (value.prev_snapshot_id, value.run) == (9, "r2")
    assert (value.gaps, value.accepted) == (start.gaps, start.accepted)
    assert value.outcomes.records == 5


@pytest.mark.parametrize(
    ("published_s", "reaches_end", "whole_ms"),
    [(7.5, False, 7500), (7.5, True, None), (None, False, None)],
)
def test_a_publish_that_leaves_changes_says_when_one_left_none(
    published_s: float | None, reaches_end: bool, whole_ms: int | None
) -> None:
    start = watermark(10, key=(4,), published_s=published_s, whole_ms=3)
    binding = dataclasses.replace(BINDING, key=RecordKey("json"), upsert=Upsert((4,)))
    behind = dataclasses.replace(
        plan(10), start=start, binding=binding, reaches_end=reaches_end
    )
    assert advance(behind, Outcomes(), run="r2", head=9).whole_ms == whole_ms


def test_a_compaction_carries_no_watermark_of_its_own() -> None:
    publish = snapshot(1, None, mark=watermark(10))
    assert publish.carries_watermark
    assert not dataclasses.replace(publish, operation="replace").carries_watermark
    assert not snapshot(2, 1).carries_watermark
