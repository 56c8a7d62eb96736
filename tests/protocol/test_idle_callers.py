"""Callers that begin a call and leave it idle, in each of its phases, and what that costs other users."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
import pytest
from pyarrow import flight

from proxy.access.authentication.callers import Access, FixedUsers
from proxy.access.limits import UserLimits
from proxy.flightsql.state.calls import MAX_CALLS
from tests.harness.canned import CannedBackend, CannedServer, serve
from tests.harness.idle_callers import (
    PHASES,
    ROW,
    SOON_S,
    USERS,
    Idler,
    half_headers,
    login,
    read,
)
from tests.harness.wire import command, fetched, prepare, select

#: What kept everybody out, and more than one user may have of everything there is.
MANY = 530


OPEN_CALLS = {
    "an upload without a message": 500,
    "an upload without a row": 500,
    "an answer that nobody reads": 25,
}


@pytest.fixture
def canned_server(backend: CannedBackend) -> Iterator[CannedServer]:
    server = serve(backend, Access(FixedUsers(USERS).verify), stream_wait_s=0.1)
    yield CannedServer(server, backend)
    server.stop(10)


def _live(canned_server: CannedServer) -> int:
    return len(canned_server.server.gate.calls._live)


@pytest.mark.parametrize("phase", PHASES)
def test_calls_that_one_user_leaves_idle_keep_no_other_out(
    canned_server: CannedServer, phase: str
) -> None:
    many = 40 if PHASES[phase] in (read, half_headers) else MANY
    with (
        closing(flight.connect(canned_server.uri)) as client,
        closing(Idler(canned_server)) as idler,
    ):
        ada = login(client, "ada")
        for number in range(many):
            if _begin(phase, idler) and number % 50 == 0:
                assert fetched(client, "SELECT 1 AS a", ada) == [{"a": 1}]
        for user in ("ada", "bob"):
            assert fetched(client, "SELECT 1 AS a", login(client, user)) == [{"a": 1}]
        # As many as a share of all, or of the places; what has sent no message costs no thread but for uploads.
        until = time.monotonic() + SOON_S
        while phase in OPEN_CALLS and _live(canned_server) < OPEN_CALLS[phase]:
            assert time.monotonic() < until
            _begin(phase, idler)  # a busy machine refuses some of the first
            time.sleep(0.05)
        assert _live(canned_server) < MAX_CALLS


def _begin(phase: str, idler: Idler) -> bool:
    """Begin a call; False: it was refused, or what came before it was."""
    try:
        PHASES[phase](idler)
    except (flight.FlightError, pa.ArrowException, OSError):
        return False
    return True


@pytest.mark.parametrize("phase", ["an upload without a row", "an answer that nobody reads"])
def test_a_call_that_is_left_idle_ends_and_its_thread_with_it(
    backend: CannedBackend, phase: str
) -> None:
    limits = UserLimits(upload_idle_s=0.3, reader_idle_s=0.3)
    server = serve(backend, Access(FixedUsers(USERS).verify), limits_of=lambda *_: limits)
    canned_server = CannedServer(server, backend)
    with closing(Idler(canned_server)) as idler:
        for _ in range(5):
            PHASES[phase](idler)
        until = time.monotonic() + SOON_S
        while _live(canned_server):
            assert time.monotonic() < until
            time.sleep(0.05)
    assert server.stop(10)


def test_a_connection_that_others_use_is_left_alone(backend: CannedBackend) -> None:
    """As behind a proxy: what is idle there counts in its user's share until its client leaves."""
    limits = UserLimits(upload_idle_s=0.3)
    server = serve(backend, Access(FixedUsers(USERS).verify), limits_of=lambda *_: limits)
    with closing(flight.connect(server_uri := f"grpc://127.0.0.1:{server.port}")) as client:
        assert server_uri
        ada, nobody = login(client, "ada"), login(client, "nobody")
        handle = prepare(client, "SELECT ?::BIGINT", nobody).prepared_statement_handle
        info = client.get_flight_info(select("trick slow"), ada)
        reader = client.do_get(info.endpoints[0].ticket, ada)
        assert reader.read_chunk().data.num_rows == 1
        bound = command("CommandPreparedStatementQuery", prepared_statement_handle=handle)
        writer, _ = client.do_put(bound, ROW, nobody)
        time.sleep(2)
        assert fetched(client, "SELECT 1 AS a", ada) == [{"a": 1}]
        reader.cancel()
        del writer
    server.stop(10)
