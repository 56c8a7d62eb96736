"""Following a statement: every committed record once, across tiering, new partitions and restarts."""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from planner.errors import RequestError
from planner.schema import Column
from tests.fixtures.commands import ROOT, CliServer, CliSite, wait_until
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import SqlServer, TieredServer
from tests.harness.forked_commands import run
from thermocline.client import Client, connected
from thermocline.follower import follow_round

pytestmark = pytest.mark.kafka

EVENT = [Column(1, "id", pa.int64()), Column(2, "name", pa.string())]


def events(start: int, stop: int) -> list[bytes]:
    return [json.dumps({"id": n, "name": f"row {n}"}).encode() for n in range(start, stop)]


class Follower:
    """Somebody who follows a statement by hand, round after round."""

    def __init__(self, client: Client, sql: str, after: str) -> None:
        self._client = client
        self._sql = sql
        self.after = after

    def changes(self) -> list[tuple[object, ...]]:
        with follow_round(self._client, self._sql, self.after) as answer:
            result = [
                tuple(row.values()) for batch in answer.batches for row in batch.to_pylist()
            ]
            self.after = answer.position
        return sorted(result)


@contextlib.contextmanager
def following(server: SqlServer, sql: str, after: str) -> Iterator[Follower]:
    with connected(server.uri) as client:
        yield Follower(client, sql, after)


def test_rounds_hold_what_came_since_the_round_before(kafka: Kafka, server: SqlServer) -> None:
    topic = kafka.topic(2)
    table = server.bind(topic, EVENT)
    kafka.produce(topic, events(0, 3), partition=0)
    sql = f"SELECT id FROM {table}"
    with following(server, sql, "now") as late, following(server, sql, "beginning") as early:
        assert late.changes() == []
        assert early.changes() == [(0,), (1,), (2,)]
        kafka.produce(topic, events(3, 5), partition=1)
        assert late.changes() == early.changes() == [(3,), (4,)]
        kafka.add_partitions(topic, 3)
        kafka.produce(topic, events(5, 7), partition=2, producer=kafka.producer())
        assert late.changes() == early.changes() == [(5,), (6,)]
        assert late.changes() == early.changes() == []


def test_the_same_round_asked_again_answers_the_same(kafka: Kafka, server: SqlServer) -> None:
    topic = kafka.topic()
    table = server.bind(topic, EVENT)
    kafka.produce(topic, events(0, 3))
    with connected(server.uri) as client:
        planned = client.follow(f"SELECT id FROM {table}", "beginning")
        kafka.produce(topic, events(3, 9))
        for _ in range(2):
            with planned.read() as answer:
                assert sum(batch.num_rows for batch in answer.batches()) == 3
        follower = Follower(client, f"SELECT id FROM {table}", planned.position)
        assert follower.changes() == [(n,) for n in range(3, 9)]


def test_since_takes_young_records_first_and_then_whatever_comes(
    kafka: Kafka, server: SqlServer
) -> None:
    topic = kafka.topic()
    table = server.bind(topic, EVENT)
    kafka.produce(topic, events(0, 2), timestamp_ms=1_700_000_000_000)
    kafka.produce(topic, events(2, 4), timestamp_ms=1_700_000_060_000)
    with following(server, f"SELECT id FROM {table}", "since:1700000030000000") as follower:
        assert follower.changes() == [(2,), (3,)]
        kafka.produce(topic, events(4, 5), timestamp_ms=1_700_000_000_000)  # late
        assert follower.changes() == [(4,)]


def test_an_aggregate_is_over_one_round_and_a_plain_table_is_read_whole(
    kafka: Kafka, server: SqlServer
) -> None:
    topic = kafka.topic()
    table = server.bind(topic, EVENT)
    names = server.create_plain(pa.table({"id": [1, 3], "label": ["one", "three"]}))
    kafka.produce(topic, events(0, 3))
    sql = f"SELECT count(*), max(label) FROM {table} LEFT JOIN {names} USING (id)"
    with following(server, sql, "beginning") as follower:
        assert follower.changes() == [(3, "one")]
        kafka.produce(topic, events(3, 4))
        assert follower.changes() == [(1, "three")]
        assert follower.changes() == [(0, None)]


def test_a_self_join_sees_the_news_on_both_sides(kafka: Kafka, server: SqlServer) -> None:
    topic = kafka.topic()
    table = server.bind(topic, EVENT)
    kafka.produce(topic, events(0, 3))
    sql = f"SELECT a.id, b.name FROM {table} a JOIN {table} b USING (id)"
    with following(server, sql, "beginning") as follower:
        assert len(follower.changes()) == 3
        kafka.produce(topic, events(1, 2))
        assert follower.changes() == [(1, "row 1")]


