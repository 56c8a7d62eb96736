"""Streams into files and into an Iceberg table, whose program or executors are killed again and again.

Meanwhile what they have not read is tiered and removed from the log, compacted, and its snapshots expire.
"""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

import psutil
import pyarrow.parquet as pq
import pytest

from connectors.spark.metadata import identifier
from planner.names import TableName
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import TieredServer
from tests.harness.forked_python import plain_python
from tests.harness.spark_cluster import running_cluster
from tests.harness.spark_rows import bound_flows, in_order, record

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.timeout(900)]

#: Of each seed of a soak. `make test` has one, of the program; what befalls the table befalls it then.
KILLS = 3


class Program:
    """The program, its JVM and its workers. ``cluster`` is the folder of one whose executors are processes of their own."""

    def __init__(
        self,
        server: TieredServer,
        table: TableName,
        sink: TableName,
        folder: Path,
        master: str = "local[2]",
        cluster: Path | None = None,
    ) -> None:
        self._cluster = cluster
        self._task = {
            "catalogs": {name: dict(each) for name, each in server.settings.catalogs.items()},
            "clusters": server.settings.clusters,
            "table": str(table),
            "sink": str(sink),
            "folder": str(folder),
            "master": master,
        }
        self._folder = folder

    def start(self, *, ends: bool = False) -> subprocess.Popen[bytes]:
        with (self._folder / "output").open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.harness.stream_process"],
                env=None if self._cluster is None else plain_python(),
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
        for part in self._executors(parts):
            with contextlib.suppress(psutil.NoSuchProcess):
                part.kill()
        # There may be nothing to read any more; a cluster takes seconds to start another executor.
        deadline = time.monotonic() + (5 if self._cluster is None else 20)
        while process.poll() is None and self.batches() == batches:
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        self.kill(process, [*parts, *family(process.pid)])

    def _executors(self, parts: Sequence[psutil.Process]) -> Iterator[psutil.Process]:
        """One of the cluster's, or what reads for the one that is in the program."""
        if self._cluster is None:
            yield from (part for part in parts if "pyspark.daemon" in command_of(part))
            return
        executors = [
            each
            for each in psutil.process_iter(["cmdline", "cwd"])
            if (each.info["cwd"] or "").startswith(str(self._cluster))
            and any("CoarseGrainedExecutorBackend" in word for word in command_of(each))
        ]
        yield from executors[:1]

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


def command_of(process: psutil.Process) -> list[str]:
    try:
        words: list[str] = process.cmdline()
    except psutil.Error:
        return []
    return words


