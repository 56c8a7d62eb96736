"""Events that a tierer reports."""

from __future__ import annotations

from typing import Protocol

from connectors.tiering.round import RoundResult
from planner.binding import Binding
from planner.errors import FederationError, StalePlan
from planner.names import TableName
from planner.schedule import Backfill
from planner.triggers import Lag, Trigger


class Events(Protocol):
    """What the service tells. Called from several threads; must not raise."""

    def measured(self, table: TableName, lag: Lag, binding: Binding) -> None: ...

    def published(
        self, table: TableName, done: RoundResult, trigger: Trigger, backfill: Backfill | None
    ) -> None:
        """``backfill`` is None unless the table was more than one publish behind."""

    def refused(self, table: TableName, error: StalePlan) -> None:
        """Nothing was published: another tierer was first, or the plan's facts were gone. Tried again at once."""

    def failed(self, table: TableName | None, error: FederationError, retry_s: float) -> None:
        """The table waits; no table: the catalogs could not be listed. Told once while the error stays the same."""

    def recovered(self, table: TableName) -> None: ...

    def removed(self, table: TableName) -> None:
        """The table is not there any more, or not bound."""
