"""What a person may say a table covers, and what not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from planner.covering import PartitionRows, RowsOfHead, cover
from planner.errors import BadParameter, ForeignCommit, WatermarkMissing
from planner.offsets import OffsetVector
from planner.seam.boundary import RetentionBoundary
from planner.seam.snapshots import History, Snapshot
from planner.seam.watermark import Outcomes, Watermark, format_watermark
from tests.harness.builders import FLOWS, snapshot, vector, watermark

MARK = watermark(10, 20, run="tiered")
TAGGED = snapshot(1, None, mark=MARK, total_records=30)
#: Its parent was expired, and rows with it.
HEAD = snapshot(4, 3, "replace", total_records=20)
ROWS = (PartitionRows(0, 2, 9, 8, 8), PartitionRows(1, 0, 15, 12, 12))


def history(
    *snapshots: Snapshot, tagged_id: int | None = 1, mirror: str | None = format_watermark(MARK)
) -> History:
    return History(
        {snapshot.snapshot_id: snapshot for snapshot in snapshots}, tagged_id, mirror
    )


def covered(
    history: History,
    *,
    rows: tuple[PartitionRows, ...] = ROWS,
    oldest_us: Mapping[int, int] | None = None,
    named: Mapping[str, int] | None = None,
) -> Watermark:
    offsets = {int(key[1:]): offset for key, offset in (named or {}).items()}
    return cover(
        FLOWS, history, 4, RowsOfHead(4, rows, 0, oldest_us or {}), offsets, run="said"
    )


def test_tag_and_mirror_say_it_where_they_agree() -> None:
    after = covered(history(TAGGED, HEAD))
    assert after.next == vector(10, 20)
    assert (after.run, after.prev_snapshot_id, after.outcomes) == ("said", 4, Outcomes())


def test_a_person_may_name_lower_offsets() -> None:
    assert covered(history(TAGGED, HEAD), named={"p0": 10, "p1": 16}).next == vector(10, 16)
    assert covered(history(TAGGED, HEAD), named={"p0": 10, "p1": 20, "p2": 0}).next == vector(
        10, 20, 0
    )


def test_nobody_names_what_was_never_covered() -> None:
    with pytest.raises(
        BadParameter, match="offset 11 of partition 0 was never covered, at most 10"
    ):
        covered(history(TAGGED, HEAD), named={"p0": 11})
    with pytest.raises(
        BadParameter, match="offset 1 of partition 2 was never covered, at most 0"
    ):
        covered(history(TAGGED, HEAD), named={"p2": 1})


def test_of_all_partitions_or_of_none() -> None:
    with pytest.raises(
        BadParameter, match=r"nothing was said of partitions 1; .* --next 1=OFFSET"
    ):
        covered(history(TAGGED, HEAD), named={"p0": 10})


@pytest.mark.parametrize(
    ("rows", "named", "where"),
    [
        (ROWS, {"p0": 9, "p1": 20}, "partition 0, offset 9"),
        ((PartitionRows(1, 0, 20, 9, 9),), {}, "partition 1, offset 20"),
        ((PartitionRows(2, 0, 0, 1, 1),), {}, "partition 2, offset 0"),
    ],
)
def test_a_row_that_the_tail_has_too_is_refused(
    rows: tuple[PartitionRows, ...], named: dict[str, int], where: str
) -> None:
    with pytest.raises(ForeignCommit, match=f"there is a row of {where}"):
        covered(history(TAGGED, HEAD), rows=rows, named=named)


def test_where_tag_and_mirror_disagree_a_person_must_say() -> None:
    other = format_watermark(watermark(12, 20))
    value = history(TAGGED, HEAD, mirror=other)
    with pytest.raises(WatermarkMissing, match=r"disagree on partition 0 \(10 and 12\)"):
        covered(value)
    assert covered(value, named={"p0": 12, "p1": 20}).next == vector(12, 20)


def test_a_mirror_alone_says_it_too() -> None:
    assert covered(history(HEAD, tagged_id=None)).next == vector(10, 20)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (history(HEAD, tagged_id=None, mirror=None), "neither the tag nor the mirror"),
        (history(HEAD, tagged_id=9, mirror="{}"), "neither the tag nor the mirror"),
        (
            history(TAGGED, HEAD, mirror=format_watermark(watermark(10, 20, topic_id="other"))),
            "name different logs",
        ),
    ],
)
def test_without_a_log_nothing_can_be_said(value: History, why: str) -> None:
    with pytest.raises(WatermarkMissing, match=why):
        covered(value)


def test_what_is_known_needs_nobody_to_say_it() -> None:
    with pytest.raises(BadParameter, match="its watermark stands"):
        covered(history(TAGGED, snapshot(4, 1, "replace")))


def test_a_foreign_commit_is_accepted_or_rolled_back_not_covered() -> None:
    with pytest.raises(ForeignCommit, match="thermocline accept"):
        covered(history(TAGGED, snapshot(4, 1, "append", added_records=5)))


def test_an_expired_foreign_commit_leaves_nothing_else() -> None:
    hidden = Snapshot(3, 1, 3, "append", {"added-records": "5"}, is_retained=False)
    assert covered(history(TAGGED, hidden, HEAD)).next == vector(10, 20)


def test_rows_say_what_a_person_should_look_at() -> None:
    rows = PartitionRows(0, 10, 19, 8, 7)
    assert (rows.doubled, rows.holes) == (1, 3)


def test_gaps_and_skips_of_before_stay() -> None:
    mark = watermark(10, 20, accepted=(5,))
    value = history(
        snapshot(1, None, mark=mark, total_records=30), HEAD, mirror=format_watermark(mark)
    )
    assert covered(value).accepted == (5,)
    assert covered(value).epochs == OffsetVector()


# --- where rows aged out ---

AGED = watermark(
    10, 20, run="aged", boundary=RetentionBoundary(3, 500), decoding="<3:500", era="aged"
)


def aged_history(mark: Watermark, mirror: Watermark | None = None) -> History:
    tagged = snapshot(1, None, mark=mark, total_records=30)
    return history(tagged, HEAD, mirror=format_watermark(mirror or mark))


@pytest.mark.parametrize(
    ("oldest_us", "before_us"),
    [({}, 500), ({3: 700}, 500), ({3: 500}, 500), ({3: 300}, 300), ({8: 300}, 500)],
)
def test_the_boundary_is_the_last_one_that_no_row_is_before(
    oldest_us: dict[int, int], before_us: int
) -> None:
    after = covered(aged_history(AGED), oldest_us=oldest_us)
    assert after.boundary == RetentionBoundary(3, before_us)
    # Other rows than those of the boundary of before: no cut of then is answered from them.
    assert (after.decoding, after.era) == (("<3:500", "aged") if before_us == 500 else ("", ""))


@pytest.mark.parametrize(
    "earlier", [RetentionBoundary(3, 400), None, RetentionBoundary(8, 900)]
)
def test_rows_that_aged_out_by_the_tag_or_by_the_mirror_do_not_come_back(
    earlier: RetentionBoundary | None,
) -> None:
    other = replace(AGED, boundary=earlier)
    assert covered(aged_history(AGED, other)).boundary == AGED.boundary
    if earlier is None or earlier.field_id == 3:
        assert covered(aged_history(other, AGED)).boundary == AGED.boundary


@pytest.mark.parametrize("line", [RetentionBoundary(3, 400), None])
def test_below_expired_foreign_rows_it_is_that_of_the_line(
    line: RetentionBoundary | None,
) -> None:
    """The table was rolled back to before the boundary moved. Another writer's rows may be older."""
    own = snapshot(1, None, mark=replace(MARK, boundary=line), total_records=30)
    moved = snapshot(2, 1, mark=AGED, total_records=20)
    hidden = Snapshot(3, 1, 3, "append", {"added-records": "5"}, is_retained=False)
    value = history(own, moved, hidden, HEAD, tagged_id=2, mirror=format_watermark(AGED))
    assert covered(value, oldest_us={3: 100}).boundary == line
