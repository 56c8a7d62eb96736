"""The client for people (``clients/python``): its own tests against a real server, here and on the oldest versions it takes."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import adbc_driver_flightsql.dbapi as flight_sql
import pyarrow as pa
import pytest

import thermocline_client
from planner.names import TableName
from tests.fixtures.server import SqlServer, serving, settings_of, sqlite_catalog
from tests.harness.canned import CannedServer
from tests.harness.environments import python_with
from tests.harness.ports import lasting_port
from thermocline_client import AnswerError, Connection, StatementAnswer
from thermocline_client.connecting import driver_options
from thermocline_client.superset_spec import ThermoclineEngineSpec

FOLDER = Path(__file__).parents[2] / "clients" / "python"
SOON_S = 5
#: The lowest versions that its ``pyproject.toml`` names, and what was current when those were.
OLDEST = (
    "adbc-driver-flightsql==1.0.0",
    "adbc-driver-manager==1.0.0",
    "pyarrow==14.0.2",
    "numpy==1.26.4",
    "pandas==2.1.4",
    "sqlalchemy==1.4.54",
    "ipython==8.18.1",
    "pytest==8.3.5",
)


@pytest.fixture(scope="module")
def wide_table(iceberg_server: SqlServer) -> Iterator[TableName]:
    value: object = 1
    for _ in range(30):
        value = {"s": value}
    rows = {
        "text": pa.array(["é<" * 5_000_000]),
        "bytes": pa.array([bytes(10_000_000)]),
        "numbers": pa.array([list(range(1_000_000))]),
        "deep": pa.array([value]),
    }
    name = iceberg_server.create_plain(pa.table(rows), name=TableName("lake", ("wide",), "t"))
    yield name
    # Other modules list what is there.
    with iceberg_server.catalog() as catalog:
        catalog.drop_table((*name.namespace, name.name))
        catalog.drop_namespace(name.namespace)
    iceberg_server.refresh()


def own_tests(python: str | Path, server: SqlServer, wide_table: TableName) -> str:
    """Run the client's tests with an interpreter that need not have the server's packages."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(FOLDER),
        "THERMOCLINE_TEST_URI": server.uri,
        "THERMOCLINE_TEST_WIDE_TABLE": str(wide_table),
    }
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", FOLDER, "-p", "no:cacheprovider",
         "-p", "no:randomly", "-p", "no:xdist", "-W", "error", FOLDER / "tests"],
        env=environment, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_client_passes_its_own_tests(
    iceberg_server: SqlServer, wide_table: TableName
) -> None:
    assert " passed" in own_tests(sys.executable, iceberg_server, wide_table)


@pytest.mark.tools
@pytest.mark.timeout(1_500)
def test_the_client_passes_them_on_the_oldest_versions(
    iceberg_server: SqlServer, wide_table: TableName
) -> None:
    assert " passed" in own_tests(python_with("client", OLDEST), iceberg_server, wide_table)


@pytest.mark.parametrize("sql", ["trick stuck_plan", "trick slow"])
def test_an_interrupt_ends_the_statement_on_the_server(
    canned_server: CannedServer, sql: str
) -> None:
    """Wherever the driver waits: for the plan, or amid the rows."""

    def interrupt(_rows: int, _seconds: float) -> None:
        if canned_server.backend.running.is_set():
            raise KeyboardInterrupt

    with thermocline_client.connect(canned_server.uri) as lake:
        with pytest.raises(KeyboardInterrupt):
            lake.ask(sql, progress=interrupt)
        assert canned_server.backend.interrupted.wait(SOON_S)
        assert len(lake.ask("SELECT 1")) == 1


def test_a_text_is_planned_and_read_and_not_prepared(canned_server: CannedServer) -> None:
    calls = canned_server.backend.calls
    with thermocline_client.connect(canned_server.uri) as lake:
        before = calls.copy()
        assert len(lake.ask("SELECT 1")) == 1
    made = calls - before
    assert (made["prepare"], made["plan"], made["open"]) == (0, 1, 1)


def ask_until_it_answers(lake: Connection, sql: str) -> StatementAnswer:
    """gRPC waits a second or two before it connects once more, and says until then that nothing answers."""
    for _ in range(100):
        with contextlib.suppress(AnswerError):
            return lake.ask(sql)
        time.sleep(0.2)
    return lake.ask(sql)


def test_a_connection_goes_on_after_the_server_was_started_again(tmp_path: Path) -> None:
    """By token and session of before it would not: the password goes with every call."""
    users = {"ada": "secret"}
    port = lasting_port()
    settings = settings_of({"lake": sqlite_catalog(tmp_path)}, {}, port=port, users=users)
    with contextlib.ExitStack() as stack:
        with serving(settings) as server:
            server.create_plain(pa.table({"id": [1, 2]}), name=TableName("lake", ("net",), "t"))
            lake = stack.enter_context(
                thermocline_client.connect(server.uri, user="ada", password=users["ada"])
            )
            assert len(lake.ask("SELECT * FROM lake.net.t")) == 2
        with pytest.raises(AnswerError, match="no Thermocline server answers at") as refusal:
            lake.ask("SELECT 1")
        assert refusal.value.is_passing
        with serving(settings):
            assert len(ask_until_it_answers(lake, "SELECT * FROM lake.net.t")) == 2


def test_a_wrong_password_is_the_servers_sentence(password_server: CannedServer) -> None:
    with (
        pytest.raises(AnswerError) as refusal,
        thermocline_client.connect(
            password_server.uri, user="ada", password="opensesame"
        ) as lake,
    ):
        lake.ask("SELECT 1")
    assert (refusal.value.status, refusal.value.is_passing) == ("Unauthenticated", False)
    assert "opensesame" not in str(refusal.value)


def test_to_import_it_loads_no_arrow_and_no_driver() -> None:
    program = "import sys, thermocline_client; print([n for n in ('pyarrow', 'adbc_driver_flightsql', 'numpy') if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"


def test_a_stop_in_superset_ends_what_runs_in_the_querys_session(tmp_path: Path) -> None:
    """By another connection of the same user, as a stop comes in another request."""
    settings = settings_of({"lake": sqlite_catalog(tmp_path)}, {}, users={"ada": "secret"})
    options = driver_options(user="ada", password="secret")
    errors: list[str] = []

    def run() -> None:
        try:
            running.execute("SELECT count(*) FROM range(10000000) a, range(10000000) b")
            running.fetchall()
        except flight_sql.Error as error:
            errors.append(str(error))

    with (
        serving(settings) as server,
        flight_sql.connect(server.uri, db_kwargs=options, autocommit=True) as first,
        flight_sql.connect(server.uri, db_kwargs=options, autocommit=True) as second,
        first.cursor() as running,
        second.cursor() as other,
    ):
        session = ThermoclineEngineSpec.get_cancel_query_id(running, None)
        assert not ThermoclineEngineSpec.cancel_query(other, None, session)
        thread = threading.Thread(target=run)
        thread.start()
        deadline_s = time.monotonic() + 20
        while not ThermoclineEngineSpec.cancel_query(other, None, session):
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        thread.join(20)
        assert not thread.is_alive()
    [error] = errors
    assert "was cancelled" in error
