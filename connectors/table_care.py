"""How well bound tables are looked after: what maintenance would do to each now."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from connectors.table_standings import PINS_AT_ONCE, TableStatus
from planner.errors import FederationError
from planner.maintenance.standing import CareStanding
from planner.maintenance.steps import Situation, plan_upkeep
from planner.names import TableName

if TYPE_CHECKING:
    from connectors.iceberg.maintenance_facts import MaintenanceReader


def with_care(
    statuses: Sequence[TableStatus], reader: MaintenanceReader, now_ms: int
) -> list[TableStatus]:
    """Add how well tables are looked after. One whose files cannot be read, or whose properties do not fit, says why."""

    def one(status: TableStatus) -> TableStatus:
        if status.error is not None:
            return status
        try:
            facts = reader.read(TableName.parse(status.table))
            if facts is None:
                return status
            upkeep = plan_upkeep(facts, Situation(now_ms))
        except FederationError as error:
            return replace(status, error=error.message, error_class=type(error).__name__)
        return replace(status, care=CareStanding.of(facts, upkeep, now_ms))

    with ThreadPoolExecutor(PINS_AT_ONCE) as pool:
        return list(pool.map(one, statuses))
