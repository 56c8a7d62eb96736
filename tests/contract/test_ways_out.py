"""The ways out, over a table in memory and over pyiceberg: what is decided is committed whole, or nothing is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import cast

import pyarrow as pa
import pytest

from connectors.decoding.registry import decoder_for
from connectors.iceberg.repair_commit import IcebergRepairCommitter
from connectors.jobs.round import tier_once
from connectors.repairs import RepairCommitter, Repairs, accepting, moving_shape
from planner.errors import (
    BadParameter,
    ForeignCommit,
    ShapeMismatch,
    TailGap,
    TieringConflict,
    UndecodableRecord,
)
from planner.offsets import OffsetRange
from planner.ports import TopicSource
from planner.repairs import AddedRows
from planner.seam.cut import plan_cut
from planner.seam.watermark import Skip, Watermark
from planner.tiering.plan import TieringBudget, plan_tiering
from planner.verification.chain import check_chain
from tests.doubles.amending import MemoryRepairCommitter
from tests.doubles.log import MemoryLog, MemoryRecord
from tests.doubles.tiering import MemoryTieringTarget
from tests.fixtures.cold import ColdHarness, IcebergCold, MemoryCold
from tests.harness.builders import FLOWS, vector

POISON = b"{not json"


class Table:
    """One table, its log, and who decides. ``between`` runs between a decision and its commit, once."""

    def __init__(self, cold: ColdHarness) -> None:
        self.cold = cold
        self.log = MemoryLog(cluster_id="cluster-1")
        self.log.create_topic("flows", 2)
        self.between: Callable[[], object] = lambda: None
        self.amender: RepairCommitter
        if isinstance(cold, IcebergCold):
            self.amender = IcebergRepairCommitter(
                cold.properties, sleep=lambda _: None, before_commit=self._disturb
            )
        else:
            self.amender = MemoryRepairCommitter(cast("MemoryCold", cold).store)
        self.ways_out = Repairs(self.amender, self.log)
        cold.create()

    def _disturb(self) -> None:
        between, self.between = self.between, lambda: None
        between()

    def produce(self, *values: bytes, partition: int = 0) -> None:
        for value in values:
            self.log.append("flows", partition, MemoryRecord(value))

    def cut_offsets(self) -> list[OffsetRange]:
        """Plan a statement and return what it reads of the tail."""
        pin = self.cold.store.pin(FLOWS)
        cut = plan_cut(pin, self.log.measure(["flows"])["flows"])
        assert cut.hot is not None
        return list(cut.hot.ranges)

    def mark(self) -> Watermark:
        mark = self.cold.store.pin(FLOWS).watermark
        assert mark is not None
        return mark

    def head(self) -> int:
        head = self.cold.store.pin(FLOWS).snapshot_id
        assert head is not None
        return head

    def faults(self) -> list[str]:
        """What ``verify`` says of chain, tag and mirror."""
        if isinstance(self.cold, IcebergCold):
            table = self.cold.table()
            from connectors.iceberg.history_facts import read_facts

            facts = read_facts(FLOWS, table)
        else:
            facts = cast("MemoryCold", self.cold).store.facts(FLOWS)
        assert facts.head is not None
        return [finding.message for finding in check_chain(facts.history, facts.head)]


@pytest.fixture
def table(cold: ColdHarness) -> Iterator[Table]:
    made = Table(cold)
    yield made
    if isinstance(made.amender, IcebergRepairCommitter):
        made.amender.close()


def lose(table: Table) -> tuple[OffsetRange, ...]:
    """Let retention take two offsets of partition 0 before they were tiered."""
    table.produce(b"{}", b"{}", b"{}")
    table.log.delete_records("flows", 0, 2)
    with pytest.raises(TailGap, match="run `thermocline gap accept"):
        table.cut_offsets()
    return table.ways_out.gap(table.cold.store.pin(FLOWS))


def test_after_an_accepted_gap_the_table_answers_and_records_it(table: Table) -> None:
    lost = lose(table)
    assert lost == (OffsetRange(0, 0, 2),)
    before = table.head()
    table.ways_out.accept_gap(FLOWS, lost)
    assert table.cut_offsets() == [OffsetRange(0, 2, 3)]
    assert table.mark().gaps == lost
    assert table.mark().prev_snapshot_id == before
    assert table.faults() == []


def test_a_gap_that_grew_while_it_was_shown_changes_nothing(table: Table) -> None:
    lost = lose(table)
    table.log.delete_records("flows", 0, 3)
    before = table.head()
    with pytest.raises(TieringConflict, match="not the one that was shown"):
        table.ways_out.accept_gap(FLOWS, lost)
    assert table.head() == before


def test_no_gap_no_decision(table: Table) -> None:
    table.produce(b"{}")
    with pytest.raises(BadParameter, match="there is no gap"):
        table.ways_out.accept_gap(FLOWS, table.ways_out.gap(table.cold.store.pin(FLOWS)))


def test_a_poisoned_record_is_skipped_for_good(table: Table) -> None:
    table.produce(b"{}", POISON, b"{}")
    pin = table.cold.store.pin(FLOWS)
    assert pin.binding is not None
    raw = list(table.log.fetch(TopicSource("flows"), [OffsetRange(0, 0, 3)], timeout_s=1))
    with pytest.raises(UndecodableRecord, match="--partition 0 --offset 1`"):
        decoder_for("lake.net.flows", pin.schema, pin.binding).decode(raw[0])
    table.ways_out.skip(FLOWS, [Skip(0, 1, "no JSON")], decoder_for)
    pin = table.cold.store.pin(FLOWS)
    assert pin.binding is not None
    decoded = decoder_for("lake.net.flows", pin.schema, pin.binding).decode(raw[0])
    assert decoded.rows["kafka_offset"].to_pylist() == [0, 2]
    assert (decoded.outcomes.rows, decoded.outcomes.skipped) == (2, 1)
    assert table.mark().skips == (Skip(0, 1, "no JSON"),)
    assert table.mark().next == vector(0, 0)
    assert table.faults() == []


@pytest.mark.parametrize(
    ("offset", "why"),
    [(0, "decodes under error policy fail"), (1, "is a tombstone"), (3, "there is no record")],
)
def test_what_stops_nobody_is_not_skipped_unless_forced(
    table: Table, offset: int, why: str
) -> None:
    table.produce(b"{}")
    table.log.append("flows", 0, MemoryRecord(None))
    transaction = table.log.begin()
    transaction.append("flows", 0, MemoryRecord(b"{}"))
    transaction.commit()
    before = table.head()
    with pytest.raises(BadParameter, match=f"{why}.*--force"):
        table.ways_out.skip(FLOWS, [Skip(0, offset)], decoder_for)
    assert table.head() == before
    table.ways_out.skip(FLOWS, [Skip(0, offset)], decoder_for, force=True)
    assert table.mark().skipped == ((0, offset),)
    with pytest.raises(BadParameter, match="at most 200"):
        table.ways_out.skip(FLOWS, [Skip(0, 0, "x" * 201)], decoder_for)


def test_an_accepted_foreign_snapshot_stops_nobody_any_more(table: Table) -> None:
    table.produce(b"{}")
    table.cold.tier([(0, 0, "a", 1)], 1, 0)
    foreign = table.cold.append([(0, 0, "theirs", 1)])
    with pytest.raises(ForeignCommit, match=f"accept lake.net.flows --snapshot {foreign}`"):
        table.cold.store.pin(FLOWS)
    added: dict[int, AddedRows] = {}
    table.amender.look(FLOWS, accepting(FLOWS, [foreign], added))
    assert added == {foreign: AddedRows(1, vector(1), 0)}
    table.amender.amend(FLOWS, accepting(FLOWS, [foreign], {}))
    assert table.mark().accepted == (foreign,)
    assert table.mark().next == vector(1, 0)
    assert table.cut_offsets() == []


def test_foreign_rows_without_offsets_are_counted(table: Table) -> None:
    table.cold.tier([(0, 0, "a", 1)], 1, 0)
    foreign = table.cold.append([(None, None, "theirs", 1), (0, 0, "b", 2)])
    added: dict[int, AddedRows] = {}
    table.amender.look(FLOWS, accepting(FLOWS, [foreign], added))
    assert added == {foreign: AddedRows(2, vector(1), 1)}


def test_foreign_rows_that_the_tail_has_too_are_not_accepted(table: Table) -> None:
    foreign = table.cold.append([(1, 4, "theirs", 1)])
    with pytest.raises(ForeignCommit, match="partition 1, offset 4, and the watermark is 0"):
        table.amender.amend(FLOWS, accepting(FLOWS, [foreign], {}))
    with pytest.raises(BadParameter, match="snapshot 4711 needs no acceptance"):
        table.amender.amend(FLOWS, accepting(FLOWS, [4711], {}))


class TestOverIceberg:
    """Another writer between the decision and the commit: pyiceberg would build on its head, unasked."""

    @pytest.fixture
    def table(self, iceberg: IcebergCold) -> Table:
        return Table(iceberg)

    def test_a_compaction_in_between_is_decided_on_again(self, table: Table) -> None:
        table.cold.tier([(0, 0, "a", 1)], 1, 0)
        table.produce(b"{}", b"{}", b"{}")
        table.log.delete_records("flows", 0, 2)
        lost = table.ways_out.gap(table.cold.store.pin(FLOWS))
        compactions: list[int] = []
        table.between = lambda: compactions.append(table.cold.compact())
        table.ways_out.accept_gap(FLOWS, lost)
        assert table.mark().prev_snapshot_id == compactions[0]
        assert table.mark().gaps == (OffsetRange(0, 1, 2),)

    def test_a_tierer_in_between_wins(self, table: Table) -> None:
        lost = lose(table)
        table.between = lambda: table.cold.tier([(0, 2, "a", 1)], 3, 0)
        with pytest.raises(BadParameter, match="there is no gap"):
            table.ways_out.accept_gap(FLOWS, lost)
        assert table.mark().next == vector(3, 0)
        assert table.mark().gaps == ()

    def test_a_foreign_append_in_between_is_not_laundered(self, table: Table) -> None:
        lost = lose(table)
        table.between = lambda: table.cold.append([(0, 0, "theirs", 1)])
        with pytest.raises(ForeignCommit):
            table.ways_out.accept_gap(FLOWS, lost)

    def test_a_second_foreign_append_in_between_is_not_accepted_with_the_first(
        self, table: Table
    ) -> None:
        table.cold.tier([(0, 0, "a", 1)], 1, 0)
        first = table.cold.append([(0, 0, "theirs", 1)])
        table.between = lambda: table.cold.append([(0, 0, "theirs too", 1)])
        with pytest.raises(ForeignCommit):
            table.amender.amend(FLOWS, accepting(FLOWS, [first], {}))


class TestWithATierer:
    """In memory, with the tierer of the product."""

    @pytest.fixture
    def table(self) -> Table:
        return Table(MemoryCold())

    def tier(self, table: Table) -> Watermark:
        target = MemoryTieringTarget(
            cast("MemoryCold", table.cold).store,
            FLOWS,
            table.log,
            lambda schema, binding: decoder_for(str(FLOWS), schema, binding),
        )
        return tier_once(table.log, target, TieringBudget()).watermark

    def test_tiering_goes_on_after_a_skip_and_carries_it_on(self, table: Table) -> None:
        table.produce(b"{}", POISON, b"{}")
        with pytest.raises(UndecodableRecord):
            self.tier(table)
        table.ways_out.skip(FLOWS, [Skip(0, 1, "no JSON")], decoder_for)
        mark = self.tier(table)
        assert mark.next == vector(3, 0)
        assert (mark.outcomes.rows, mark.outcomes.skipped) == (2, 1)
        table.produce(b"{}")
        assert self.tier(table).skips == (Skip(0, 1, "no JSON"),)
        assert table.faults() == []

    def test_tiering_goes_on_after_a_gap_and_after_an_acceptance(self, table: Table) -> None:
        table.ways_out.accept_gap(FLOWS, lose(table))
        mark = self.tier(table)
        assert mark.gaps == (OffsetRange(0, 0, 2),)
        foreign = table.cold.append([(0, 0, "theirs", 1)])
        with pytest.raises(ForeignCommit):
            self.tier(table)
        table.amender.amend(FLOWS, accepting(FLOWS, [foreign], {}))
        table.produce(b"{}")
        mark = self.tier(table)
        assert (mark.accepted, mark.gaps) == ((foreign,), (OffsetRange(0, 0, 2),))

    @pytest.mark.parametrize("way", ["skip", "accept"])
    def test_a_decision_between_stage_and_publish_is_a_conflict(
        self, table: Table, way: str
    ) -> None:
        table.produce(b"{}")
        target = MemoryTieringTarget(
            cast("MemoryCold", table.cold).store,
            FLOWS,
            table.log,
            lambda schema, binding: decoder_for(str(FLOWS), schema, binding),
            fault=lambda step: decide() if step == "publish" else None,
        )

        def decide() -> None:
            if way == "skip":
                table.ways_out.skip(FLOWS, [Skip(0, 0)], decoder_for, force=True)
            else:
                foreign = table.cold.append([(None, None, "theirs", 1)])
                table.amender.amend(FLOWS, accepting(FLOWS, [foreign], {}))

        with pytest.raises(TieringConflict):
            tier_once(table.log, target, TieringBudget())
        assert table.mark().next == vector(0, 0)


def test_a_shape_is_moved_without_rows_and_tiering_goes_on(table: Table) -> None:
    table.produce(b"{}")
    table.cold.set_properties(on_error="skip")
    pin = table.cold.store.pin(FLOWS)
    assert pin.binding is not None
    bounds = table.log.measure(["flows"])["flows"]
    with pytest.raises(ShapeMismatch, match=r"`thermocline shape accept lake\.net\.flows`"):
        plan_tiering(pin, bounds, TieringBudget())
    before = table.mark()
    moved = table.amender.amend(FLOWS, moving_shape(pin))
    assert (moved.shape, moved.next) == (pin.binding.shape, before.next)
    assert moved.shape != before.shape
    after = table.cold.store.pin(FLOWS)
    assert (after.watermark, moved.prev_snapshot_id) == (moved, pin.snapshot_id)
    assert plan_tiering(after, bounds, TieringBudget()).offsets == 1
    assert table.faults() == []
    with pytest.raises(BadParameter, match="there is nothing to accept"):
        table.amender.amend(FLOWS, moving_shape(after))


def test_a_shape_that_is_another_than_the_one_looked_at_stays(table: Table) -> None:
    table.cold.set_properties(on_error="skip")
    pin = table.cold.store.pin(FLOWS)
    table.cold.set_properties(json_mode="lenient")
    before = table.head()
    with pytest.raises(TieringConflict, match="is not the one that was shown any more"):
        table.amender.amend(FLOWS, moving_shape(pin))
    assert table.head() == before


def test_a_new_column_under_the_same_key_takes_what_the_first_cannot_hold(
    table: Table,
) -> None:
    table.produce(b'{"host": "a", "bytes": 10}', b'{"host": "b", "bytes": 10.5}')
    raw = list(table.log.fetch(TopicSource("flows"), [OffsetRange(0, 0, 2)], timeout_s=1))

    def rows() -> list[dict[str, object]]:
        pin = table.cold.store.pin(FLOWS)
        assert pin.binding is not None
        decoder = decoder_for(str(FLOWS), pin.schema, pin.binding)
        return [row for batch in raw for row in decoder.decode(batch).rows.to_pylist()]

    with pytest.raises(UndecodableRecord, match="a number with fraction or exponent is no int"):
        rows()
    shape = table.mark().shape
    table.cold.rename_column("bytes", "whole_bytes")
    table.cold.add_column("bytes", pa.float64())
    assert [(row["bytes"], row["whole_bytes"]) for row in rows()] == [
        (10.0, None),
        (10.5, None),
    ]
    pin = table.cold.store.pin(FLOWS)
    assert pin.binding is not None
    assert pin.binding.shape == shape
