"""What it takes to find that nothing is due: ``thermocline maintain --once`` over many tables, as a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median

import click
import psutil
import pyarrow as pa
from pyiceberg.catalog import load_catalog

from benchmarks.report import recorded, summary
from benchmarks.shapes import FLOWS
from benchmarks.world import sqlite_catalogs
from connectors.iceberg.create import NewTable, create_table
from planner.maintenance.options import ORPHANS_MS
from planner.names import KAFKA_OFFSET, KAFKA_PARTITION, TableName
from planner.offsets import OffsetVector
from planner.seam.binding import Binding
from planner.seam.watermark import Outcomes, Watermark, format_watermark
from tests.harness.published import publish

_ROWS = 100
_TIMEOUT_S = 1_800.0
#: What the command says once it has started Spark.
_SPARK = "maintaining on Spark"


@click.command()
@click.option("--tables", type=click.IntRange(1), default=500, show_default=True)
@click.option(
    "--publishes",
    type=click.IntRange(1, 4),
    default=3,
    show_default=True,
    help="Of each table, a data file each: five would be compacted.",
)
@click.option("--repeats", type=click.IntRange(1), default=3, show_default=True)
@click.pass_obj
def command(results: Path, tables: int, publishes: int, repeats: int) -> None:
    """Look at many tables that have been maintained already: interpreter, catalog, metadata and manifests, and no Spark."""
    with (
        recorded(results, "maintain-idle") as report,
        tempfile.TemporaryDirectory(prefix="thermocline-bench-") as name,
    ):
        catalogs = sqlite_catalogs(Path(name))
        names = [TableName("lake", ("bench",), f"t{number:05}") for number in range(tables)]
        create_published(catalogs, names, publishes)
        config = Path(name) / "thermocline.toml"
        lake = "".join(
            f"{key} = {json.dumps(value)}\n" for key, value in catalogs["lake"].items()
        )
        config.write_text(f"[catalogs.lake]\n{lake}")
        took_s, used_s = list[float](), list[float]()
        for _ in range(repeats):
            before_s, began_s = _children_cpu_s(), time.perf_counter()
            _maintain(config)
            took_s.append(time.perf_counter() - began_s)
            used_s.append(_children_cpu_s() - before_s)
        what = f"maintain --once over {tables} tables with nothing to do"
        report.figure(f"{what}, median", median(took_s), "s", at_most=30)
        report.figure(f"{what}, CPU", median(used_s), "s")
        report.details["took_s"] = summary(took_s)


def create_published(
    catalogs: Mapping[str, Mapping[str, str]], tables: Sequence[TableName], publishes: int
) -> None:
    """Create tables with a few publishes each, whose orphans were just removed."""
    binding, now_ms = Binding("events"), int(time.time() * 1000)
    first = Watermark(
        cluster_id="cluster",
        topic=binding.topic,
        topic_id="topic",
        next=OffsetVector(((0, 0),)),
        shape=binding.shape,
        run="created",
    )
    with closing(load_catalog("lake", **catalogs["lake"])) as catalog:
        for name in tables:
            new = NewTable(name, FLOWS.columns, binding, properties={ORPHANS_MS: str(now_ms)})
            mark = create_table(catalogs, new, first)
            for count in range(1, publishes + 1):
                table = catalog.load_table((*name.namespace, name.name))
                mark = replace(
                    mark,
                    next=OffsetVector(((0, count * _ROWS),)),
                    outcomes=Outcomes(rows=_ROWS),
                    prev_snapshot_id=table.metadata.current_snapshot_id,
                    run=uuid.uuid4().hex,
                )
                rows = _rows(table.schema().as_arrow(), (count - 1) * _ROWS)
                publish(table, rows, format_watermark(mark))


def _rows(schema: pa.Schema, start: int) -> pa.Table:
    values = {
        KAFKA_PARTITION: [0] * _ROWS,
        KAFKA_OFFSET: list(range(start, start + _ROWS)),
    }
    nothing = [None] * _ROWS
    arrays = [pa.array(values.get(field.name, nothing), field.type) for field in schema]
    return pa.table(arrays, schema=schema)


def _maintain(config: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "thermocline", "--config", str(config), "maintain", "--once"],
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_S,
    )
    if done.returncode or done.stdout or _SPARK in done.stderr:
        raise RuntimeError(f"something was due: {done.stdout}{done.stderr}")


def _children_cpu_s() -> float:
    times = psutil.Process().cpu_times()
    return float(times.children_user + times.children_system)
