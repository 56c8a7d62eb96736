from dataclasses import replace
from typing import Any

import pytest

from planner.offsets import OffsetRange, OffsetVector
from planner.seam.snapshots import History, Snapshot
from planner.seam.watermark import SUMMARY_KEY, Outcomes, Skip, Watermark, format_watermark
from planner.verification.chain import (
    carriers,
    check_chain,
    decisions,
    foreign_changes,
    start_since,
    tierings,
)
from planner.verification.findings import Kind
from tests.harness.builders import snapshot, watermark


def mark(offset: int, prev: int | None, **changes: object) -> Watermark:
    return watermark(offset, run=f"run-{offset}", prev_snapshot_id=prev, **changes)


FIRST = mark(0, None)
SECOND = mark(10, 1, outcomes=Outcomes(rows=8, tombstones=1))
THIRD = mark(15, 2, outcomes=Outcomes(rows=5))


def history(*snapshots: Snapshot, **changes: object) -> History:
    newest = next((s for s in reversed(snapshots) if s.watermark_text), None)
    facts = {
        "snapshots": {snapshot.snapshot_id: snapshot for snapshot in snapshots},
        "tagged_id": None if newest is None else newest.snapshot_id,
        "mirror": None if newest is None else newest.watermark_text,
    }
    return History(**(facts | changes))  # type: ignore[arg-type]


def chain(
    first: Watermark = FIRST, second: Watermark = SECOND, third: Watermark = THIRD
) -> History:
    return history(
        snapshot(1, None, mark=first),
        snapshot(2, 1, mark=second, added_records=second.outcomes.rows),
        snapshot(3, 2, mark=third, added_records=third.outcomes.rows),
    )


def messages(history: History, head: int = 3) -> list[str]:
    return [finding.message for finding in check_chain(history, head)]


def test_a_sound_chain_has_no_findings() -> None:
    assert check_chain(chain(), 3) == ()


def test_what_retention_writes_anew_is_no_row_that_was_added() -> None:
    aged = watermark(15, run="aged", prev_snapshot_id=2)
    counts = {"added-records": "3", "deleted-records": "7"}
    value = history(
        snapshot(1, None, mark=FIRST),
        snapshot(2, 1, mark=SECOND, added_records=SECOND.outcomes.rows),
        Snapshot(3, 2, 3, "overwrite", {SUMMARY_KEY: format_watermark(aged), **counts}),
    )
    assert check_chain(value, 3) == ()


def keyed(offset: int, prev: int | None, **changes: object) -> Watermark:
    return replace(mark(offset, prev, **changes), key=(4,))


def rebuilt(after: Watermark) -> History:
    """A keyed table of 8 rows with one more publish, and then a rebuild of 9 rows with the watermark ``after``."""
    counts: dict[str, Any] = {"added_records": 9, "deleted_records": 14, "total_records": 9}
    after = replace(after, run="rebuild")
    return history(
        snapshot(1, None, mark=keyed(0, None), total_records=0),
        snapshot(
            2,
            1,
            mark=keyed(10, 1, outcomes=Outcomes(rows=8, superseded=2)),
            added_records=8,
            total_records=8,
        ),
        snapshot(
            3,
            2,
            "overwrite",
            mark=keyed(15, 2, outcomes=Outcomes(rows=4, deletes=1)),
            added_records=4,
            total_records=12,
            total_position_deletes=5,
        ),
        snapshot(4, 3, "overwrite", mark=after, **counts),
    )


def test_a_rebuild_reads_records_again_and_its_rows_are_those_it_added() -> None:
    value = rebuilt(keyed(15, 3, outcomes=Outcomes(rows=9, superseded=5, deletes=1)))
    assert check_chain(value, 4) == ()
    assert messages(rebuilt(keyed(15, 3, outcomes=Outcomes(rows=8))), 4) == [
        "snapshot 4 added 9 rows, its watermark text counts 8"
    ]


def test_rows_are_of_no_publish_before_one_that_replaced_all() -> None:
    value = rebuilt(keyed(15, 3, outcomes=Outcomes(rows=9)))
    for head, expected in ((4, [4]), (3, [3, 2]), (2, [2]), (1, [1])):
        line = tierings(carriers(value, head))
        assert [carrier.snapshot.snapshot_id for carrier in line] == expected
    of_records = tierings(carriers(chain(), 3))
    assert [carrier.snapshot.snapshot_id for carrier in of_records] == [3, 2, 1]


def test_a_table_without_watermarks_has_none_either() -> None:
    assert check_chain(history(snapshot(1, None)), 1) == ()


def test_compactions_between_are_passed_and_their_copied_texts_ignored() -> None:
    copied = Snapshot(
        4, 3, 4, "replace", {SUMMARY_KEY: format_watermark(THIRD), "added-records": "13"}
    )
    value = chain()
    value = replace(value, snapshots={**value.snapshots, 4: copied})
    assert check_chain(value, 4) == ()
    assert [carrier.snapshot.snapshot_id for carrier in carriers(value, 4)] == [3, 2, 1]


