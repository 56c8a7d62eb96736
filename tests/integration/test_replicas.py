"""Two servers behind a TCP balancer: tickets, sessions and cuts work across them, and one may die."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from planner.names import TableName
from planner.schema import Column
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import serving, settings_of, sqlite_catalog
from tests.harness.configurations import LOGIN, replica_configuration
from tests.harness.tcp_proxy import TcpProxy
from tests.harness.wire import fetched, select

pytestmark = pytest.mark.kafka

TABLE = TableName("lake", ("net",), "flows")
_START_S = 60.0


@dataclass
class Replica:
    """``thermocline serve`` as a process of its own."""

    config: Path
    log: Path
    port: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None)

    def start(self) -> None:
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "thermocline", "--config", str(self.config)),
                    *("serve", "--no-supervisor", "--port", str(self.port)),
                ],
                stderr=output,
            )
        deadline = time.monotonic() + _START_S
        while not (items := re.search(r"grpc://\S+:(\d+)", self.log.read_text())):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        self.port = int(items[1])

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    @property
    def address(self) -> tuple[str, int]:
        return ("127.0.0.1", self.port)


@dataclass
class Pair:
    first: Replica
    second: Replica
    topic: str
    kafka: Kafka
    produced: int = 0

    def produce(self, count: int) -> None:
        for _ in range(count):
            value = json.dumps({"id": self.produced}).encode()
            self.kafka.produce(self.topic, [value], partition=self.produced % 2)
            self.produced += 1

    @property
    def count(self) -> str:
        return f"SELECT count(*) AS n, sum(id) AS total FROM {TABLE}"

    @staticmethod
    def row(records: int) -> dict[str, int]:
        return {"n": records, "total": records * (records - 1) // 2}


@pytest.fixture(scope="module")
def both(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("replicas")
    topic = kafka.topic(partitions=2)
    catalogs = {"lake": sqlite_catalog(folder / "lake")}
    with serving(settings_of(catalogs, kafka.settings)) as owner:
        owner.bind(topic, [Column(0, "id", pa.int64())], name=TABLE)
    config = folder / "thermocline.toml"
    config.write_text(replica_configuration(catalogs["lake"], kafka.bootstrap))
    first, second = (Replica(config, folder / f"{name}.log") for name in ("first", "second"))
    try:
        yield Pair(first, second, topic, kafka)
    finally:
        first.kill()
        second.kill()


@pytest.fixture
def pair(both: Pair) -> Pair:
    """Both live; the records of the test before are there."""
    for replica in (both.first, both.second):
        if replica.process is None or replica.process.poll() is not None:
            replica.start()
    return both


def connected(replica: Replica) -> contextlib.closing[flight.FlightClient]:
    return closing(flight.connect(f"grpc://127.0.0.1:{replica.port}"))


def test_a_ticket_and_a_session_of_one_replica_work_at_the_other(pair: Pair) -> None:
    pair.produce(20)
    before = pair.produced
    with connected(pair.first) as first, connected(pair.second) as second:
        header = first.authenticate_basic_token(*LOGIN.values())
        options = flight.FlightCallOptions(headers=[header])
        ticket = first.get_flight_info(select(pair.count), options).endpoints[0].ticket
        pair.produce(15)
        assert fetched(second, pair.count, options) == [pair.row(before + 15)]
        # The cut is the ticket's, wherever it is redeemed: what came later is in no answer of it.
        for client in (second, first, second):
            assert client.do_get(ticket, options).read_all().to_pylist() == [pair.row(before)]


def test_clients_behind_a_balancer_survive_the_death_of_a_replica_and_are_right(
    pair: Pair,
) -> None:
    """One login each: a session goes on at the other replica, and no answer lacks a record acknowledged before it."""
    pair.produce(10)
    refused: list[str] = []
    answers: list[tuple[int, dict[str, Any], int]] = []
    over = threading.Event()

    with TcpProxy() as balancer:
        balancer.target = pair.first.address

        def ask_on() -> None:
            with closing(flight.connect(f"grpc://127.0.0.1:{balancer.port}")) as client:
                header = client.authenticate_basic_token(*LOGIN.values())
                options = flight.FlightCallOptions(headers=[header], timeout=10)
                while not over.is_set():
                    before = pair.produced
                    try:
                        [row] = fetched(client, pair.count, options)
                    except flight.FlightError as error:
                        refused.append(str(error))
                        time.sleep(0.05)
                        continue
                    answers.append((before, row, pair.produced + 1))

        clients = [threading.Thread(target=ask_on) for _ in range(3)]
        for client in clients:
            client.start()
        _until(lambda: len(answers) >= 10, pair)
        balancer.target = pair.second.address
        pair.first.kill()
        observed = len(answers)
        _until(lambda: len(answers) >= observed + 30, pair)
        pair.first.start()
        balancer.target = pair.first.address
        pair.second.kill()
        observed = len(answers)
        _until(lambda: len(answers) >= observed + 30, pair)
        over.set()
        for client in clients:
            client.join(30)

    assert refused, "nobody was at a replica when it died: the test proved nothing"
    for before, row, after in answers:
        assert before <= row["n"] <= after
        assert row == pair.row(row["n"])
    for text in refused:
        assert "Traceback" not in text
        assert "Unauthenticated" not in text


def _until(holds: Any, pair: Pair) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        pair.produce(1)
        assert time.monotonic() < deadline, "the clients get no answers"
        time.sleep(0.01)
