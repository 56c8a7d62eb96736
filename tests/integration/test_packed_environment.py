"""Executors whose Python has nothing of ours: they run what the job brings, packed as docs/tiering.md says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import pytest

from connectors import jars
from connectors.spark.catalogs import catalog_conf
from tests.fixtures.commands import ROOT, CliSite
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import sqlite_catalog
from tests.harness.spark_cluster import running_cluster
from thermocline.demo.world import QUICK_JVM

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.soak,
    pytest.mark.timeout(1200),
]

#: What docs/tiering.md has people install, and what docs/spark.md adds for the registered source.
NEEDED = ("pyarrow", "confluent-kafka", "msgspec")
OF_SOURCE = (
    "duckdb",
    "duckdb-extension-avro",
    "duckdb-extension-httpfs",
    "duckdb-extension-iceberg",
)
TIMEOUT_S = 600.0
#: A job of somebody's own, in a session that never heard of the tierer's settings.
JOB = """
import json, sys
from pyspark.sql import SparkSession
import thermocline.spark as tc

conf, config = json.loads(sys.argv[1]), sys.argv[2]
builder = SparkSession.builder
for key, value in conf.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
# Executors read the tail, however small it is.
lake = tc.connect(spark, config, tail_local_bytes=0)
print(*lake.at("net.flows").sql("SELECT count(*), sum(id) FROM lake.net.flows").first())
tc.register(spark, config)
source = spark.read.format("thermocline").option("table", "lake.net.flows").load()
print(*source.selectExpr("count(*)", "sum(id)").first())
spark.stop()
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as url:
        yield url


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of the same versions as here, packed."""
    folder = tmp_path_factory.mktemp("environment")
    venv, packed = folder / "venv", folder / "environment.tar.gz"
    done([sys.executable, "-m", "venv", str(venv)])
    pinned = [f"{name}=={version(name)}" for name in (*NEEDED, *OF_SOURCE)]
    pip = [str(venv / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    done([*pip, "venv-pack", *pinned])
    done([str(venv / "bin" / "venv-pack"), "-p", str(venv), "-o", str(packed)])
    return packed


@pytest.fixture
def bare(tmp_path: Path) -> str:
    """A Python with nothing but its standard library."""
    done([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")])
    return str(tmp_path / "bare" / "bin" / "python")


def test_executors_without_our_environment_tier_and_read_with_the_packed_one(
    cluster: str,
    environment: Path,
    bare: str,
    cli_site: CliSite,
    kafka: Kafka,
    tmp_path: Path,
) -> None:
    topic = kafka.topic(2)
    for partition in range(2):
        values = [b'{"id": %d}' % number for number in range(500)]
        kafka.produce(topic, values, partition=partition)
    text = cli_site.config.read_text()
    conf = {
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.defaultJavaOptions": " ".join(QUICK_JVM),
    }
    options = "".join(f'"{key}" = "{value}"\n' for key, value in conf.items())
    text = text.replace('master = "local[2]"', f'master = "{cluster}"\ndriver_memory = "512m"')
    cli_site.config.write_text(f"{text}[tier.conf]\n{options}")
    code, _, err = cli_site.run("create", "lake.net.flows", "--topic", topic, "--infer")
    assert code == 0, err

    tier = ("-m", "thermocline", "--config", str(cli_site.config), "tier", "--once")
    failed = python(tier, PYSPARK_PYTHON=bare)
    assert failed.returncode != 0
    assert "has no module " in failed.stderr
    assert "tier.environment" in " ".join(failed.stderr.split())

    text = cli_site.config.read_text()
    cli_site.config.write_text(
        text.replace("[tier]\n", f'[tier]\nenvironment = "{environment}"\n')
    )
    tiered = python(tier, PYSPARK_PYTHON=bare)
    assert tiered.returncode == 0, without_java(tiered.stderr)
    assert "published 1,000 rows" in tiered.stdout

    kafka.produce(topic, [b'{"id": 1000000}'])
    session = {
        **conf,
        "spark.master": cluster,
        "spark.ui.enabled": "false",
        "spark.archives": f"{environment}#environment",
        "spark.jars": ",".join(map(str, jars.resolve("iceberg"))),
        **catalog_conf("lake", sqlite_catalog(cli_site.config.parent)),
    }
    # The driver plans with an interpreter of that name, too: its own.
    (tmp_path / "environment").symlink_to(sys.prefix)
    job = ("-c", JOB, json.dumps(session), str(cli_site.config))
    read = python(job, tmp_path, PYSPARK_PYTHON="./environment/bin/python")
    assert read.returncode == 0, without_java(read.stderr)
    assert read.stdout.split() == ["1001", str(2 * sum(range(500)) + 1_000_000)] * 2


def without_java(text: str) -> str:
    """Leave out the lines of Java's traces."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("at ")]
    return "\n".join(lines)[-6_000:]


def python(
    arguments: Sequence[str], folder: Path = ROOT, **settings: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | settings,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def done(command: Sequence[str]) -> None:
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
