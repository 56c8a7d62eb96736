"""The cut of tables as they are: pin each, measure all their logs in one round, decide (docs/internals/seam.md).

And cuts of the past that need no engine: of another statement's cut, or of a snapshot (planner.seam.time_travel).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain

from connectors.bounds_cache import BoundsCache, Measures
from connectors.iceberg.pin_cache import PinCache
from planner.errors import (
    CutExpired,
    Inconsistent,
    NotYetCommitted,
    SnapshotExpired,
    StalePlan,
    UnknownTopic,
)
from planner.names import TableName
from planner.offsets import OffsetVector
from planner.seam.cut import LogBounds, Pin, TableCut, cold_cut, plan_cut
from planner.seam.freshness import Uncovered, caught_up, uncovered
from planner.seam.time_travel import (
    AtTime,
    CutEntry,
    cut_until,
    decodes_as,
    expired,
    needs_log,
    same_snapshot,
)
from planner.seam.watermark import Watermark

#: Pause between two looks at a log while waiting for a record: the first, doubled up to the longest.
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.01, 0.25
#: How long ``current_cuts`` waits for a record, unless it is told.
WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class WaitFor:
    """Ends that cuts must cover, by topic, and how long they may take.

    ``left_s`` returns the seconds that are left of ``limit_s``, and raises once the caller is gone; None: the time begins
    when it is first waited.
    """

    ends: Mapping[str, OffsetVector] = field(default_factory=dict)
    limit_s: float = WAIT_S
    left_s: Callable[[], float] | None = None


_NO_WAIT = WaitFor()


def current_cuts(
    pins: PinCache,
    bounds: BoundsCache,
    tables: Sequence[TableName],
    *,
    cold_only: Collection[TableName] = (),
    max_staleness_s: float | None = None,
    wait: WaitFor = _NO_WAIT,
) -> tuple[Mapping[TableName, TableCut], float | None]:
    """Cut tables as they are, or as they were ``max_staleness_s`` ago; return the age of the measurement, if any.

    Raises:
        NotYetCommitted: a record that was to be waited for did not come in time.
        FederationError: of the pins, the logs or the decisions.
    """
    if max_staleness_s is not None:
        remembered = cut_remembered(
            pins, bounds, tables, cold_only=cold_only, max_age_s=max_staleness_s
        )
        if remembered is not None and _missing(wait.ends, remembered[0]) is None:
            return remembered
    pause_s, end_s = _FIRST_PAUSE_S, time.monotonic() + wait.limit_s
    while True:
        cuts = cut_tables(pins, bounds, tables, cold_only=cold_only)
        missing = _missing(wait.ends, cuts)
        if missing is None:
            measured = any(
                cut.hot is not None for name, cut in cuts.items() if name not in cold_only
            )
            return cuts, 0.0 if measured else None
        rest_s = end_s - time.monotonic() if wait.left_s is None else wait.left_s()
        if rest_s <= 0:
            raise NotYetCommitted(
                f"{missing.topic}/{missing.partition}: the record at offset {missing.offset} was waited for "
                f"{wait.limit_s:g} s, and committed records end at {missing.end}; if it was sent in a "
                f"transaction, commit that first, then try again.",
                topic=missing.topic,
                partition=missing.partition,
                offset=missing.offset,
                log_end=missing.end,
            )
        time.sleep(min(pause_s, rest_s))
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _missing(
    wait_for: Mapping[str, OffsetVector], cuts: Mapping[TableName, TableCut]
) -> Uncovered | None:
    uncovered_ends = (uncovered(wait_for, cut) for cut in cuts.values())
    return next((missing for missing in uncovered_ends if missing is not None), None)


def cut_tables(
    pins: PinCache,
    log: Measures,
    tables: Sequence[TableName],
    *,
    cold_only: Collection[TableName] = (),
) -> dict[TableName, TableCut]:
    """Pin first, measure second, decide; after a refusal re-pin once and measure again.

    The logs of ``cold_only`` tables are not asked: their snapshot is all the statement reads.

    An old pin meets a log that retention has moved past it whenever tiering and retention both went on: the
    newest pin then answers. What is refused twice is true.

    Raises FederationError: of the pins, the log or the decision.
    """
    try:
        return cut_pinned({table: pins.get(table) for table in tables}, log, cold_only)
    except (Inconsistent, StalePlan):
        return cut_pinned({table: pins.refresh(table) for table in tables}, log, cold_only)


def cut_remembered(
    pins: PinCache,
    bounds_cache: BoundsCache,
    tables: Sequence[TableName],
    *,
    cold_only: Collection[TableName] = (),
    max_age_s: float,
) -> tuple[dict[TableName, TableCut], float | None] | None:
    """Cut tables as of a round measured at most ``max_age_s`` ago; return them with its age. No log is asked.

    None: there is no such round, or it does not fit the tables any more.

    Raises FederationError: of the pins.
    """
    pinned = {table: pins.get(table) for table in tables}
    marks = _marks(pinned, cold_only)
    if not marks:
        return {table: cold_cut(pin) for table, pin in pinned.items()}, None
    measured = bounds_cache.remembered([mark.address for mark in marks.values()], max_age_s)
    if measured is None:
        return None
    try:
        cuts = {
            table: plan_cut(pin, caught_up(measured.bounds[marks[table].address], marks[table]))
            if table in marks
            else cold_cut(pin)
            for table, pin in pinned.items()
        }
    except Inconsistent:
        return None
    return cuts, bounds_cache.age_s(measured)


def _marks(
    pinned: Mapping[TableName, Pin], cold_only: Collection[TableName]
) -> dict[TableName, Watermark]:
    """The watermarks of the tables whose logs are read."""
    return {
        table: pin.watermark
        for table, pin in pinned.items()
        if pin.watermark is not None and table not in cold_only
    }


def cut_pinned(
    pinned: Mapping[TableName, Pin], log: Measures, cold_only: Collection[TableName]
) -> dict[TableName, TableCut]:
    """Measure second, and decide. Raises FederationError: of the log or the decision."""
    marks = _marks(pinned, cold_only)
    bounds = _measure(log, marks)
    return {
        table: plan_cut(pin, bounds[marks[table].address]) if table in marks else cold_cut(pin)
        for table, pin in pinned.items()
    }


def _measure(log: Measures, marks: Mapping[TableName, Watermark]) -> Mapping[str, LogBounds]:
    topics = sorted({mark.address for mark in marks.values()})
    try:
        return log.measure(topics) if topics else {}
    except UnknownTopic as error:
        missing = error.facts["topic"]
        table = next((name for name in sorted(marks) if marks[name].address == missing), None)
        if table is None:
            raise
        raise UnknownTopic(
            f"{table}: it is bound to topic {missing}, which the Kafka cluster does not have; point the server at "
            f"the right brokers, or bind a new table.",
            table=str(table),
            topic=missing,
        ) from error


@dataclass(frozen=True, slots=True)
class PastCuts:
    """Thread-safe."""

    pins: PinCache
    measure: Callable[[Sequence[str]], Mapping[str, LogBounds]]

    def cut(self, entry: CutEntry) -> TableCut:
        """Return the cut that an entry names, from its own snapshot or a newer one.

        Raises:
            CutExpired: it is not kept any more, or the table was another one.
            FederationError: of the pins or the log.
        """
        try:
            return self._from_any(entry, self.pins.get(entry.table))
        except CutExpired:
            # The pin in hand may be from before a tiering that took over what the log has lost.
            return self._from_any(entry, self.pins.refresh(entry.table))

    def _from_any(self, entry: CutEntry, current: Pin) -> TableCut:
        """Read the cut from its own snapshot where that is possible: no later delete or update shows there."""
        if current.table_uuid != entry.table_uuid:
            raise expired(entry.table, "the table was dropped and created again")
        exact = self.exact(entry, current)
        if entry.end is None:
            if exact is None:
                what = "the table without a snapshot"
                if entry.snapshot_id is not None:
                    what = f"snapshot {entry.snapshot_id}"
                raise expired(entry.table, f"{what} is not retained")
            return same_snapshot(entry, exact)
        why = expired(
            entry.table,
            f"snapshot {entry.snapshot_id} or the metadata file of then is gone, and the table's columns, their names, "
            f"its policies or its topic have changed since, or its retention removed rows",
        )
        for pin in chain(
            self._candidates(entry, (exact, current)), self._older(entry, current)
        ):
            try:
                return self._until(pin, entry.end)
            except CutExpired as error:
                why = error
        raise why

    def _older(self, entry: CutEntry, current: Pin) -> Iterator[Pin]:
        """Yield pins of other snapshots that are retained, newest first, if the table is keyed: newer ones than the cut do not do."""
        if current.watermark is None or not current.watermark.key:
            return
        retained = self.pins.retained(entry.table)
        for version in dict.fromkeys(each for _, each in reversed(retained.log)):
            if version in retained.ids and version != current.snapshot_id:
                with suppress(CutExpired, SnapshotExpired, Inconsistent):
                    yield from self._candidates(
                        entry, [self.pins.pin_version(entry.table, version)]
                    )

    @staticmethod
    def _candidates(entry: CutEntry, pins: Iterable[Pin | None]) -> Iterator[Pin]:
        for pin in dict.fromkeys(pins):
            if (
                pin is not None
                and pin.schema.schema_id == entry.schema_id
                and pin.watermark is not None
                and pin.watermark.topic_id == entry.topic_id
                and decodes_as(entry, pin)
            ):
                yield pin

    def _until(self, pin: Pin, end: OffsetVector) -> TableCut:
        bounds = None
        if pin.watermark is not None and needs_log(pin, end):
            bounds = self.measure([pin.watermark.address])[pin.watermark.address]
        return cut_until(pin, end, bounds)

    def exact(self, entry: CutEntry, current: Pin) -> Pin | None:
        """Return a pin as the one the cut was made from, if its snapshot is retained."""
        version, schema_id = entry.snapshot_id, entry.schema_id
        is_current = (version, schema_id) == (current.snapshot_id, current.schema.schema_id)
        if is_current and decodes_as(entry, current):
            return current
        if version is not None and version not in self.pins.retained(entry.table).ids:
            return None
        try:
            if version is not None:
                pin = self.pins.pin_version(entry.table, version)
                if pin.schema.schema_id == entry.schema_id and decodes_as(entry, pin):
                    return pin
            # Columns were changed after that snapshot and before the cut, or names and policies since.
            return self.pins.pin_at(entry)
        except (CutExpired, SnapshotExpired, Inconsistent):
            return None

    def then(self, pin: Pin, moment: AtTime) -> Pin:
        """A table without a topic says by its snapshots what it was."""
        version = self.pins.retained(pin.table).current_at(moment.time_us)
        if version is None:
            raise CutExpired(
                f"{pin.table}: the table had no snapshot at that time, or its history does not reach back so far.",
                table=str(pin.table),
            )
        return self.pins.pin_version(pin.table, version)
