"""The REST catalog under many and rough clients, and with a broker that is down."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from planner.names import TableName
from tests.fixtures.kafka import Kafka
from tests.fixtures.live_rest import Rest, live_settings
from tests.fixtures.server import serving
from tests.harness.events import EVENT, events

pytestmark = pytest.mark.kafka


def test_a_broker_that_is_down_is_told_with_when_to_ask_again(
    kafka: Kafka, tmp_path: Path
) -> None:
    with serving(live_settings(kafka, tmp_path)) as server:
        table = server.bind(kafka.topic(), EVENT)
    settings = live_settings(kafka, tmp_path)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = {**settings.kafka, "bootstrap.servers": f"127.0.0.1:{closed.getsockname()[1]}"}
        with serving(settings.model_copy(update={"kafka": nobody})) as server:
            rest = Rest(server)
            answer = rest.ask(rest.table(table))
            assert answer.error == (503, "ServiceUnavailableException")
            assert int(answer.headers["retry-after"]) > 0
            assert rest.ask(rest.table(table), "POST", b"{}").status == 403


def test_loads_at_the_same_time_share_the_work(
    rest: Rest, kafka: Kafka, live_flows: TableName
) -> None:
    with ThreadPoolExecutor(50) as asking:
        answers = list(asking.map(lambda _: rest.ask(rest.table(live_flows)), range(200)))
    assert {answer.status for answer in answers} == {200}
    assert len({answer.headers["etag"] for answer in answers}) == 1


def test_rough_clients_are_left(rest: Rest) -> None:
    with socket.create_connection(rest.address) as raw:
        raw.sendall(b"GET /v1/config HTTP/1.1\r\nhost: x\r\nfill: " + b"a" * 200_000)
        assert raw.recv(100).startswith(b"HTTP/1.1 400")
    with socket.create_connection(rest.address) as raw, contextlib.suppress(ConnectionError):
        raw.sendall(b"GET /v1/config HTTP/1.1\r\nhost: x\r\nfill: " + b"a" * (10 << 20))
        assert raw.recv(100)[:12] in (b"HTTP/1.1 400", b"")
    big = b"x" * (2 << 20)
    assert rest.ask("/v1/oauth/tokens", "POST", big).error == (413, "BadRequestException")
    with socket.create_connection(rest.address) as silent:
        silent.settimeout(20)
        began_s = time.monotonic()
        silent.sendall(b"GET /v1/")
        assert silent.recv(100) == b""
        assert time.monotonic() - began_s < 15


def test_clients_that_left_hold_nobody_up(
    rest: Rest, kafka: Kafka, live_flows: TableName
) -> None:
    """They wait for a record that does not come: more of them than there are places."""
    wait_for = f"thermocline-wait-for: {rest.topic(live_flows)}/0:1000000"
    head = f"GET {rest.table(live_flows)} HTTP/1.1\r\nhost: x\r\n{wait_for}\r\n\r\n".encode()
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            stack.enter_context(socket.create_connection(rest.address)).sendall(head)
        time.sleep(0.5)
    assert (
        rest.rows(live_flows).num_rows == 10
    )  # and not after a minute, which its client does not wait


@pytest.mark.soak
def test_a_thousand_loads_at_once_are_all_answered(
    rest: Rest, kafka: Kafka, live_flows: TableName
) -> None:
    """Of one user, who may have three quarters of all places: the others ask again when they are told to."""
    topic, stopped = rest.topic(live_flows), threading.Event()

    def produce_on() -> None:
        while not stopped.wait(0.05):
            kafka.produce(topic, events(0, 5))

    def loaded(_: int) -> list[int]:
        statuses: list[int] = []
        while not statuses or statuses[-1] != 200:
            answer = rest.ask(rest.table(live_flows))
            statuses.append(answer.status)
            if answer.status != 200:
                assert answer.error == (503, "ServiceUnavailableException")
                time.sleep(int(answer.headers["retry-after"]))
        return statuses

    producing = threading.Thread(target=produce_on)
    producing.start()
    try:
        with ThreadPoolExecutor(1_000) as asking:
            tries = list(asking.map(loaded, range(1_000)))
    finally:
        stopped.set()
        producing.join()
    assert max(map(len, tries)) < 20


@pytest.mark.parametrize("number", [10, pytest.param(500, marks=pytest.mark.soak)])
def test_a_tool_that_loads_every_table_it_finds_gets_them(
    kafka: Kafka, tmp_path: Path, number: int
) -> None:
    """More tables than may be followed: what is not needed now makes room."""
    settings = live_settings(kafka, tmp_path)
    tail = settings.tail.model_copy(update={"max_tables": 4})
    topic = kafka.topic()
    kafka.produce(topic, events(0, 3))
    with serving(settings.model_copy(update={"tail": tail})) as server:
        rest = Rest(server)
        names = [f"t_{n:03}" for n in range(number)]
        for name in names:
            server.bind(topic, EVENT, name=TableName("lake", ("many",), name))
        listed = rest.ask("/v1/lake/namespaces/many/tables").body["identifiers"]
        assert [item["name"] for item in listed] == names
        assert not (tmp_path / "warehouse-live").exists()  # listing writes nothing
        with ThreadPoolExecutor(16) as asking:
            tables = [TableName("lake", ("many",), name) for name in names]
            answers = list(asking.map(lambda table: rest.ask(rest.table(table)), tables))
        assert Counter(answer.status for answer in answers) == {200: number}
        totals = {
            answer.body["metadata"]["snapshots"][-1]["summary"]["added-records"]
            for answer in answers
        }
        assert totals == {"3"}
