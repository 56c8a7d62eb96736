"""Passes what a tierer tells on to several listeners."""

from __future__ import annotations

from connectors.tierer.events import Events
from connectors.tiering import RoundResult
from planner.binding import Binding
from planner.errors import FederationError, StalePlan
from planner.names import TableName
from planner.schedule import Backfill
from planner.triggers import Lag, Trigger


class ToldToAll:
    """``connectors.tierer.events.Events`` for every one of ``listeners``, in order."""

    def __init__(self, *listeners: Events) -> None:
        self._listeners = listeners

    def measured(self, table: TableName, lag: Lag, binding: Binding) -> None:
        for held in self._listeners:
            held.measured(table, lag, binding)

    def published(
        self, table: TableName, done: RoundResult, trigger: Trigger, backfill: Backfill | None
    ) -> None:
        for held in self._listeners:
            held.published(table, done, trigger, backfill)

    def refused(self, table: TableName, error: StalePlan) -> None:
        for held in self._listeners:
            held.refused(table, error)

    def failed(self, table: TableName | None, error: FederationError, retry_s: float) -> None:
        for held in self._listeners:
            held.failed(table, error, retry_s)

    def recovered(self, table: TableName) -> None:
        for held in self._listeners:
            held.recovered(table)

    def removed(self, table: TableName) -> None:
        for held in self._listeners:
            held.removed(table)
