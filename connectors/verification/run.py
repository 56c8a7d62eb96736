"""``verify``: reads again what the log retains and compares it with cold, a window of offsets at a time.

Memory is bounded by a window, in rows and bytes, not by the size of the table. ``planner.verification`` decides what
is right and wrong; this reads, in order, and gathers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import pyarrow as pa

from connectors.iceberg.audit import TableAudit
from connectors.verification.comparing import (
    ColdCount,
    ColdRows,
    ColdSide,
    Comparer,
    Extent,
    FaultTally,
)
from connectors.verification.keyed import (
    ChangeComparer,
    KeyedChanges,
    MissingComparer,
    Suspicion,
)
from planner.errors import BadBinding, Inconsistent, OffsetsExpired, ShapeMismatch
from planner.names import KAFKA_OFFSET, KAFKA_PARTITION
from planner.offsets import OffsetRange
from planner.ports import DecoderFactory, Log, TopicSource
from planner.schema import RAW_SCHEMA
from planner.seam.binding import Binding
from planner.seam.cut import Pin, check_same_changes, check_topic
from planner.seam.watermark import Watermark
from planner.verification.chain import (
    carriers,
    check_chain,
    decisions,
    start_since,
    tierings,
)
from planner.verification.coverage import (
    CoveragePlan,
    TieredSegment,
    plan_coverage,
    segments,
)
from planner.verification.findings import Coverage, Fault, Kind, Report, span_text
from planner.verification.rows import repeats
from planner.verification.window import Window, plan_fetches

#: Makes the comparer of one segment.
ComparerFactory = Callable[[ColdSide, DecoderFactory, Pin, TieredSegment, Extent], Comparer]


class Progress(Protocol):
    """Receiver of a verification's progress, in offsets."""

    def start(self, total: int) -> None: ...

    def advance(self, offsets: int) -> None: ...


class Silent:
    """Ignores progress."""

    def start(self, total: int) -> None:
        pass

    def advance(self, offsets: int) -> None:
        pass


