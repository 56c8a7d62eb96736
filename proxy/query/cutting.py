"""One cut for every table of a statement, under the freshness its session asks for."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from connectors.iceberg.pin_cache import PinCache
from planner.cut import Pin, TableCut
from planner.errors import BadParameter, NotYetCommitted
from planner.freshness import (
    LIVE,
    Freshness,
    Uncovered,
    parse_freshness,
    parse_wait_for,
    uncovered,
)
from planner.names import TableName
from planner.offsets import OffsetVector
from planner.statement.references import CutKey
from planner.time_travel import AtCut, parse_cut
from proxy.query.bounds_cache import BoundsCache
from proxy.query.cut import cut_remembered, cut_tables
from proxy.query.parsing import ParsedStatement
from proxy.query.patience import StatementDeadline
from proxy.query.time_travel import TimeTravel, When
from proxy.session import Session

#: Between two looks at a log whose record is waited for: from this, doubled, up to that.
_FIRST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.25


@dataclass(frozen=True, slots=True)
class FreshnessContract:
    """What a session asks of its statements, read from its settings.

    ``past``: of the cut every table is read at that has no AT of its own.
    """

    freshness: Freshness = LIVE
    wait_for: Mapping[str, OffsetVector] | None = None
    past: AtCut | None = None

    def __str__(self) -> str:
        return str(self.freshness) if self.past is None else "cut"

    @classmethod
    def of(cls, session: Session) -> FreshnessContract:
        """Read the settings.

        Raises:
            BadParameter: one is malformed, or two contradict each other.
        """
        if session.cut is not None and session.wait_for is not None:
            raise BadParameter(
                "cut and wait_for contradict each other: a cut that was taken does not wait."
            )
        if session.cut is not None and session.after is not None:
            raise BadParameter("a statement that is followed cannot be read at a cut.")
        freshness = LIVE if session.freshness is None else parse_freshness(session.freshness)
        if session.after is not None and freshness.side is None:
            # An older round may end before what its caller has seen.
            freshness = LIVE
        return cls(
            freshness,
            None if session.wait_for is None else parse_wait_for(session.wait_for),
            None if session.cut is None else parse_cut(session.cut),
        )


@dataclass(frozen=True, slots=True)
class Cuts:
    """The cuts of one statement. ``log_age_s``: since the logs of tables as they are were measured, if they were."""

    by_key: Mapping[CutKey, TableCut]
    log_age_s: float | None = None


class SnapshotCutter:
    """Thread-safe."""

    def __init__(self, *, pins: PinCache, rounds: BoundsCache, lookback: TimeTravel) -> None:
        self._pins = pins
        self._rounds = rounds
        self._lookback = lookback

    def pins(
        self, read: ParsedStatement, contract: FreshnessContract, when: When
    ) -> dict[CutKey, Pin]:
        """Return what each table's columns are at its moment. No log is asked."""
        pins: dict[CutKey, Pin] = {}
        for table, at in read.keys:
            moment = contract.past if at is None else self._lookback.moment(at, when)
            pins[table, at] = (
                self._pins.get(table) if moment is None else self._lookback.pin(table, moment)
            )
        return pins

    def cut(
        self,
        read: ParsedStatement,
        contract: FreshnessContract,
        when: When,
        patience: StatementDeadline,
    ) -> Cuts:
        """Cut every table: those as they are in one round, those of the past each by itself.

        Raises:
            NotYetCommitted: a record that was to be waited for did not come in time.
            FederationError: of the pins, the logs or the decisions.
        """
        by_key: dict[CutKey, TableCut] = {}
        as_is = [table for table, at in read.keys if at is None]
        age_s = None
        if contract.past is not None:
            for table in as_is:
                by_key[table, None] = self._lookback.cut(table, contract.past, patience)
        elif as_is:
            cuts, age_s = self._current(as_is, read.cold_only, contract, patience)
            by_key |= {(table, None): cut for table, cut in cuts.items()}
        for table, at in read.keys:
            if at is not None:
                moment = self._lookback.moment(at, when)
                by_key[table, at] = self._lookback.cut(table, moment, patience)
        return Cuts(by_key, age_s)

    def _current(
        self,
        tables: Sequence[TableName],
        cold_only: Collection[TableName],
        contract: FreshnessContract,
        patience: StatementDeadline,
    ) -> tuple[Mapping[TableName, TableCut], float | None]:
        wait_for = contract.wait_for or {}
        if contract.freshness.max_staleness_s is not None:
            remembered = cut_remembered(
                self._pins,
                self._rounds,
                tables,
                cold_only=cold_only,
                max_age_s=contract.freshness.max_staleness_s,
            )
            if remembered is not None and _missing(wait_for, remembered[0]) is None:
                return remembered
        pause_s = _FIRST_PAUSE_S
        while True:
            cuts = cut_tables(self._pins, self._rounds, tables, cold_only=cold_only)
            missing = _missing(wait_for, cuts)
            if missing is None:
                measured = any(
                    cut.hot is not None for name, cut in cuts.items() if name not in cold_only
                )
                return cuts, 0.0 if measured else None
            patience.cancellation.check()
            if patience.is_over:
                raise NotYetCommitted(
                    f"{missing.topic}/{missing.partition}: the record at offset {missing.offset} was waited for "
                    f"{patience.limit_s:g} s, and committed records end at {missing.end}; if it was sent in a "
                    f"transaction, commit that first, then try again.",
                    topic=missing.topic,
                    partition=missing.partition,
                    offset=missing.offset,
                    log_end=missing.end,
                )
            time.sleep(min(pause_s, patience.left_s))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _missing(
    wait_for: Mapping[str, OffsetVector], cuts: Mapping[TableName, TableCut]
) -> Uncovered | None:
    uncovered_ends = (uncovered(wait_for, cut) for cut in cuts.values())
    return next((missing for missing in uncovered_ends if missing is not None), None)
