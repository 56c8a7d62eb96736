"""What maintenance runs on Spark: after tiering, in bounded steps, and cancelled without others' jobs."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from connectors.iceberg.maintenance_facts import MaintenanceReader
from connectors.spark.session import MAINTENANCE_POOL, TIERING_POOL
from planner.maintenance.steps import OrphanRemoval
from tests.fixtures.spark import BoundTable, SparkLake
from tests.harness.maintaining import Care, aged, folder_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture
def care(flows: BoundTable) -> Iterator[Care]:
    with contextlib.closing(MaintenanceReader(flows.catalogs)) as reader:
        yield Care(flows, reader)


def append_name(path: str, name: str, pause_s: float) -> None:
    with open(path, "a") as order:  # noqa: PTH123 - it runs in Spark's workers
        order.write(name)
    time.sleep(pause_s)


def run_job(session: SparkSession, pool: str, path: Path, name: str, tasks: int) -> None:
    context = session.sparkContext
    context.setLocalProperty("spark.scheduler.pool", pool)
    file = str(path)
    context.parallelize(range(tasks), tasks).foreach(lambda _: append_name(file, name, 0.05))


def test_tasks_of_tiering_go_before_those_of_maintenance(
    lake: SparkLake, tmp_path: Path
) -> None:
    spark, order = lake.session, tmp_path / "order"
    order.touch()
    with ThreadPoolExecutor(2) as threads:
        care = threads.submit(run_job, spark, MAINTENANCE_POOL, order, "m", 60)
        while order.stat().st_size < 5:
            time.sleep(0.01)
        tier = threads.submit(run_job, spark, TIERING_POOL, order, "t", 10)
        tier.result(120)
        care.result(120)
    text = order.read_text()
    between = text[text.index("t") : text.rindex("t")]
    # On two cores; one or two of maintenance may have begun just before.
    assert between.count("m") <= 2, text
    assert text.count("m") == 60


def wait_for(path: str) -> None:
    while not os.path.exists(path):  # noqa: PTH110 - it runs in Spark's workers
        time.sleep(0.02)


def test_what_is_cancelled_are_the_jobs_of_the_step(care: Care, tmp_path: Path) -> None:
    context, target = care.table.session.sparkContext, care.target
    end = str(tmp_path / "end")

    def job(tag: str | None) -> int:
        if tag is not None:
            context.addJobTag(tag)
        (tmp_path / f"begun-{tag}").touch()
        context.parallelize([0], 1).foreach(lambda _: wait_for(end))
        return 1

    with ThreadPoolExecutor(2) as threads:
        others, ours = threads.submit(job, None), threads.submit(job, target._tag)
        tracker = context._jsc.sc().statusTracker()
        while len(tracker.getActiveJobIds()) != 2:
            time.sleep(0.02)
        target.cancel()
        with pytest.raises(Py4JJavaError, match="cancelled"):
            ours.result(60)
        Path(end).touch()
        assert others.result(60) == 1


def test_orphans_go_a_step_at_a_time(care: Care) -> None:
    table = care.table
    table.tier(100, 100)
    data = folder_of(table) / "data"
    gone = [aged(data / f"killed-{number}.parquet") for number in range(700)]
    [step] = care.steps()
    assert step == OrphanRemoval(60)
    target = care.target
    # One that may take no time removes what it deletes by one request.
    first = target.take(OrphanRemoval(0))
    assert (first.files, first.bytes) == (500, 500 * len(b"orphan"))
    assert sum(path.exists() for path in gone) == 200
    assert care.steps() == (step,)
    second = target.take(OrphanRemoval(60))
    assert second.files == 200
    assert not any(path.exists() for path in gone)
    assert care.steps() == ()
    written = care.facts().properties
    assert written["thermocline-maintain.orphan-bytes"] == str(700 * len(b"orphan"))
    # Programs of before refuse other keys of ours (``planner.maintenance.options``).
    ours = {key for key in written if "maintain" in key}
    assert all(key.startswith("thermocline-maintain.") for key in ours)