@pytest.mark.parametrize(
    ("third", "expected"),
    [
        (
            replace(THIRD, topic_id="other"),
            "the watermark of snapshot 3 names another log than that of 2 before it",
        ),
        (
            replace(THIRD, run="run-10"),
            "the watermark of snapshot 3 was copied: snapshot 2 before it has the same run",
        ),
        (
            replace(THIRD, prev_snapshot_id=1),
            "the watermark of snapshot 3 was written on snapshot 1, but lies on 2",
        ),
        (
            replace(THIRD, next=OffsetVector.of([(0, 9), (1, 7)])),
            "the watermark of snapshot 3 goes back in partition 0, from 10 to 9",
        ),
        (
            replace(THIRD, outcomes=Outcomes(rows=5, skipped=1)),
            "the watermark of snapshot 3 counts 6 records in 5 offsets more than snapshot 2",
        ),
    ],
)
def test_a_broken_link_is_named(third: Watermark, expected: str) -> None:
    assert messages(chain(third=third)) == [expected]


def test_a_decision_that_a_later_text_forgets_is_named() -> None:
    gap = OffsetRange(0, 3, 5)
    forgets = [
        "the watermark of snapshot 3 forgets a gap, a skip or a foreign snapshot that was accepted before"
    ]
    assert messages(chain(second=replace(SECOND, gaps=(gap,)))) == forgets
    assert messages(chain(second=replace(SECOND, accepted=(7,)))) == forgets
    skips = (Skip(0, 12, "no JSON"), Skip(1, 3))
    assert messages(chain(second=replace(SECOND, skips=skips))) == forgets
    fields: dict[str, Any] = {"gaps": (gap,), "accepted": (7,), "skips": skips}
    assert (
        messages(chain(second=replace(SECOND, **fields), third=replace(THIRD, **fields))) == []
    )
    assert decisions(replace(THIRD, **fields)) == (
        "gap accepted: partition 0, offsets 3 to 4 were lost",
        "foreign snapshot 7 accepted",
        "record skipped: partition 0, offset 12: no JSON",
        "record skipped: partition 1, offset 3",
    )


def test_a_count_that_the_snapshot_denies_is_named() -> None:
    value = chain()
    third = replace(
        value.snapshots[3], summary={**value.snapshots[3].summary, "added-records": "7"}
    )
    value = replace(value, snapshots={**value.snapshots, 3: third})
    (finding,) = check_chain(value, 3)
    assert finding.kind is Kind.COUNT
    assert finding.rows == 2
    assert finding.message == "snapshot 3 added 7 rows, its watermark text counts 5"


def test_an_unreadable_text_is_named() -> None:
    damaged = Snapshot(4, 3, 4, "append", {SUMMARY_KEY: "{"})
    value = chain()
    value = replace(value, snapshots={**value.snapshots, 4: damaged})
    assert messages(value, 4) == ["the watermark text of snapshot 4 cannot be read"]


def test_tag_and_mirror_must_say_what_the_newest_text_says() -> None:
    value = chain()
    hint = "after a rollback the next publish sets it right"
    assert messages(replace(value, tagged_id=2)) == [
        f"the newest watermark is in snapshot 3, the tag is on 2; {hint}"
    ]
    assert messages(replace(value, tagged_id=None)) == [
        f"the newest watermark is in snapshot 3, the tag is missing; {hint}"
    ]
    assert messages(replace(value, mirror=None)) == [
        f"the mirror property is missing, snapshot 3 has the watermark; {hint}"
    ]
    assert messages(replace(value, mirror="{")) == [
        f"the mirror property is not the watermark of snapshot 3; {hint}"
    ]
    assert messages(replace(value, mirror=format_watermark(SECOND))) == [
        f"the mirror property is not the watermark of snapshot 3 (partition 0: 10 instead of 15); {hint}"
    ]
    assert messages(replace(value, mirror=format_watermark(replace(THIRD, run="other")))) == [
        f"the mirror property is not the watermark of snapshot 3; {hint}"
    ]


def test_since_starts_where_the_watermark_stood_then() -> None:
    written = {1: 100, 2: 200, 3: 300}
    assert start_since(chain(), 3, written, 250) == SECOND.next
    assert start_since(chain(), 3, written, 300) == THIRD.next
    assert start_since(chain(), 3, written, 99) is None


def test_changes_of_others_are_found_newest_first() -> None:
    value = history(
        snapshot(1, None, mark=FIRST),
        snapshot(2, 1, "overwrite"),
        snapshot(3, 2, "replace"),
        snapshot(4, 3, "delete"),
    )
    assert [s.snapshot_id for s in foreign_changes(value, 4)] == [4, 2]
    assert [s.snapshot_id for s in value.line(3)] == [3, 2, 1]
