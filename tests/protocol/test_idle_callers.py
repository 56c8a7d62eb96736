"""Callers that begin a call and leave it idle, in each of its phases, and what that costs other users."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from proxy.access.authentication.callers import Access, FixedUsers
from proxy.flightsql.state.calls import MAX_CALLS
from proxy.flightsql.state.quotas import UserLimits
from tests.protocol.canned import CannedBackend
from tests.protocol.conftest import Served, serve
from tests.protocol.raw_http2 import RawConnection
from tests.protocol.wire import command, fetched, prepare, select

USERS = {"ada": "a", "bob": "b", "nobody": "n"}
#: What kept everybody out, and more than one user may have of everything there is.
MANY = 530
SOON_S = 60
_BASIC = f"Basic {base64.b64encode(b'nobody:n').decode()}"
_ROW = pa.schema([("1", pa.int64())])


def login(client: flight.FlightClient, user: str) -> flight.FlightCallOptions:
    token = client.authenticate_basic_token(user, USERS[user])
    return flight.FlightCallOptions(headers=[token], timeout=SOON_S)


class Idler:
    """A user who begins calls and leaves them. ``begin`` makes one; refusals are counted."""

    def __init__(self, served: Served) -> None:
        self._stack = ExitStack()
        self.port = served.port
        # A connection of its own: those of one process are shared else.
        self.client = self._stack.enter_context(
            closing(
                flight.connect(
                    served.uri, generic_options=[("grpc.use_local_subchannel_pool", 1)]
                )
            )
        )
        self.options = login(self.client, "nobody")
        self.raw = RawConnection(served.port)
        self._stack.callback(self.raw.close)
        self.handle = prepare(
            self.client, "SELECT ?::BIGINT", self.options
        ).prepared_statement_handle

    def keep(self, held: Any) -> None:
        self._stack.callback(held.close if isinstance(held, RawConnection) else lambda: held)

    def close(self) -> None:
        self._stack.close()


def _bind(idler: Idler) -> None:
    bound = command("CommandPreparedStatementQuery", prepared_statement_handle=idler.handle)
    idler.keep(idler.client.do_put(bound, _ROW, idler.options))


def _update(idler: Idler) -> None:
    idler.keep(
        idler.client.do_put(
            command("CommandStatementUpdate", query="SET time_zone = 'UTC'"),
            _ROW,
            idler.options,
        )
    )


def _read(idler: Idler) -> None:
    info = idler.client.get_flight_info(
        select("SELECT range AS a FROM range(10_000_000)"), idler.options
    )
    idler.keep(idler.client.do_get(info.endpoints[0].ticket, idler.options))


def _raw(method: str) -> Callable[[Idler], None]:
    return lambda idler: idler.raw.begin(method, _BASIC)


def _half_headers(idler: Idler) -> None:
    connection = RawConnection(idler.port)
    connection.begin("GetFlightInfo", _BASIC, is_whole=False)
    idler.keep(connection)


PHASES: dict[str, Callable[[Idler], None]] = {
    "headers, not all of them": _half_headers,
    "a call without its message": _raw("GetFlightInfo"),
    "an action without its message": _raw("DoAction"),
    "a handshake without a message": _raw("Handshake"),
    "an exchange without a message": _raw("DoExchange"),
    "an upload without a message": _raw("DoPut"),
    "an upload without a row": _bind,
    "an upload that changes nothing": _update,
    "an answer that nobody reads": _read,
}


KEPT = {
    "an upload without a message": 500,
    "an upload without a row": 500,
    "an answer that nobody reads": 25,
}


@pytest.fixture
def served(backend: CannedBackend) -> Iterator[Served]:
    server = serve(backend, Access(FixedUsers(USERS).verify), stream_wait_s=0.1)
    yield Served(server, backend)
    server.stop(10)


def _live(served: Served) -> int:
    return len(served.server._parts.calls._live)


@pytest.mark.parametrize("phase", PHASES)
def test_calls_that_one_user_leaves_idle_keep_no_other_out(served: Served, phase: str) -> None:
    many = 40 if PHASES[phase] in (_read, _half_headers) else MANY
    with closing(flight.connect(served.uri)) as client, closing(Idler(served)) as idler:
        ada = login(client, "ada")
        for number in range(many):
            try:
                PHASES[phase](idler)
            except (flight.FlightError, pa.ArrowException, OSError):
                continue  # refused, or what came before it was
            if number % 50 == 0:
                assert fetched(client, "SELECT 1 AS a", ada) == [{"a": 1}]
        for user in ("ada", "bob"):
            assert fetched(client, "SELECT 1 AS a", login(client, user)) == [{"a": 1}]
        # As many as a share of all, or of the places; what has sent no message costs no thread but for uploads.
        until = time.monotonic() + SOON_S
        while phase in KEPT and _live(served) < KEPT[phase]:
            assert time.monotonic() < until
            time.sleep(0.05)
        assert _live(served) < MAX_CALLS


@pytest.mark.parametrize("phase", ["an upload without a row", "an answer that nobody reads"])
def test_a_call_that_is_left_idle_ends_and_its_thread_with_it(
    backend: CannedBackend, phase: str
) -> None:
    limits = UserLimits(upload_idle_s=0.3, reader_idle_s=0.3)
    server = serve(backend, Access(FixedUsers(USERS).verify), limits_of=lambda *_: limits)
    served = Served(server, backend)
    with closing(Idler(served)) as idler:
        for _ in range(5):
            PHASES[phase](idler)
        until = time.monotonic() + SOON_S
        while _live(served):
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
        writer, _ = client.do_put(bound, _ROW, nobody)
        time.sleep(2)
        assert fetched(client, "SELECT 1 AS a", ada) == [{"a": 1}]
        reader.cancel()
        del writer
    server.stop(10)
