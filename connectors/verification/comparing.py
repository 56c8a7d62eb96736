"""Compares windows that were tiered alike: the records of the log, decoded, with the rows of cold.

Findings are gathered within a bound: a table that is wrong in every row must not fill memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from connectors.iceberg.audit import TableAudit
from connectors.table_facts import with_units
from planner.names import KAFKA_OFFSET, KAFKA_PARTITION, KAFKA_VALUE
from planner.offsets import OffsetRange
from planner.ports import DecoderFactory
from planner.schema import Column, TableSchema
from planner.seam.cut import Pin
from planner.seam.watermark import Outcomes
from planner.verification.chain import foreign_changes
from planner.verification.coverage import TieredSegment
from planner.verification.findings import Fault, ForeignChange, Kind, span_text
from planner.verification.rows import Keyed, compare_rows, without
from planner.verification.window import Window

if TYPE_CHECKING:
    from connectors.verification.keyed import KeyedChanges
    from planner.seam.keys import Upsert


@dataclass(frozen=True, slots=True)
class ColdCount:
    """Rows of one Kafka partition, None: without one. ``first`` and ``last`` are inclusive; None without an offset."""

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
        self, ranges: Sequence[OffsetRange], columns: Sequence[str], *, snapshot_id: int | None
    ) -> pa.Table:
        """Read the rows of ``ranges``, in any order, columns in the types of the pinned schema.

        ``snapshot_id`` names an older snapshot; a column that it lacks is left out.

        Raises SnapshotExpired, ColdStoreUnavailable: a file is gone, or cannot be read now.
        """

    def changes(self, upsert: Upsert) -> AbstractContextManager[KeyedChanges]:
        """Make room for changes of a keyed table beside its rows."""


_KEY_COLUMNS = (KAFKA_PARTITION, KAFKA_OFFSET)
UNDECODED = "the records do not decode, yet the watermark is above them under error policy fail"
#: Files named with a finding.
MAX_NAMED_FILES = 3


@dataclass(frozen=True, slots=True)
class ColdSide:
    """The cold side. ``audit`` and ``rows`` are of the same metadata file."""

    audit: TableAudit
    rows: ColdRows

    def keyed(
        self, window: Window, columns: Sequence[str] = (), snapshot_id: int | None = None
    ) -> Keyed:
        """Read a window's rows as ``ColdRows.read``, with partition and offset before ``columns``."""
        every = (*_KEY_COLUMNS, *columns)
        rows = self.rows.read(window.ranges, every, snapshot_id=snapshot_id)
        return Keyed.of(window.keys(rows), rows)

    def find(
        self, tally: FaultTally, window: Window, keys: pa.Array, kind: Kind, message: str
    ) -> None:
        """Add a finding for each run of sorted keys."""
        for offsets in window.spans(keys):
            text = f"{span_text(offsets)}: {message}"
            self.note(tally, Fault(kind, text, offsets, len(offsets)))

    def note(self, tally: FaultTally, fault: Fault) -> None:
        """Add a finding, with the files that may have its rows."""
        if fault.offsets is not None and not tally.is_full:  # it looks at every file
            files = [file.name for file in self.audit.files if file.may_hold(fault.offsets)]
            fault = replace(fault, files=tuple(files[:MAX_NAMED_FILES]))
        tally.add(fault)


@dataclass(frozen=True, slots=True)
class Extent:
    """Scope of a comparison. ``since_ms`` is milliseconds since 1970; sizes bound the memory of one window."""

    with_values: bool = True
    since_ms: int | None = None
    #: The topic is compacted: the log may have lost records that cold holds.
    compacted: bool = False
    window_rows: int = 500_000
    window_bytes: int = 128 * 1024 * 1024
    fetch_offsets: int = 4_000_000
    fetch_timeout_s: float = 600.0


