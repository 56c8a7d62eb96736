"""What the counts of a line of snapshots say of the growth of one of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.seam.snapshots import Snapshot, growth_at_most
from tests.harness.builders import snapshot

#: Rewrote files of 60 rows, of which nobody knows how many were dead.
REWROTE = snapshot(3, 2, "overwrite", added_records=38, deleted_records=60)
DELETED = snapshot(2, 1, "delete", added_position_deletes=20)


@pytest.mark.parametrize(
    ("others", "total", "bound"),
    [
        ([], -2, -2),
        ([DELETED], -22, -2),
        ([DELETED, snapshot(4, 3, "replace", added_records=38)], -22, -2),
        # It may have added 14 rows: a delete and a MERGE of copies.
        ([DELETED], -6, 14),
        ([replace(DELETED, growth=-6)], -6, 0),
        ([snapshot(2, 1, "overwrite", added_records=5, deleted_records=9)], -6, -2),
        ([snapshot(2, 1, "delete")], -6, None),
        ([snapshot(2, 1, "delete", added_equality_deletes=1)], -6, None),
    ],
)
def test_the_others_bound_it(others: list[Snapshot], total: int, bound: int | None) -> None:
    assert growth_at_most(REWROTE, others, total) == bound


def test_equality_deletes_of_its_own_say_nothing() -> None:
    mixed = snapshot(3, 2, "overwrite", added_records=1, added_equality_deletes=1)
    assert growth_at_most(mixed, [], 0) is None
