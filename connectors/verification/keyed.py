"""Compares keyed tables: the newest change of each key that the log retains with the row that cold has of it.

Two questions, and one reading of the log. A row of cold and the change at its offset have the same values: looked at a window
at a time. And it is the row of the newest change: of that the engine is asked, which has the keys of all changes by then.
"""

from __future__ import annotations

import contextlib
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from connectors.verification.comparing import (
    UNDECODED,
    ColdSide,
    Comparer,
    Extent,
    FaultTally,
)
from planner.names import KAFKA_OFFSET, KAFKA_OP, KAFKA_PARTITION
from planner.offsets import OffsetRange
from planner.ports import DecoderFactory
from planner.reading.filters import in_ranges
from planner.schema import Column, TableSchema
from planner.seam.cut import Pin
from planner.seam.keys import Upsert
from planner.seam.watermark import Outcomes
from planner.verification.coverage import TieredSegment
from planner.verification.findings import Fault, Kind
from planner.verification.keys import NEWEST_MISSING, KeyState, Unsure, judge
from planner.verification.rows import Keyed, compare_rows
from planner.verification.window import Window

#: Of a change: ``planner.verification.keys.KeyChange.code``.
CODE = "code"


def change_columns(schema: TableSchema, upsert: Upsert) -> pa.Schema:
    """Return what is remembered of a change: the columns of its key under names of ours, its partition and its code."""
    columns = enumerate(upsert.columns(schema))
    keys = [pa.field(f"k{index}", each.type) for index, each in columns]
    numbers = [pa.field(KAFKA_PARTITION, pa.int32()), pa.field(CODE, pa.int64())]
    return pa.schema([*keys, *numbers])


@dataclass(frozen=True, slots=True)
class ChangeCount:
    """Keys of the log by what their newest change is. ``moved`` have changes in two partitions, and count in each."""

    rows: int
    deletes: int
    moved: int

    def __add__(self, other: ChangeCount) -> ChangeCount:
        rows, deletes = self.rows + other.rows, self.deletes + other.deletes
        return ChangeCount(rows, deletes, self.moved + other.moved)


class KeyedChanges(Protocol):
    """The changes of one verification, beside the rows of its pinned snapshot. What does not fit into memory is on disk."""

    def adding(self) -> AbstractContextManager[Callable[[pa.RecordBatch], None]]:
        """Yield what adds changes (``change_columns``); all count at the end, or none where it raises."""

    def count(self, compared: Sequence[OffsetRange]) -> ChangeCount:
        """Count the changes inside ``compared``, one range per partition."""

    def suspects(self, compared: Sequence[OffsetRange]) -> Iterator[KeyState]:
        """Yield the keys whose row is not just that of the one newest change inside ``compared``."""


class _KeyedComparer(Comparer):
    """What both readings of a keyed table's log know."""

    def _rows(self, changes: pa.Table) -> pa.Table:
        return changes.filter(pc.equal(changes[KAFKA_OP], "u"))

    def _expected(self, window: Window, rows: pa.Table) -> Keyed:
        names = (KAFKA_PARTITION, KAFKA_OFFSET)
        value = self._projected(rows) if self._columns else rows.select(names)
        return Keyed.of(window.keys(rows), value)


class ChangeComparer(_KeyedComparer):
    """Compares rows of cold with the changes at their offsets, and adds the key of each change to ``changes``."""

    def __init__(
        self,
        cold: ColdSide,
        decoder_for: DecoderFactory,
        pin: Pin,
        segment: TieredSegment,
        extent: Extent,
        *,
        changes: KeyedChanges,
    ) -> None:
        super().__init__(cold, decoder_for, pin, segment, extent)
        assert pin.binding is not None  # noqa: S101 - as its base checks
        assert pin.binding.upsert is not None  # noqa: S101 - as its caller checks
        self._key: tuple[Column, ...] = pin.binding.upsert.columns(pin.schema)
        self._remembered = change_columns(pin.schema, pin.binding.upsert)
        self._changes = changes
        self._add: Callable[[pa.RecordBatch], None]

    @contextlib.contextmanager
    def fetching(self) -> Iterator[None]:
        with self._changes.adding() as self._add:
            yield

    def compare(self, window: Window, records: pa.Table, tally: FaultTally) -> None:
        keys, changes = window.keys(records), self._decoded(records)
        self._remember(changes)
        rows = self._rows(changes)
        if self._columns:
            self._compare_values(window, keys, self._expected(window, rows), tally)
        left = self._unaccounted(
            keys, keys.is_null(), self._skips(window), window.keys(changes)
        )
        self._cold.find(tally, window, left, Kind.OUTCOME, UNDECODED)
        deletes = changes.num_rows - rows.num_rows
        skipped = len(keys) - changes.num_rows
        tally.outcomes += Outcomes(rows=rows.num_rows, skipped=skipped, deletes=deletes)

    def _remember(self, changes: pa.Table) -> None:
        offsets, ops = changes[KAFKA_OFFSET], changes[KAFKA_OP]
        codes = pc.add(pc.multiply(offsets, 2), pc.equal(ops, "d").cast(pa.int64()))
        columns = [*self._projected(changes, self._key), changes[KAFKA_PARTITION], codes]
        for batch in pa.table(columns, schema=self._remembered).to_batches():
            self._add(batch)

    def _compare_values(
        self, window: Window, records: pa.Array, expected: Keyed, tally: FaultTally
    ) -> None:
        cold = self._cold.keyed(window, expected.rows.column_names[2:])
        of_rows = expected.only(pc.is_in(expected.keys, value_set=cold.keys))
        of_changes = cold.only(pc.is_in(cold.keys, value_set=expected.keys))
        differences = compare_rows(records, of_rows, of_changes)
        self._cold.find(
            tally,
            window,
            self._faults(window, differences.changed, expected, tally, deleted=False),
            Kind.VALUE,
            f"cold holds other values than the log, in {', '.join(differences.columns)}",
        )


