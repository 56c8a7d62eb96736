"""Compares windows that were tiered alike: the records of the log, decoded, with the rows of cold.

The interface to the cold side of a verification.

Gathers findings of windows, within a bound: a table that is wrong in every row must not fill memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from connectors.iceberg.audit import TableAudit
from connectors.table_facts import with_units
from planner.names import KAFKA_OFFSET, KAFKA_PARTITION, KAFKA_VALUE
from planner.offsets import OffsetRange
from planner.ports import DecoderFactory
from planner.schema import Column, TableSchema
from planner.seam.cut import Pin
from planner.seam.snapshots import Snapshot
from planner.seam.watermark import Outcomes
from planner.verification.chain import foreign_changes
from planner.verification.coverage import TieredSegment
from planner.verification.findings import Fault, ForeignChange, Kind, span_text
from planner.verification.rows import Keyed, compare_rows, without
from planner.verification.window import Window


@dataclass(frozen=True, slots=True)
class ColdCount:
    """The rows of one Kafka partition. ``first`` and ``last`` are inclusive; None without an offset.

    ``partition`` is None for rows without one.
    """

    partition: int | None
    rows: int
    without_offset: int
    first: int | None
    last: int | None


class ColdRows(Protocol):
    """The rows of one pinned snapshot, and of retained ones before it."""

    def counts(self) -> tuple[ColdCount, ...]:
        """Count all rows by Kafka partition."""

    def read(
        self,
        ranges: Sequence[OffsetRange],
        columns: Sequence[str],
        *,
        snapshot_id: int | None = None,
    ) -> pa.Table:
        """Read the rows of ``ranges``, in any order, columns in the types of the pinned schema.

        ``snapshot_id`` names an older snapshot; a column that it lacks is left out.

        Raises:
            SnapshotExpired, ColdStoreUnavailable: a file is gone, or cannot be read now.
        """


_KEY_COLUMNS = (KAFKA_PARTITION, KAFKA_OFFSET)


class Comparer:
    """Compares the windows of one segment. ``unchecked`` says what of its values cannot be compared."""

    def __init__(
        self,
        audit: TableAudit,
        cold: ColdRows,
        decoder_for: DecoderFactory,
        pin: Pin,
        segment: TieredSegment,
        *,
        with_values: bool,
        compacted: bool,
        finding: Callable[[Kind, str, OffsetRange], Fault],
    ) -> None:
        if pin.binding is None or pin.watermark is None:
            raise ValueError(f"{pin.table} is not bound to a topic")
        self._cold = cold
        self._skipped = pin.watermark.skipped
        self._compacted = compacted
        self._finding = finding
        self._foreign = tuple(
            (snapshot, snapshot.parent_id)
            for snapshot in foreign_changes(audit.facts.history, audit.facts.head or 0)
            if snapshot.parent_id in audit.facts.history.snapshots
        )
        # Under policy ``fail`` no publish has a record that does not decode: report it, do not raise.
        self._fails = pin.binding.on_error == "fail"
        binding = replace(pin.binding, on_error="skip") if self._fails else pin.binding
        tiered = pin.schema
        if segment.schema_id is not None:
            tiered = with_units(audit.schemas[segment.schema_id], pin.binding)
        self.decoder = decoder_for(str(pin.table), tiered, binding)
        self._tiered = {column.field_id: column for column in tiered.columns}
        self._columns: tuple[Column, ...] = ()
        self.unchecked: tuple[str, ...] = ()
        where = ", ".join(span_text(item) for item in segment.ranges)
        # Each skip makes another shape, and the decoder is the same.
        bound = replace(pin.binding, skips=segment.skipped)
        if segment.shape is not None and not bound.gives_rows_of(segment.shape, tiered):
            self.unchecked = (f"values at {where}: they were tiered with another shape",)
        elif with_values:
            oldest = audit.schemas[min(audit.schemas)]
            basis = tiered if segment.schema_id is not None else oldest
            self._columns = _comparable(pin.schema, basis, tiered)
            left = [column.name for column in pin.schema.columns if column not in self._columns]
            if left:
                self.unchecked = (
                    f"columns {', '.join(left)} at {where}: nobody knows with which schema they were tiered",
                )
        self._with_values = bool(self._columns)

    def compare(self, window: Window, records: pa.Table, tally: FaultTally) -> None:
        keys = window.keys(records)
        # Joined as booleans: the values themselves are a hundred megabytes.
        tombstones = records[KAFKA_VALUE].is_null().combine_chunks()
        skipped = self._skips(window)
        if self._with_values:
            rows = self._decoded(records)
            expected = Keyed.of(window.keys(rows), self._projected(rows))
        else:
            may_be_row = pc.invert(pc.or_(tombstones, pc.is_in(keys, value_set=skipped)))
            rows = records.select(_KEY_COLUMNS).filter(may_be_row)
            expected = Keyed.of(keys.filter(may_be_row), rows)
        columns = tuple(expected.rows.column_names)
        rows = self._cold.read(window.ranges, (*_KEY_COLUMNS, *columns[2:]))
        cold = Keyed.of(window.keys(rows), rows)
        differences = compare_rows(keys, expected, cold)
        missing = differences.missing
        if not self._with_values and len(missing):
            missing = self._with_row(window, keys, records, missing)
        for keys_, kind, message in (
            (differences.duplicated, Kind.DUPLICATE, "cold has more than one row each"),
            (differences.surplus, Kind.SURPLUS, "cold has rows where the log has no record"),
            (
                differences.unexpected,
                Kind.OUTCOME,
                "cold has rows of records that are tombstones or do not decode",
            ),
            (
                self._unaccounted(keys, tombstones, skipped, expected.keys),
                Kind.OUTCOME,
                "the records do not decode, yet the watermark is above them under error policy fail",
            ),
            (
                self._faults(window, missing, expected, tally, deleted=True),
                Kind.MISSING,
                "the log has records that cold has not, below the watermark",
            ),
            (
                self._faults(window, differences.changed, expected, tally, deleted=False),
                Kind.VALUE,
                f"cold holds other values than the log, in {', '.join(differences.columns)}",
            ),
        ):
            if kind == Kind.SURPLUS and self._compacted:
                continue
            self._add(tally, window, keys_, kind, message)
        count = len(expected.keys) - (
            0 if self._with_values else len(differences.missing) - len(missing)
        )
        dropped = tombstones.true_count
        tally.outcomes += Outcomes(
            rows=count, skipped=len(keys) - dropped - count, tombstones=dropped
        )

    def _add(
        self, tally: FaultTally, window: Window, keys: pa.Array, kind: Kind, message: str
    ) -> None:
        for offsets in window.spans(keys):
            if tally.is_full:  # a finding looks at every file
                tally.more[kind] += len(offsets)
            else:
                tally.add(self._finding(kind, f"{span_text(offsets)}: {message}", offsets))

    def _decoded(self, records: pa.Table) -> pa.Table:
        batches = records.to_batches() or [pa.RecordBatch.from_pylist([], records.schema)]
        return pa.Table.from_batches([self.decoder.decode(batch).rows for batch in batches])

    def _projected(self, rows: pa.Table) -> pa.Table:
        """Read rows by field id, as cold does: a column added after they were tiered is null."""
        arrays = []
        for column in self._columns:
            tiered = self._tiered.get(column.field_id)
            if tiered is None:
                arrays.append(pa.nulls(rows.num_rows, column.type))
                continue
            array = rows[tiered.name].combine_chunks()
            arrays.append(array if array.type.equals(column.type) else array.cast(column.type))
        return pa.table(arrays, [column.name for column in self._columns])

    def _with_row(
        self, window: Window, keys: pa.Array, records: pa.Table, missing: pa.Array
    ) -> pa.Array:
        """Return those of ``missing`` whose record decodes to a row: the others have another outcome."""
        suspects = records.filter(pc.is_in(keys, value_set=missing))
        rows = self._decoded(suspects)
        return missing.filter(pc.is_in(missing, value_set=window.keys(rows)))

    def _unaccounted(
        self, keys: pa.Array, tombstones: pa.Array, skipped: pa.Array, expected: pa.Array
    ) -> pa.Array:
        if not self._fails or len(keys) == tombstones.true_count + len(expected):
            return keys[:0]
        return without(without(keys.filter(pc.invert(tombstones)), expected), skipped)

    def _skips(self, window: Window) -> pa.Array:
        """Return the keys of the records of the window that a person gave up."""
        spans = {item.partition: item for item in window.ranges}
        inside = [
            (partition, offset)
            for partition, offset in self._skipped
            if partition in spans and offset in spans[partition]
        ]
        offsets = {
            KAFKA_PARTITION: pa.array([partition for partition, _ in inside], pa.int32()),
            KAFKA_OFFSET: pa.array([offset for _, offset in inside], pa.int64()),
        }
        return window.keys(pa.table(offsets))

    def _faults(
        self,
        window: Window,
        keys: pa.Array,
        expected: Keyed,
        tally: FaultTally,
        *,
        deleted: bool,
    ) -> pa.Array:
        """Return the keys that no other writer's change explains; note the others as changed.

        A row was changed by the newest snapshot that does not have it as tiered while its parent still has.
        """
        for snapshot, parent_id in self._foreign:
            if not len(keys):
                break
            columns = (*_KEY_COLUMNS, *expected.rows.column_names[2:])
            rows = self._cold.read(window.ranges, columns, snapshot_id=parent_id)
            before = Keyed.of(window.keys(rows), rows)
            then = compare_rows(
                keys,
                _only(expected, keys, rows.column_names),
                _only(before, keys, rows.column_names),
            )
            intact = keys
            for differing in (then.missing, then.changed, then.duplicated):
                intact = without(intact, differing)
            for offsets in window.spans(intact):
                tally.add_change(snapshot, offsets, deleted=deleted)
            keys = without(keys, intact)
        return keys


def _only(keyed: Keyed, keys: pa.Array, columns: Sequence[str]) -> Keyed:
    matching = keyed.only(pc.is_in(keyed.keys, value_set=keys))
    return Keyed(matching.keys, matching.rows.select(columns))


def _comparable(
    schema: TableSchema, basis: TableSchema, tiered: TableSchema
) -> tuple[Column, ...]:
    """Return the columns whose value at tiering is known: those of ``basis``, and all it certainly lacked."""
    certain = basis is tiered
    by_id = {column.field_id: column for column in basis.columns}
    return tuple(
        column
        for column in schema.columns
        if (column.field_id in by_id and _fits(by_id[column.field_id].type, column.type))
        or (certain and column.field_id not in by_id)
    )


def _fits(tiered: pa.DataType, now: pa.DataType) -> bool:
    """Whether a value reads the same: nested types that evolved inside are left out."""
    return tiered.equals(now) or not pa.types.is_nested(now)


#: Findings with their places; more are only counted.
MAX_FINDINGS = 1_000


@dataclass
class _Change:
    snapshot: Snapshot
    changed: int = 0
    deleted: int = 0
    example: tuple[int, int] = (0, 0)


@dataclass
class FaultTally:
    findings: list[Fault] = field(default_factory=list)
    more: Counter[Kind] = field(default_factory=Counter)
    outcomes: Outcomes = field(default_factory=Outcomes)
    _changes: dict[int, _Change] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        return len(self.findings) >= MAX_FINDINGS

    def add(self, finding: Fault) -> None:
        """Keep the finding, or only count it when there are many."""
        if self.is_full:
            self.more[finding.kind] += finding.rows
        else:
            self.findings.append(finding)

    def add_change(self, snapshot: Snapshot, span_text: OffsetRange, *, deleted: bool) -> None:
        change = self._changes.setdefault(snapshot.snapshot_id, _Change(snapshot))
        if not change.changed and not change.deleted:
            change.example = (span_text.partition, span_text.start)
        if deleted:
            change.deleted += len(span_text)
        else:
            change.changed += len(span_text)

    def merge(self, other: FaultTally) -> None:
        for finding in other.findings:
            self.add(finding)
        self.more += other.more
        self.outcomes += other.outcomes
        for key, change in other._changes.items():
            mine = self._changes.setdefault(key, change)
            if mine is not change:
                mine.changed += change.changed
                mine.deleted += change.deleted

    @property
    def changes(self) -> tuple[ForeignChange, ...]:
        return tuple(
            ForeignChange(
                change.snapshot.snapshot_id,
                change.snapshot.operation,
                change.changed,
                change.deleted,
                change.example,
            )
            for change in self._changes.values()
        )
