"""SQLAlchemy's own suite of dialects, of 2.x and of 1.4; its tables are made by a foreign writer, since the server only reads."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from multiprocessing.connection import Listener
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.exceptions import NoSuchTableError

from planner.names import TableName
from tests.fixtures.server import SqlServer, serving, settings_of, sqlite_catalog
from tests.harness.environments import python_with
from tests.harness.sqlalchemy_suite.not_here import NOT_HERE
from tests.harness.sqlalchemy_suite.writing import SCHEMA

pytestmark = [pytest.mark.tools, pytest.mark.timeout(3_000)]

ROOT = Path(__file__).parents[2]
#: What Superset 6.1 pins, beside drivers of today.
SQLALCHEMY_1_4 = (
    "sqlalchemy==1.4.54",
    "adbc-driver-flightsql==1.13.0",
    "pyarrow==26.0.1",
    "pytest==8.3.5",
)


class Writer:
    """Makes tables in a catalog as any Iceberg writer would, for a process that asks over a socket."""

    def __init__(self, server: SqlServer, listener: Listener) -> None:
        self._server = server
        self._listener = listener

    def run(self) -> None:
        with contextlib.suppress(EOFError, OSError), self._listener.accept() as connection:
            while True:
                what, (namespace, name), data = connection.recv()
                error = None
                try:
                    self._write(what, TableName("lake", (namespace,), name), data)
                except Exception as failure:
                    error = repr(failure)
                connection.send(error)

    def _write(self, what: str, table: TableName, data: bytes) -> None:
        place = (*table.namespace, table.name)
        with self._server.catalog() as catalog:
            if what in ("append", "empty"):
                opened = catalog.load_table(place)
                if what == "append":
                    opened.append(pa.ipc.open_stream(data).read_all())
                elif opened.scan().count():
                    opened.delete()
                self._server.refresh(table)
                return
            with contextlib.suppress(NoSuchTableError):
                catalog.drop_table(place)
            if what == "create":
                catalog.create_namespace_if_not_exists(table.namespace)
                catalog.create_table(place, pa.ipc.read_schema(pa.BufferReader(data)))
        # A new table may have the name of one that was dropped.
        self._server.refresh(*([table] if what == "create" else []))


@pytest.fixture
def written_server(tmp_path: Path) -> Iterator[tuple[SqlServer, str]]:
    """A server, and the address of the writer beside it."""
    address = str(tmp_path / "writer")
    with (
        serving(settings_of({"lake": sqlite_catalog(tmp_path)}, {})) as server,
        Listener(address, authkey=b"suite") as listener,
    ):
        # A schema without tables is none.
        server.create_plain(pa.table({"x": [1]}), name=TableName("lake", (SCHEMA,), "first"))
        writing = threading.Thread(target=Writer(server, listener).run, daemon=True)
        writing.start()
        yield server, address


def suite_python(version: str) -> str | Path:
    """The Python whose SQLAlchemy has this version: the tests' own, or one that has the client's packages alone."""
    return sys.executable if version == "2" else python_with("sqlalchemy", SQLALCHEMY_1_4)


@pytest.mark.parametrize(("version", "least"), [("2", 400), ("1.4", 240)])
def test_what_fails_of_the_suite_does_not_apply(
    written_server: tuple[SqlServer, str], version: str, least: int
) -> None:
    server, address = written_server
    done = subprocess.run(
        [suite_python(version), "-m", "pytest", "-q", "-rfE", "-c", os.devnull, "--rootdir", ROOT, "--noconftest",
         "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist", "-p", "tests.harness.sqlalchemy_suite.plugin",
         "--tb=line", ROOT / "tests" / "harness" / "sqlalchemy_suite" / "suite.py"],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'clients' / 'python'}",
             "SUITE_PORT": str(server.port), "SUITE_WRITER": address},
        cwd=ROOT, capture_output=True, text=True, timeout=2_400, check=False,
    )  # fmt: skip
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None, done.stdout + done.stderr
    failed = re.findall(
        r"^(?:FAILED|ERROR) \S*suite\.py::(\w+?)_thermocline\S*::(\w+)", done.stdout, re.M
    )
    assert {f"{group}.{test}" for group, test in failed} == NOT_HERE[version], done.stdout
    assert int(passed[1]) > least
