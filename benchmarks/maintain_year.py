"""What a year of a table's life leaves, by the planner's own decisions under a simulated clock.

Sizes of what each commit adds to the metadata file are those of a real table. Manifests are left out: the month's soak
(tests/integration/test_maintenance_month.py) has them, on real parts.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import click
from pyiceberg.catalog import load_catalog

from benchmarks.maintain_idle import create_published
from benchmarks.options import seed
from benchmarks.report import Report, quantile, recorded
from benchmarks.world import sqlite_catalogs
from connectors.iceberg.create import DEFAULT_PROPERTIES
from connectors.store.locations import local_path
from planner.maintenance.facts import (
    MAIN,
    MAINTAIN_KEY,
    FileSize,
    HeadFiles,
    MaintenanceFacts,
    SnapshotRef,
)
from planner.maintenance.options import ORPHANS_MS, OWN_VERSIONS
from planner.maintenance.steps import (
    PREVIOUS_VERSIONS,
    TITLES,
    Compaction,
    Expiry,
    LogLength,
    OrphanRemoval,
    Situation,
    Step,
    WatermarkRenewal,
    plan_upkeep,
)
from planner.names import TableName
from planner.seam.snapshots import History, Snapshot
from planner.tiering.triggers import TARGET_FILE_BYTES

_DAY_MS = 86_400_000
_MINUTE_MS = 60_000
_BEGIN_MS = 1_767_225_600_000
_TABLE = TableName("lake", ("bench",), "year")
#: Of the flows of ``benchmarks.shapes`` in Parquet.
_ROW_BYTES = 21
#: A day's rows still come for so many days.
_LATE_DAYS = 7
_MOST_STEPS = 100
_REWRITE = {MAINTAIN_KEY: "run"}


@dataclass(frozen=True, slots=True)
class EntrySizes:
    """Bytes of a metadata file: of a snapshot with its line in the log, of an older version's line, and of the rest."""

    snapshot: float
    version: float
    rest: float

    @classmethod
    def measured(cls, publishes: int = 20) -> EntrySizes:
        with tempfile.TemporaryDirectory(prefix="thermocline-bench-") as name:
            catalogs = sqlite_catalogs(Path(name))
            create_published(catalogs, [_TABLE], publishes)
            with closing(load_catalog("lake", **catalogs["lake"])) as catalog:
                table = catalog.load_table((*_TABLE.namespace, _TABLE.name))
            path = local_path(table.metadata_location)
            if path is None:
                raise RuntimeError("the warehouse is no folder")
            content: dict[str, Any] = json.loads(path.read_text())
        of_snapshots = _bytes(content["snapshots"]) + _bytes(content["snapshot-log"])
        of_versions = _bytes(content["metadata-log"])
        return cls(
            snapshot=of_snapshots / len(content["snapshots"]),
            version=of_versions / len(content["metadata-log"]),
            rest=_bytes(content) - of_snapshots - of_versions,
        )


def _bytes(value: object) -> int:
    return len(json.dumps(value, separators=(",", ":")))


