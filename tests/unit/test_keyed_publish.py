"""Whether what was staged of a keyed table still replaces the rows that it was staged to replace."""

from __future__ import annotations

import pytest

from planner.errors import BadBinding, InternalError, TieringConflict
from planner.seam.snapshots import History, Snapshot
from planner.tiering.keyed import (
    RowCount,
    check_delete_properties,
    check_rows_of,
    two_partitions,
)
from tests.harness.builders import FLOWS, snapshot

MERGE_ON_READ = {"write.delete.mode": "merge-on-read"}


def history(*snapshots: Snapshot) -> History:
    return History({each.snapshot_id: each for each in snapshots})


def rows(snapshot_id: int, parent_id: int | None, operation: str, **counts: int) -> Snapshot:
    return snapshot(snapshot_id, parent_id, operation, mark=None, added_next=None, **counts)


BASE = rows(1, None, "append", total_records=10)


@pytest.mark.parametrize(
    "between",
    [
        (),
        (rows(2, 1, "replace", total_records=10),),
        (rows(2, 1, "append", total_records=10),),
        (rows(2, 1, "replace", total_records=8), rows(3, 2, "append", total_records=8)),
    ],
    ids=["nothing", "rewrite", "renewal", "rewrite and renewal"],
)
def test_rows_are_those_of_the_base_after_rewrites_and_commits_without_rows(
    between: tuple[Snapshot, ...],
) -> None:
    chain = history(BASE, *between)
    check_rows_of(1, chain, (BASE, *between)[-1].snapshot_id, FLOWS)


def test_a_base_that_expired_is_known_by_what_was_built_on_it() -> None:
    check_rows_of(1, history(rows(2, 1, "replace", total_records=10)), 2, FLOWS)


@pytest.mark.parametrize(
    "between",
    [
        (rows(2, 1, "delete", total_records=10, added_position_deletes=1),),
        (rows(2, 1, "delete", total_records=9, deleted_records=1),),
        (rows(2, 1, "overwrite", added_records=1, total_records=11),),
        (rows(2, 1, "append", added_records=1, total_records=11),),
        (rows(2, 1, "unheard of", total_records=10),),
        (rows(2, 1, "delete"), rows(3, 2, "replace")),
    ],
)
def test_rows_that_another_writer_changed_are_a_conflict(
    between: tuple[Snapshot, ...],
) -> None:
    chain = history(BASE, *between)
    with pytest.raises(TieringConflict) as caught:
        check_rows_of(1, chain, between[-1].snapshot_id, FLOWS)
    assert caught.value.message == (
        "lake.net.flows: another writer changed rows since the keys of this tiering were looked up; nothing was changed, plan "
        "again."
    )


def test_what_expiry_hides_is_a_conflict() -> None:
    with pytest.raises(TieringConflict):
        check_rows_of(1, history(rows(3, 2, "replace", total_records=10)), 3, FLOWS)


def test_a_table_has_the_rows_before_less_those_hit_and_the_new_ones() -> None:
    head = rows(1, None, "append", total_records=20, total_position_deletes=5)
    # A vector that replaces one has the rows of both.
    deletes = rows(2, 1, "delete", added_position_deletes=7, removed_position_deletes=4)
    new = rows(3, 1, "append", added_records=6)
    count = RowCount.of(FLOWS, head, deletes, new)
    assert count == RowCount(before=15, hit=3, appended=6)
    count.check(FLOWS, rows(4, 1, "overwrite", total_records=26, total_position_deletes=8))
    assert RowCount.of(FLOWS, head, None, None) == RowCount(15, 0, 0)


def test_a_table_with_another_number_of_rows_is_not_published() -> None:
    published = rows(4, 1, "overwrite", total_records=26, total_position_deletes=12)
    with pytest.raises(TieringConflict) as caught:
        RowCount(15, 3, 6).check(FLOWS, published)
    assert caught.value.message == (
        "lake.net.flows: the table would have 14 rows, of 15 less 3 replaced and 6 new ones; another writer rewrote its "
        "deletes meanwhile: nothing was changed, plan again."
    )


@pytest.mark.parametrize(
    ("head", "new"),
    [
        (rows(1, None, "append"), rows(3, 1, "append", added_records=6)),
        (rows(1, None, "append", total_records=1), rows(3, 1, "append")),
    ],
)
def test_summaries_that_do_not_say_are_no_count(head: Snapshot, new: Snapshot) -> None:
    with pytest.raises(InternalError, match="how many rows"):
        RowCount.of(FLOWS, head, None, new)


def test_deletes_are_by_position_and_file() -> None:
    check_delete_properties(FLOWS, MERGE_ON_READ)
    check_delete_properties(FLOWS, MERGE_ON_READ | {"write.delete.granularity": "file"})


@pytest.mark.parametrize(
    ("properties", "sentence"),
    [
        (
            {},
            "property write.delete.mode is 'copy-on-write'; a keyed table is tiered with merge-on-read: set it so.",
        ),
        (
            MERGE_ON_READ | {"write.delete.granularity": "partition"},
            "property write.delete.granularity is 'partition'; a keyed table is tiered with file: set it so.",
        ),
    ],
)
def test_other_deletes_are_refused(properties: dict[str, str], sentence: str) -> None:
    with pytest.raises(BadBinding) as caught:
        check_delete_properties(FLOWS, properties)
    assert caught.value.message == f"lake.net.flows: {sentence}"


def test_a_key_in_two_partitions_names_both() -> None:
    error = two_partitions("lake.net.flows", 1, 7, 0)
    assert error.message == (
        "lake.net.flows: the key of offset 7 of partition 1 has a change in partition 0, too, so which is the newest is not "
        "known; have producers choose the partition by the key alone, and bind a new table to a topic that was written so."
    )
    assert error.facts == {"table": "lake.net.flows", "partition": 1, "offset": 7, "other": 0}
