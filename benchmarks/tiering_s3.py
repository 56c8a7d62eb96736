"""Tiering to an object store beside tiering to a local folder: the same records, publish by publish in turns.

The store is s3proxy over a folder on the same cores, which tiering to a real one does not share. So its CPU seconds are
told apart, and the pace without them: wall time less what they took of it, as if it had kept all cores busy.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import click

from benchmarks.options import partitions, seed
from benchmarks.report import Report, recorded
from benchmarks.tierer import Round, Tierer, running_tierer, steady
from benchmarks.world import TABLE, TOPIC, running_world
from planner.names import TableName
from tests.fixtures.object_store import running_store

_REMOTE = TableName("s3", ("bench",), "events")
#: Of the pace to a local folder.
_BY_WALL, _WITHOUT_STORE = 0.7, 0.85


@click.command()
@click.option("--rows", type=click.IntRange(1), default=8_000_000, show_default=True)
@click.option(
    "--publish-rows",
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
    help="Rows of one publish.",
)
@partitions
@seed
@click.pass_obj
def command(results: Path, rows: int, publish_rows: int, partitions: int, seed: int) -> None:
    """Tier one topic into two tables, on S3 and in a local folder; strict JSON, as `thermocline tier`."""
    with (
        recorded(results, "tiering-s3") as report,
        tempfile.TemporaryDirectory(prefix="thermocline-bench-") as name,
        running_store(Path(name)) as store,
        running_world(
            partitions=partitions, seed=seed, elsewhere={"s3": store.catalog(Path(name))}
        ) as world,
    ):
        world.bind(TOPIC, _REMOTE)
        report.details["produce_s"] = world.produce(rows)
        with running_tierer(world, {"store": store.process.pid}) as tierer:
            _measure(report, list(_in_turns(tierer, publish_rows)))


def _in_turns(tierer: Tierer, publish_rows: int) -> Iterator[tuple[Round, Round]]:
    """Publish to both tables; who goes first changes."""
    sides = [tierer.rounds(publish_rows, table) for table in (TABLE, _REMOTE)]
    for number in itertools.count():
        first = number % 2
        rounds = {side: next(sides[side], None) for side in (first, 1 - first)}
        local, remote = rounds[0], rounds[1]
        if local is None or remote is None:
            return
        yield local, remote


def _measure(report: Report, pairs: list[tuple[Round, Round]]) -> None:
    locals_, remotes = (steady(list(side)) for side in zip(*pairs, strict=True))
    both = list(zip(locals_, remotes, strict=True))
    what = (
        f"tiering to S3 / to a local folder, {len(both)} publishes of {both[0][0].rows:,} rows"
    )
    ratios = [local.took_s / remote.took_s for local, remote in both]
    report.figure(what, median(ratios), "", at_least=_BY_WALL)
    alone = [local.took_s / _without_store_s(remote) for local, remote in both]
    report.figure(
        f"{what}, the store's CPU seconds taken off", median(alone), "", at_least=_WITHOUT_STORE
    )
    for name, rounds in (("S3", remotes), ("a local folder", locals_)):
        rows = sum(value.rows for value in rounds)
        report.figure(
            f"tiering to {name}", rows / sum(value.took_s for value in rounds), "rows/s"
        )
        used = sum(
            seconds
            for value in rounds
            for role, seconds in value.cpu_s.items()
            if role not in ("broker", "store")
        )
        report.figure(
            f"tiering to {name}, CPU of driver, JVM and workers",
            used / rows * 1e6,
            "s per million rows",
        )
        publishes = [value.publish_s * 1000 for value in rounds]
        report.figure(f"publish to {name}, median", median(publishes), "ms")
        report.details[name] = [value.facts for value in rounds]
    rows = sum(value.rows for value in remotes)
    stored = sum(value.cpu_s.get("store", 0.0) for value in remotes)
    report.figure("CPU of the store meanwhile", stored / rows * 1e6, "s per million rows")


def _without_store_s(remote: Round) -> float:
    return remote.took_s - remote.cpu_s.get("store", 0.0) / (os.cpu_count() or 1)
