"""The process that reads topics for a server: what it does not do to answers when it dies, hangs or lies."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from planner.errors import LogUnavailable, UndecodableRecord
from planner.schema import Column
from proxy.tail.reader import ipc, readers
from proxy.tail.reader.child import Ingestion
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import settings_of, sqlite_catalog
from tests.harness.followed_parts import COLUMNS, ask, bind, count, wait_until_ready
from thermocline.serve.assembly import running_components
from thermocline.serve.components import Components
from thermocline.serve.ingestion import ingesting

pytestmark = pytest.mark.kafka

WAIT_S = 60.0
MB = 1_000_000


def wait_for(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextlib.contextmanager
def reading(folder: Path, kafka: Kafka) -> Iterator[tuple[Components, Ingestion]]:
    settings = settings_of({"lake": sqlite_catalog(folder)}, kafka.settings)
    with (
        ingesting(settings) as ingestion,
        running_components(settings, ingestion=ingestion) as components,
    ):
        assert ingestion is not None
        # Until then statements fetch for themselves, and the process would not be tested.
        wait_until_ready(ingestion)
        yield components, ingestion


@pytest.fixture(scope="module")
def undisturbed(
    kafka: Kafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, Components]]:
    """A folder with a catalog, and a server's parts over it whose worker nobody kills."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with reading(folder, kafka) as (components, _):
        yield folder, components


def worker_of(ingestion: Ingestion) -> psutil.Process:
    (first,) = (
        child for child in psutil.Process().children() if child.pid == ingestion._process.pid
    )
    processes: list[psutil.Process] = []

    def is_there() -> bool:
        processes[:] = alive(first)
        return len(processes) == 1

    wait_for(is_there)
    return processes[0]


def alive(first: psutil.Process) -> list[psutil.Process]:
    """Its workers; one that died is waited for when the next one is started."""
    items = []
    for value in first.children():
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended just now
            if value.status() != psutil.STATUS_ZOMBIE:
                items.append(value)
    return items


def write(kafka: Kafka, topic: str, *numbers: int, partition: int = 0) -> None:
    values = [json.dumps({"n": number}).encode() for number in numbers]
    kafka.produce(topic, values, partition=partition)


