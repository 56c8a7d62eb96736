"""Flink over live tables: it reads what Flight reads, and streams no row twice.

Flink's source asks Iceberg for what was appended since the snapshot it remembers, and a live snapshot is nobody's parent.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fixtures.flink import Flink, FlinkError
from tests.fixtures.kafka import Kafka
from tests.fixtures.live import LiveServer
from tests.harness.live_rows import COLUMNS, produce

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.soak,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

STATEMENTS = (
    "SELECT count(*), count(host), sum(n), min(host), max(price) FROM {t}",
    "SELECT n, price, `day` FROM {t} WHERE n > 37 ORDER BY n",
)


class Stream:
    """Jobs that write ``n`` of a table's rows to files, which appear with a checkpoint: each row exactly once."""

    def __init__(self, flink: Flink, source: str, folder: Path) -> None:
        self._flink, self._folder = flink, folder
        sink = f"sink_{source.replace('.', '_')}"
        # A file for each row, so that each is there with the next checkpoint and not when a file is full.
        flink.define(
            f"CREATE TABLE {sink} (n STRING) WITH ('connector' = 'filesystem', 'format' = 'raw', "
            f"'path' = '{folder.as_uri()}', 'sink.rolling-policy.file-size' = '1b')"
        )
        self._statement = (
            f"INSERT INTO {sink} SELECT CAST(n AS STRING) FROM {source} /*+ OPTIONS("
            "'streaming' = 'true', 'monitor-interval' = '200ms', "
            "'starting-strategy' = 'TABLE_SCAN_THEN_INCREMENTAL') */"
        )

    def start(self, job: str, savepoint: str = "") -> None:
        self._flink.start(job, self._statement, savepoint)

    def rows(self) -> list[int]:
        files = (path for path in self._folder.glob("*") if not path.name.startswith("."))
        return sorted(int(line) for path in files for line in path.read_text().split())


def wait_for(rows: Callable[[], list[int]], count: int, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while len(rows()) < count:
        assert time.monotonic() < deadline, rows()
        time.sleep(0.1)


def test_flink_reads_what_flight_reads_and_streams_no_row_twice(
    kafka: Kafka, live: LiveServer, flink: Flink, tmp_path: Path
) -> None:
    topic = kafka.topic(2)
    table = live.bind(topic, COLUMNS)
    produce(kafka, topic, 0, 20)
    live.tier(table)
    live.refresh(table)
    produce(kafka, topic, 20, 40)
    source = flink.live_table(live.address, table)
    for sql in STATEMENTS:
        flight = live.ask(sql.replace("`", '"').format(t=table)).to_pylist()
        expected = [[str(value) for value in row.values()] for row in flight]
        assert flink.ask(sql.format(t=source)) == expected
    stream = Stream(flink, source, tmp_path / "sink")
    stream.start("first")
    wait_for(stream.rows, 40)
    savepoint = flink.stop("first", tmp_path / "savepoints")
    assert stream.rows() == list(range(40))

    end = 40
    for publishes in (0, 1, 3):
        for _ in range(publishes):
            produce(kafka, topic, end, end + 10)
            end += 10
            live.tier(table)
            live.refresh(table)
        job = f"after {publishes}"
        if not publishes:
            # The snapshot that it remembers is still the table's head.
            stream.start(job, savepoint)
            time.sleep(2)
            assert flink.state(job) == "RUNNING"
        produce(kafka, topic, end, end + 10)
        end += 10
        if publishes:
            stream.start(job, savepoint)
        with pytest.raises(FlinkError, match="is not a parent ancestor of end snapshot"):
            flink.await_end(job)
        assert stream.rows() == list(range(40))
    # Read as a batch, it is all there.
    assert flink.ask(f"SELECT count(*) FROM {source}") == [[str(end)]]


def test_the_committed_part_is_streamed_once(
    kafka: Kafka, live: LiveServer, flink: Flink, tmp_path: Path
) -> None:
    topic = kafka.topic(2)
    table = live.bind(topic, COLUMNS)
    produce(kafka, topic, 0, 20)
    live.tier(table)
    live.refresh(table)
    stream = Stream(
        flink, flink.live_table(live.address, table, "lake@cold"), tmp_path / "sink"
    )
    stream.start("cold")
    wait_for(stream.rows, 20)
    produce(kafka, topic, 20, 30)
    live.tier(table)
    live.refresh(table)
    wait_for(stream.rows, 30)
    savepoint = flink.stop("cold", tmp_path / "savepoints")
    for start in (30, 40, 50):
        produce(kafka, topic, start, start + 10)
        live.tier(table)
        live.refresh(table)
    produce(kafka, topic, 60, 70)  # the tail is not streamed
    stream.start("cold again", savepoint)
    wait_for(stream.rows, 60)
    flink.stop("cold again", tmp_path / "savepoints")
    assert stream.rows() == list(range(60))