class MissingComparer(_KeyedComparer):
    """Looks again at newest changes whose row is missing: another writer may have deleted it, or the cleaner a newer change.

    The cleaner removes the changes of a key from the oldest on. So where this one is still there, no newer one was removed
    before it was read.
    """

    def __init__(
        self,
        cold: ColdSide,
        decoder_for: DecoderFactory,
        pin: Pin,
        segment: TieredSegment,
        extent: Extent,
        *,
        places: pa.Table,
    ) -> None:
        super().__init__(cold, decoder_for, pin, segment, extent)
        self._places = places
        # It was said at the first reading.
        self.unchecked = ()

    def compare(self, window: Window, records: pa.Table, tally: FaultTally) -> None:
        places = window.keys(self._places.filter(in_ranges(window.ranges)))
        of_places = records.filter(pc.is_in(window.keys(records), value_set=places))
        if not of_places.num_rows:
            return
        expected = self._expected(window, self._rows(self._decoded(of_places)))
        keys = self._faults(window, expected.keys, expected, tally, deleted=True)
        self._cold.find(tally, window, keys, Kind.MISSING, NEWEST_MISSING)


@dataclass
class Suspicion:
    """What came of the suspects. ``missing`` are offsets by partition, which are to be looked at again."""

    missing: dict[int, array[int]] = field(default_factory=dict)
    unsure: Counter[Unsure] = field(default_factory=Counter)

    @classmethod
    def of(
        cls,
        suspects: Iterator[KeyState],
        cold: ColdSide,
        tally: FaultTally,
        *,
        is_compacted: bool,
    ) -> Suspicion:
        """Judge every suspect. Adds to ``tally`` what needs no second look."""
        value = cls()
        for key in suspects:
            verdict = judge(key, is_compacted=is_compacted)
            if isinstance(verdict, Unsure):
                value.unsure[verdict] += 1
            elif isinstance(verdict, Fault):
                value._take(verdict, cold, tally)
        return value

    def _take(self, fault: Fault, cold: ColdSide, tally: FaultTally) -> None:
        at = fault.offsets
        if fault.kind is Kind.MISSING and at is not None:
            self.missing.setdefault(at.partition, array("q")).append(at.start)
        else:
            cold.note(tally, fault)

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """Ranges, one per partition, with all that is missing."""
        return tuple(
            OffsetRange(partition, min(offsets), max(offsets) + 1)
            for partition, offsets in sorted(self.missing.items())
        )

    @property
    def places(self) -> pa.Table:
        names = [KAFKA_PARTITION, KAFKA_OFFSET]
        tables = [
            pa.table([pa.repeat(pa.scalar(at, pa.int32()), len(each)), pa.array(each)], names)
            for at, each in self.missing.items()
        ]
        return pa.concat_tables(tables)

    def notes(self, count: ChangeCount) -> Iterator[str]:
        """Say what cannot be checked."""
        cleaned, order = self.unsure[Unsure.CLEANED], self.unsure[Unsure.ORDER]
        if cleaned:
            yield (
                f"{cleaned:,} rows whose keys have no change in the log from there to the watermark: the log cleaner removed them, "
                f"for a newer change, or with a delete that it removed, too"
            )
        if count.moved or order:
            yield (
                f"{count.moved + order:,} keys with changes in two partitions: offsets do not say which is the newest"
            )
