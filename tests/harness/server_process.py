"""``thermocline serve`` as a process that signals are sent to."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import adbc_driver_flightsql.dbapi as adbc
from adbc_driver_flightsql import DatabaseOptions
from pyarrow import flight

from tests.fixtures.certificates import Authority
from tests.fixtures.server import sqlite_catalog

SOON_S = 180
DRAIN_S = 120


def reloadable_configuration(
    folder: Path, rest: str = "", server: str = "", audit_log: str = "off"
) -> str:
    catalog = "".join(f'{key} = "{value}"\n' for key, value in sqlite_catalog(folder).items())
    return (
        f"[catalogs.lake]\n{catalog}[access]\n"
        f'tls_certificate = "{folder}/server.pem"\ntls_key = "{folder}/server.key"\n'
        f'[server]\nport = 0\ndrain_s = {DRAIN_S}\naudit_log = "{audit_log}"\n{server}{rest}'
    )


class ServerProcess:
    """``thermocline serve`` with its supervisor, and what it says."""

    def __init__(self, folder: Path, audit_log: str = "off") -> None:
        self.folder = folder
        self.audit_log = audit_log
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
        self.config.write_text(
            reloadable_configuration(self.folder, rest, server, self.audit_log)
        )

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
