"""A server under attack: the real one with its supervisor, a quiet user whose answers are timed, and an administrator.

What must stay theirs is written as ``tests.protocol.attacks.attacker.CANARY`` has it: rows, passwords, texts.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import psutil
import pyarrow as pa
from pyiceberg.catalog import load_catalog

from benchmarks.report import quantile
from tests.fixtures.server import sqlite_catalog
from tests.protocol.attacks.families import FAMILIES

SOON_S = 120.0
ROWS = 1_000
STATEMENTS = 2_000
#: A statement that fails so long before or after an end of the process was lost with it.
_FAREWELL_S, RESTART_S = 2.0, 5.0
_LOOK_S = 0.05
_ADMIN_EVERY_S = 0.5


def canary() -> str:
    return f"CANARY-{secrets.token_hex(6)}"


#: Each family has a user of its own: one whose statements ended the process is slowed down, which the next family
#: must not profit from. The idle callers of ``test_idle_callers`` are ``nobody``.
ATTACKERS = {
    family: "nobody" if family == "idle callers" else f"nobody_{number}"
    for number, family in enumerate(FAMILIES)
}
PASSWORD = "n"


@dataclass
class Phase:
    """What one user met for a while."""

    load_before: float = field(default_factory=lambda: os.getloadavg()[0])
    load_after: float = 0.0
    took_s: list[float] = field(default_factory=list)
    #: When each answer that came had been asked for, and when it came.
    answers: list[tuple[float, float]] = field(default_factory=list)
    #: When a statement failed, and what was said.
    failures: list[tuple[float, str]] = field(default_factory=list)
    #: When the process was no longer there.
    ends: list[float] = field(default_factory=list)
    peak_rss: int = 0

    def add(self, began: float) -> None:
        now = time.monotonic()
        self.took_s.append(now - began)
        self.answers.append((began, now))

    @property
    def p50_ms(self) -> float:
        return 1e3 * quantile(self.took_s, 0.5)

    @property
    def p99_ms(self) -> float:
        return 1e3 * quantile(self.took_s, 0.99)

    @property
    def lost(self) -> list[str]:
        """What was said to statements that ended with the process, or came before the next one."""
        return [text for at, text in self.failures if self._is_lost(at)]

    @property
    def refusals(self) -> list[str]:
        return [text for at, text in self.failures if not self._is_lost(at)]

    @property
    def back_s(self) -> list[float]:
        """How long after each end the first answer came."""
        return [
            min(
                (came - end for began, came in self.answers if began >= end),
                default=float("inf"),
            )
            for end in self.ends
        ]

    def _is_lost(self, at: float) -> bool:
        return any(
            end - _FAREWELL_S <= at <= end + max(RESTART_S, back)
            for end, back in zip(self.ends, self.back_s, strict=True)
        )


class Quiet:
    """A user of the stock driver who asks small statements, one after the other."""

    def __init__(self, port: int, user: str, password: str, table: str) -> None:
        self._uri = f"grpc://127.0.0.1:{port}"
        self._login = {"username": user, "password": password}
        self._table = table
        self._mark = canary()
        self._stack = contextlib.ExitStack()
        self._cursor: adbc.Cursor | None = None
        self._statements = 0

    def ask(self, phase: Phase) -> None:
        """Ask one statement, once."""
        self._statements += 1
        number = self._statements % ROWS
        sql = f"SELECT id, name, '{self._mark}' AS mark FROM {self._table} WHERE id = {number}"
        began = time.monotonic()
        try:
            if self._cursor is None:
                self._connect()
            assert self._cursor is not None
            self._cursor.execute(sql)
            rows = self._cursor.fetchall()
        except adbc.Error as error:
            phase.failures.append((time.monotonic(), str(error)))
            self.close()
            time.sleep(_LOOK_S)
            return
        phase.add(began)
        assert [row[0] for row in rows] == [number]

    def _connect(self) -> None:
        connection = adbc.connect(self._uri, db_kwargs=self._login, autocommit=True)
        self._stack.enter_context(connection)
        self._cursor = connection.cursor()  # its connection closes it; twice is an error

    def close(self) -> None:
        if self._cursor is not None:
            with contextlib.suppress(adbc.Error):
                self._cursor.close()
            # A close that the server did not answer is tried again by the driver, which then counts below zero.
            self._cursor._closed = True
        self._cursor = None
        with contextlib.suppress(adbc.Error):
            self._stack.close()
        self._stack = contextlib.ExitStack()


class Siege:
    """``thermocline serve`` with its supervisor and the settings users get, but for its users and ``server``."""

    def __init__(self, folder: Path, server: str = "") -> None:
        self.folder = folder
        self.passwords = {
            "quiet": canary(),
            "admin": canary(),
            **dict.fromkeys(ATTACKERS.values(), PASSWORD),
        }
        self._tables(sqlite_catalog(folder))
        self._configure(sqlite_catalog(folder), server)
        #: The words of server and supervisor: why processes ended.
        self.said: list[str] = []
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "thermocline",
                "--config",
                str(folder / "thermocline.toml"),
                "serve",
            ],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        until = time.monotonic() + SOON_S
        while not (ports := re.findall(r"grpc://127\.0\.0\.1:(\d+)", "".join(self.said))):
            assert self.process.poll() is None, "".join(self.said[-20:])
            assert time.monotonic() < until
            time.sleep(_LOOK_S)
        self.port = int(ports[0])
        self.quiet = Quiet(self.port, "quiet", self.passwords["quiet"], "flows")
        self.admin = Quiet(self.port, "admin", self.passwords["admin"], "hidden")

    def _tables(self, properties: dict[str, str]) -> None:
        with closing(load_catalog("lake", **properties)) as catalog:
            catalog.create_namespace("default")
            for name in ("flows", "hidden"):
                rows = pa.table({"id": range(ROWS), "name": [canary() for _ in range(ROWS)]})
                catalog.create_table(f"default.{name}", rows.schema).append(rows)
            numbers = {column: pa.array(range(100), pa.int64()) for column in "abcdefgh"}
            nested = pa.array([{"x": n, "y": str(n)} for n in range(100)])
            rows = pa.table({**numbers, "s": nested, "l": pa.array([[n] for n in range(100)])})
            catalog.create_table("default.open", rows.schema).append(rows)

    def _configure(self, properties: dict[str, str], server: str) -> None:
        lines = [f'{key} = "{value}"' for key, value in properties.items()]
        users = [f'{user} = "{password}"' for user, password in self.passwords.items()]
        everybody = ", ".join(f'"{user}"' for user in self.passwords)
        (self.folder / "thermocline.toml").write_text(
            "\n".join(
                [
                    "[catalogs.lake]",
                    *lines,
                    f"[server]\nport = {_free_port()}\n{server}",
                    "[server.users]",
                    *users,
                    '[permissions.admin]\nusers = ["admin"]\ntables = ["*"]',
                    '[permissions.quiet]\nusers = ["quiet"]\ntables = ["lake.default.flows"]',
                    f'[permissions.open]\nusers = [{everybody}]\ntables = ["lake.default.open"]',
                ]
            )
        )

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if not line.startswith("{"):  # the audit log
                self.said.append(line)

    def server(self) -> psutil.Process | None:
        """The process that serves; None: there is none just now."""
        with contextlib.suppress(psutil.Error):
            children = psutil.Process(self.process.pid).children()
            if children and children[0].status() != psutil.STATUS_ZOMBIE:
                return children[0]
        return None

    def measure(self, is_over: Callable[[Phase], bool]) -> Phase:
        """Let the quiet user ask until it is over, the administrator now and then, and watch the process."""
        phase, over = Phase(), threading.Event()
        others = [
            threading.Thread(target=self._watch, args=(phase, over)),
            threading.Thread(target=self._administrate, args=(over,)),
        ]
        for thread in others:
            thread.start()
        try:
            while not is_over(phase):
                self.quiet.ask(phase)
        finally:
            over.set()
            for thread in others:
                thread.join()
        phase.load_after = os.getloadavg()[0]
        return phase

    def _watch(self, phase: Phase, over: threading.Event) -> None:
        served = self.server()
        while not over.wait(_LOOK_S):
            now = self.server()
            if served is not None and (now is None or now.pid != served.pid):
                phase.ends.append(time.monotonic())
            served = now
            with contextlib.suppress(psutil.Error):
                if now is not None:
                    phase.peak_rss = max(phase.peak_rss, now.memory_info().rss)

    def _administrate(self, over: threading.Event) -> None:
        """What must not come to others is in the server's memory all the time."""
        phase = Phase()
        while not over.wait(_ADMIN_EVERY_S):
            self.admin.ask(phase)

    @contextlib.contextmanager
    def attacked(
        self, family: str, *options: str, seconds: float, seed: int = 0
    ) -> Iterator[Attacks]:
        """Within the block, processes attack by this family, one after the other if they end."""
        attacks = Attacks(
            self, family, ["--seconds", str(seconds), "--seed", str(seed), *options]
        )
        try:
            yield attacks
        finally:
            attacks.stop()

    def recover(self) -> None:
        """Wait until what was attacked has ended, as far as it shows: the process is there and has little to do."""
        until = time.monotonic() + SOON_S
        while time.monotonic() < until:
            served = self.server()
            with contextlib.suppress(psutil.Error):
                if served is not None and served.cpu_percent(1.0) < 20.0:
                    return
            time.sleep(_LOOK_S)

    def close(self) -> None:
        self.quiet.close()
        self.admin.close()
        self.process.terminate()
        try:
            self.process.wait(SOON_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reading.join(SOON_S)
        assert self.process.stderr is not None
        self.process.stderr.close()


class Attacks:
    """The processes of one family, of which one is there at a time, and what they noted."""

    def __init__(self, siege: Siege, family: str, options: list[str]) -> None:
        self._notes = siege.folder / "notes.json"
        self._notes.unlink(missing_ok=True)
        self._command = [
            sys.executable, "-m", "tests.protocol.attacks", str(siege.port), str(self._notes),
            "--family", family, "--user", ATTACKERS[family], "--password", PASSWORD, *options,
        ]  # fmt: skip
        self.starts = 0
        self.noted: list[dict[str, Any]] = []
        self._start()

    def _start(self) -> None:
        self.starts += 1
        # Another seed each time, or the lie that ended the last one ends the next.
        self._process = subprocess.Popen(
            [*self._command, "--start", str(self.starts)], stdin=subprocess.DEVNULL
        )

    def is_over(self) -> bool:
        """Whether they have had their time. One that was ended by what it sent is started again."""
        code = self._process.poll()
        if code is None or code == 0:
            return code == 0
        self._note()
        self._start()
        return False

    def wait(self, timeout_s: float) -> None:
        self._process.wait(timeout_s)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._note()

    def _note(self) -> None:
        with contextlib.suppress(OSError):
            self.noted.append(json.loads(self._notes.read_text()))
            self._notes.unlink()


def _free_port() -> int:
    """The same for each process of a server: with 0 the next one would have another."""
    with socket.socket() as batch:
        batch.bind(("127.0.0.1", 0))
        port: int = batch.getsockname()[1]
        return port
