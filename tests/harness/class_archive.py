"""The classes of Spark and Kafka, loaded and verified once and kept in a file: half of what a start of them costs.

``python -m tests.harness.class_archive`` makes what ``quick_jvm`` takes, where it is not there yet. It is JDK 17's
dynamic archive (JEP 350).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from connectors.iceberg.create import NewTable, create_table
from planner.names import TableName
from tests.fixtures.server import sqlite_catalog
from tests.fixtures.spark import BINDING, PAYLOAD, first_watermark
from tests.harness.quick_jvm import QUIET, Program, archive_of
from thermocline.demo.broker import Broker
from thermocline.demo.world import QUICK_JVM

_TIMEOUT_S = 600.0


def make(program: Program, run: Callable[[Path, Sequence[str]], None]) -> None:
    archive = archive_of(program)
    if archive.exists():
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        half = Path(folder) / "half"
        run(Path(folder), (*QUICK_JVM, f"-XX:ArchiveClassesAtExit={half}", QUIET))
        # Whoever sees the file sees all of it.
        half.rename(archive)


def tier(folder: Path, flags: Sequence[str]) -> None:
    """Two publishes, in a process with a Spark of its own."""
    catalogs = {"lake": sqlite_catalog(folder)}
    table = TableName("lake", ("net",), "flows")
    create_table(catalogs, NewTable(table, PAYLOAD, BINDING), first_watermark(0, 0))
    request = {"catalogs": catalogs, "table": str(table), "ends": [(10, 10), (20, 20)]}
    # The JVM writes when its Python is gone; until then it keeps the output open.
    subprocess.run(
        [sys.executable, "-m", "tests.integration.tierer", json.dumps(request)],
        env=os.environ | {"SPARK_SUBMIT_OPTS": " ".join(flags)},
        capture_output=True,
        timeout=_TIMEOUT_S,
        check=True,
    )


def serve(folder: Path, flags: Sequence[str]) -> None:
    with Broker(folder / "kafka", jvm_flags=flags) as broker:
        process = psutil.Process(broker.pid)
        process.terminate()
        process.wait(_TIMEOUT_S)


if __name__ == "__main__":
    make("spark", tier)
    make("kafka", serve)