@dataclass
class Verification:
    """One run over one bound table. ``audit`` and ``cold_rows`` are of the same metadata file."""

    audit: TableAudit
    log: Log
    cold_rows: ColdRows
    decoder_for: DecoderFactory
    extent: Extent = field(default_factory=Extent)
    progress: Progress = field(default_factory=Silent)

    def __post_init__(self) -> None:
        self.cold = ColdSide(self.audit, self.cold_rows)
        #: By partition, where the log began when retention was seen to remove offsets of a fetch.
        self._removed: dict[int, int] = {}

    def run(self) -> Report:
        """Check everything that can be.

        Raises:
            RequestError: the table is not bound.
            Unavailable, SnapshotExpired: a system did not answer, or a file is gone; there is no result then.
        """
        tally = FaultTally()
        self._check_files(tally)
        head, history = self.audit.facts.head, self.audit.facts.history
        if head is not None:
            for finding in check_chain(history, head):
                tally.add(finding)
        pin = self.audit.pin
        if isinstance(pin, Inconsistent):
            return self._refused(tally, None, pin)
        if pin.watermark is None or pin.binding is None:
            raise BadBinding(
                f"{pin.table}: the table is not bound to a topic, so there is nothing to verify it against.",
                table=str(pin.table),
            )
        try:
            check_same_changes(pin)
        except ShapeMismatch as verdict:
            return self._refused(tally, pin, verdict)
        plan = self._with_unchecked(self._plan(pin.watermark, pin.binding), pin.watermark)
        for finding in plan.findings:
            tally.add(finding)
        counts = self.cold_rows.counts()
        self._check_counts(tally, counts, pin.watermark)
        is_whole = self.extent.since_ms is None and pin.binding.upsert is None
        cold_only = list(_cold_only(plan.coverage, counts)) if is_whole else []
        compared = [each.compared for each in plan.coverage]
        self.progress.start(sum(map(len, (*compared, *cold_only))))
        self._check_cold_only(tally, cold_only)
        if pin.binding.upsert is None:
            uncompared = tuple(self._compare(tally, pin, pin.watermark, compared, Comparer))
        else:
            with self.cold_rows.changes(pin.binding.upsert) as changes:
                uncompared = tuple(
                    self._compare_keys(tally, pin, pin.watermark, compared, changes)
                )
        plan = replace(plan, unchecked=plan.unchecked + uncompared)
        return self._report(tally, pin, plan, sum(each.rows for each in counts))

    def _plan(self, mark: Watermark, binding: Binding) -> CoveragePlan:
        head = self.audit.facts.head or 0
        history = self.audit.facts.history
        since = None
        if self.extent.since_ms is not None:
            since = start_since(history, head, self.audit.written_ms, self.extent.since_ms)
        try:
            check_topic(self.audit.facts.table, mark, binding.topic)
        except BadBinding as error:
            unchecked = ("the log: the table is bound to another topic than its rows are of",)
            return CoveragePlan((), (Fault(Kind.LOG, error.message),), unchecked)
        bounds = self.log.measure([binding.address])[binding.address]
        return plan_coverage(mark, bounds, carriers(history, head), since)

    def _with_unchecked(self, plan: CoveragePlan, mark: Watermark) -> CoveragePlan:
        notes = list(plan.unchecked)
        if not self.extent.with_values:
            which = "keys" if mark.key else "offsets"
            notes.append(f"values: only which {which} have a row was asked for")
        if self.extent.compacted and not mark.key:
            notes.append(
                "the topic is compacted: rows whose records the log cleaner removed are in cold only"
            )
        if self.extent.since_ms is not None:
            notes.append("what was tiered before --since")
        if mark.accepted:
            notes.append("rows without an offset, of accepted foreign snapshots")
        return replace(plan, unchecked=tuple(notes))

    # --- metadata ---

    def _check_files(self, tally: FaultTally) -> None:
        for file in self.audit.files:
            if file.references > 1:
                message = (
                    f"data file {file.name} is referenced {file.references} times by the snapshot; each of its {file.rows} "
                    f"rows is in every answer as often"
                )
                more, files = file.rows * (file.references - 1), (file.name,)
                tally.add(Fault(Kind.FILE_TWICE, message, None, more, file.added_by, files))

    # --- cold alone ---

    def _check_counts(
        self, tally: FaultTally, counts: Sequence[ColdCount], mark: Watermark
    ) -> None:
        without = sum(
            count.rows if count.partition is None else count.without_offset for count in counts
        )
        if without and not mark.accepted:
            message = f"{without} rows have no kafka_partition or kafka_offset; no tierer writes such rows"
            tally.add(Fault(Kind.WITHOUT_OFFSET, message, rows=without))
        for count in counts:
            if count.partition is None or count.last is None:
                continue
            watermark = mark.offset(count.partition)
            if count.last >= watermark:
                stop = min(count.last + 1, watermark + self.extent.window_rows)
                window = Window((OffsetRange(count.partition, watermark, stop),))
                keys = self.cold.keyed(window).keys.unique()
                message = f"cold has rows at or above the watermark {watermark}; the tail has them too"
                self.cold.find(tally, window, keys, Kind.ABOVE_WATERMARK, message)

    def _check_cold_only(self, tally: FaultTally, ranges: Sequence[OffsetRange]) -> None:
        for group in plan_fetches(ranges, self.extent.fetch_offsets):
            window = Window(group)
            keys = self.cold.keyed(window).keys
            repeated = keys.filter(repeats(keys)).unique()
            message = "cold has more than one row each"
            self.cold.find(tally, window, repeated, Kind.DUPLICATE, message)
            self.progress.advance(sum(map(len, group)))

    # --- cold and log ---

    def _compare(
        self,
        tally: FaultTally,
        pin: Pin,
        mark: Watermark,
        compared: Sequence[OffsetRange],
        comparer_of: ComparerFactory,
    ) -> Iterator[str]:
        """Compare ``compared`` with the log, one range per partition; yield what could not be compared."""
        chain = tierings(carriers(self.audit.facts.history, self.audit.facts.head or 0))
        ranges = tuple(each for each in compared if len(each))
        for segment in segments(ranges, chain, self.audit.schema_ids):
            comparer = comparer_of(self.cold, self.decoder_for, pin, segment, self.extent)
            yield from comparer.unchecked
            for group in plan_fetches(segment.ranges, self.extent.fetch_offsets):
                yield from self._compare_group(tally, comparer, mark, group)

    def _compare_keys(
        self,
        tally: FaultTally,
        pin: Pin,
        mark: Watermark,
        compared: Sequence[OffsetRange],
        changes: KeyedChanges,
    ) -> Iterator[str]:
        """Compare the newest changes of all keys with the rows of cold; yield what could not be compared."""
        yield from self._compare(
            tally, pin, mark, compared, partial(ChangeComparer, changes=changes)
        )
        left = tuple(_retained(compared, self._removed))
        count = changes.count(left)
        tally.outcomes = tally.outcomes.folded(count.rows, count.deletes)
        is_compacted = self.extent.compacted
        suspicion = Suspicion.of(
            changes.suspects(left), self.cold, tally, is_compacted=is_compacted
        )
        yield from suspicion.notes(count)
        if suspicion.missing:
            again = partial(MissingComparer, places=suspicion.places)
            self.progress.start(sum(map(len, (*compared, *suspicion.ranges))))
            yield from self._compare(tally, pin, mark, suspicion.ranges, again)

    def _compare_group(
        self,
        tally: FaultTally,
        comparer: Comparer,
        mark: Watermark,
        group: tuple[OffsetRange, ...],
    ) -> Iterator[str]:
        """Compare the ranges of one fetch; yield the offsets that retention took during it."""
        while group:
            # Only a fetch that came to its end is reliable.
            group_tally = FaultTally()
            try:
                with comparer.fetching():
                    for window, records in self._windows(comparer, mark, group):
                        comparer.compare(window, records, group_tally)
                        self.progress.advance(sum(map(len, window.ranges)))
            except OffsetsExpired:
                bounds = self.log.measure([mark.address])[mark.address]
                starts = {each.partition: each.log_start for each in bounds.partitions}
                self._removed |= {each.partition: starts[each.partition] for each in group}
                left = tuple(_retained(group, starts))
                if left == group:
                    raise
                yield from _expired(group, left)
                group = left
            else:
                tally.merge(group_tally)
                return

    def _windows(
        self, comparer: Comparer, mark: Watermark, group: tuple[OffsetRange, ...]
    ) -> Iterator[tuple[Window, pa.Table]]:
        source = TopicSource.of(comparer.decoder, mark.address, mark.topic_id)
        if not self.extent.with_values:
            # Whether a record is a row may depend on its key, and never on headers.
            source = replace(source, with_headers=False)
        batches = self.log.fetch(source, group, timeout_s=self.extent.fetch_timeout_s)
        return windows(
            batches, group, max_rows=self.extent.window_rows, max_bytes=self.extent.window_bytes
        )

    def _refused(self, tally: FaultTally, pin: Pin | None, verdict: Inconsistent) -> Report:
        """Report what readers would be told; ``pin`` None: they would be refused each statement."""
        tally.add(Fault(Kind.REFUSED, verdict.message))
        nothing = CoveragePlan((), (), ("the rows: see the refusal",))
        return self._report(tally, pin, nothing, 0)

    def _report(
        self, tally: FaultTally, pin: Pin | None, plan: CoveragePlan, cold_rows: int
    ) -> Report:
        facts = self.audit.facts
        mark = None if pin is None else pin.watermark
        return Report(
            table=str(facts.table),
            topic="" if mark is None else mark.address,
            snapshot_id=facts.head,
            with_values=self.extent.with_values,
            findings=tuple(tally.findings),
            more=tuple(sorted(tally.more.items())),
            changes=tuple(tally.changes.values()),
            coverage=plan.coverage,
            outcomes=tally.outcomes,
            cold_rows=cold_rows,
            unchecked=plan.unchecked,
            decisions=() if mark is None else decisions(mark),
        )


