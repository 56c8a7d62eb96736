"""What other writers' maintenance hides, and what the table then says: in memory and over pyiceberg."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from connectors.iceberg.repair_commit import IcebergRepairCommitter
from connectors.repairs import RepairCommitter, covering
from planner.covering import PartitionRows, RowsOfHead
from planner.errors import BadParameter, ForeignCommit, TieringConflict, WatermarkMissing
from tests.doubles.amending import MemoryRepairCommitter
from tests.fixtures.cold import ColdHarness, IcebergCold, MemoryCold
from tests.harness.builders import FLOWS
from tests.harness.cold_answers import BASE, offsets, refused, watermark_of


@pytest.fixture
def tiered(cold: ColdHarness) -> ColdHarness:
    """Three rows below watermark (3, 0), nothing above it."""
    cold.create()
    cold.tier(BASE, 3, 0)
    return cold


@pytest.fixture
def amender(cold: ColdHarness) -> Iterator[RepairCommitter]:
    if isinstance(cold, IcebergCold):
        made = IcebergRepairCommitter(cold.properties, sleep=lambda _: None)
        yield made
        made.close()
    else:
        yield MemoryRepairCommitter(cast("MemoryCold", cold).store)


def maintain(cold: ColdHarness) -> None:
    """DELETE, compaction, expiry to one snapshot, with no publish between."""
    hidden = [cold.delete(1)]
    cold.compact()
    cold.expire(*hidden)


def test_maintenance_with_no_publish_between_leaves_a_table_that_answers(
    tiered: ColdHarness,
) -> None:
    maintain(tiered)
    assert watermark_of(tiered) == {0: 3, 1: 0}
    assert offsets(tiered, tiered.store.pin(FLOWS)) == [0, 2]


def test_maintenance_may_come_again_and_again(tiered: ColdHarness) -> None:
    maintain(tiered)
    hidden = tiered.store.pin(FLOWS).snapshot_id
    again = tiered.delete(2)
    tiered.compact()
    assert hidden is not None
    tiered.expire(hidden, again)
    assert watermark_of(tiered) == {0: 3, 1: 0}
    assert offsets(tiered, tiered.store.pin(FLOWS)) == [0]
    tiered.tier([(0, 3, "d", 4)], 4, 0)
    assert watermark_of(tiered) == {0: 4, 1: 0}


def test_a_rollback_that_expiry_hid_takes_the_watermark_back(tiered: ColdHarness) -> None:
    older = tiered.store.pin(FLOWS).snapshot_id
    tiered.tier([(0, 3, "d", 4)], 4, 0)
    assert older is not None
    tiered.rollback(older)
    tiered.compact()
    tiered.expire(older)
    assert watermark_of(tiered) == {0: 3, 1: 0}
    assert offsets(tiered, tiered.store.pin(FLOWS)) == [0, 1, 2]


def test_an_append_that_expiry_hid_is_refused(
    tiered: ColdHarness, amender: RepairCommitter
) -> None:
    foreign = tiered.append([(0, 1, "theirs", 1)])
    tiered.compact()
    tiered.expire(foreign)
    refused(tiered, ForeignCommit, str(foreign), "`thermocline covers lake.net.flows`")
    # Its rows stay if a person says that they are what the table covers.
    rows = _rows(tiered, PartitionRows(0, 0, 2, 4, 3))
    assert amender.amend(FLOWS, covering(FLOWS, rows, {})).next.as_dict() == {0: 3, 1: 0}
    assert offsets(tiered, tiered.store.pin(FLOWS)) == [0, 1, 1, 2]


def test_a_row_moved_above_the_watermark_by_what_expired_is_refused(
    tiered: ColdHarness,
) -> None:
    moved = tiered.move(2, 7)
    tiered.compact()
    tiered.expire(moved)
    refused(tiered, ForeignCommit, "added offset 7 of partition 0")


def test_a_swap_that_expiry_hid_is_found_though_the_totals_are_equal(
    tiered: ColdHarness,
) -> None:
    foreign = tiered.append([(0, 1, "theirs", 1)])
    hidden = tiered.delete(2)
    tiered.compact()
    tiered.expire(foreign, hidden)
    refused(tiered, ForeignCommit, str(foreign))


@pytest.mark.parametrize("which", ["newest", "older"])
def test_a_copied_watermark_is_not_believed(tiered: ColdHarness, which: str) -> None:
    copied = tiered.store.pin(FLOWS).snapshot_id
    if which == "older":
        tiered.tier([(0, 3, "d", 4)], 4, 0)
    assert copied is not None
    snapshot = tiered.append_copying([(0, 1, "theirs", 1)], copied)
    refused(
        tiered, ForeignCommit, str(snapshot), "under a watermark copied from another commit"
    )
    tiered.compact()
    refused(tiered, ForeignCommit, str(snapshot))


class TestWithoutOlderFiles:
    """The metadata log is short, and tag and mirror do not prove the watermark."""

    @pytest.fixture
    def refused_table(self, tiered: ColdHarness) -> ColdHarness:
        maintain(tiered)
        tiered.lose_older_files()
        refused(tiered, WatermarkMissing, "`thermocline covers lake.net.flows`")
        return tiered

    def test_a_person_says_what_it_covers(
        self, refused_table: ColdHarness, amender: RepairCommitter
    ) -> None:
        rows = _rows(refused_table, PartitionRows(0, 0, 2, 2, 2))
        assert amender.look(FLOWS, covering(FLOWS, rows, {})).next.as_dict() == {0: 3, 1: 0}
        refused(refused_table, WatermarkMissing)
        amender.amend(FLOWS, covering(FLOWS, rows, {}))
        assert watermark_of(refused_table) == {0: 3, 1: 0}
        assert offsets(refused_table, refused_table.store.pin(FLOWS)) == [0, 2]
        refused_table.tier([(0, 3, "d", 4)], 4, 0)
        assert watermark_of(refused_table) == {0: 4, 1: 0}

    def test_rows_that_would_be_doubled_are_refused(
        self, refused_table: ColdHarness, amender: RepairCommitter
    ) -> None:
        rows = _rows(refused_table, PartitionRows(0, 0, 2, 2, 2))
        with pytest.raises(ForeignCommit, match="there is a row of partition 0, offset 2"):
            amender.amend(FLOWS, covering(FLOWS, rows, {0: 2, 1: 0}))
        refused(refused_table, WatermarkMissing)

    def test_what_changed_since_it_was_shown_is_not_decided_on(
        self, refused_table: ColdHarness, amender: RepairCommitter
    ) -> None:
        rows = _rows(refused_table, PartitionRows(0, 0, 2, 2, 2))
        refused_table.compact()
        with pytest.raises(TieringConflict, match="look again"):
            amender.amend(FLOWS, covering(FLOWS, rows, {}))


def test_nobody_says_what_is_known(tiered: ColdHarness, amender: RepairCommitter) -> None:
    rows = _rows(tiered, PartitionRows(0, 0, 2, 3, 3))
    with pytest.raises(BadParameter, match="its watermark stands"):
        amender.amend(FLOWS, covering(FLOWS, rows, {}))


def _rows(cold: ColdHarness, *partitions: PartitionRows) -> RowsOfHead:
    if isinstance(cold, IcebergCold):
        head = cold.table().metadata.current_snapshot_id
    else:
        head = cast("MemoryCold", cold).store.facts(FLOWS).head
    return RowsOfHead(head, partitions, 0)
