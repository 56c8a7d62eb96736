"""Maintenance of one table as its loop does it, at a time of the test's choosing."""

from __future__ import annotations

import os
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from connectors.iceberg.maintenance_facts import MaintenanceReader
from connectors.spark.maintenance.target import SparkMaintenance
from planner.maintenance.facts import MaintenanceFacts
from planner.maintenance.steps import OrphanRemoval, Situation, Step, plan_upkeep
from tests.fixtures.spark import BoundTable

HOUR_MS = 3_600_000
_DAYS_4_S = 4 * 86_400


def aged(path: Path) -> Path:
    """Let a file be four days old by the store's clock, which is the disk's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_bytes(b"orphan")
    then = time.time() - _DAYS_4_S
    os.utime(path, (then, then))
    return path


def folder_of(table: BoundTable) -> Path:
    return Path(str(table.java().location()).removeprefix("file:").replace("///", "/"))


@dataclass
class Care:
    table: BoundTable
    reader: MaintenanceReader

    @property
    def target(self) -> SparkMaintenance:
        return SparkMaintenance(self.table.session, self.table.name, self.reader.neighbours.of)

    def facts(self) -> MaintenanceFacts:
        facts = self.reader.read(self.table.name)
        assert facts is not None
        return facts

    def steps(self, hours: float = 0) -> tuple[Step, ...]:
        """What is due so many hours from now."""
        now_ms = int(time.time() * 1000 + hours * HOUR_MS)
        return plan_upkeep(self.facts(), Situation(now_ms, by_command=True)).steps

    def step(self, kind: type[Step], hours: float = 0) -> Step:
        """The step of a kind that is due then."""
        [step] = (each for each in self.steps(hours) if type(each) is kind)
        return step

    def maintain(self, hours: float = 0) -> list[type[Step]]:
        """Take steps until none is due; return which."""
        kinds: list[type[Step]] = []
        is_swept = False
        while steps := self.steps(hours):
            kind = type(steps[0])
            # The store's clock is that of today: it is due again, and finds nothing.
            if kind is OrphanRemoval and is_swept:
                break
            result = self.target.take(steps[0])
            is_swept = kind is OrphanRemoval and not result.files
            if kinds[-1:] != [kind] or kind is not OrphanRemoval:
                kinds.append(kind)
            assert len(kinds) < 20, kinds
        return kinds


def maintain(table: BoundTable, hours: float = 0) -> list[type[Step]]:
    with closing(MaintenanceReader(table.catalogs)) as reader:
        return Care(table, reader).maintain(hours)
