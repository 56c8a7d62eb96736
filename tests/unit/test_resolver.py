"""The resolver's table of rules, one case a row, then the shapes expiry and rollback make."""

from dataclasses import replace
from typing import Any

import pytest

from planner.errors import ForeignCommit, WatermarkMissing, WatermarkUnreadable
from planner.seam.resolver import (
    base_snapshot,
    base_watermark,
    broken_at,
    line_above,
    needs_growth,
    needs_statistics,
    resolve,
)
from planner.seam.snapshots import History, Snapshot
from planner.seam.watermark import SUMMARY_KEY, Outcomes, format_watermark, parse_watermark
from tests.harness.builders import snapshot, vector, watermark

MARK = watermark(10, 20)


def history(
    *snapshots: Snapshot, tagged_id: int | None = None, mirror: str | None = None
) -> History:
    return History(
        {snapshot.snapshot_id: snapshot for snapshot in snapshots}, tagged_id, mirror
    )


def ours(snapshot_id: int, parent_id: int | None, *offsets: Any, **counts: Any) -> Snapshot:
    mark = watermark(*offsets, prev_snapshot_id=parent_id)
    return snapshot(snapshot_id, parent_id, mark=mark, **counts)


BASE = ours(1, None, 10, 20, total_records=30)


def test_the_head_that_carries_a_watermark_is_its_own_carrier() -> None:
    assert resolve(history(BASE), 1, table="t") == MARK
    assert base_snapshot(history(BASE), 1) == BASE


def rewritten(**counts: Any) -> Snapshot:
    """Another writer's overwrite below the watermark, of a table without row deletes unless ``counts`` say so."""
    return snapshot(
        2, 1, "overwrite", added_next=vector(7), **({"total_delete_files": 0} | counts)
    )


PASSES = {
    "replace": snapshot(2, 1, "replace"),
    # Its user handed it the text of a commit on the same snapshot that was rolled back.
    "replace with a copied watermark": snapshot(
        2, 1, "replace", mark=watermark(99, 99, prev_snapshot_id=1)
    ),
    "delete": snapshot(2, 1, "delete", deleted_records=3),
    "copy-on-write delete": rewritten(added_records=28, deleted_records=30),
    "merge-on-read update": rewritten(
        added_records=2, added_position_deletes=2, added_delete_files=1, total_delete_files=1
    ),
    "overwrite that only removes": rewritten(added_records=0, deleted_records=3),
    "overwrite without files": snapshot(2, 1, "overwrite", added_next=vector()),
    # 20 of its 60 rows were dead: live rows, not counts, say that it did not grow.
    "update over older deletes": replace(
        rewritten(added_records=40, deleted_records=60, total_delete_files=1), growth=0
    ),
    "delete with a copied watermark": snapshot(
        2, 1, "delete", mark=watermark(9, 9, prev_snapshot_id=0), deleted_records=3
    ),
    "empty append": snapshot(2, 1, "append", total_records=30),
}


@pytest.mark.parametrize("above", PASSES.values(), ids=PASSES.keys())
def test_it_passes(above: Snapshot) -> None:
    assert resolve(history(BASE, above), 2, table="t") == MARK