@dataclass
class Table:
    """A table partitioned by day; each publish has a file of today, and a small one of a day before."""

    chance: random.Random
    publish_bytes: int
    publish_rows: int
    late_share: float
    properties: dict[str, str] = field(default_factory=lambda: dict(DEFAULT_PROPERTIES))
    files: dict[int, list[FileSize]] = field(default_factory=dict)
    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    committed_ms: dict[int, int] = field(default_factory=dict)
    versions_ms: list[int] = field(default_factory=list)
    needs_watermark: bool = False
    ids: count[int] = field(default_factory=lambda: count(1))
    head: int = 0

    def facts(self) -> MaintenanceFacts:
        files = tuple(file for day in self.files.values() for file in day)
        return MaintenanceFacts(
            table=_TABLE,
            head=self.head,
            history=History(self.snapshots, tagged_id=self.head),
            committed_ms=self.committed_ms,
            properties=self.properties,
            refs={MAIN: SnapshotRef(self.head, is_branch=True)},
            log=tuple((at_ms, each) for each, at_ms in self.committed_ms.items()),
            versions_ms=tuple(self.versions_ms),
            needs_watermark=self.needs_watermark,
            files=HeadFiles(files),
        )

    def publish(self, now_ms: int) -> None:
        today = now_ms // _DAY_MS
        self._add(today, 1 - self.late_share)
        if self.late_share:
            self._add(today - self.chance.randint(1, _LATE_DAYS), self.late_share)
        self._commit(now_ms, "append")
        self.needs_watermark = False

    def _add(self, day: int, share: float) -> None:
        size, rows = int(self.publish_bytes * share), int(self.publish_rows * share)
        self.files.setdefault(day, []).append(FileSize((day,), size, rows))

    def take(self, step: Step, now_ms: int) -> None:
        """Do to these facts what the step does to a table."""
        match step:
            case Compaction():
                for backlog in step.backlogs:
                    self._compact(step, backlog.partition)
                self._commit(now_ms, "replace")
                self.needs_watermark = True
            case WatermarkRenewal():
                self._commit(now_ms, "append")
                self.needs_watermark = False
            case Expiry(before_ms=before_ms):
                for each, at_ms in list(self.committed_ms.items()):
                    if at_ms < before_ms and each != self.head:
                        del self.committed_ms[each], self.snapshots[each]
                self._new_version(now_ms)
            case LogLength(versions=versions, own=own):
                self.properties |= {PREVIOUS_VERSIONS: str(versions), OWN_VERSIONS: str(own)}
                self._new_version(now_ms)
            case OrphanRemoval():
                self.properties[ORPHANS_MS] = str(now_ms)
                self._new_version(now_ms)
            case _:
                raise RuntimeError(f"{TITLES[type(step)]} is not simulated")

    def _compact(self, step: Compaction, partition: tuple[object, ...] | None) -> None:
        if partition is None:
            raise RuntimeError("all files are of one spec")
        [day] = partition
        if not isinstance(day, int):
            raise TypeError(f"{day!r} is no day")
        rules, all_files = step.rules, self.files[day]
        chosen = [file for file in all_files if rules.is_small(file)][: step.max_files]
        size, rows = sum(file.bytes for file in chosen), sum(file.rows for file in chosen)
        left = max(1, -(-size // rules.target_bytes))
        new = [FileSize((day,), size // left, rows // left)] * left
        self.files[day] = [*(file for file in all_files if file not in chosen), *new]

    def _commit(self, now_ms: int, operation: str) -> None:
        # Iceberg's times rise, and two commits of a simulated minute are two.
        at_ms = max(now_ms, self.committed_ms.get(self.head, 0) + 1)
        parent, self.head = self.head or None, next(self.ids)
        summary = _REWRITE if operation == "replace" else {}
        self.snapshots[self.head] = Snapshot(self.head, parent, self.head, operation, summary)
        self.committed_ms[self.head] = at_ms
        self._new_version(at_ms)

    def _new_version(self, at_ms: int) -> None:
        self.versions_ms.append(at_ms)
        del self.versions_ms[: -int(self.properties[PREVIOUS_VERSIONS])]


@dataclass
class Month:
    """What a table had at most, before and after maintenance."""

    files: int = 0
    #: Beyond those that the bytes of its days need at the target size.
    extra_files: int = 0
    snapshots: int = 0
    metadata_bytes: int = 0
    plan_ms: list[float] = field(default_factory=list)

    def note(self, table: Table, sizes: EntrySizes) -> None:
        target = int(DEFAULT_PROPERTIES[TARGET_FILE_BYTES])
        files = sum(map(len, table.files.values()))
        least = sum(
            -(-sum(file.bytes for file in day) // target) for day in table.files.values()
        )
        snapshots, versions = len(table.snapshots), len(table.versions_ms)
        size = sizes.rest + snapshots * sizes.snapshot + versions * sizes.version
        self.files = max(self.files, files)
        self.extra_files = max(self.extra_files, files - least)
        self.snapshots = max(self.snapshots, snapshots)
        self.metadata_bytes = max(self.metadata_bytes, int(size))

    @property
    def files_ratio(self) -> float:
        """Files / what their bytes need: each day is left with a few that are not full."""
        return self.files / max(1, self.files - self.extra_files)

    @property
    def facts(self) -> dict[str, float]:
        return {
            "files": self.files,
            "extra_files": self.extra_files,
            "snapshots": self.snapshots,
            "metadata_bytes": self.metadata_bytes,
            "plan_p99_ms": quantile(self.plan_ms, 0.99),
        }


@click.command()
@click.option("--days", type=click.IntRange(90), default=365, show_default=True)
@click.option("--rate", type=click.IntRange(1), default=5_000, show_default=True)
@click.option(
    "--look-minutes",
    type=click.IntRange(1),
    default=60,
    show_default=True,
    help="Between two times that all that is due is done.",
)
@click.option("--late-share", type=float, default=0.01, show_default=True)
@seed
@click.pass_obj
def command(
    results: Path, days: int, rate: int, look_minutes: int, late_share: float, seed: int
) -> None:
    """A publish a minute into a table partitioned by day, some rows of it a week late, and maintenance."""
    with recorded(results, "maintain-year") as report:
        rows = rate * 60
        table = Table(random.Random(seed), rows * _ROW_BYTES, rows, late_share)
        sizes, steps, months = EntrySizes.measured(), Counter[str](), list[Month]()
        for minute in range(days * 1440):
            now_ms = _BEGIN_MS + minute * _MINUTE_MS
            table.publish(now_ms)
            if (minute + 1) % look_minutes:
                continue
            month = minute // 1440 // 30
            if month == len(months):
                months.append(Month())
            months[month].note(table, sizes)
            _maintain(table, now_ms, months[month], steps)
            months[month].note(table, sizes)
        _report(report, months, days)
        report.details |= {"steps": dict(steps), "months": [each.facts for each in months]}


def _maintain(table: Table, now_ms: int, month: Month, steps: Counter[str]) -> None:
    for _ in range(_MOST_STEPS):
        facts, began_s = table.facts(), time.perf_counter()
        due = plan_upkeep(facts, Situation(now_ms, by_command=True)).steps
        month.plan_ms.append((time.perf_counter() - began_s) * 1000)
        if not due:
            return
        table.take(due[0], now_ms)
        steps[TITLES[type(due[0])]] += 1
    raise RuntimeError(f"more than {_MOST_STEPS} steps are due at once")


def _report(report: Report, months: list[Month], days: int) -> None:
    """The first month grows to what is retained; the second is compared with the last whole one."""
    whole = months[: days // 30]
    second, last = whole[1], whole[-1]
    report.figure("files after that time", last.files, "")
    for what, before, after, unit in (
        ("files / what their bytes need", second.files_ratio, last.files_ratio, ""),
        ("snapshots", second.snapshots, last.snapshots, ""),
        ("bytes of the metadata file", second.metadata_bytes, last.metadata_bytes, "B"),
    ):
        report.figure(f"{what}, most in month {len(whole)}", after, unit)
        report.figure(
            f"{what}, month {len(whole)} / month 2", after / max(1, before), "", at_most=1.1
        )
    for number, month in ((2, second), (len(whole), last)):
        p99_ms = quantile(month.plan_ms, 0.99)
        report.figure(f"deciding what is due, p99 of month {number}", p99_ms, "ms")