def _cold_only(
    coverage: Sequence[Coverage], counts: Sequence[ColdCount]
) -> Iterator[OffsetRange]:
    """Yield the offsets of cold rows below the compared ranges."""
    starts = {each.compared.partition: each.compared.start for each in coverage}
    for each in counts:
        if each.partition in starts and each.first is not None:
            stop = starts[each.partition]
            if each.first < stop:
                yield OffsetRange(each.partition, each.first, stop)


def _retained(group: Sequence[OffsetRange], starts: Mapping[int, int]) -> Iterator[OffsetRange]:
    """Yield what is left of ranges; ``starts`` are those of the log, where it has moved."""
    for item in group:
        start = max(item.start, starts.get(item.partition, 0))
        if start < item.stop:
            yield OffsetRange(item.partition, start, item.stop)


def _expired(group: Iterable[OffsetRange], left: Iterable[OffsetRange]) -> Iterator[str]:
    starts = {item.partition: item.start for item in left}
    for item in group:
        stop = starts.get(item.partition, item.stop)
        if stop > item.start:
            gone = OffsetRange(item.partition, item.start, stop)
            yield f"{span_text(gone)}: retention removed them while they were verified"


def windows(
    batches: Iterable[pa.RecordBatch],
    ranges: Sequence[OffsetRange],
    *,
    max_rows: int,
    max_bytes: int,
) -> Iterator[tuple[Window, pa.Table]]:
    """Yield windows with all their records; together they are exactly ``ranges``.

    A window ends behind the last record read of each partition, the last one at the stops.
    """
    reached = {item.partition: item.start for item in ranges}
    stops = {item.partition: item.stop for item in ranges}
    pending: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        pending.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= max_rows or size >= max_bytes:
            records = pa.Table.from_batches(pending, RAW_SCHEMA)
            yield _window(reached, _behind_last(records)), records
            pending, rows, size = [], 0, 0
    last = _window(reached, stops)
    if last.ranges:
        yield last, pa.Table.from_batches(pending, RAW_SCHEMA)


def _behind_last(records: pa.Table) -> dict[int, int]:
    last = records.group_by(KAFKA_PARTITION).aggregate([(KAFKA_OFFSET, "max")])
    return {row[KAFKA_PARTITION]: row[f"{KAFKA_OFFSET}_max"] + 1 for row in last.to_pylist()}


def _window(reached: dict[int, int], stops: dict[int, int]) -> Window:
    """Make the window up to ``stops`` and remember its end."""
    ranges = tuple(
        OffsetRange(partition, reached[partition], stop)
        for partition, stop in sorted(stops.items())
        if reached[partition] < stop
    )
    reached.update(stops)
    return Window(ranges)