REFUSED = {
    "append": (snapshot(2, 1, "append", added_records=1, total_records=31), "it appended rows"),
    "append that hides its count": (
        snapshot(2, 1, "append", total_records=31),
        "it appended rows",
    ),
    "append without any count": (snapshot(2, 1, "append"), "it appended rows"),
    "overwrite without statistics": (
        snapshot(2, 1, "overwrite", added_records=1, deleted_records=1),
        "which offsets its rows have is not known",
    ),
    "overwrite above the watermark": (
        snapshot(2, 1, "overwrite", added_next=vector(10, 21), deleted_records=9),
        "added offset 20 of partition 1",
    ),
    "overwrite in an unknown partition": (
        snapshot(2, 1, "overwrite", added_next=vector(1, 1, 1)),
        "added offset 0 of partition 2",
    ),
    "overwrite that grew": (
        rewritten(added_records=2, deleted_records=1),
        "added 2 rows but removed 1",
    ),
    # The MERGE removed one row and added 20; the vector it wrote holds the 40 of the one before.
    "merge over a deletion vector": (
        replace(
            rewritten(
                added_records=20,
                added_position_deletes=41,
                removed_position_deletes=40,
                added_delete_files=1,
                removed_delete_files=1,
                total_delete_files=1,
            ),
            growth=19,
        ),
        "added 20 rows but removed 1",
    ),
    # The file's 60 rows include 20 that were deleted before.
    "merge over position deletes": (
        replace(
            rewritten(added_records=54, deleted_records=60, total_delete_files=1), growth=14
        ),
        "added 54 rows but removed 40",
    ),
    "merge over row deletes that nobody counted": (
        rewritten(added_records=2, deleted_records=9, total_delete_files=1),
        "how many rows it added and removed is not known",
    ),
    "merge with equality deletes": (
        rewritten(
            added_records=2,
            added_equality_deletes=9,
            added_delete_files=1,
            total_delete_files=1,
        ),
        "how many rows it added and removed is not known",
    ),
    "overwrite that does not count": (
        snapshot(2, 1, "overwrite", added_next=vector(1), deleted_records=1),
        "how many rows it added and removed is not known",
    ),
    "overwrite that does not count and grew": (
        replace(snapshot(2, 1, "overwrite", added_next=vector(1)), growth=1),
        "the table grew",
    ),
    "append with a copied watermark": (
        snapshot(2, 1, mark=MARK, added_records=5, total_records=35),
        "it appended rows, under a watermark copied from another commit",
    ),
    "unknown operation": (snapshot(2, 1, "merge"), "its operation 'merge' is unknown"),
}


@pytest.mark.parametrize(("above", "why"), REFUSED.values(), ids=REFUSED.keys())
def test_it_is_refused_until_accepted(above: Snapshot, why: str) -> None:
    with pytest.raises(ForeignCommit, match=why) as caught:
        resolve(history(BASE, above), 2, table="lake.net.flows")
    assert str(caught.value).startswith(
        "lake.net.flows: snapshot 2 was committed by another writer"
    )
    assert caught.value.facts["snapshot_id"] == 2
    assert resolve(history(BASE, above), 2, table="t", accepted={2}) == MARK


def test_a_refused_commit_below_the_watermark_was_settled_before() -> None:
    foreign = snapshot(2, 1, "append", added_records=5)
    newest = ours(3, 2, 11, 20)
    value = history(BASE, foreign, newest)
    assert resolve(value, 3, table="t") == parse_watermark(newest.watermark_text or "")


def test_a_refused_commit_hides_behind_compaction_in_vain() -> None:
    foreign = snapshot(2, 1, "append", added_records=5)
    with pytest.raises(ForeignCommit, match="snapshot 2"):
        resolve(history(BASE, foreign, snapshot(3, 2, "replace")), 3, table="t")


def test_an_old_pin_and_a_rollback_stand_on_their_own_line() -> None:
    """T20: the mirror and the tag say 12, snapshot 1 still means 10; a branch means its own."""
    newer = ours(2, 1, 12, 20)
    branch = ours(4, 1, 11, 20)
    value = history(
        BASE,
        newer,
        snapshot(3, 1, "replace"),
        branch,
        tagged_id=2,
        mirror=format_watermark(watermark(12, 20)),
    )
    assert resolve(value, 1, table="t").offset(0) == 10
    assert resolve(value, 3, table="t").offset(0) == 10
    assert resolve(value, 2, table="t").offset(0) == 12
    assert resolve(value, 4, table="t").offset(0) == 11


def test_a_table_that_never_had_a_watermark_is_refused() -> None:
    with pytest.raises(WatermarkMissing, match="no snapshot back to the table's first carries"):
        resolve(history(snapshot(1, None, "append")), 1, table="t")


def test_a_damaged_text_is_not_skipped() -> None:
    damaged = Snapshot(2, 1, 2, "append", {SUMMARY_KEY: "?"})
    with pytest.raises(WatermarkUnreadable, match="t: the watermark text"):
        resolve(history(BASE, damaged), 2, table="t")


