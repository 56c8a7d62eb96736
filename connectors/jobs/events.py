"""Events that a loop over tables reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from connectors.jobs.round import RoundResult
from planner.errors import FederationError, StalePlan
from planner.evolution.changes import Change
from planner.maintenance.facts import MaintenanceFacts
from planner.maintenance.steps import Step, StepResult, Upkeep
from planner.names import TableName
from planner.seam.binding import Binding
from planner.tiering.schedule import Backfill
from planner.tiering.triggers import Lag, Trigger


@dataclass(frozen=True, slots=True)
class TableMeasured:
    table: TableName
    lag: Lag
    binding: Binding


@dataclass(frozen=True, slots=True)
class RoundPublished:
    """``backfill`` is None unless the table was more than one publish behind."""

    table: TableName
    done: RoundResult
    trigger: Trigger
    backfill: Backfill | None


@dataclass(frozen=True, slots=True)
class RoundRefused:
    """Nothing was published: another tierer was first, the plan's facts were gone, or records had new schemas.

    Tried again at once. Or maintenance changed nothing, for another writer was first.
    """

    table: TableName
    error: StalePlan


@dataclass(frozen=True, slots=True)
class TableSurveyed:
    """What maintenance found due."""

    table: TableName
    facts: MaintenanceFacts
    upkeep: Upkeep


@dataclass(frozen=True, slots=True)
class StepDone:
    table: TableName
    step: Step
    result: StepResult


@dataclass(frozen=True, slots=True)
class StepInVain:
    """A step left as much to do as before; it is not tried again for an hour."""

    table: TableName
    step: Step


@dataclass(frozen=True, slots=True)
class StepRefused:
    """A step cannot be taken as things are; the others go on, and it is tried again in an hour."""

    table: TableName
    step: Step
    error: FederationError


@dataclass(frozen=True, slots=True)
class BacklogGrows:
    """More files wait to be compacted than an hour ago, and at no time since were there fewer."""

    table: TableName
    files: int
    before: int


@dataclass(frozen=True, slots=True)
class TableEvolved:
    """The table took up schemas that were registered for its topic, before records of theirs were tiered."""

    table: TableName
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class SchemasNotFollowed:
    """New schemas of the topic could not be taken up; the table is tiered all the same. Told once for an error."""

    table: TableName
    error: FederationError


@dataclass(frozen=True, slots=True)
class TableFailed:
    """The table waits; no table: the catalogs could not be listed.

    ``count`` failures in a row, the first ``failing_s`` seconds ago. ``is_first``: the error is another one than before, or
    was not told for a while.
    """

    table: TableName | None
    error: FederationError
    retry_s: float
    count: int = 1
    failing_s: float = 0.0
    is_first: bool = True


@dataclass(frozen=True, slots=True)
class DrainFailed:
    """A table is not tiered up to the log's end. The failure that ends the drain is another table's."""

    table: TableName
    error: FederationError


@dataclass(frozen=True, slots=True)
class TableRecovered:
    table: TableName


@dataclass(frozen=True, slots=True)
class TableRemoved:
    """The table is not there any more, or not bound."""

    table: TableName


Event = (
    TableMeasured
    | RoundPublished
    | RoundRefused
    | TableSurveyed
    | StepDone
    | StepInVain
    | StepRefused
    | BacklogGrows
    | TableEvolved
    | SchemasNotFollowed
    | TableFailed
    | DrainFailed
    | TableRecovered
    | TableRemoved
)
#: Called from several threads; must not raise.
Listener = Callable[[Event], None]
