"""Passes what a tierer tells on to several listeners."""

from __future__ import annotations

from connectors.tiering.events import Events
from connectors.tiering.round import RoundResult
from planner.binding import Binding
from planner.errors import FederationError, StalePlan
from planner.names import TableName
from planner.schedule import Backfill
from planner.triggers import Lag, Trigger


class EventFanOut:
    """``connectors.tiering.events.Events`` for every one of ``listeners``, in order."""

    def __init__(self, *listeners: Events) -> None:
        self._listeners = listeners

    def measured(self, table: TableName, lag: Lag, binding: Binding) -> None:
        for listener in self._listeners:
            listener.measured(table, lag, binding)

    def published(
        self, table: TableName, done: RoundResult, trigger: Trigger, backfill: Backfill | None
    ) -> None:
        for listener in self._listeners:
            listener.published(table, done, trigger, backfill)

    def refused(self, table: TableName, error: StalePlan) -> None:
        for listener in self._listeners:
            listener.refused(table, error)

    def failed(self, table: TableName | None, error: FederationError, retry_s: float) -> None:
        for listener in self._listeners:
            listener.failed(table, error, retry_s)

    def recovered(self, table: TableName) -> None:
        for listener in self._listeners:
            listener.recovered(table)

    def removed(self, table: TableName) -> None:
        for listener in self._listeners:
            listener.removed(table)
