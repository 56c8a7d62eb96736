"""What the console's tabs take of other clients: statements a second and p99 with 50 tabs of 5 logins open, and with none.

Each tab asks as the pages' own script does (``thermocline/console/static/api.js``): when the answer of its login is due again.
Turns of none, of tabs that all show one table's seam, and of tabs over four pages follow each other; then tabs alone tell what a
statement of theirs takes of the server and of the console, in processor time. Drawing is a browser's, on another machine, and is
not here.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import multiprocessing
import random
import re
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from urllib.parse import urlencode

import click

from benchmarks.baseline import PlainDuckDB
from benchmarks.load import NEW_NUMBER, Clients, Question, plain_rows
from benchmarks.options import seed
from benchmarks.records import traffic
from benchmarks.report import Report, quantile, recorded
from benchmarks.usage import cpu_s
from benchmarks.world import TABLE, TOPIC, Serving, World, running_world
from connectors import child_guard

_SEAM = "seam?" + urlencode({"catalog": "lake", "schema": "bench", "table": "events"})
#: What the tabs of one login show, in turn.
_PAGES = {"one page": (_SEAM,), "four pages": (_SEAM, "tables", "running", "health")}
_PARTITIONS, _HOT_ROWS, _KEYS = 4, 10_000, 100
#: Records a second meanwhile: the seam moves.
_RATE = 50
_LOGINS = 5
#: Of each turn, what goes before it counts: connecting, first statements, caches.
_WARM_UP = 0.25
_PERIOD_S = 1.0
_START_TIMEOUT_S = 60.0
_POINT = (
    f"SELECT id, src, dst, bytes FROM {{table}} WHERE id = {{key}} AND bytes < {NEW_NUMBER}"
)


@click.command()
@click.option("--tabs", type=click.IntRange(1), default=50, show_default=True)
@click.option("--clients", type=click.IntRange(1), default=8, show_default=True)
@click.option("--seconds", type=float, default=20.0, show_default=True, help="Of each turn.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@seed
@click.pass_obj
def command(
    results: Path, tabs: int, clients: int, seconds: float, rounds: int, seed: int
) -> None:
    """Ask points by ADBC while tabs of the console are open, and while none is."""
    with (
        recorded(results, "tabs") as report,
        running_world(partitions=_PARTITIONS, seed=seed) as world,
    ):
        world.produce(_HOT_ROWS)
        questions = _questions(world, seed)
        with (
            world.server() as server,
            running_console(world, server) as console,
            traffic(
                world.broker.bootstrap, TOPIC, partitions=_PARTITIONS, rate=_RATE, seed=seed
            ),
        ):
            turns = _Turns(report, server, console, questions, LoadSize(tabs, clients))
            turns.run(seconds, rounds)


def _questions(world: World, seed: int) -> list[Question]:
    questions = []
    with contextlib.closing(PlainDuckDB(world, ())) as duck:
        for key in random.Random(seed).sample(range(_HOT_ROWS), _KEYS):
            _, answer = duck.timed(f"SELECT id, src, dst, bytes FROM hot WHERE id = {key}")
            sql = _POINT.replace("{table}", str(TABLE)).replace("{key}", str(key))
            questions.append(Question("point", sql, plain_rows(answer)))
    return questions


@dataclass(frozen=True, slots=True)
class LoadSize:
    tabs: int
    clients: int


@dataclass(frozen=True, slots=True)
class RunningConsole:
    """``port`` of its pages on this machine."""

    port: int
    pid: int


@contextlib.contextmanager
def running_console(world: World, server: Serving) -> Iterator[RunningConsole]:
    """Run ``thermocline console`` in a process of its own."""
    log = world.folder / "console.log"
    log.write_text("")
    command = [sys.executable, "-m", "thermocline", "console", "--server", server.uri]
    with child_guard.start(log, [*command, "--port", "0"]) as process:
        try:
            pid = child_guard.command_id(process)
            deadline_s = time.monotonic() + _START_TIMEOUT_S
            while (match := re.search(r"is on http://[\d.]+:(\d+)/", log.read_text())) is None:
                if process.poll() is not None or time.monotonic() > deadline_s:
                    raise RuntimeError(f"the console did not start: {log.read_text()[-500:]}")
                time.sleep(0.05)
            assert pid is not None
            yield RunningConsole(int(match[1]), pid)
        finally:
            child_guard.release(process)
            process.wait(_START_TIMEOUT_S)


class Tab(threading.Thread):
    """One tab: asks its page's document when that of its login is due, until ``stop``."""

    def __init__(self, port: int, cookie: str, page: str, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self._headers = {"cookie": cookie}
        self._page = page
        self._ended = stop
        self.answers = 0
        #: How long each answer was good for yet, in seconds: more than one of a server that is busy.
        self.dues_s: list[float] = []
        self.errors: list[str] = []

    def run(self) -> None:
        while not self._ended.is_set():
            try:
                pause_s = self._ask()
            except (OSError, http.client.HTTPException) as error:
                self.errors.append(repr(error))
                self._connection.close()
                pause_s = _PERIOD_S
            self._ended.wait(pause_s)
        self._connection.close()

    def _response(self) -> http.client.HTTPResponse:
        self._connection.request("GET", f"/api/{self._page}", headers=self._headers)
        return self._connection.getresponse()

    def _ask(self) -> float:
        try:
            response = self._response()
        except http.client.RemoteDisconnected:  # as browsers do where it was idle for long
            response = self._response()
        body = response.read()
        if response.status not in (200, 304):
            self.errors.append(f"{response.status} {body[:200]!r}")
            return 2 * _PERIOD_S
        if tag := response.headers["etag"]:
            self._headers["if-none-match"] = tag
        self.answers += 1
        due_s = float(response.headers["x-due-ms"]) / 1000
        self.dues_s.append(due_s)
        return max(0.1, due_s)


def _opened_tabs(
    connection: Connection, port: int, pages: Sequence[str], size: LoadSize
) -> None:
    """Keep tabs open until the other end of ``connection`` sends something; send back what they saw."""
    cookies = [_logged_in(port) for _ in range(_LOGINS)]
    stop = threading.Event()
    tabs = [
        Tab(port, cookies[number % _LOGINS], pages[number // _LOGINS % len(pages)], stop)
        for number in range(size.tabs)
    ]
    for tab in tabs:
        tab.start()
    connection.send("open")
    connection.recv()
    stop.set()
    for tab in tabs:
        tab.join()
    connection.send(
        (
            sum(tab.answers for tab in tabs),
            [due_s for tab in tabs for due_s in tab.dues_s],
            [error for tab in tabs for error in tab.errors],
        )
    )


def _logged_in(port: int) -> str:
    host = f"127.0.0.1:{port}"
    headers = {"content-type": "application/json", "origin": f"http://{host}"}
    with contextlib.closing(http.client.HTTPConnection(host, timeout=30)) as connection:
        connection.request("POST", "/api/login", json.dumps({}), headers)
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(f"no login: {response.read()!r}")
        return response.headers["set-cookie"].partition(";")[0]


class _Turns:
    """Gathers what the clients saw beside tabs and without, and what tabs take."""

    def __init__(
        self,
        report: Report,
        server: Serving,
        console: RunningConsole,
        questions: list[Question],
        size: LoadSize,
    ) -> None:
        self._report = report
        self._server = server
        self._console = console
        self._questions = questions
        self._size = size
        self._seeds = itertools.count(1)

    def run(self, seconds: float, rounds: int) -> None:
        self._load(seconds / 2)  # not counted: first statements, threads and pools
        rates: defaultdict[str, list[float]] = defaultdict(list)
        worst_ms: defaultdict[str, list[float]] = defaultdict(list)
        for number in range(rounds):
            order = ["none", *_PAGES]
            for name in order if number % 2 else reversed(order):
                with self._tabs(name):
                    rate, took_ms = self._load(seconds)
                rates[name].append(rate)
                worst_ms[name].append(quantile(took_ms, 0.99))
                print(f"{name:12} {rate:8.1f} statements/s  p99 {worst_ms[name][-1]:.1f} ms")
        self._report.details["rates"], self._report.details["p99_ms"] = rates, worst_ms
        for name in ("none", *_PAGES):
            what = f"{self._size.tabs} tabs of {_LOGINS} logins, {name}"
            if name == "none":
                what = "no tab open"
            self._report.figure(f"{what}: statements", median(rates[name]), "1/s")
            self._report.figure(f"{what}: p99", median(worst_ms[name]), "ms")
        for name in _PAGES:
            what = f"tabs open / none, {name}"
            self._report.figure(
                f"{what}: statements a second", _ratio(rates, name), "times", at_least=0.95
            )
            self._report.figure(f"{what}: p99", _ratio(worst_ms, name), "times", at_most=1.2)
        for name in _PAGES:
            self._alone(name, seconds)

    def _load(self, seconds: float) -> tuple[float, list[float]]:
        clients = Clients(
            self._server.uri,
            self._questions,
            count=self._size.clients,
            processes=1,
            seed=next(self._seeds),
        )
        load = clients.run(seconds)
        if load.wrong:
            raise RuntimeError(f"answers are wrong: {load.wrong[:3]}")
        spans = sorted(span for batch in load.spans.values() for span in batch)
        counted = [span for span in spans if span[0] > spans[0][0] + seconds * _WARM_UP]
        rate = len(counted) / (counted[-1][0] - counted[0][0])
        return rate, [took * 1000 for _, took in counted]

    @contextlib.contextmanager
    def _tabs(self, name: str) -> Iterator[None]:
        """Have tabs open in a process of their own; what they saw is among the report's details."""
        if name == "none":
            yield
            return
        spawn = multiprocessing.get_context("spawn")
        here, there = spawn.Pipe()
        arguments = (there, self._console.port, _PAGES[name], self._size)
        process = spawn.Process(target=_opened_tabs, args=arguments, daemon=True)
        process.start()
        there.close()
        began_s = time.monotonic()
        here.recv()
        time.sleep(_PERIOD_S)  # the first statement of each page
        yield
        here.send("close")
        answers, dues_s, errors = here.recv()
        process.join(_START_TIMEOUT_S)
        if errors:
            raise RuntimeError(f"tabs met errors: {errors[:3]}")
        self._report.details.setdefault("tabs", []).append(
            {
                "pages": name,
                "answers_a_second": answers / (time.monotonic() - began_s),
                "due_s, p50": quantile(dues_s, 0.5),
                "due_s, p99": quantile(dues_s, 0.99),
            }
        )

    def _alone(self, name: str, seconds: float) -> None:
        """Tell the processor time of what tabs ask, with no other client; of the console with what 50 tabs are answered."""
        statements = len(_PAGES[name]) * _LOGINS
        with self._tabs(name):
            before = self._used_s()
            began_s = time.monotonic()
            time.sleep(seconds)
            count = statements * (time.monotonic() - began_s) / _PERIOD_S
            used = self._used_s()
        for role in ("server", "console"):
            value = (used[role] - before[role]) * 1000 / count
            self._report.figure(
                f"a statement of tabs, {name}: {role}", value, "ms of processor"
            )

    def _used_s(self) -> dict[str, float]:
        used = cpu_s({"server": self._server.pid, "console": self._console.pid})
        return {
            role: used.get(role, 0.0) + used.get(f"{role} workers", 0.0)
            for role in ("server", "console")
        }


def _ratio(values: dict[str, list[float]], name: str) -> float:
    """Return the median of the ratios within each round."""
    return median(
        there / without for there, without in zip(values[name], values["none"], strict=True)
    )
