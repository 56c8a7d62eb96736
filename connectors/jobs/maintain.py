"""Maintains each table of a loop: reads its files, decides what is due, and takes one step at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

from connectors.jobs import events
from connectors.jobs.loop import JobTable, TableLoop
from connectors.jobs.round import not_bound
from planner.errors import (
    BadBinding,
    ColdStoreUnavailable,
    FederationError,
    Inconsistent,
    RequestError,
    StalePlan,
)
from planner.maintenance.facts import MaintenanceFacts
from planner.maintenance.steps import (
    Compaction,
    Expiry,
    OrphanRemoval,
    RowExpiry,
    Situation,
    Step,
    StepResult,
    Upkeep,
    plan_upkeep,
)
from planner.names import TableName

#: How long a step that was in vain is left out.
IN_VAIN_S = 3_600.0
#: A backlog that grew all this time is told.
GROWS_S = 3_600.0
#: How long a step is left out for which another writer was first, in a loop: it would be first again. One over old rows: ``IN_VAIN_S``.
CONFLICT_S = 60.0
#: Another writer may be first several times in a row.
_CONFLICTS = 5
#: Of the pace of rewrites, what the newest one counts for.
_NEWEST_SHARE = 0.5
#: Steps over fewer bytes take as long as starting them does, and tell no pace.
_ENOUGH_BYTES = 64 * 1024**2


class MaintenanceTarget(Protocol):
    """Takes steps at one table."""

    def take(self, step: Step) -> StepResult:
        """Take one step. Raises FederationError; StalePlan where another writer was first and nothing was changed."""

    def cancel(self) -> None:
        """Make a running step end soon."""


@dataclass(kw_only=True, eq=False)
class MaintainedTable(JobTable):
    """``out_until_s`` is of the loop's clock, by kind of step; ``lowest`` the smallest backlog of late, and when it was.

    ``is_decided``: ``upkeep`` is by these facts. ``stepped_s``: when the last step ended, by the same clock.
    """

    facts: MaintenanceFacts | None = None
    is_decided: bool = False
    upkeep: Upkeep = field(default_factory=Upkeep)
    target: MaintenanceTarget | None = None
    out_until_s: dict[type[Step], float] = field(default_factory=dict)
    lowest: tuple[int, float] | None = None
    stepped_s: float = 0.0

    def grown_from(self, files: int, clock_s: float) -> int | None:
        """Note a backlog; return that of an hour ago if it has only grown since."""
        if self.lowest is None or files <= self.lowest[0]:
            self.lowest = files, clock_s
            return None
        before, since_s = self.lowest
        if clock_s - since_s < GROWS_S:
            return None
        self.lowest = files, clock_s
        return before


@dataclass(kw_only=True, eq=False)
class MaintenanceJob:
    """``connectors.jobs.loop.Job`` that maintains.

    ``read`` returns the facts of a table, None where it is not bound. ``open_target`` is called with the first step of a
    table: it may start Spark. ``by_command``: a person asked for what removes files and snapshots, too.
    """

    name: ClassVar[str] = "maintenance"
    outcome: ClassVar[str] = "at most one step was taken"

    tables: Callable[[], Iterable[TableName]]
    read_facts: Callable[[TableName], MaintenanceFacts | None]
    open_target: Callable[[TableName], MaintenanceTarget]
    by_command: bool = False
    now_s: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        self._bytes_per_s = Situation(0).bytes_per_s

    def open(self, name: TableName) -> MaintainedTable:
        return MaintainedTable(name=name)

    def read(self, table: MaintainedTable) -> None:
        table.facts, table.is_decided = self.read_facts(table.name), False

    def due(
        self, tables: Sequence[MaintainedTable], loop: TableLoop[MaintainedTable]
    ) -> Iterator[tuple[MaintainedTable, Upkeep | None]]:
        for table in tables:
            with loop.guarded(table):
                # A look is every few seconds, and a decision goes through all files.
                if not table.is_decided:
                    self._decide(table, loop)
                    # One for each file, of all tables at once; a round reads them again.
                    table.facts = None
                waited_s, upkeep = loop.clock() - table.stepped_s, table.upkeep
                yield table, replace(upkeep, waited_s=waited_s) if upkeep.steps else None

    def _decide(self, table: MaintainedTable, loop: TableLoop[MaintainedTable]) -> Upkeep:
        clock_s = loop.clock()
        out = {kind for kind, at_s in table.out_until_s.items() if at_s > clock_s}
        table.is_decided = True
        if table.facts is None:
            table.upkeep = Upkeep()
            return table.upkeep
        upkeep = plan_upkeep(table.facts, self.situation)
        table.upkeep = upkeep.without(out)
        # What is left out for a time waits all the same.
        loop.tell(events.TableSurveyed(table.name, table.facts, upkeep))
        files, _ = upkeep.backlog
        # What is not compacted here, as another does it, keeps up with nothing.
        is_ours = any(isinstance(step, Compaction) for step in upkeep.steps)
        before = table.grown_from(files if is_ours else 0, clock_s)
        if before is not None:
            loop.tell(events.BacklogGrows(table.name, files, before))
        return table.upkeep

    @property
    def situation(self) -> Situation:
        return Situation(int(self.now_s() * 1000), self.by_command, self._bytes_per_s)

    def run(
        self, table: MaintainedTable, loop: TableLoop[MaintainedTable]
    ) -> events.StepDone | None:
        """Take the first step that is due."""
        self.read(table)
        upkeep = self._decide(table, loop)
        if not upkeep.steps:
            return None
        step = upkeep.steps[0]
        try:
            result = self._take(table, step, loop)
        except StalePlan as error:
            # Rows that are too old may be a rewrite of much of the table, in vain each time.
            wait_s = IN_VAIN_S if isinstance(step, RowExpiry) else CONFLICT_S
            table.out_until_s[type(step)] = loop.clock() + wait_s
            loop.tell(events.RoundRefused(table.name, error))
            return None
        except (RequestError, Inconsistent, ColdStoreUnavailable) as error:
            self._leave_out(table, step, error, loop)
            return None
        finally:
            table.stepped_s = loop.clock()
        return events.StepDone(table.name, step, result)

    def _leave_out(
        self,
        table: MaintainedTable,
        step: Step,
        error: FederationError,
        loop: TableLoop[MaintainedTable],
    ) -> None:
        """Leave out a step that the others need not wait for; raise the error of another.

        Orphans need other tables to be read, and a right to delete; an expiry makes the room that a rewrite
        lacks, as one of old rows may be.
        """
        passes = (
            isinstance(step, OrphanRemoval | RowExpiry)
            or (isinstance(step, Expiry) and isinstance(error, BadBinding))
            or (isinstance(step, Compaction) and isinstance(error, ColdStoreUnavailable))
        )
        if not passes:
            raise error
        table.out_until_s[type(step)] = loop.clock() + IN_VAIN_S
        loop.tell(events.StepRefused(table.name, step, error))

    def drain(self, table: MaintainedTable, loop: TableLoop[MaintainedTable]) -> None:
        """Take steps until none is due; raise the first refusal of one that the others did not wait for."""
        conflicts, refusals = 0, list[FederationError]()
        while not loop.stopping:
            self.read(table)
            if table.facts is None:
                raise not_bound(table.name)
            upkeep = self._decide(table, loop)
            if not upkeep.steps:
                break
            step = upkeep.steps[0]
            try:
                result = self._take(table, step, loop)
            except StalePlan as error:
                conflicts += 1
                loop.tell(events.RoundRefused(table.name, error))
                if conflicts >= _CONFLICTS:
                    raise
            except (RequestError, Inconsistent, ColdStoreUnavailable) as error:
                self._leave_out(table, step, error, loop)
                refusals.append(error)
            else:
                conflicts = 0
                loop.tell(events.StepDone(table.name, step, result))
        if refusals:
            raise refusals[0]

    def _take(
        self, table: MaintainedTable, step: Step, loop: TableLoop[MaintainedTable]
    ) -> StepResult:
        if table.target is None:
            table.target = self.open_target(table.name)
        result = table.target.take(step)
        if isinstance(step, Compaction) and result.bytes >= _ENOUGH_BYTES and result.seconds:
            pace = result.bytes / result.seconds
            self._bytes_per_s += _NEWEST_SHARE * (pace - self._bytes_per_s)
        if self._is_in_vain(table, step, result):
            table.out_until_s[type(step)] = loop.clock() + IN_VAIN_S
            loop.tell(events.StepInVain(table.name, step))
        return result

    def _is_in_vain(self, table: MaintainedTable, step: Step, result: StepResult) -> bool:
        """Whether the same is due again, no less of it: Iceberg chose otherwise than we do, and would again.

        Not where files went and publishes brought as many: that is a table which falls behind.
        """
        if isinstance(step, OrphanRemoval) and result.files:
            return False
        facts = self.read_facts(table.name)
        if facts is None or table.facts is None:
            return False
        if isinstance(step, Compaction) and facts.rewritten_away_since(table.facts) > 0:
            return False
        after = [
            each
            for each in plan_upkeep(facts, self.situation).steps
            if type(each) is type(step)
        ]
        return bool(after) and after[0].backlog >= step.backlog

    def cancel(self, table: MaintainedTable) -> None:
        if table.target is not None:
            table.target.cancel()
