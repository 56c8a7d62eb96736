"""The commands as users run them: processes of their own over one configuration file."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import psutil
import pytest

from tests.fixtures.kafka import Kafka
from tests.fixtures.server import sqlite_catalog

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).parents[2]
#: The promise: a killed server answers again within this time.
RESTART_S = 5.0
#: The supervisor notices within 0.2 s and waits 0.1 s; on a busy machine the rest is what any start takes there.
RESTART_DELAY_S = 1.0
START_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Site:
    """A folder with a configuration file, and the commands run with it."""

    config: Path
    port: int

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "thermocline", "--config", str(self.config), *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output and error of a command that ends by itself."""
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=180)
        assert "Traceback" not in err
        return process.returncode, out, err

    def ask(self, sql: str) -> list[Any]:
        uri = f"grpc://127.0.0.1:{self.port}"
        with adbc.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            rows: list[Any] = cursor.fetchall()
            return rows

    def answers(self, sql: str = "SELECT 42") -> bool:
        try:
            return bool(self.ask(sql))
        except adbc.Error:
            return False

    def is_free(self) -> bool:
        with contextlib.closing(socket.socket()) as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) != 0


@pytest.fixture
def site(kafka: Kafka, tmp_path: Path) -> Site:
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = tmp_path / "thermocline.toml"
    config.write_text(configuration(tmp_path, kafka.bootstrap, port))
    return Site(config, port)


def configuration(folder: Path, bootstrap: str, port: int) -> str:
    catalog = "\n".join(
        f"{key} = {json.dumps(value)}" for key, value in sqlite_catalog(folder).items()
    )
    return (
        f'[catalogs.lake]\n{catalog}\n[kafka]\n"bootstrap.servers" = "{bootstrap}"\n'
        f'[server]\nport = {port}\npin_refresh_s = 0.2\n[tier]\nmaster = "local[2]"\n'
    )


@dataclass(frozen=True)
class Serving:
    """``thermocline serve``: the supervisor, and how long it took to answer."""

    supervisor: subprocess.Popen[str]
    started_in_s: float

    def child(self) -> psutil.Process:
        """The process that holds the server."""
        [found] = psutil.Process(self.supervisor.pid).children()
        return found


@pytest.fixture
def serving(site: Site) -> Iterator[Serving]:
    began = time.monotonic()
    process = site.start("serve")
    tree: list[psutil.Process] = []
    try:
        _until(site.answers, START_TIMEOUT_S, process)
        tree = psutil.Process(process.pid).children()
        yield Serving(process, time.monotonic() - began)
    finally:
        # The supervisor first, or it starts another; the server holds the pipes that are read to their end.
        process.kill()
        for left in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                left.kill()
        process.communicate()


def _until(
    holds: Callable[[], bool], timeout_s: float, process: subprocess.Popen[str] | None = None
) -> float:
    """Wait for it; how long it took."""
    began = time.monotonic()
    while not holds():
        assert process is None or process.poll() is None, "the command ended"
        assert time.monotonic() - began < timeout_s, f"not within {timeout_s:g} s"
        time.sleep(0.05)
    return time.monotonic() - began


def test_a_killed_server_answers_again_on_the_same_port(site: Site, serving: Serving) -> None:
    killed = serving.child()
    killed.send_signal(signal.SIGKILL)
    _until(lambda: not killed.is_running() or killed.status() == psutil.STATUS_ZOMBIE, 5)
    took_s = _until(site.answers, START_TIMEOUT_S, serving.supervisor)
    assert took_s < max(RESTART_S, serving.started_in_s + RESTART_DELAY_S)
    assert serving.child().pid != killed.pid
    # And it stops in order.
    child = serving.child()
    serving.supervisor.send_signal(signal.SIGTERM)
    _, err = serving.supervisor.communicate(timeout=30)
    assert serving.supervisor.returncode == 0
    assert not child.is_running()
    assert site.is_free()
    assert "Traceback" not in err
    assert (
        "thermocline: the server process ended with signal 9; starting it again in 0.1 s" in err
    )


def test_a_killed_supervisor_leaves_no_server_behind(site: Site, serving: Serving) -> None:
    child = serving.child()
    serving.supervisor.kill()
    child.wait(timeout=30)
    assert site.is_free()


def events(start: int, stop: int) -> list[bytes]:
    return [
        json.dumps({"id": n, "name": f"row {n}", "seen": "2026-01-02T03:04:05Z"}).encode()
        for n in range(start, stop)
    ]


def statuses(site: Site) -> list[dict[str, Any]]:
    code, out, err = site.run("status", "--json")
    assert (code, err) == (0, "")
    found: list[dict[str, Any]] = json.loads(out)
    return found


@pytest.mark.spark
def test_a_topic_becomes_a_table_that_is_served_and_tiered(
    kafka: Kafka, site: Site, serving: Serving
) -> None:
    topic = kafka.topic(2)
    kafka.produce(topic, events(0, 5), partition=0)
    code, out, err = site.run("create", "lake.net.flows", "--topic", topic, "--infer")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"created lake.net.flows over topic {topic}; it starts at offsets 0: 0, 1: 0",
        "  id  int64",
        "  name  string",
        "  seen  timestamp[us, tz=UTC]",
    ]
    again = site.run("create", "lake.net.flows", "--topic", topic, "--infer")
    assert again == (
        2,
        "",
        "thermocline: lake.net.flows: the table exists already; choose another name, or drop it first.\n",
    )
    [before] = statuses(site)
    assert (before["table"], before["topic"], before["lag"]) == ("lake.net.flows", topic, 5)
    assert before["error"] is None
    offsets = ("partition", "log_start", "watermark", "log_end", "lag", "headroom")
    assert [tuple(held[name] for name in offsets) for held in before["partitions"]] == [
        (0, 0, 0, 5, 5, 0),
        (1, 0, 0, 0, 0, 0),
    ]
    counted = "SELECT count(*), sum(id), max(seen)::VARCHAR FROM lake.net.flows"
    listed = "SELECT count(*) FROM lake.net.flows"
    _until(lambda: site.answers(listed), 10)  # the server lists tables again every 0.2 s
    answer = site.ask(counted)
    assert answer == [(5, 10, "2026-01-02 03:04:05+00")]
    code, out, err = site.run("tier", "--once", "lake.net.flows")
    assert code == 0, err
    [line] = out.splitlines()
    assert " lake.net.flows: published 5 rows, 0 skipped, 0 tombstones; " in line
    assert line.endswith(", lag 0; by age")
    assert site.ask(counted) == answer
    [after] = statuses(site)
    assert [held["watermark"] for held in after["partitions"]] == [5, 0]
    assert after["lag"] == 0
    kafka.produce(topic, events(5, 7), partition=1)
    assert site.ask(counted) == [(7, 21, "2026-01-02 03:04:05+00")]
    kafka.delete_topic(topic)
    code, out, err = site.run("status", "--json")
    [refused] = json.loads(out)
    assert (code, err, refused["error_class"]) == (6, "", "UnknownTopic")
    assert refused["error"] == f"the Kafka cluster has no topic {topic}."
