"""``connectors.repairs.RepairCommitter`` over a ``MemoryColdStore``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from connectors.repairs import Decide
from connectors.table_facts import TableFacts
from planner.names import TableName
from planner.seam.snapshots import History
from planner.seam.watermark import Watermark
from tests.doubles.cold import MemoryColdStore


@dataclass(frozen=True, slots=True)
class MemoryRepairCommitter:
    """Commits decisions on tables of a store."""

    store: MemoryColdStore

    def amend(
        self,
        table: TableName,
        decide: Decide,
        properties: Callable[[], Mapping[str, str]] = dict,
    ) -> Watermark:
        marks: list[Watermark] = []

        def check(facts: TableFacts, history: History) -> Watermark:
            marks.append(decide(replace(facts, history=history), self.store))
            return marks[-1]

        self.store.commit(table, "append", _no_change, check=check)
        self.store.set_properties(table, dict(properties()))
        return marks[-1]

    def look(self, table: TableName, decide: Decide) -> Watermark:
        return decide(self.store.facts(table), self.store)


def _no_change(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    return table, table.slice(0, 0)