def broken(
    *,
    tag_rows: int | None = 30,
    oldest_rows: int | None = 30,
    tag_id: int | None = 1,
    same: bool = True,
) -> History:
    """Snapshot 1 is tagged, 2 expired, 3 and 4 compacted."""
    counts: dict[str, Any] = {} if tag_rows is None else {"total_records": tag_rows}
    base = ours(1, None, 10, 20, **counts)
    totals: dict[str, Any] = {} if oldest_rows is None else {"total_records": oldest_rows}
    oldest = snapshot(3, 2, "replace", added_records=30, deleted_records=30, **totals)
    head = snapshot(4, 3, "replace")
    mirror = format_watermark(watermark(10, 20) if same else watermark(9, 20))
    return history(base, oldest, head, tagged_id=tag_id, mirror=mirror)


def test_a_chain_broken_by_expiry_is_mended_by_tag_and_mirror_together() -> None:
    assert resolve(broken(), 4, table="t") == MARK
    assert base_snapshot(broken(), 4) == broken().snapshots[1]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (broken(same=False), "the tag and the mirror property disagree"),
        (broken(tag_id=None), "no tag holds a watermark"),
        (broken(tag_id=77), "no tag holds a watermark"),
        (broken(tag_id=3), "no tag holds a watermark"),
        (broken(oldest_rows=29), "rows were added or removed by snapshots that expired"),
        (broken(oldest_rows=None), "rows were added or removed by snapshots that expired"),
        (broken(tag_rows=None), "rows were added or removed by snapshots that expired"),
        (history(BASE), "the snapshot is not in the table's metadata"),
    ],
)
def test_a_broken_chain_without_full_proof_is_refused(value: History, why: str) -> None:
    with pytest.raises(WatermarkMissing, match=why):
        resolve(value, 4, table="t")


def test_a_hidden_compaction_that_dropped_deleted_rows_removed_none() -> None:
    # Of 30 rows two are deleted; the compaction wrote the 28 others and dropped the deletes.
    base = ours(1, None, 10, 20, total_records=30, total_position_deletes=2)
    head = snapshot(4, 3, "replace", added_records=28, deleted_records=28, total_records=28)
    value = history(base, head, tagged_id=1, mirror=format_watermark(MARK))
    assert resolve(value, 4, table="t") == MARK


@pytest.mark.parametrize(
    "counts",
    [
        # A DELETE in the oldest snapshot that is left is its own, and one before it is hidden.
        {"total_records": 30, "total_position_deletes": 3, "added_position_deletes": 2},
        {"total_records": 30, "total_equality_deletes": 1},
        # A rewrite dropped the rows of a hidden DELETE: before it, all 30 were there.
        {"added_records": 29, "deleted_records": 30, "removed_position_deletes": 1}
        | {"total_records": 29, "total_position_deletes": 0},
    ],
)
def test_a_hidden_row_delete_took_no_row_of_a_file(counts: dict[str, Any]) -> None:
    base = ours(1, None, 10, 20, total_records=30)
    head = snapshot(4, 3, "replace", **counts)
    value = history(base, head, tagged_id=1, mirror=format_watermark(MARK))
    assert resolve(value, 4, table="t") == MARK


@pytest.mark.parametrize(
    "counts",
    [
        # A hidden DELETE, and a hidden compaction of its rows: a rollback over a row leaves the same.
        {"total_records": 29},
        # Rows that an equality delete takes are not counted.
        {"total_records": 31, "total_position_deletes": 1, "total_equality_deletes": 1},
        {"total_records": 28, "total_position_deletes": 1},
        # A hidden INSERT, and a hidden DELETE of as many rows.
        {"total_records": 31, "total_position_deletes": 1},
    ],
)
def test_hidden_deletes_whose_rows_went_too_are_refused(counts: dict[str, Any]) -> None:
    base = ours(1, None, 10, 20, total_records=30)
    head = snapshot(4, 3, "replace", **counts)
    value = history(base, head, tagged_id=1, mirror=format_watermark(MARK))
    with pytest.raises(WatermarkMissing, match="rows were added or removed by snapshots that"):
        resolve(value, 4, table="t")


def test_a_tag_newer_than_the_broken_chain_proves_nothing() -> None:
    newest = ours(9, None, 50, 60, total_records=30)
    head = snapshot(4, 3, "replace", total_records=30)
    value = history(newest, head, tagged_id=9, mirror=format_watermark(watermark(50, 60)))
    with pytest.raises(WatermarkMissing, match="the tag is newer than the snapshot"):
        resolve(value, 4, table="t")


