"""How fast small files are compacted, beside plain Spark that reads, sorts and writes the same files.

The table is rolled back after each compaction, so that every turn has the same files before it.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from statistics import median

import click
from pyspark.sql import SparkSession

from benchmarks.options import partitions, seed
from benchmarks.report import Report, recorded
from benchmarks.tierer import Tierer, running_tierer
from benchmarks.world import TABLE, TOPIC, DataFile, World, running_world
from connectors.iceberg.create import NewTable, create_table
from connectors.iceberg.maintenance_facts import MaintenanceReader
from connectors.spark.maintenance.target import SparkMaintenance
from connectors.spark.metadata import identifier, load_table
from planner.maintenance.steps import Compaction, Situation, plan_upkeep
from planner.names import TableName
from planner.seam.binding import Binding
from planner.tiering.triggers import TARGET_FILE_BYTES
from thermocline.commands.create import first_watermark

SMALL = TableName(TABLE.catalog, TABLE.namespace, "small")
#: Random in the log, so that sorting by it moves every row.
_SORT = "src_port"
_CHECK = "SELECT count(*), sum(bytes), sum(src_port * kafka_offset) FROM {t}"


@click.command()
@click.option("--rows", type=click.IntRange(1), default=12_000_000, show_default=True)
@click.option("--publish-rows", type=click.IntRange(1), default=300_000, show_default=True)
@click.option("--target-mib", type=click.IntRange(1), default=32, show_default=True)
@click.option("--repeats", type=click.IntRange(2), default=6, show_default=True)
@partitions
@seed
@click.pass_obj
def command(
    results: Path,
    rows: int,
    publish_rows: int,
    target_mib: int,
    repeats: int,
    partitions: int,
    seed: int,
) -> None:
    """Compact the files of many publishes into sorted ones, and have plain Spark do as much, in turns."""
    with (
        recorded(results, "maintain-pace") as report,
        running_world(partitions=partitions, seed=seed) as world,
    ):
        _bind(world, target_mib * 2**20)
        world.produce(rows)
        with (
            running_tierer(world) as tierer,
            closing(MaintenanceReader(world.catalogs)) as reader,
        ):
            tierer.drain(publish_rows, SMALL)
            _measure(report, _Turns(world, tierer, reader), rows, repeats)


def _bind(world: World, target_bytes: int) -> None:
    binding = Binding(TOPIC)
    new = NewTable(
        SMALL,
        world.shape.columns,
        binding,
        sort_by=(_SORT,),
        properties={TARGET_FILE_BYTES: str(target_bytes)},
    )
    create_table(world.catalogs, new, first_watermark(world.bounds(), binding))


@dataclass(frozen=True, slots=True)
class _Took:
    wall_s: float
    cpu_s: float


@dataclass
class _Turns:
    world: World
    tierer: Tierer
    reader: MaintenanceReader
    #: Data files after each compaction, and those plain Spark wrote.
    files: list[tuple[int, int]] = field(default_factory=list)

    @property
    def session(self) -> SparkSession:
        return self.tierer.session

    def timed(self, action: Callable[[], None]) -> _Took:
        before_s, began_s = self.tierer.used_s(), time.perf_counter()
        action()
        return _Took(time.perf_counter() - began_s, self.tierer.used_s() - before_s)

    def ours(self) -> None:
        """Take steps until no files wait, decisions included."""
        target = SparkMaintenance(self.session, SMALL, self.reader.neighbours.of)
        is_compacted = False
        while True:
            facts = self.reader.read(SMALL)
            if facts is None:
                raise RuntimeError("the table is not bound")
            upkeep = plan_upkeep(facts, Situation(int(time.time() * 1000), by_command=True))
            steps = [step for step in upkeep.steps if isinstance(step, Compaction)]
            if not steps:
                break
            target.take(steps[0])
            is_compacted = True
        if not is_compacted:
            raise RuntimeError("nothing was due")

    def plain(self, sources: list[DataFile], folder: Path) -> None:
        frame = self.session.read.parquet(*(file.path for file in sources)).orderBy(_SORT)
        frame.write.option("compression", "zstd").parquet(str(folder))


def _measure(report: Report, turns: _Turns, rows: int, repeats: int) -> None:
    world, session, folder = turns.world, turns.session, turns.world.folder / "plain"
    name, before = identifier(SMALL), load_table(session, SMALL).currentSnapshot().snapshotId()
    sources, sums = world.data_files(SMALL), _sums(session, name)
    if sums[0] != rows:
        raise RuntimeError(f"{sums[0]} rows were tiered, {rows} were sent")
    ours, plain = list[_Took](), list[_Took]()
    for number in range(repeats + 1):
        # Who comes first takes turns, too.
        for is_ours in (True, False) if number % 2 else (False, True):
            if is_ours:
                ours.append(turns.timed(turns.ours))
                files = world.data_files(SMALL)
                if _sums(session, name) != sums:
                    raise RuntimeError("compaction changed the rows")
                load_table(session, SMALL).manageSnapshots().rollbackTo(before).commit()
            else:
                plain.append(turns.timed(partial(turns.plain, sources, folder)))
                written = len(list(folder.glob("*.parquet")))
                if _sums(session, f"parquet.`{folder}`") != sums:
                    raise RuntimeError("plain Spark changed the rows")
                shutil.rmtree(folder)
        turns.files.append((len(files), written))
    size = sum(file.size_bytes for file in sources)
    report.details = {"ours": list(map(asdict, ours)), "plain": list(map(asdict, plain))}
    report.details["files"] = turns.files
    # The first turn warms Spark up.
    ours, plain = ours[1:], plain[1:]
    pairs = list(zip(ours, plain, strict=True))
    what = f"{len(sources)} files of {size / 2**20:,.0f} MiB, sorted by a column"
    report.figure(
        f"compaction of {what} / plain Spark, median",
        median(other.wall_s / own.wall_s for own, other in pairs),
        "",
        at_least=1.0,
    )
    report.figure(
        "plain Spark's processor time / that of compaction, median",
        median(other.cpu_s / own.cpu_s for own, other in pairs),
        "",
    )
    for kind, turns_of_it in (("compaction", ours), ("plain Spark", plain)):
        seconds = median(took.wall_s for took in turns_of_it)
        report.figure(f"{kind}, rows", rows / seconds, "rows/s")
        report.figure(f"{kind}, bytes read", size / seconds / 1e6, "MB/s")
    report.figure("files after compaction", turns.files[-1][0], "")
    report.figure("files plain Spark writes", turns.files[-1][1], "")


def _sums(session: SparkSession, name: str) -> tuple[object, ...]:
    [row] = session.sql(_CHECK.format(t=name)).collect()
    return tuple(row)
