"""Spark Connect: what of ``thermocline.spark`` works there, and what is refused, in a program of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.kafka import Kafka
from tests.fixtures.server import TieredServer
from tests.harness.spark_rows import PAYLOAD, bound_flows, over_flight

pytest.importorskip(
    "grpc", reason="Spark Connect needs grpcio, grpcio-status and googleapis-common-protos"
)

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(900)]


def test_spark_connect_reads_cuts_sources_and_streams(
    tiered_server: TieredServer, kafka: Kafka, tmp_path: Path
) -> None:
    table, topic = bound_flows(tiered_server, kafka)
    other = tiered_server.bind(kafka.topic(1), PAYLOAD)
    task = {
        "catalogs": {
            name: dict(each) for name, each in tiered_server.settings.catalogs.items()
        },
        "clusters": tiered_server.settings.clusters,
        "table": str(table),
        "topic": topic,
        "other": str(other),
        "server": tiered_server.uri,
        "folder": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.harness.connect_program"],
        input=json.dumps(task) + "\n",
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6_000:]
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    names = ("kafka_partition", "kafka_offset", "id", "host")
    rows = [
        [row[name] for name in names]
        for row in over_flight(tiered_server, table, answers.pop("token"))
    ]
    assert len(rows) == 60
    for name in ("rows", "rows by executors", "source", "server"):
        assert answers.pop(name) == rows, name
    counts = {name: answer for name, answer in answers.items() if isinstance(answer, int)}
    assert counts == {
        "side": 20,
        "view": 60,
        "full view": 60,
        "filter": 9,
        "follow": 0,
        "stream": 60,
        "query": 60,
    }
    # Nothing that is loaded changes with what arrives.
    for number, name in enumerate(
        ("loads", "loads at a cut", "loads of a server", "queries of a server")
    ):
        count = 60 if name == "loads at a cut" else 60 + number
        assert answers.pop(name) == [count] * 3, name
    assert str(table) in answers.pop("views")
    assert str(other) in answers.pop("other views")
    for name, words in (
        ("sql", "UnsupportedStatement: Spark Connect looks names up after"),
        ("unknown table", "UnknownTable: there is no table"),
        ("malformed cut", "BadParameter: the cut is not one a server gave out"),
        ("option", "BadParameter: option tabel is unknown here"),
        ("create", "BadParameter: CREATE TABLE ... USING thermocline loses its options"),
        ("a view that is gone", "AnalysisException: [TABLE_OR_VIEW_NOT_FOUND]"),
        ("refused by the server", "RequestError: "),
    ):
        assert answers.pop(name).startswith(words), name
    assert {name for name in answers if name not in counts} == set()