def test_a_chain_is_mended_where_expiry_took_the_parent_id_away_too() -> None:
    base = ours(1, None, 10, 20, total_records=30)
    head = snapshot(4, None, "replace", total_records=30)
    value = history(base, head, tagged_id=1, mirror=format_watermark(MARK))
    assert resolve(value, 4, table="t") == MARK
    assert base_snapshot(value, 4) == base


def test_a_new_first_snapshot_is_not_taken_for_a_broken_chain() -> None:
    """CREATE OR REPLACE leaves the old snapshots, the tag and the properties in the metadata."""
    base = ours(1, None, 10, 20, total_records=30)
    replaced = snapshot(2, None, "overwrite", added_records=30, total_records=30)
    value = history(base, replaced, tagged_id=1, mirror=format_watermark(MARK))
    with pytest.raises(WatermarkMissing, match="rows were added or removed"):
        resolve(value, 2, table="t")


def test_a_foreign_commit_above_a_broken_chain_is_still_refused() -> None:
    base = ours(1, None, 10, 20, total_records=30)
    foreign = snapshot(3, 2, "append", added_records=1, total_records=31)
    value = history(base, foreign, tagged_id=1, mirror=format_watermark(MARK))
    with pytest.raises(ForeignCommit, match="snapshot 3"):
        resolve(value, 3, table="t")


def test_only_overwrites_above_the_watermark_need_statistics() -> None:
    value = history(
        snapshot(1, None, "overwrite"),
        ours(2, 1, 10, 20),
        snapshot(3, 2, "overwrite"),
        snapshot(4, 3, "replace"),
        snapshot(5, 4, "overwrite", added_next=vector(1)),
        snapshot(6, 5, "overwrite"),
    )
    assert needs_statistics(value, 6) == (6, 3)
    assert needs_statistics(value, 2) == ()
    assert needs_statistics(value, 77) == ()


def test_what_the_counts_say_needs_no_count_of_live_rows() -> None:
    plain = rewritten(added_records=28, deleted_records=30)
    dead = rewritten(added_records=28, deleted_records=30, total_delete_files=2)
    assert needs_growth(history(BASE, plain), 2) == ()
    assert needs_growth(history(BASE, dead), 2) == (2,)
    assert needs_growth(history(BASE, replace(dead, growth=-2)), 2) == ()
    assert needs_growth(history(BASE, replace(plain, summary={})), 2) == (2,)


# Which watermark texts are believed.


def copies(text_of: Snapshot, snapshot_id: int, parent_id: int | None) -> Snapshot:
    """Another writer's append of five rows, with the watermark text of ``text_of``."""
    text = text_of.watermark_text
    assert text is not None
    summary = {SUMMARY_KEY: text, "added-records": "5", "total-records": "35"}
    return Snapshot(snapshot_id, parent_id, snapshot_id, "append", summary)


FIRST = ours(1, None, 0, 0)
SECOND = ours(2, 1, 10, 20)
COPIES = {
    "of the head's": history(FIRST, SECOND, copies(SECOND, 3, 2)),
    "of an older one's": history(FIRST, SECOND, copies(FIRST, 3, 2)),
    "after a rollback, of the one rolled back": history(
        FIRST, SECOND, copies(SECOND, 3, 1), tagged_id=2, mirror=SECOND.watermark_text
    ),
    "behind a compaction": history(
        FIRST, SECOND, copies(SECOND, 3, 2), snapshot(4, 3, "replace")
    ),
    "in an overwrite": history(
        FIRST, SECOND, replace(copies(SECOND, 3, 2), operation="overwrite")
    ),
}


@pytest.mark.parametrize("history", COPIES.values(), ids=COPIES.keys())
def test_a_copied_watermark_is_a_foreign_commit(history: History) -> None:
    with pytest.raises(ForeignCommit, match="snapshot 3 was committed by another writer"):
        resolve(history, max(history.snapshots), table="t")


@pytest.mark.parametrize("text_of", [FIRST, SECOND], ids=["first", "second"])
def test_a_copy_is_found_where_expiry_took_its_parent_id_away(text_of: Snapshot) -> None:
    value = history(SECOND, copies(text_of, 3, None), tagged_id=2, mirror=SECOND.watermark_text)
    with pytest.raises(WatermarkMissing):
        resolve(value, 3, table="t")