def family(pid: int) -> list[psutil.Process]:
    """A process and all that it started; none where it ended."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def sink_of(server: TieredServer, table: TableName) -> TableName:
    """An empty Iceberg table with the same columns, of nobody's but the stream's."""
    name = server.name()
    server.lake.session.sql(
        f"CREATE TABLE {identifier(name)} USING iceberg AS SELECT * FROM {identifier(table)} WHERE false"
    )
    return name


def test_every_record_is_delivered_once_by_a_program_that_is_killed(
    tiered_server: TieredServer, kafka: Kafka, tmp_path: Path
) -> None:
    table, topic = bound_flows(tiered_server, kafka)
    sink = sink_of(tiered_server, table)
    program = Program(tiered_server, table, sink, tmp_path)
    kill_again_and_again(
        random.Random(1), program, tiered_server, kafka, table, topic, executors=0, kills=1
    )
    check(program, tiered_server, table, sink, tmp_path, kills=1)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 12))
def test_every_record_is_delivered_once(
    tiered_server: TieredServer, kafka: Kafka, tmp_path: Path, seed: int
) -> None:
    table, topic = bound_flows(tiered_server, kafka)
    sink = sink_of(tiered_server, table)
    program = Program(tiered_server, table, sink, tmp_path)
    kill_again_and_again(random.Random(seed), program, tiered_server, kafka, table, topic)
    check(program, tiered_server, table, sink, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 4))
def test_every_record_is_delivered_once_by_a_cluster_that_loses_executors(
    tiered_server: TieredServer, kafka: Kafka, tmp_path: Path, seed: int
) -> None:
    table, topic = bound_flows(tiered_server, kafka)
    sink = sink_of(tiered_server, table)
    with running_cluster(tmp_path / "cluster") as master:
        program = Program(
            tiered_server, table, sink, tmp_path, master, cluster=tmp_path / "cluster"
        )
        kill_again_and_again(
            random.Random(seed), program, tiered_server, kafka, table, topic, executors=0.8
        )
    check(program, tiered_server, table, sink, tmp_path)


def kill_again_and_again(
    chance: random.Random,
    program: Program,
    server: TieredServer,
    kafka: Kafka,
    table: TableName,
    topic: str,
    executors: float = 0.4,
    kills: int = KILLS,
) -> None:
    """Kill the program, or in ``executors`` of the cases what reads for it; in the end it reads what is left."""
    number, partitions = 1_000, 2
    producer = kafka.producer()
    for kill in range(kills):
        for partition in range(partitions):
            count = chance.randrange(40, 120)
            values = [record(number + each) for each in range(count)]
            kafka.produce(topic, values, partition=partition, producer=producer)
            number += count
        process = program.start()
        # A batch or two of what there is now: those that follow are killed, while a tierer publishes.
        program.wait_for_batches(process, program.batches() + chance.randrange(1, 3))
        tierer = threading.Thread(target=server.tier, args=(table,))
        tierer.start()
        time.sleep(chance.random())
        kill_part = program.kill_executor if chance.random() < executors else program.kill
        kill_part(process)
        tierer.join()
        server.refresh(table)
        mark = server.running.pins.get(table).watermark
        assert mark is not None
        for partition, offset in mark.next:
            kafka.delete_records(topic, partition, offset)
        if kill == 0:
            server.spark(table).compact()
            partitions += 1
            kafka.add_partitions(topic, partitions)
            producer = kafka.producer()
        if kill == min(1, kills - 1):
            server.spark(table).expire_to_one()
    kafka.produce(topic, [record(number)], partition=2, producer=producer)
    program.finish()


def check(
    program: Program,
    server: TieredServer,
    table: TableName,
    sink: TableName,
    folder: Path,
    kills: int = KILLS,
) -> None:
    """Both sinks have every record of the table once."""
    server.refresh(table)
    session = server.lake.session
    everything = in_order(server.ask(f"FROM {table}"))
    session.catalog.refreshTable(identifier(sink))
    for rows in (
        session.read.parquet(str(folder / "rows")),
        session.table(identifier(sink)),
    ):
        delivered = in_order(rows.toArrow())
        places = Counter((row["kafka_partition"], row["kafka_offset"]) for row in delivered)
        assert [place for place, count in places.items() if count > 1] == []
        assert delivered == everything
    assert program.batches() > kills
    ends: dict[int, int] = {}
    for batch in batches_of(folder / "rows"):
        for partition in {partition for partition, _ in batch}:
            offsets = [offset for at, offset in batch if at == partition]
            assert min(offsets) >= ends.get(partition, 0), (partition, offsets)
            ends[partition] = max(offsets) + 1


def batches_of(folder: Path) -> Iterator[list[tuple[int, int]]]:
    """Partition and offset of the records of each batch, as Spark's file sink lists its files."""
    listed: set[str] = set()
    lists = [file for file in (folder / "_spark_metadata").iterdir() if file.name[0].isdigit()]
    # Every tenth list has the files of those before, too.
    for each in sorted(lists, key=lambda file: int(file.name.partition(".")[0])):
        paths = {json.loads(line)["path"] for line in each.read_text().splitlines()[1:]}
        files = [folder / Path(unquote(urlsplit(path).path)).name for path in paths - listed]
        listed |= paths
        yield [
            (row["kafka_partition"], row["kafka_offset"])
            for file in files
            for row in pq.read_table(
                file, columns=["kafka_partition", "kafka_offset"], partitioning=None
            ).to_pylist()
        ]
