"""Hostile statements against a real server process: nothing is read or written, nothing ends it, all end in time.

Files with marks lie in the warehouse, beside it and in a table the caller may not read. No mark may come back, no
file may change, and no error may hold a traceback, a path or a setting.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import flight
from pyiceberg.catalog import load_catalog

from tests.fixtures.server import sqlite_catalog
from tests.harness.configurations import DEADLINE_S, MAX_PROCESS_BYTES, hostile_configuration
from tests.harness.error_statuses import LEAKS
from tests.harness.hostile_statements import LARGE
from tests.harness.wire import bearer, prepare, select

DATA = Path(__file__).parent / "data"
MARK = "do-not-read-me"
#: What a call may take beyond that, on a machine that is not shared; where it is, so many times as long as a
#: statement that does nothing takes just then.
GRACE_S, NOTHINGS = 1.0, 10
PATIENCE_S = 60.0
TRIES = 3
SETTINGS = re.compile(r"allowed_directories|temp_directory|enable_external_access|lock_config")


def lines(name: str) -> list[str]:
    text = (DATA / name).read_text()
    return [line for line in text.splitlines() if line and not line.startswith("-- ")]


@dataclass
class Besieged:
    """A server process, and the places around it."""

    folder: Path
    process: subprocess.Popen[str]
    said: list[str] = field(default_factory=list)
    port: int = 0

    @property
    def outside(self) -> Path:
        return self.folder / "outside.csv"

    @property
    def root(self) -> Path:
        return self.folder / "warehouse"

    @property
    def scratch(self) -> Path:
        return self.folder / "scratch"

    def files(self) -> dict[str, str]:
        """Every file but the server's scratch, by its content."""
        return {
            str(path.relative_to(self.folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in self.folder.rglob("*")
            if path.is_file() and self.scratch not in path.parents
        }

    def filled(self, sql: str) -> str:
        for name, path in (
            ("outside", self.outside),
            ("root", self.root),
            ("spill", self.scratch),
        ):
            sql = sql.replace("{" + name + "}", str(path))
        return sql

    def read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)

    def check_alive(self) -> None:
        assert self.process.poll() is None, "".join(self.said[-20:])


@pytest.fixture(scope="module")
def siege(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    folder = tmp_path_factory.mktemp("besieged")
    properties = sqlite_catalog(folder)
    (folder / "scratch").mkdir()
    (folder / "outside.csv").write_text(f"a\n{MARK}\n")
    marked = pa.table({"mark": [MARK], "bytes": pa.array([7], pa.int64())})
    with closing(load_catalog("lake", **properties)) as catalog:
        catalog.create_namespace("default")
        rows = pa.table({"bytes": pa.array([1, 2, 3], pa.int64())})
        catalog.create_table("default.flows", rows.schema).append(rows)
        catalog.create_table("default.hidden", marked.schema).append(marked)
    (folder / "warehouse" / "x.csv").write_text(f"a\n{MARK}\n")
    pq.write_table(marked, folder / "warehouse" / "x.parquet")
    (folder / "thermocline.toml").write_text(hostile_configuration(folder, properties))
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "thermocline",
            "--config",
            str(folder / "thermocline.toml"),
            "serve",
            "--no-supervisor",
        ],
        env=os.environ | {"TMPDIR": str(folder / "scratch"), "SECRET_OF_THE_SERVER": MARK},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    result = Besieged(folder, process)
    reading = threading.Thread(target=result.read, daemon=True)
    reading.start()
    until = time.monotonic() + PATIENCE_S
    while not (ports := re.findall(r"127\.0\.0\.1:(\d+)", "".join(result.said))):
        result.check_alive()
        assert time.monotonic() < until
        time.sleep(0.05)
    result.port = int(ports[0])
    yield result
    process.terminate()
    process.wait(PATIENCE_S)
    reading.join(PATIENCE_S)
    assert process.stderr is not None
    process.stderr.close()


@dataclass
class Caller:
    """Somebody who may read ``flows`` and nothing else."""

    client: flight.FlightClient
    options: flight.FlightCallOptions
    siege: Besieged

    took_s: list[float] = field(default_factory=list)

    def ask(self, sql: str) -> pa.Table:
        with self.timed():
            info = self.client.get_flight_info(select(sql), self.options)
        with self.timed():
            reader = self.client.do_get(info.endpoints[0].ticket, self.options)
            table: pa.Table = reader.read_all()
        return table

    def prepare(self, sql: str) -> object:
        with self.timed():
            return prepare(self.client, sql, self.options)

    @contextmanager
    def timed(self) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.took_s.append(time.monotonic() - began)

    def attack(self, written: str) -> str:
        """Send a statement, each call of which ends in its time; what came back, which holds nothing it must not."""
        for _ in range(TRIES):
            self.took_s.clear()
            came = self.send(written)
            slowest_s = max(self.took_s)
            if slowest_s < DEADLINE_S + GRACE_S:
                return came
            self.took_s.clear()
            self.check_answers()
            if slowest_s < DEADLINE_S + GRACE_S + NOTHINGS * max(self.took_s):
                return came
        raise AssertionError(f"{slowest_s:.1f} s: {written[:200]}")

    def send(self, written: str) -> str:
        """Send a statement both ways; what came back of the first."""
        sql = self.siege.filled(written)
        came = []
        for send in (self.ask, self.prepare):
            try:
                answer = send(sql)
                text = str(answer.to_pylist()) if isinstance(answer, pa.Table) else str(answer)
            except (pa.ArrowException, KeyError, NotImplementedError) as error:
                text = str(error)
                # What the caller wrote may come back to it, nothing else of the machine.
                assert not LEAKS.search(text.replace(sql, "")), text
                assert "Internal error" not in text, (written, text)
                if written == sql:
                    assert str(self.siege.folder) not in text, text
                    assert not SETTINGS.search(text) or SETTINGS.search(written), text
            except UnicodeEncodeError:
                text = ""  # not a text to this client
            assert MARK not in text, (written, text)
            came.append(text)
        if written.startswith(("USE", "SET", "RESET")):
            self.options = login(self.client)  # a session may change itself, and nothing else
        return came[0]

    def check_answers(self) -> None:
        self.siege.check_alive()
        assert self.ask("SELECT sum(bytes)::BIGINT AS s FROM flows").to_pylist() == [{"s": 6}]


def login(client: flight.FlightClient) -> flight.FlightCallOptions:
    _, token = client.authenticate_basic_token("ada", "secret")
    return bearer(token.decode().removeprefix("Bearer "))


@pytest.fixture(scope="module")
def caller(siege: Besieged) -> Iterator[Caller]:
    with closing(flight.connect(f"grpc://127.0.0.1:{siege.port}")) as client:
        result = Caller(client, login(client), siege)
        result.check_answers()
        yield result


#: Tables somebody else may read, by every way to name them.
HIDDEN = [
    "SELECT * FROM hidden",
    "SELECT * FROM lake.default.hidden",
    'SELECT * FROM "HIDDEN"',
    'SELECT * FROM "hidden$cold"',
    'SELECT * FROM "hidden$tail"',
    'SELECT * FROM "hidden$seam"',
    "SELECT * FROM flows, hidden",
    "SELECT bytes FROM flows UNION ALL SELECT bytes FROM hidden",
    "SELECT * FROM flows WHERE bytes IN (SELECT bytes FROM hidden)",
    "SELECT (SELECT mark FROM hidden)",
    "WITH h AS (SELECT * FROM hidden) SELECT * FROM h",
    "SELECT * FROM flows NATURAL JOIN hidden",
    "DESCRIBE hidden",
    "SUMMARIZE hidden",
    "EXPLAIN SELECT * FROM hidden",
    "SELECT hidden.mark FROM flows",
    "FROM hidden",
    "TABLE hidden",
    "SELECT column_name FROM information_schema.columns WHERE column_name = 'mark'",
    "SELECT table_name FROM information_schema.tables WHERE table_name LIKE 'hid%'",
    'SELECT * FROM "__tc:lake.default.hidden:all"',
    'SELECT * FROM "__tc:lake.default.flows:all"',
    "PIVOT hidden ON mark IN ('x') USING sum(bytes)",
]
#: Texts that are strange rather than costly.
STRANGE = [
    "",
    "\0",
    "SELECT '\0'",
    'SELECT 1 AS "\0"',
    'SELECT * FROM "флоу"',
    'SELECT * FROM "\U0001f4a9"',
    'SELECT * FROM "\u202eswolf"',
    'SELECT * FROM "flows\u0000"',
    'SELECT * FROM "\u017fecret"',
    'SELECT * FROM "ﬂows"',
    "SELECT * FROM ﬂows",
    "SELECT\u00a0*\u2003FROM\u3000flows",
    "SELECT '\ufeff' FROM \ufeffflows",
    'SELECT 1 AS "' + "x" * 100_000 + '"',
    'SELECT * FROM "' + "x" * 100_000 + '"',
    'SELECT * FROM "' + "é" * 60_000 + '"',
    "SELECT " + "x." * 10_000 + "y",
    "SELECT '" + "\\" * 100_000 + "'",
    "SELECT '" + "x" * (1 << 20) + "'",
    "SELECT length('" + "x" * 1_000_000 + "')",
    "SELECT $$" + "$" * 100_000 + "$$",
    "/*" * 10_000 + "SELECT 1",
    "--" * 10_000 + "\nSELECT 1",
    "SELECT " + "-" * 100_001 + "1",
    "SELECT " + "NOT " * 50_000 + "true",
    "SELECT 1" + ";" * 100_000,
    "SELECT ?" + " + ?" * 5_000,
    "SELECT $1, $100000000",
    "SELECT " + ",".join(f"{number} AS c{number}" for number in range(5_000)),
    "WITH " + ",".join(f"c{n} AS (SELECT {n})" for n in range(5_000)) + " SELECT 1",
    "SELECT * FROM " + ", ".join(["flows"] * 2_000),
    "SELECT 1 WHERE " + " OR ".join(["1 = 1"] * 15_000),
    "SELECT 1e999999999, 0x" + "f" * 100_000,
    "SELECT " + "9" * 100_000,
    "SELECT DATE '999999999-01-01', INTERVAL '9999999999999999999 years'",
]


def test_the_list_is_long() -> None:
    sent = [
        *lines("hostile_statements.sql"),
        *lines("costly_statements.sql"),
        *HIDDEN,
        *STRANGE,
    ]
    assert len(set(sent)) == len(sent) >= 350


def test_nothing_is_read_written_or_ended(caller: Caller) -> None:
    before = caller.siege.files()
    for sql in (*lines("hostile_statements.sql"), *HIDDEN, *STRANGE, *LARGE.values()):
        caller.attack(sql)
        caller.siege.check_alive()
    caller.check_answers()
    assert caller.siege.files() == before


def test_hidden_tables_are_as_if_they_were_not(caller: Caller) -> None:
    """Of a table somebody may not read, errors and listings say what they say of one that is not there."""
    for sql in HIDDEN:
        other = sql.replace("hidden", "nosuch").replace("HIDDEN", "NOSUCH")
        reply, expected = caller.attack(sql), caller.attack(other)
        expected = expected.replace("nosuch", "hidden").replace("NOSUCH", "HIDDEN")
        assert _without_ids(reply) == _without_ids(expected), sql


def _without_ids(message: str) -> str:
    return re.sub(r"\((?:statement|request) [0-9a-f]{16}\)", "", message)


def check_costly(caller: Caller, statements: list[str]) -> None:
    before = caller.siege.files()
    for sql in statements:
        caller.attack(sql)
        caller.siege.check_alive()
    caller.check_answers()
    assert caller.siege.files() == before
    assert psutil.Process(caller.siege.process.pid).memory_info().rss < MAX_PROCESS_BYTES / 2
    assert not [line for line in caller.siege.said if "internal error" in line]


def test_what_only_a_limit_ends_is_ended_and_its_memory_comes_back(caller: Caller) -> None:
    """Every third of the list: some of its rows without end, of its memory, of its long values."""
    check_costly(caller, lines("costly_statements.sql")[::3])


@pytest.mark.soak
def test_all_that_only_a_limit_ends_is_ended(caller: Caller) -> None:
    check_costly(caller, lines("costly_statements.sql"))
