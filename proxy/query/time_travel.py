"""Cuts of the past: of a snapshot, of a time, of another statement (planner.time_travel decides)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Self

import pyarrow as pa

from connectors.iceberg.pin_cache import PinCache
from planner.cut import LogBounds, Pin, TableCut, cold_cut
from planner.errors import (
    BadParameter,
    CutExpired,
    FederationError,
    Inconsistent,
    SnapshotExpired,
)
from planner.names import KAFKA_OFFSET, KAFKA_PARTITION, KAFKA_TIMESTAMP, TableName
from planner.offsets import OffsetVector
from planner.ports import ArrowRelation, ColdStore, SqlRelation
from planner.pruning import Condition
from planner.statement.references import AtClause
from planner.time_travel import (
    AtCut,
    AtTime,
    AtVersion,
    CutEntry,
    Moment,
    cut_until,
    decodes_as,
    ended,
    expired,
    needs_log,
    parse_version,
    same_snapshot,
)
from proxy.deadline import WAITED_FOR_TAIL, Deadline
from proxy.engine.engine import Engine
from proxy.engine.relations import Relation
from proxy.query.file_pruning import row_of
from proxy.tail.tails import Tails

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_ROWS = "rows"


@dataclass(frozen=True, slots=True)
class When:
    """What the time of an AT clause depends on: ``now()``, and the zone of times without one."""

    statement_time: dt.datetime
    time_zone: str

    @classmethod
    def at(cls, now_us: int, time_zone: str) -> Self:
        """``now_us`` is microseconds since 1970."""
        return cls(_EPOCH + dt.timedelta(microseconds=now_us), time_zone)


@dataclass(frozen=True, slots=True)
class TimeTravel:
    """Thread-safe. ``cut_now`` cuts a table as it is."""

    pins: PinCache
    measure: Callable[[Sequence[str]], Mapping[str, LogBounds]]
    cut_now: Callable[[TableName], TableCut]
    tails: Tails
    store: ColdStore
    engine: Engine

    def moment(self, at: AtClause, when: When) -> Moment:
        """Work out what an AT clause says.

        Raises:
            BadParameter: no snapshot, cut or time.
        """
        if at.unit.upper() == "VERSION":
            return parse_version(at.tree["value"]["value"])
        try:
            row = self.engine.evaluate(
                row_of([at.tree]),
                "epoch_us(CAST(c0 AS TIMESTAMPTZ)) AS t",
                {},
                statement_time=when.statement_time,
                time_zone=when.time_zone,
            )
        except FederationError as error:
            raise BadParameter("AT (TIMESTAMP => ...) takes a time.") from error
        time_us = row["t"][0].as_py()
        if time_us is None:
            raise BadParameter("AT (TIMESTAMP => ...) takes a time, not NULL.")
        return AtTime(time_us)

    def pin(self, table: TableName, moment: Moment) -> Pin:
        """Return a pin with the columns the table has at that moment; of a cut's rows it says nothing."""
        if isinstance(moment, AtVersion):
            return self.pins.pin_version(table, moment.snapshot_id)
        pin = self.pins.get(table)
        if isinstance(moment, AtTime):
            return pin if pin.binding is not None else self._then(pin, moment)
        return self._exact(moment.of(table), pin) or pin

    def cut(self, table: TableName, moment: Moment, deadline: Deadline) -> TableCut:
        """Cut a table as it was.

        Raises:
            CutExpired: that moment is not kept any more, or the table was another one.
            FederationError: of the pins, the log or the tail.
        """
        if isinstance(moment, AtVersion):
            return cold_cut(self.pins.pin_version(table, moment.snapshot_id))
        if isinstance(moment, AtCut):
            return self._of_cut(moment.of(table))
        pin = self.pins.get(table)
        if pin.binding is None:
            return cold_cut(self._then(pin, moment))
        cut = self.cut_now(table)
        return ended(cut, self._first(cut, moment.time_us, deadline))

    def _then(self, pin: Pin, moment: AtTime) -> Pin:
        """A table without a topic says by its snapshots what it was."""
        version = self.pins.retained(pin.table).current_at(moment.time_us)
        if version is None:
            raise CutExpired(
                f"{pin.table}: the table had no snapshot at that time, or its history does not reach back so far.",
                table=str(pin.table),
            )
        return self.pins.pin_version(pin.table, version)

    # --- the cut of another statement ---

    def _of_cut(self, entry: CutEntry) -> TableCut:
        try:
            return self._from_any(entry, self.pins.get(entry.table))
        except CutExpired:
            # The pin in hand may be from before a tiering that took over what the log has lost.
            return self._from_any(entry, self.pins.refresh(entry.table))

    def _from_any(self, entry: CutEntry, current: Pin) -> TableCut:
        """Read the cut from its own snapshot where that is possible: no later delete or update shows there."""
        if current.table_uuid != entry.table_uuid:
            raise expired(entry.table, "the table was dropped and created again")
        exact = self._exact(entry, current)
        if entry.end is None:
            if exact is None:
                raise expired(entry.table, f"snapshot {entry.snapshot_id} is not retained")
            return same_snapshot(entry, exact)
        why = expired(
            entry.table,
            f"snapshot {entry.snapshot_id} or the metadata file of then is gone, and the table's columns, their names, "
            f"its policies or its topic have changed since",
        )
        for pin in self._candidates(entry, exact, current):
            try:
                return self._until(pin, entry.end)
            except CutExpired as error:
                why = error
        raise why

    @staticmethod
    def _candidates(entry: CutEntry, exact: Pin | None, current: Pin) -> Iterator[Pin]:
        for pin in dict.fromkeys((exact, current)):
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

    def _exact(self, entry: CutEntry, current: Pin) -> Pin | None:
        """Return a pin as the one the cut was made from, if its snapshot is retained."""
        if (entry.snapshot_id, entry.schema_id) == (
            current.snapshot_id,
            current.schema.schema_id,
        ) and decodes_as(entry, current):
            return current
        if entry.snapshot_id is None or entry.snapshot_id not in (
            self.pins.retained(entry.table).ids
        ):
            return None
        try:
            pin = self.pins.pin_version(entry.table, entry.snapshot_id)
            if pin.schema.schema_id == entry.schema_id and decodes_as(entry, pin):
                return pin
            # Columns were changed after that snapshot and before the cut, or names and policies since.
            return self.pins.pin_at(entry)
        except (CutExpired, SnapshotExpired, Inconsistent):
            return None

    # --- a time ---

    def _first(self, cut: TableCut, time_us: int, deadline: Deadline) -> OffsetVector:
        """Return the first offset of a row of that time or later, per partition that has one.

        Not what Kafka answers for a time: where retention has removed the record, that would be the log's start;
        and the answer must not depend on which records are tiered.
        """
        since = pa.scalar(time_us, pa.timestamp("us", tz="UTC"))
        since_filter = ((Condition(KAFKA_TIMESTAMP, ">=", (since,)),),)
        parts: list[SqlRelation | ArrowRelation] = []
        check = partial(deadline.check, WAITED_FOR_TAIL)
        with ExitStack() as stack:
            if cut.cold.snapshot_id is not None:
                parts.append(self.store.scan(cut.cold, since_filter))
            if cut.new_hot:
                parts += stack.enter_context(self.tails.read(cut, check)).relations
            document = self.engine.parse(
                f"SELECT {KAFKA_PARTITION} AS part, min({KAFKA_OFFSET}) AS first FROM {_ROWS} "  # noqa: S608
                f"WHERE {KAFKA_TIMESTAMP} >= make_timestamptz({time_us}) GROUP BY ALL"
            )
            result = self.engine.run(
                document,
                [Relation(_ROWS, cut.cold.schema, tuple(parts))],
                statement_time=_EPOCH,
                deadline=deadline,
            )
            rows = [row for batch in stack.enter_context(result) for row in batch.to_pylist()]
        return OffsetVector.of((row["part"], row["first"]) for row in rows)
