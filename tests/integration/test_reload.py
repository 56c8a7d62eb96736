"""A real server process, told by signals: to read its settings again, and to stop when its statements are over."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest
from adbc_driver_flightsql import DatabaseOptions
from pyarrow import flight

from tests.fixtures.certificates import Authority
from tests.fixtures.server import sqlite_catalog
from tests.protocol.test_draining import refused
from tests.protocol.wire import bearer, select

SOON_S = 180
#: More than what gRPC sends ahead of a reader.
ROWS = 20_000_000
LARGE = f"SELECT * FROM range({ROWS})"
DRAIN_S = 120


def configuration(folder: Path, rest: str = "", server: str = "") -> str:
    catalog = "".join(f'{key} = "{value}"\n' for key, value in sqlite_catalog(folder).items())
    return (
        f"[catalogs.lake]\n{catalog}[access]\n"
        f'tls_certificate = "{folder}/server.pem"\ntls_key = "{folder}/server.key"\n'
        f'[server]\nport = 0\ndrain_s = {DRAIN_S}\naudit_log = "off"\n{server}{rest}'
    )


class Process:
    """``thermocline serve`` with its supervisor, and what it says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority("the first")
        self.write_certificate()
        self.write("")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "thermocline", "--config", str(self.config), "serve"],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said: list[str] = []
        self.changed = threading.Condition()
        self.reading = threading.Thread(target=self._read, daemon=True)
        self.reading.start()
        self.lock = self.says(r"file system .*")[0]
        self.port = int(self.says(r"serving Flight SQL on grpc\+tls://127\.0\.0\.1:(\d+)")[1])

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(SOON_S)
        self.reading.join(SOON_S)
        assert self.process.stderr is not None
        self.process.stderr.close()

    @property
    def config(self) -> Path:
        return self.folder / "thermocline.toml"

    def write(self, rest: str, server: str = "") -> None:
        self.config.write_text(configuration(self.folder, rest, server))

    def write_certificate(self) -> None:
        issued = self.authority.server()
        (self.folder / "server.pem").write_bytes(issued.certificate)
        (self.folder / "server.key").write_bytes(issued.key)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self.changed:
                self.said.append(line)
                self.changed.notify_all()

    def says(self, pattern: str) -> re.Match[str]:
        """Wait until it says so; what it said before does not count again."""

        def heard() -> re.Match[str] | None:
            while self.said:
                match = re.search(pattern, self.said.pop(0))
                if match is not None:
                    return match
            return None

        with self.changed:
            match = self.changed.wait_for(heard, SOON_S)
            assert match, f"it did not say {pattern}"
            return match

    def client(self) -> closing[flight.FlightClient]:
        return closing(
            flight.connect(
                f"grpc+tls://localhost:{self.port}",
                tls_root_certs=self.authority.certificate,
            )
        )

    @contextmanager
    def cursor(self, **login: str) -> Iterator[adbc.Cursor]:
        options = {
            DatabaseOptions.TLS_ROOT_CERTS.value: self.authority.certificate.decode(),
            **login,
        }
        uri = f"grpc+tls://localhost:{self.port}"
        with (
            adbc.connect(uri, db_kwargs=options, autocommit=True) as connection,
            connection.cursor() as cursor,
        ):
            yield cursor


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Process]:
    served = Process(tmp_path)
    yield served
    served.stop()


def test_settings_and_certificate_change_while_it_runs_and_statements_may_end(
    serving: Process,
) -> None:
    with serving.cursor() as cursor:
        cursor.execute("SELECT 1").fetchall()
    # Settings: users, a limit, and what takes a restart.
    serving.write('[server.users]\nada = "secret"\n', "max_result_rows = 2\nthreads = 2\n")
    serving.process.send_signal(signal.SIGHUP)
    serving.says("taken over by a restart only: server.threads")
    serving.says(r"taken over: server.max_result_rows, server.users")
    with pytest.raises(adbc.Error, match="needs a user name"), serving.cursor() as cursor:
        cursor.execute("SELECT 1")
    ada = {"username": "ada", "password": "secret"}
    with serving.cursor(**ada) as cursor:
        cursor.execute("SELECT 1").fetchall()
        with pytest.raises(adbc.Error, match="max_result_rows"):
            cursor.execute("SELECT * FROM range(3)").fetchall()
    # A typing error changes nothing.
    serving.write("[sever]\nmax_streams = 1\n")
    serving.process.send_signal(signal.SIGHUP)
    serving.says("former settings stay in force: .*sever")
    # Another certificate is seen without a signal.
    serving.authority = Authority("the second")
    serving.write_certificate()
    serving.says("the certificate was replaced")
    # And the end: what runs is read to its end, what comes is sent elsewhere.
    serving.write('[server.users]\nada = "secret"\n')
    serving.process.send_signal(signal.SIGHUP)
    serving.says("taken over: server.max_result_rows")
    with serving.client() as client:
        _, token = client.authenticate_basic_token("ada", "secret")
        options = bearer(token.decode().removeprefix("Bearer "))
        running, unread = (
            client.do_get(
                client.get_flight_info(select(LARGE), options).endpoints[0].ticket, options
            )
            for _ in range(2)
        )
        rows = running.read_chunk().data.num_rows
        assert unread.read_chunk().data.num_rows
        serving.process.send_signal(signal.SIGTERM)
        late = refused(lambda: client.get_flight_info(select("SELECT 1"), options), SOON_S)
        assert "shutting down" in late
        assert rows + running.read_all().num_rows == ROWS
        assert serving.process.poll() is None
        # A second signal ends what nobody reads.
        time.sleep(1.5)
        serving.process.send_signal(signal.SIGTERM)
        assert serving.process.wait(DRAIN_S / 2) == 0
        with pytest.raises(pa.ArrowException):
            unread.read_all()
