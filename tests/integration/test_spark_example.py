"""The example job, run as its reader would: a program of its own, with the settings in a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from connectors import jars
from connectors.spark.session_check import missing_conf
from planner.names import TableName
from tests.docs.pages import ROOT
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import TieredServer
from tests.harness.forked_python import VARIABLE
from tests.harness.spark_cluster import running_cluster
from tests.harness.spark_rows import bound_flows, record

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def run_job(
    server: TieredServer,
    table: TableName,
    folder: Path,
    master: str = "local[2]",
    *,
    through_connect: bool = False,
) -> str:
    """``missing_conf`` is the configuration that a session without the catalog is told.

    ``through_connect``: the job's session is one of Spark Connect, whose server it starts.
    """
    properties = server.settings.catalogs["lake"]
    config = folder / "thermocline.toml"
    lake = "".join(f'"{key}" = {json.dumps(value)}\n' for key, value in properties.items())
    brokers = server.settings.kafka["bootstrap.servers"]
    config.write_text(f'[catalogs.lake]\n{lake}[kafka]\n"bootstrap.servers" = "{brokers}"\n')
    conf = ["spark.driver.memory=512m", "spark.ui.enabled=false"]
    conf += [] if through_connect else [f"spark.master={master}"]
    conf += ["spark.executor.memory=512m", "spark.driver.host=127.0.0.1"]
    conf += missing_conf("lake", properties)
    arguments = [f"--conf {entry}" for entry in conf]
    # Executors of a cluster have an interpreter of their own: what it loads must have been sent to them.
    forked = os.environ.get(VARIABLE, sys.executable) if master.startswith("local") else None
    listed = ",".join(str(jar) for jar in jars.resolve("iceberg"))
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "spark_job.py"), str(table), str(folder)],
        env={
            **os.environ,
            "THERMOCLINE_CONFIG": str(config),
            "PYSPARK_SUBMIT_ARGS": f"{' '.join(arguments)} --jars {listed} pyspark-shell",
            VARIABLE: forked or sys.executable,
            **({"SPARK_REMOTE": master} if through_connect else {}),
        },
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-6_000:]
    return done.stdout


def check_job(
    server: TieredServer,
    kafka: Kafka,
    folder: Path,
    master: str = "local[2]",
    *,
    through_connect: bool = False,
    again: bool = True,
) -> None:
    """Run the job; with ``again``, produce three records and run it once more: it goes on where it was."""
    table, topic = bound_flows(server, kafka)
    first = run_job(server, table, folder, master, through_connect=through_connect)
    assert "60 rows at cut c:" in first
    if not again:
        return
    kafka.produce(topic, [record(n) for n in range(3)])
    second = run_job(server, table, folder, master, through_connect=through_connect)
    assert "63 rows at cut c:" in second
    delivered = pq.read_table(folder / "rows", partitioning=None)
    assert [row["id"] for row in delivered.to_pylist()] == [0, 1, 2]


@pytest.mark.parametrize(
    "again", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["once", "twice"]
)
def test_the_example_job_answers_and_goes_on(
    tiered_server: TieredServer, kafka: Kafka, tmp_path: Path, again: bool
) -> None:
    """That a stream goes on where it was: ``test_spark_stream_kills.py``."""
    check_job(tiered_server, kafka, tmp_path, again=again)


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_the_example_job_on_a_cluster_of_two_workers(
    tiered_server: TieredServer, kafka: Kafka, tmp_path: Path
) -> None:
    with running_cluster(tmp_path / "cluster") as master:
        check_job(tiered_server, kafka, tmp_path, master)


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_the_example_job_on_spark_connect(
    tiered_server: TieredServer, kafka: Kafka, tmp_path: Path
) -> None:
    pytest.importorskip("grpc", reason="Spark Connect needs grpcio and its companions")
    check_job(tiered_server, kafka, tmp_path, through_connect=True)
