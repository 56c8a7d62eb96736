"""The stream of ``benchmarks.spark``: a backlog of both sides, and the age of rows in a file sink while records arrive."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks import records
from benchmarks.report import Report
from benchmarks.world import TABLE, TOPIC, World

#: Of the first seconds no row counts: Spark compiles its code then.
_WARM_S = 10.0
_FLOOR_ROWS_PER_S = 5_000


def backlog(report: Report, session: SparkSession, start: str, rows: int) -> None:
    """Read what came after a cut, most of which was tiered meanwhile."""
    stream = _loaded(session, start)
    began = time.perf_counter()
    query = stream.writeStream.format("noop").start()
    query.processAllAvailable()
    took_s = time.perf_counter() - began
    counts = [batch["numInputRows"] for batch in query.recentProgress]
    query.stop()
    if sum(counts) != rows:
        raise RuntimeError(f"the stream had {sum(counts)} rows, not {rows}")
    report.details["backlog batches"] = counts
    report.figure(
        f"stream, backlog of {rows:,} rows of both sides",
        rows / took_s,
        "rows/s",
        at_least=2.5e5,
    )


def freshness(
    report: Report, session: SparkSession, world: World, rate: int, seconds: int
) -> None:
    """Measure from a record's time, when it was produced, to the commit of the batch in the sink that has it."""
    folder = world.folder / "sink"
    with (
        records.traffic(
            world.broker.bootstrap,
            TOPIC,
            partitions=world.partitions,
            rate=rate,
            seed=world.seed + 1,
        ),
        _running(_loaded(session, "now"), folder) as query,
    ):
        time.sleep(_WARM_S + seconds)
        durations = _durations(query)
    ages = list(_ages(folder))
    report.details["stream ages, ms"] = ages
    report.figure(
        f"stream, {rate:,} records/s: produced to in the file sink, p50",
        median(ages) / 1000,
        "s",
        at_most=2.0,
    )
    report.figure("stream, median batch, of that", median(durations) / 1000, "s")
    floor = session.readStream.format("rate").option("rowsPerSecond", _FLOOR_ROWS_PER_S).load()
    with _running(floor, world.folder / "floor") as query:
        time.sleep(_WARM_S + seconds / 2)
        report.figure(
            "Spark's own source `rate` into the same sink, median batch",
            median(_durations(query)) / 1000,
            "s",
        )


def _loaded(session: SparkSession, start: str) -> DataFrame:
    reader = session.readStream.format("thermocline").option("table", str(TABLE))
    return reader.option("startingPosition", start).load()


@contextmanager
def _running(rows: DataFrame, folder: Path) -> Iterator[StreamingQuery]:
    query = (
        rows.writeStream.format("parquet")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    try:
        yield query
    finally:
        query.stop()


def _durations(query: StreamingQuery) -> list[float]:
    """Milliseconds of the batches with rows, without the first."""
    match: list[dict[str, Any]] = [json.loads(batch.json) for batch in query.recentProgress]
    took = [batch["durationMs"]["triggerExecution"] for batch in match if batch["numInputRows"]]
    return took[1:] or took


def _ages(folder: Path) -> Iterator[float]:
    """Yield the age of each row, in milliseconds, when its batch was committed in the sink."""
    commits = sorted(
        (file for file in (folder / "rows" / "_spark_metadata").glob("[0-9]*")),
        key=lambda file: file.stat().st_mtime,
    )
    began = commits[0].stat().st_mtime
    warm = [commit for commit in commits if commit.stat().st_mtime >= began + _WARM_S]
    # Each tenth commit names all files before it again.
    before: set[str] = set()
    for commit in commits:
        at_ms = commit.stat().st_mtime * 1000
        for line in commit.read_text().splitlines()[1:]:
            file = json.loads(line)["path"].removeprefix("file://")
            if file in before:
                continue
            before.add(file)
            if commit not in (warm or commits[1:]):
                continue
            times = pq.read_table(file, columns=["kafka_timestamp"])["kafka_timestamp"]
            stamps = pc.cast(pc.cast(times, "timestamp[ms]"), "int64")
            yield from (at_ms - stamp for stamp in stamps.to_pylist())
