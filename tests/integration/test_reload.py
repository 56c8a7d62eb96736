"""A real server process, told by signals: to read its settings again, and to stop when its statements are over."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest

from tests.fixtures.certificates import Authority
from tests.harness.server_process import (
    DRAIN_S,
    SOON_S,
    ServerProcess,
)
from tests.harness.wire import bearer, refused, select

#: More than what gRPC sends ahead of a reader.
ROWS = 20_000_000
LARGE = f"SELECT * FROM range({ROWS})"


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[ServerProcess]:
    served = ServerProcess(tmp_path)
    yield served
    served.stop()


def test_settings_and_certificate_change_while_it_runs_and_statements_may_end(
    serving: ServerProcess,
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