def test_a_worker_that_is_killed_is_followed_by_another_and_no_answer_is_short(
    kafka: Kafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.topic(2)
    table = bind(kafka, tmp_path, topic, COLUMNS)
    with reading(tmp_path, kafka) as (components, ingestion), caplog.at_level(logging.WARNING):
        write(kafka, topic, 0)
        assert count(components, table) == 1
        killed = set()
        for value in range(1, 60, 3):
            write(kafka, topic, value, value + 1)
            write(kafka, topic, value + 2, partition=1)
            if value % 15 == 1:
                worker = worker_of(ingestion)
                assert worker.pid not in killed
                killed.add(worker.pid)
                worker.kill()
            assert count(components, table) == value + 3
            wait_for(lambda: worker_of(ingestion).pid not in killed)
        assert len(killed) == 4
        assert ingestion.lost == 4
        assert ask(components, f"SELECT sum(n) AS n FROM {table}")["n"][0].as_py() == sum(
            range(61)
        )
        (state,) = components.tails.states()
        assert state.is_followed
    assert "it is started again" in caplog.text


def test_much_is_fetched_by_the_worker_and_again_when_it_dies_meanwhile(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readers, "MUCH_OFFSETS", 1_000)
    topic = kafka.topic(1)
    table = bind(kafka, tmp_path, topic, COLUMNS)
    write(kafka, topic, *range(40_000))
    with reading(tmp_path, kafka) as (components, ingestion):
        begin_job = ingestion.begin_job
        requests: list[Any] = []

        def counted(request: Any) -> Any:
            requests.append(request)
            work = begin_job(request)
            if len(requests) == 1:
                worker_of(ingestion).kill()
            return work

        monkeypatch.setattr(ingestion, "begin_job", counted)
        with contextlib.suppress(LogUnavailable):
            assert count(components, table) == 40_000
        assert count(components, table) == 40_000
        fetched = [request for request in requests if request.starts is None]
        assert 1 <= len(fetched) <= 2


def test_a_worker_that_is_silent_is_given_up(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Statements fetch what they need meanwhile."""
    monkeypatch.setattr(ipc, "_PATIENCE_S", 0.2)
    topic = kafka.topic(1)
    table = bind(kafka, tmp_path, topic, COLUMNS)
    with reading(tmp_path, kafka) as (components, ingestion):
        write(kafka, topic, 0)
        assert count(components, table) == 1
        write(kafka, topic, 1)
        assert count(components, table) == 2
        worker = worker_of(ingestion)
        worker.suspend()
        write(kafka, topic, 2)
        assert count(components, table) == 3
        wait_for(lambda: worker_of(ingestion).pid != worker.pid)
        write(kafka, topic, 3)
        assert count(components, table) == 4


def test_statements_do_not_wait_for_a_worker_that_starts(kafka: Kafka, tmp_path: Path) -> None:
    topic = kafka.topic(1)
    table = bind(kafka, tmp_path, topic, COLUMNS)
    with reading(tmp_path, kafka) as (components, ingestion):
        worker, first = worker_of(ingestion), psutil.Process(ingestion._process.pid)
        first.suspend()  # it starts no other
        try:
            worker.kill()
            for value in range(4):
                write(kafka, topic, value)
                assert count(components, table) == value + 1
            assert not ingestion.is_ready
        finally:
            first.resume()
        wait_until_ready(ingestion)
        write(kafka, topic, 4)
        assert count(components, table) == 5
        (state,) = components.tails.states()
        assert state.is_followed


def test_what_a_backlog_needs_is_bounded_and_given_back(kafka: Kafka, tmp_path: Path) -> None:
    """Half a million records of 100 bytes: with librdkafka's own queue of 64 MB it was 400 MB, and stayed."""
    topic = kafka.topic(1)
    name = bind(kafka, tmp_path, topic, COLUMNS)
    values = [b'{"n": 1, "text": "%s"}' % (b"x" * 77)] * 100_000
    for _ in range(5):
        kafka.produce(topic, values)
    with reading(tmp_path, kafka) as (components, ingestion):
        worker = worker_of(ingestion)
        assert count(components, name) == 500_000
        assert 100 * MB < ingestion.peak_bytes < 300 * MB
        wait_for(lambda: worker.memory_info().rss < 200 * MB)


def test_what_does_not_decode_is_said_as_the_server_itself_would(
    kafka: Kafka, undisturbed: tuple[Path, Components]
) -> None:
    folder, components = undisturbed
    topic = kafka.topic(1)
    table = bind(kafka, folder, topic, COLUMNS)
    components.pins.refresh_due(None)  # its tables are listed once
    write(kafka, topic, 0)
    assert count(components, table) == 1
    kafka.produce(topic, [b'{"n": "many"}'], partition=0)
    for _ in range(3):
        with pytest.raises(UndecodableRecord, match="offset 1") as caught:
            count(components, table)
        assert (caught.value.facts["partition"], caught.value.facts["offset"]) == (0, 1)


def test_every_type_comes_across_as_it_was_decoded(
    kafka: Kafka, undisturbed: tuple[Path, Components]
) -> None:
    folder, components = undisturbed
    columns = (
        Column(0, "n", pa.int64()),
        Column(0, "price", pa.decimal128(20, 4)),
        Column(0, "at", pa.timestamp("us", tz="UTC")),
        Column(0, "names", pa.list_(pa.field("element", pa.string()))),
        Column(
            0, "place", pa.struct([pa.field("x", pa.float64()), pa.field("y", pa.float64())])
        ),
        Column(0, "tags", pa.map_(pa.string(), pa.int32())),
        Column(0, "raw", pa.binary()),
    )
    topic = kafka.topic(1)
    table = bind(kafka, folder, topic, columns)
    components.pins.refresh_due(None)  # its tables are listed once
    value = {
        "n": 2**60,
        "price": "1234567890123456.7891",
        "at": "2026-11-22T01:02:03.000004Z",
        "names": ["a", "é", None],
        "place": {"x": 0.1, "y": -0.0},
        "tags": {"k": 7},
        "raw": "ff00",
    }
    for entry in range(3):
        kafka.produce(topic, [json.dumps(value).encode()], partition=0)
        assert count(components, table) == entry + 1
    rows = ask(
        components, f'SELECT n, price, "at", names, place, tags, raw FROM {table}'
    ).to_pylist()
    # The first was fetched by the server's own process, the others came across.
    assert rows[0] == rows[1] == rows[2]
    assert rows[0]["n"] == 2**60


def test_nothing_stays_when_the_server_is_killed(kafka: Kafka, tmp_path: Path) -> None:
    program = (
        "import sys, time, pickle\n"
        "from thermocline.config.settings import Settings\n"
        "from thermocline.serve.ingestion import ingesting\n"
        "settings = Settings(kafka={'bootstrap.servers': sys.argv[1]})\n"
        "with ingesting(settings) as held:\n"
        "    print(held._process.pid, flush=True)\n"
        "    time.sleep(600)\n"
    )
    server = subprocess.Popen(
        [sys.executable, "-c", program, kafka.settings["bootstrap.servers"]],
        stdout=subprocess.PIPE,
    )
    server_output = server.stdout
    assert server_output is not None
    try:
        first = psutil.Process(int(server_output.readline()))
        wait_for(first.children)
        both = [first, *first.children()]
        for value in both:  # as a terminal or a service manager would
            value.send_signal(signal.SIGINT)
            value.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        assert all(value.status() != psutil.STATUS_ZOMBIE for value in both)
    finally:
        server.kill()
        server.wait()
        server_output.close()
    _, left = psutil.wait_procs(both, timeout=WAIT_S)
    assert not left


def _open_files(pid: int) -> Iterator[str]:
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since, as connections are
            yield str(path.readlink())


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads /proc")
def test_it_has_no_login_of_the_servers_environment(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows the brokers, by its setup, and nothing else."""
    for name in (
        "THERMOCLINE_CATALOGS__LAKE__S3_SECRET_ACCESS_KEY",
        "PYICEBERG_CATALOG__LAKE__TOKEN",
        "AWS_SECRET_ACCESS_KEY",
    ):
        monkeypatch.setenv(name, "not for others")
    with reading(tmp_path, kafka) as (_, ingestion):
        worker = worker_of(ingestion)
        for process in (worker, psutil.Process(ingestion._process.pid)):
            assert "not for others" not in process.environ().values()
            assert "PATH" in process.environ()


def test_it_holds_no_files_of_the_server(kafka: Kafka, tmp_path: Path) -> None:
    """The catalog, its warehouse, sockets of clients: what it has not, it cannot lose."""
    secret = tmp_path / "secret"
    secret.write_text("")
    with secret.open() as stream:
        os.set_inheritable(stream.fileno(), True)
        with reading(tmp_path, kafka) as (_, ingestion):
            worker = worker_of(ingestion)
            for number in (ingestion._process.pid, worker.pid):
                assert not [name for name in _open_files(number) if str(tmp_path) in name]