@pytest.mark.parametrize("added", ["0", "1"])
def test_a_copy_of_one_that_was_rolled_back_and_expired_is_known_by_its_rows(
    added: str,
) -> None:
    """It was built on the same snapshot, and a newer publish has the tag."""
    text = format_watermark(
        replace(watermark(8, 17, prev_snapshot_id=1), outcomes=Outcomes(rows=2))
    )
    total = str(30 + int(added))
    summary = {SUMMARY_KEY: text, "added-records": added, "total-records": total}
    later = ours(5, 4, 12, 21)
    value = history(BASE, Snapshot(4, 1, 4, "append", summary), later, tagged_id=5)
    if added == "0":
        assert resolve(value, 4, table="t") == MARK
    else:
        with pytest.raises(ForeignCommit, match="snapshot 4 was committed by another writer"):
            resolve(value, 4, table="t")
    original = Snapshot(4, 1, 4, "append", {**summary, "added-records": "2"})
    assert resolve(history(BASE, original, later), 4, table="t").offset(1) == 17


def test_the_tagged_watermark_is_believed_without_its_parent_id() -> None:
    orphan = replace(SECOND, parent_id=None)
    value = history(orphan, tagged_id=2, mirror=None)
    assert resolve(value, 2, table="t").offset(0) == 10


@pytest.mark.parametrize("text_of", [FIRST, SECOND, ours(9, None, 3, 4)], ids=str)
@pytest.mark.parametrize("tagged_id", [None, 5])
def test_one_behind_the_tag_is_believed_only_with_its_parent_id(
    text_of: Snapshot, tagged_id: int | None
) -> None:
    """A copy that a newer publish has left behind looks the same; older metadata files tell (``broken_at``)."""
    orphan = copies(text_of, 2, None)
    value = history(orphan, ours(5, 4, 11, 21), tagged_id=tagged_id, mirror=None)
    assert broken_at(value, 2) == 2
    with pytest.raises(WatermarkMissing):
        resolve(value, 2, table="t")
    facts = replace(value, snapshots={**value.snapshots, 2: replace(SECOND, parent_id=1)})
    assert resolve(facts, 2, table="t").offset(0) == 10


def test_a_creation_is_the_first_commit_of_its_table() -> None:
    assert resolve(history(FIRST, tagged_id=7), 1, table="t").offset(0) == 0
    with pytest.raises(ForeignCommit):
        resolve(history(FIRST, snapshot(2, 1, mark=MARK)), 2, table="t")
    # Where a catalog needs two commits, somebody's may have come between them: the tag is on ours.
    later = history(FIRST, snapshot(2, 1, mark=MARK), tagged_id=2)
    assert resolve(later, 2, table="t") == MARK


# Chains that expiry broke, and older metadata files tell of.


def test_only_a_chain_that_ends_before_a_watermark_is_broken() -> None:
    cut = history(snapshot(4, 3, "replace"), snapshot(5, 4, "delete"))
    assert broken_at(cut, 5) == 4
    assert broken_at(history(snapshot(4, None, "replace")), 4) == 4
    assert broken_at(history(BASE, snapshot(2, 1, "replace")), 2) is None
    assert broken_at(history(BASE), 1) is None
    assert broken_at(history(BASE), 77) is None
    assert [value.snapshot_id for value in line_above(cut, 5)] == [5, 4]


def test_the_watermark_below_is_named_whatever_lies_above_it() -> None:
    foreign = snapshot(2, 1, "append", added_records=5)
    assert base_watermark(history(BASE, foreign), 2) == MARK
    assert base_watermark(history(BASE), 1) == MARK
    assert base_watermark(history(snapshot(1, None)), 1) is None
    assert (
        base_watermark(history(Snapshot(1, None, 1, "append", {SUMMARY_KEY: "?"})), 1) is None
    )


def test_an_expired_foreign_commit_is_refused_with_the_way_out_that_is_left() -> None:
    hidden = replace(snapshot(2, 1, "append", added_records=5), is_retained=False)
    value = history(BASE, hidden, snapshot(3, 2, "replace"))
    with pytest.raises(ForeignCommit, match="say what they cover with `thermocline covers t`"):
        resolve(value, 3, table="t")
