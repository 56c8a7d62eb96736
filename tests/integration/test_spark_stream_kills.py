"""A stream whose program is killed again and again, while what it has not read is tiered and removed from the log."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from planner.names import TableName
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import TieredServer
from tests.harness.spark_rows import bound_flows, in_order, record

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


class Program:
    """The program, its JVM and its workers."""

    def __init__(self, server: TieredServer, table: TableName, folder: Path) -> None:
        self._task = {
            "catalogs": {name: dict(each) for name, each in server.settings.catalogs.items()},
            "clusters": server.settings.clusters,
            "table": str(table),
            "folder": str(folder),
        }
        self._folder = folder

    def start(self, *, ends: bool = False) -> subprocess.Popen[bytes]:
        with (self._folder / "output").open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.harness.stream_process"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
            )
        assert process.stdin is not None
        process.stdin.write(json.dumps({**self._task, "ends": ends}).encode() + b"\n")
        process.stdin.close()
        return process

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Kill all of it at once: a JVM that outlives its program would go on with the batch."""
        parts = [psutil.Process(process.pid)]
        parts += parts[0].children(recursive=True)
        for part in parts:
            if part.is_running():
                part.kill()
        process.wait()

    def finish(self) -> None:
        process = self.start(ends=True)
        assert process.wait(120) == 0, self.output()

    def wait_for_batches(self, process: subprocess.Popen[bytes], count: int) -> None:
        deadline = time.monotonic() + 90
        while self.batches() < count:
            assert process.poll() is None, self.output()
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.05)

    def batches(self) -> int:
        folder = self._folder / "checkpoint" / "offsets"
        return len(list(folder.glob("[0-9]*"))) if folder.exists() else 0

    def output(self) -> str:
        return (self._folder / "output").read_text()[-6_000:]


@pytest.mark.parametrize(
    ("seed", "kills"),
    [(1, 2), *(pytest.param(seed, 3, marks=pytest.mark.soak) for seed in range(2, 12))],
)
def test_every_record_is_delivered_once(
    tiered_server: TieredServer, kafka: Kafka, tmp_path: Path, seed: int, kills: int
) -> None:
    chance = random.Random(seed)
    table, topic = bound_flows(tiered_server, kafka)
    program = Program(tiered_server, table, tmp_path)
    number, partitions = 1_000, 2
    producer = kafka.producer()
    for kill in range(kills):
        for partition in range(partitions):
            count = chance.randrange(40, 120)
            values = [record(number + each) for each in range(count)]
            kafka.produce(topic, values, partition=partition, producer=producer)
            number += count
        process = program.start()
        # A batch or two of what there is now: those that follow are killed.
        program.wait_for_batches(process, program.batches() + chance.randrange(1, 3))
        time.sleep(chance.random())
        program.kill(process)
        result = tiered_server.tier(table)
        for partition, offset in result.watermark.next:
            kafka.delete_records(topic, partition, offset)
        if kill == 0:
            tiered_server.spark(table).compact()
            partitions += 1
            kafka.add_partitions(topic, partitions)
            producer = kafka.producer()
        elif kill == 1:
            tiered_server.spark(table).expire_to_one()
    kafka.produce(topic, [record(number)], partition=2, producer=producer)
    program.finish()
    tiered_server.refresh(table)
    session = tiered_server.lake.session
    rows = in_order(session.read.parquet(str(tmp_path / "rows")).toArrow())
    places = Counter((row["kafka_partition"], row["kafka_offset"]) for row in rows)
    assert [place for place, count in places.items() if count > 1] == []
    assert rows == in_order(tiered_server.ask(f"FROM {table}"))
    assert program.batches() > kills