def test_a_position_of_another_statement_is_refused(kafka: Kafka, server: SqlServer) -> None:
    one, other = (server.bind(kafka.topic(), EVENT) for _ in range(2))
    with following(server, f"SELECT id FROM {one}", "now") as follower:
        follower.changes()
        with pytest.raises(RequestError, match="of a statement without this table"):
            Follower(follower._client, f"SELECT id FROM {other}", follower.after).changes()
    with (
        following(
            server, f'SELECT id FROM {one.catalog}.{one.schema}."{one.name}$cold"', "now"
        ) as cold,
        pytest.raises(RequestError, match="cannot be followed: it is one side of a table"),
    ):
        cold.changes()


@pytest.mark.spark
def test_every_record_once_while_rows_change_sides(
    kafka: Kafka, tiered_server: TieredServer
) -> None:
    topic = kafka.topic(3)
    table = tiered_server.bind(topic, EVENT)
    kafka.produce(topic, events(0, 50), partition=0)
    tiered_server.tier(table)
    tiered_server.refresh(table)
    items: Counter[Any] = Counter()
    sent = 50
    with following(
        tiered_server, f"SELECT kafka_partition, kafka_offset, id FROM {table}", "beginning"
    ) as follower:
        items.update(follower.changes())
        for number in range(6):
            kafka.produce(topic, events(sent, sent + 40), partition=number % 3)
            sent += 40
            if number % 2:
                # What is new lies in cold altogether, then on both sides of the seam.
                tiered_server.tier(table)
                tiered_server.refresh(table)
            if number % 3:
                items.update(follower.changes())
        kafka.produce(topic, events(sent, sent + 10), partition=1)
        sent += 10
        items.update(follower.changes())
        assert follower.changes() == []
    assert set(items.values()) == {1}
    assert sorted(row[2] for row in items) == list(range(sent))


@pytest.mark.spark
def test_every_record_once_though_retention_and_expiry_went_past_the_position(
    kafka: Kafka, tiered_server: TieredServer
) -> None:
    topic = kafka.topic()
    table = tiered_server.bind(topic, EVENT)
    kafka.produce(topic, events(0, 10))
    with following(tiered_server, f"SELECT id FROM {table}", "beginning") as follower:
        assert len(follower.changes()) == 10
        kafka.produce(topic, events(10, 30))
        tiered_server.tier(table)
        tiered_server.spark(table).expire_to_one()
        tiered_server.refresh(table)
        kafka.delete_records(topic, 0, 30)
        kafka.produce(topic, events(30, 33))
        assert follower.changes() == [(n,) for n in range(10, 33)]


def test_a_server_started_again_is_waited_for_and_nothing_comes_twice(
    kafka: Kafka, cli_site: CliSite, cli_server: CliServer
) -> None:
    topic = kafka.topic(2)
    kafka.produce(topic, events(0, 5))
    assert cli_site.run("create", "lake.net.flows", "--topic", topic, "--infer")[0] == 0
    sql = "SELECT id, kafka_partition, kafka_offset FROM lake.net.flows"
    wait_until(lambda: cli_site.answers("SELECT count(*) FROM lake.net.flows"), 10)
    stop = threading.Event()

    def write() -> None:
        number = 5
        while not stop.wait(0.01):
            kafka.produce(topic, events(number, number + 1), partition=number % 2)
            number += 1
        written.put(number)

    written: queue.Queue[int] = queue.Queue()
    writer = threading.Thread(target=write)
    tail = cli_site.start(
        "tail", sql, "--from", "beginning", "--format", "jsonl", "--interval", "0.1"
    )
    assert tail.stdout is not None
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(iter(tail.stdout.readline, "")))  # type: ignore[union-attr]
    reader.start()
    writer.start()
    try:
        wait_until(lambda: len(lines) > 20, 60, tail)
        cli_server.child().send_signal(signal.SIGKILL)
        value = len(lines)
        wait_until(lambda: len(lines) > value + 50, 60, tail)
        stop.set()
        writer.join()
        count = written.get()
        wait_until(lambda: len(lines) >= count, 60, tail)
        time.sleep(0.5)  # what came twice would come now
    finally:
        stop.set()
        tail.send_signal(signal.SIGINT)
        tail.wait(30)
        reader.join()
        writer.join()
    _, reply = tail.communicate()
    assert tail.returncode == 130
    assert "Waiting for it." in reply
    rows = [json.loads(line) for line in lines]
    assert sorted(row["id"] for row in rows) == list(range(count))


def test_a_position_is_kept_from_run_to_run(
    kafka: Kafka, server: SqlServer, tmp_path: Path
) -> None:
    topic = kafka.topic()
    table = server.bind(topic, EVENT)
    file = tmp_path / "flows.pos"

    def tail(*options: str) -> list[str]:
        sql = f"SELECT id FROM {table}"
        command = ("tail", sql, "--server", server.uri, "--position", str(file), "--once")
        code, out, err = run((*command, *options), ROOT, 60)
        assert (code, err) == (0, "")
        return out.splitlines()

    kafka.produce(topic, events(0, 2))
    assert tail("--from", "beginning") == ['{"id":0}', '{"id":1}']
    assert tail("--from", "beginning") == []
    kafka.produce(topic, events(2, 3))
    assert tail("--format", "csv") == ['"id"', "2"]