class Comparer:
    """Compares the windows of one segment. ``unchecked`` says what of its values cannot be compared."""

    def __init__(
        self,
        cold: ColdSide,
        decoder_for: DecoderFactory,
        pin: Pin,
        segment: TieredSegment,
        extent: Extent,
    ) -> None:
        if pin.binding is None or pin.watermark is None:
            raise ValueError(f"{pin.table} is not bound to a topic")
        self._cold, audit = cold, cold.audit
        self._pin = pin
        self._skipped = pin.watermark.skipped
        self._compacted = extent.compacted
        self._foreign = tuple(
            (snapshot, snapshot.parent_id)
            for snapshot in foreign_changes(audit.facts.history, audit.facts.head or 0)
            if snapshot.parent_id in audit.facts.history.snapshots
        )
        # Under policy ``fail`` no publish has a record that does not decode: report it, do not raise.
        self._fails = pin.binding.on_error == "fail"
        # Which rows are too old is told apart here: they are an outcome of their own.
        binding = replace(pin.binding, boundary=None)
        if self._fails:
            binding = replace(binding, on_error="skip")
        self._boundary = pin.binding.boundary
        tiered = pin.schema
        if segment.schema_id is not None:
            tiered = with_units(audit.schemas[segment.schema_id], pin.binding)
        self._schema = tiered
        self.decoder = decoder_for(str(pin.table), tiered, binding)
        self._tiered = {column.field_id: column for column in tiered.columns}
        self._columns: tuple[Column, ...] = ()
        self.unchecked: tuple[str, ...] = ()
        where = ", ".join(span_text(item) for item in segment.ranges)
        # Each skip makes another shape, and the decoder is the same.
        bound = replace(pin.binding, skips=segment.skipped)
        if segment.shape is not None and not bound.gives_rows_of(segment.shape, tiered):
            self.unchecked = (f"values at {where}: they were tiered with another shape",)
        elif extent.with_values:
            oldest = audit.schemas[min(audit.schemas)]
            basis = tiered if segment.schema_id is not None else oldest
            self._columns = _comparable(pin.schema, basis, tiered)
            left = [column.name for column in pin.schema.columns if column not in self._columns]
            if left:
                self.unchecked = (
                    f"columns {', '.join(left)} at {where}: nobody knows with which schema they were tiered",
                )

    def fetching(self) -> AbstractContextManager[object]:
        """Enter for a fetch; an error out of it means that its windows do not count."""
        return nullcontext()

    def compare(self, window: Window, records: pa.Table, tally: FaultTally) -> None:
        keys = window.keys(records)
        # Joined as booleans: the values themselves are a hundred megabytes.
        tombstones = records[KAFKA_VALUE].is_null().combine_chunks()
        skipped = self._skips(window)
        expired = keys[:0]
        if self._columns:
            rows, expired = self._by_age(window, self._decoded(records))
            expected = Keyed.of(window.keys(rows), self._projected(rows))
        else:
            may_be_row = pc.invert(pc.or_(tombstones, pc.is_in(keys, value_set=skipped)))
            rows = records.select(_KEY_COLUMNS).filter(may_be_row)
            expected = Keyed.of(keys.filter(may_be_row), rows)
        differences = compare_rows(
            keys, expected, self._cold.keyed(window, expected.rows.column_names[2:])
        )
        missing = differences.missing
        if not self._columns and len(missing):
            missing, expired = self._with_row(window, keys, records, missing)
        find = partial(self._cold.find, tally, window)
        find(differences.duplicated, Kind.DUPLICATE, "cold has more than one row each")
        if not self._compacted:
            find(differences.surplus, Kind.SURPLUS, "cold has rows where the log has no record")
        find(
            differences.unexpected,
            Kind.OUTCOME,
            "cold has rows of records that are tombstones, are too old or do not decode",
        )
        find(
            self._unaccounted(keys, tombstones, skipped, expected.keys, expired),
            Kind.OUTCOME,
            UNDECODED,
        )
        find(
            self._faults(window, missing, expected, tally, deleted=True),
            Kind.MISSING,
            "the log has records that cold has not, below the watermark",
        )
        find(
            self._faults(window, differences.changed, expected, tally, deleted=False),
            Kind.VALUE,
            f"cold holds other values than the log, in {', '.join(differences.columns)}",
        )
        count = len(expected.keys) - (len(differences.missing) - len(missing))
        dropped, old = tombstones.true_count, len(expired)
        skips = len(keys) - dropped - count - old
        tally.outcomes += Outcomes(rows=count, skipped=skips, tombstones=dropped, expired=old)

    def _decoded(self, records: pa.Table) -> pa.Table:
        batches = records.to_batches() or [pa.RecordBatch.from_pylist([], records.schema)]
        return pa.Table.from_batches([self.decoder.decode(batch).rows for batch in batches])

    def _by_age(self, window: Window, rows: pa.Table) -> tuple[pa.Table, pa.Array]:
        """Return the rows that are not too old, and the keys of those that are."""
        boundary = self._boundary
        old = None if boundary is None else boundary.expired(rows, self._schema)
        if old is None:
            return rows, window.keys(rows.slice(0, 0))
        return rows.filter(pc.invert(old)), window.keys(rows.filter(old))

    def _projected(self, rows: pa.Table, columns: Sequence[Column] = ()) -> pa.Table:
        """Read rows by field id, as cold does: a column added after they were tiered is null."""
        arrays = []
        columns = columns or self._columns
        for column in columns:
            tiered = self._tiered.get(column.field_id)
            if tiered is None:
                arrays.append(pa.nulls(rows.num_rows, column.type))
                continue
            array = rows[tiered.name].combine_chunks()
            arrays.append(array if array.type.equals(column.type) else array.cast(column.type))
        return pa.table(arrays, [column.name for column in columns])

    def _with_row(
        self, window: Window, keys: pa.Array, records: pa.Table, missing: pa.Array
    ) -> tuple[pa.Array, pa.Array]:
        """Return those of ``missing`` whose record decodes to a row, and those whose row is too old."""
        decoded = self._decoded(records.filter(pc.is_in(keys, value_set=missing)))
        rows, expired = self._by_age(window, decoded)
        return missing.filter(pc.is_in(missing, value_set=window.keys(rows))), expired

    def _unaccounted(
        self,
        keys: pa.Array,
        tombstones: pa.Array,
        skipped: pa.Array,
        *others: pa.Array,
    ) -> pa.Array:
        accounted = tombstones.true_count + sum(map(len, others))
        if not self._fails or len(keys) == accounted:
            return keys[:0]
        left = without(keys.filter(pc.invert(tombstones)), skipped)
        return reduce(without, others, left)

    def _skips(self, window: Window) -> pa.Array:
        """Return the keys of the records of the window that a person gave up."""
        spans = {item.partition: item for item in window.ranges}
        inside = [
            (partition, offset)
            for partition, offset in self._skipped
            if partition in spans and offset in spans[partition]
        ]
        partitions = pa.array([partition for partition, _ in inside], pa.int32())
        offsets = pa.array([offset for _, offset in inside], pa.int64())
        return window.keys(pa.table([partitions, offsets], _KEY_COLUMNS))

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
            before = self._cold.keyed(window, expected.rows.column_names[2:], parent_id)
            names = before.rows.column_names
            then = compare_rows(keys, _only(expected, keys, names), _only(before, keys, names))
            intact = keys
            for differing in (then.missing, then.changed, then.duplicated):
                intact = without(intact, differing)
            for offsets in window.spans(intact):
                rows = (0, len(offsets)) if deleted else (len(offsets), 0)
                example = (offsets.partition, offsets.start)
                tally.add_change(
                    ForeignChange(snapshot.snapshot_id, snapshot.operation, *rows, example)
                )
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
class FaultTally:
    findings: list[Fault] = field(default_factory=list)
    more: Counter[Kind] = field(default_factory=Counter)
    outcomes: Outcomes = field(default_factory=Outcomes)
    #: By snapshot.
    changes: dict[int, ForeignChange] = field(default_factory=dict)

    @property
    def is_full(self) -> bool:
        return len(self.findings) >= MAX_FINDINGS

    def add(self, finding: Fault) -> None:
        """Keep the finding, or only count it when there are many."""
        if self.is_full:
            self.more[finding.kind] += finding.rows
        else:
            self.findings.append(finding)

    def add_change(self, change: ForeignChange) -> None:
        before = self.changes.get(change.snapshot_id)
        if before is not None:
            changed, deleted = before.changed + change.changed, before.deleted + change.deleted
            change = replace(before, changed=changed, deleted=deleted)
        self.changes[change.snapshot_id] = change

    def merge(self, other: FaultTally) -> None:
        for finding in other.findings:
            self.add(finding)
        self.more += other.more
        self.outcomes += other.outcomes
        for change in other.changes.values():
            self.add_change(change)
