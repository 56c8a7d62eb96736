"""Cuts of the past: of a snapshot, of a time, of another statement (planner.seam.time_travel decides)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Self

import pyarrow as pa

from connectors.cuts import PastCuts
from connectors.iceberg.pin_cache import PinCache
from planner.errors import (
    BadParameter,
    FederationError,
)
from planner.names import KAFKA_OFFSET, KAFKA_PARTITION, KAFKA_TIMESTAMP, TableName
from planner.offsets import OffsetVector
from planner.ports import ArrowRelation, ColdStore, SqlRelation
from planner.reading.filters import Condition
from planner.seam.cut import Pin, TableCut, cold_cut
from planner.seam.time_travel import AtCut, AtTime, AtVersion, Moment, ended, parse_version
from planner.statement.references import AtClause
from planner.statement.row_expression import row_of
from proxy.deadline import WAITED_FOR_TAIL, Deadline
from proxy.engine.engine import Engine
from proxy.engine.relations import Relation
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
    past: PastCuts
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
            return pin if pin.binding is not None else self.past.then(pin, moment)
        return self.past.exact(moment.of(table), pin) or pin

    def cut(self, table: TableName, moment: Moment, deadline: Deadline) -> TableCut:
        """Cut a table as it was.

        Raises:
            CutExpired: that moment is not kept any more, or the table was another one.
            FederationError: of the pins, the log or the tail.
        """
        if isinstance(moment, AtVersion):
            return cold_cut(self.pins.pin_version(table, moment.snapshot_id))
        if isinstance(moment, AtCut):
            return self.past.cut(moment.of(table))
        pin = self.pins.get(table)
        if pin.binding is None:
            return cold_cut(self.past.then(pin, moment))
        cut = self.cut_now(table)
        return ended(cut, self._first(cut, moment.time_us, deadline))

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
