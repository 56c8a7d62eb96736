"""The resolver's table of rules, one case a row, then the shapes expiry and rollback make."""

import pytest

from planner.errors import ForeignCommit, WatermarkMissing, WatermarkUnreadable
from planner.resolver import needs_statistics, resolve
from planner.snapshots import History, Snapshot
from planner.watermark import SUMMARY_KEY, format_watermark
from tests.unit.builders import snapshot, vector, watermark

MARK = watermark(10, 20)


def history(
    *snapshots: Snapshot, tagged_id: int | None = None, mirror: str | None = None
) -> History:
    return History({held.snapshot_id: held for held in snapshots}, tagged_id, mirror)


def ours(snapshot_id: int, parent_id: int | None, *offsets: int, **counts: int) -> Snapshot:
    return snapshot(snapshot_id, parent_id, mark=watermark(*offsets), **counts)


BASE = ours(1, None, 10, 20, total_records=30)


def test_the_head_that_carries_a_watermark_is_its_own_carrier() -> None:
    found = resolve(history(BASE), 1, table="t")
    assert (found.watermark, found.carrier_id, found.how) == (MARK, 1, "ancestry")


PASSES = {
    "replace": snapshot(2, 1, "replace"),
    "replace with a copied watermark": snapshot(2, 1, "replace", mark=watermark(99, 99)),
    "delete": snapshot(2, 1, "delete", deleted_records=3),
    "copy-on-write delete": snapshot(
        2, 1, "overwrite", added_next=vector(10, 20), added_records=28, deleted_records=30
    ),
    "merge-on-read update": snapshot(
        2, 1, "overwrite", added_next=vector(7), added_records=2, added_position_deletes=2
    ),
    "empty append": snapshot(2, 1, "append", total_records=30),
}


@pytest.mark.parametrize("above", PASSES.values(), ids=PASSES.keys())
def test_it_passes(above: Snapshot) -> None:
    assert resolve(history(BASE, above), 2, table="t").watermark == MARK


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
        snapshot(2, 1, "overwrite", added_next=vector(1), added_records=2, deleted_records=1),
        "added 2 rows but removed 1",
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
    assert resolve(history(BASE, above), 2, table="t", accepted={2}).watermark == MARK


def test_a_refused_commit_below_the_watermark_was_settled_before() -> None:
    foreign = snapshot(2, 1, "append", added_records=5)
    assert resolve(history(BASE, foreign, ours(3, 2, 11, 20)), 3, table="t").carrier_id == 3


def test_a_refused_commit_hides_behind_compaction_in_vain() -> None:
    foreign = snapshot(2, 1, "append", added_records=5)
    with pytest.raises(ForeignCommit, match="snapshot 2"):
        resolve(history(BASE, foreign, snapshot(3, 2, "replace")), 3, table="t")


def test_an_old_pin_and_a_rollback_stand_on_their_own_line() -> None:
    """T20: the mirror and the tag say 12, snapshot 1 still means 10; a branch means its own."""
    newer = ours(2, 1, 12, 20)
    branch = ours(4, 1, 11, 20)
    held = history(
        BASE,
        newer,
        snapshot(3, 1, "replace"),
        branch,
        tagged_id=2,
        mirror=format_watermark(watermark(12, 20)),
    )
    assert resolve(held, 1, table="t").watermark.offset(0) == 10
    assert resolve(held, 3, table="t").watermark.offset(0) == 10
    assert resolve(held, 2, table="t").watermark.offset(0) == 12
    assert resolve(held, 4, table="t").watermark.offset(0) == 11


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
    counts = {} if tag_rows is None else {"total_records": tag_rows}
    base = ours(1, None, 10, 20, **counts)
    totals = {} if oldest_rows is None else {"total_records": oldest_rows}
    oldest = snapshot(3, 2, "replace", added_records=30, deleted_records=30, **totals)
    head = snapshot(4, 3, "replace")
    mirror = format_watermark(watermark(10, 20) if same else watermark(9, 20))
    return history(base, oldest, head, tagged_id=tag_id, mirror=mirror)


def test_a_chain_broken_by_expiry_is_mended_by_tag_and_mirror_together() -> None:
    found = resolve(broken(), 4, table="t")
    assert (found.watermark, found.carrier_id, found.how) == (MARK, 1, "tag")


@pytest.mark.parametrize(
    ("held", "why"),
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
def test_a_broken_chain_without_full_proof_is_refused(held: History, why: str) -> None:
    with pytest.raises(WatermarkMissing, match=why):
        resolve(held, 4, table="t")


def test_a_tag_newer_than_the_broken_chain_proves_nothing() -> None:
    newest = ours(9, None, 50, 60, total_records=30)
    head = snapshot(4, 3, "replace", total_records=30)
    held = history(newest, head, tagged_id=9, mirror=format_watermark(watermark(50, 60)))
    with pytest.raises(WatermarkMissing, match="the tag is newer than the snapshot"):
        resolve(held, 4, table="t")


def test_a_chain_is_mended_where_expiry_took_the_parent_id_away_too() -> None:
    base = ours(1, None, 10, 20, total_records=30)
    head = snapshot(4, None, "replace", total_records=30)
    held = history(base, head, tagged_id=1, mirror=format_watermark(MARK))
    found = resolve(held, 4, table="t")
    assert (found.watermark, found.carrier_id, found.how) == (MARK, 1, "tag")


def test_a_new_first_snapshot_is_not_taken_for_a_broken_chain() -> None:
    """CREATE OR REPLACE leaves the old snapshots, the tag and the properties in the metadata."""
    base = ours(1, None, 10, 20, total_records=30)
    replaced = snapshot(2, None, "overwrite", added_records=30, total_records=30)
    held = history(base, replaced, tagged_id=1, mirror=format_watermark(MARK))
    with pytest.raises(WatermarkMissing, match="rows were added or removed"):
        resolve(held, 2, table="t")


def test_a_foreign_commit_above_a_broken_chain_is_still_refused() -> None:
    base = ours(1, None, 10, 20, total_records=30)
    foreign = snapshot(3, 2, "append", added_records=1, total_records=31)
    held = history(base, foreign, tagged_id=1, mirror=format_watermark(MARK))
    with pytest.raises(ForeignCommit, match="snapshot 3"):
        resolve(held, 3, table="t")


def test_only_overwrites_above_the_watermark_need_statistics() -> None:
    held = history(
        snapshot(1, None, "overwrite"),
        ours(2, 1, 10, 20),
        snapshot(3, 2, "overwrite"),
        snapshot(4, 3, "replace"),
        snapshot(5, 4, "overwrite", added_next=vector(1)),
        snapshot(6, 5, "overwrite"),
    )
    assert needs_statistics(held, 6) == (6, 3)
    assert needs_statistics(held, 2) == ()
    assert needs_statistics(held, 77) == ()
