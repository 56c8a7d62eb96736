"""The seam's machine over a keyed table: wherever the watermark falls, the newest row of each key, or a named error.

Publishes fold: the newest change of each key is a row or none, and replaces that of before. What other writers add is not for
such a table, so the rules that append rows are left out; nor do its rows age out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from planner.errors import OffsetsExpired
from planner.offsets import OffsetRange
from planner.schema import Column, TableSchema
from planner.seam.boundary import RetentionBoundary
from planner.seam.cut import plan_cut
from planner.seam.formats import JsonFormat
from planner.seam.keys import RecordKey, Upsert
from planner.seam.watermark import Outcomes
from planner.tiering.plan import TieringPlan
from planner.tiering.publish import advance, check_publish
from tests.harness.builders import BINDING, schema
from tests.properties.model import DATA, TOMBSTONE, Log, Row, Table, World
from tests.properties.seam_machine import EVENTS, Seam, explore, never

#: (partition, offset) of a change, and whether it is a delete. Every key has its partition.
Change = tuple[int, int, bool]
_KEYS = 2


def key_of(row: Sequence[int]) -> tuple[int, int]:
    return row[0], row[1] % _KEYS


def newest(changes: Iterable[Change]) -> dict[tuple[int, int], Change]:
    """Return the newest change of each key."""
    return {key_of(change): change for change in sorted(changes)}


def rows_of(changes: Iterable[Change]) -> list[Row]:
    return [(partition, offset) for partition, offset, is_delete in changes if not is_delete]


class KeyedLog(Log):
    """Its tombstones are deletes."""

    def changes(
        self, ranges: Iterable[OffsetRange], skipped: Collection[Row] = ()
    ) -> list[Change]:
        return [
            (item.partition, offset, entries[offset].kind == TOMBSTONE)
            for item in ranges
            for entries in (self.partitions[item.partition].entries,)
            for offset in range(item.start, item.stop)
            if entries[offset].state == "committed"
            and entries[offset].kind in (DATA, TOMBSTONE)
            and (item.partition, offset) not in skipped
        ]

    def read(
        self,
        ranges: tuple[OffsetRange, ...],
        skipped: Collection[Row] = (),
        boundary: RetentionBoundary | None = None,
    ) -> tuple[list[Row], Outcomes]:
        """Return the changes as they are; that they are no rows is for ``KeyedTable``."""
        _, outcomes = super().read(ranges, skipped, boundary)
        changes = self.changes(ranges, skipped)
        counted = replace(outcomes, tombstones=0, deletes=outcomes.tombstones)
        return changes, counted  # type: ignore[return-value]


class KeyedTable(Table):
    """One whose publishes fold."""

    binding = replace(BINDING, format=JsonFormat(), key=RecordKey("json"), upsert=Upsert((4,)))
    schema = TableSchema(
        0,
        (*schema().columns, Column(4, "id", pa.int64(), required=True)),
        frozenset((4,)),
    )

    def single_keys(self, snapshot_id: int, key: tuple[int, ...]) -> bool:
        assert key == (4,)
        rows = self.versions[snapshot_id].rows
        return len(set(map(key_of, rows))) == len(rows)

    def publish(self, plan: TieringPlan, rows: list[Row], outcomes: Outcomes, run: str) -> None:
        check_publish(plan, self.looked_up(self.head), self.head)
        folded = newest(rows)  # type: ignore[arg-type]
        added = rows_of(folded.values())
        left = [row for row in self.current.rows if key_of(row) not in folded]
        hit = len(self.current.rows) - len(left)
        counted = outcomes.folded(len(added), len(folded) - len(added))
        mark = advance(plan, counted, run=run, head=self.head)
        operation = "overwrite" if hit else "append"
        self._add(operation, (*left, *added), mark.next, mark=mark, fold=(len(added), hit))
        EVENTS["replaced"] += hit
        EVENTS["superseded"] += counted.superseded


class KeyedWorld(World):
    make_log = KeyedLog
    make_table = KeyedTable
    log: KeyedLog

    def ask(self, snapshot_id: int) -> list[Row]:
        """Answer as the server does: pin, measure, cut, cold less the tail's keys, and the tail's newest."""
        pin = self.table.pin(snapshot_id)
        cut = plan_cut(pin, self.log.bounds())
        assert cut.hot is not None
        assert pin.watermark is not None
        if any(
            item.start < self.log.partitions[item.partition].start for item in cut.hot.ranges
        ):
            raise OffsetsExpired("the log no longer holds the range")
        tail = newest(self.log.changes(cut.hot.ranges, pin.watermark.skipped))
        cold = self.table.versions[snapshot_id].rows
        return [
            *(row for row in cold if key_of(row) not in tail),
            *rows_of(tail.values()),
        ]

    def expected(self, snapshot_id: int) -> Counter[Row]:
        """The newest row of each key below the end, but for those that a foreign DELETE removed on this line."""
        version = self.table.versions[snapshot_id]
        ranges = [
            OffsetRange(at, 0, max(value.end, version.covered.get(at) or 0))
            for at, value in enumerate(self.log.partitions)
        ]
        rows = rows_of(newest(self.log.changes(ranges, version.abandoned)).values())
        return Counter(set(rows) - version.deleted)


class KeyedSeam(Seam):
    make_world = KeyedWorld
    append = append_again = merge = merge_rows_again = cover = age_rows = None  # type: ignore[assignment]
    # Their rows cannot be let stay (tests/contract/test_keyed_refusals.py).
    accept_foreign = None  # type: ignore[assignment]

    @rule(one=st.integers(0, 99), other=st.integers(0, 99), chance=st.integers(0, 3))
    def double_a_key(self, one: int, other: int, chance: int) -> None:
        """An UPDATE of another writer gives a row the key of another one: as many rows as before."""
        table = self.world.table
        rows = table.current.rows
        if chance or not rows:
            return
        doubled, gone = rows[one % len(rows)], rows[other % len(rows)]
        if key_of(doubled) != key_of(gone):
            table.overwrite_with((doubled,), frozenset({gone}))
            EVENTS["doubled"] += 1

    def hidden_swap(self, snapshot_id: int) -> bool:
        """Also whether publishes that expired, and a rollback over them, left as many rows as the tag's and others."""
        table = self.world.table
        if self.world.chain_can_be_read(snapshot_id) or table.tagged_id is None:
            return super().hidden_swap(snapshot_id)
        tagged = table.versions[table.tagged_id]
        return super().hidden_swap(snapshot_id) or not set(
            table.versions[snapshot_id].rows
        ) <= set(tagged.rows)


#: What must have happened, or the run proved nothing.
SOMETIMES = (
    *("publish", "conflict", "commit", "abort", "partition", "rollback"),
    *("replaced", "superseded", "skipped", "foreign delete", "foreign overwrite", "doubled"),
    *("answered by older files", "maintained", "older files removed", "WatermarkMissing"),
)


@pytest.mark.timeout(600)
def test_the_answer_is_the_newest_row_of_each_key_or_a_named_error() -> None:
    explore(14, same=True, machine=KeyedSeam)
    assert never(SOMETIMES) == [], EVENTS


@pytest.mark.soak
def test_long_stories_of_keyed_tables_have_the_right_answers_too() -> None:
    explore(150, same=False, machine=KeyedSeam)
    assert never(SOMETIMES) == [], EVENTS
