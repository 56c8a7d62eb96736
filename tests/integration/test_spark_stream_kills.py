"""A stream whose program is killed again and again, while what it has not read is tiered and removed from the log."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from planner.names import TableName
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import TieredServer
from tests.harness.spark_rows import bound_flows, in_order, record

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(900)]

#: Of each seed: `make soak` has ten seeds.
KILLS = 3


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

    def kill(
        self, process: subprocess.Popen[bytes], parts: Sequence[psutil.Process] = ()
    ) -> None:
        """Kill all of it at once: a JVM that outlives its program would go on with the batch."""
        for part in parts or family(process.pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                part.kill()
        process.wait()

    def kill_executor(self, process: subprocess.Popen[bytes]) -> None:
        """Kill what reads the records, and the rest when Spark has ended the query for it, or has a new one read them."""
        parts, batches = family(process.pid), self.batches()
        for part in parts:
            with contextlib.suppress(psutil.NoSuchProcess):
                if "pyspark.daemon" in part.cmdline():
                    part.kill()
        # There may be nothing to read any more.
        deadline = time.monotonic() + 5
        while process.poll() is None and self.batches() == batches:
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        self.kill(process, [*parts, *family(process.pid)])

    def finish(self) -> None:
        process = self.start(ends=True)
        assert process.wait(300) == 0, self.output()

    def wait_for_batches(self, process: subprocess.Popen[bytes], count: int) -> None:
        deadline = time.monotonic() + 300
        while self.batches() < count:
            if process.poll() is not None:
                # Spark's own end, such as of a worker that a busy machine was too slow to start, is as good as a kill.
                assert "thermocline-error" not in self.output(), self.output()
                return
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.05)

    def batches(self) -> int:
        folder = self._folder / "checkpoint" / "offsets"
        return len(list(folder.glob("[0-9]*"))) if folder.exists() else 0

    def output(self) -> str:
        return (self._folder / "output").read_text()[-6_000:]


def family(pid: int) -> list[psutil.Process]:
    """A process and all that it started; none where it ended."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 12))]
)
def test_every_record_is_delivered_once(
    tiered_server: TieredServer, kafka: Kafka, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    table, topic = bound_flows(tiered_server, kafka)
    program = Program(tiered_server, table, tmp_path)
    number, partitions = 1_000, 2
    producer = kafka.producer()
    for kill in range(KILLS):
        for partition in range(partitions):
            count = chance.randrange(40, 120)
            values = [record(number + each) for each in range(count)]
            kafka.produce(topic, values, partition=partition, producer=producer)
            number += count
        process = program.start()
        # A batch or two of what there is now: those that follow are killed, while a tierer publishes.
        program.wait_for_batches(process, program.batches() + chance.randrange(1, 3))
        tierer = threading.Thread(target=tiered_server.tier, args=(table,))
        tierer.start()
        time.sleep(chance.random())
        kill_part = program.kill_executor if chance.random() < 0.4 else program.kill
        kill_part(process)
        tierer.join()
        tiered_server.refresh(table)
        mark = tiered_server.running.pins.get(table).watermark
        assert mark is not None
        for partition, offset in mark.next:
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
    assert program.batches() > KILLS
