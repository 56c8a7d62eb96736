"""Giving up: the client leaves, asks to cancel, or the server stops."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest
from pyarrow import flight

from proxy.access.authentication.callers import Access
from proxy.flightsql import messages
from tests.harness.canned import CannedBackend, CannedServer, serve
from tests.harness.wire import bodies, fetched, packed, prepare, select, ticket

#: A client that leaves is noticed within 50 ms; the rest is for a busy machine.
SOON_S = 5
#: CancelStatus of Flight.proto.
CANCELLED, NOT_CANCELLABLE = 1, 3


class Background:
    """A call in another thread, and what it ended with."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self.error: BaseException | None = None
        self._call = call
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._call()
        except BaseException as error:
            self.error = error

    def ended(self) -> BaseException | None:
        self._thread.join(SOON_S)
        assert not self._thread.is_alive()
        return self.error


@pytest.mark.parametrize("where", ["prepare", "plan", "open"])
def test_a_client_that_gives_up_interrupts_the_backend_wherever_it_is(
    canned_server: CannedServer, client: flight.FlightClient, where: str
) -> None:
    sql = f"trick stuck_{where}"
    impatient = flight.FlightCallOptions(timeout=0.3)
    call = prepare if where == "prepare" else fetched
    with pytest.raises(flight.FlightTimedOutError):
        call(client, sql, impatient)
    assert canned_server.backend.running.is_set()
    assert canned_server.backend.interrupted.wait(SOON_S)


def test_a_reader_closed_early_ends_the_stream(canned_server: CannedServer) -> None:
    client = flight.connect(canned_server.uri)
    info = client.get_flight_info(select("trick slow"))
    reader = client.do_get(info.endpoints[0].ticket)
    assert reader.read_chunk().data.num_rows == 1
    assert canned_server.backend.running.wait(SOON_S)
    reader.cancel()
    assert canned_server.backend.interrupted.wait(SOON_S)
    assert canned_server.backend.closed.wait(SOON_S)
    client.close()


def test_adbc_cancel_ends_the_stream(canned_server: CannedServer, cursor: adbc.Cursor) -> None:
    cursor.execute("trick slow")
    reader = cursor.fetch_record_batch()
    assert reader.read_next_batch().num_rows == 1
    assert canned_server.backend.running.wait(SOON_S)
    reading = Background(reader.read_all)
    cursor.adbc_cancel()
    assert canned_server.backend.interrupted.wait(SOON_S)
    assert canned_server.backend.closed.wait(SOON_S)
    assert reading.ended() is not None


def _status(client: flight.FlightClient, action: str, info: flight.FlightInfo) -> int:
    """Cancel: the status told."""
    if action == "CancelFlightInfo":
        inner = messages.parse(messages.FlightInfo, info.serialize())
        request = messages.CancelFlightInfoRequest(info=inner).SerializeToString()
        [answer] = bodies(client, action, request)
        return int(messages.parse(messages.CancelFlightInfoResult, answer).status)
    [answer] = bodies(client, action, packed("ActionCancelQueryRequest", info=info.serialize()))
    return int(messages.unpack(answer).result)


@pytest.mark.parametrize("action", ["CancelFlightInfo", "CancelQuery"])
def test_a_cancel_action_before_the_first_row_makes_the_ticket_void(
    canned_server: CannedServer, client: flight.FlightClient, action: str
) -> None:
    info = client.get_flight_info(select("SELECT 1 AS a"))
    assert _status(client, action, info) == CANCELLED
    assert _status(client, action, info) == CANCELLED
    with pytest.raises(flight.FlightCancelledError, match="The statement was cancelled"):
        client.do_get(info.endpoints[0].ticket).read_all()
    assert canned_server.backend.calls["open"] == 0


@pytest.mark.parametrize("action", ["CancelFlightInfo", "CancelQuery"])
def test_what_was_read_to_its_end_cannot_be_cancelled(
    canned_server: CannedServer, client: flight.FlightClient, action: str
) -> None:
    info = client.get_flight_info(select("SELECT 1 AS a"))
    assert client.do_get(info.endpoints[0].ticket).read_all().num_rows == 1
    assert canned_server.backend.closed.wait(SOON_S)
    # The call ends a moment after its last row.
    deadline = time.monotonic() + SOON_S
    while (reply := _status(client, action, info)) == CANCELLED and time.monotonic() < deadline:
        info = client.get_flight_info(select("SELECT 1 AS a"))
        assert client.do_get(info.endpoints[0].ticket).read_all().num_rows == 1
    assert reply == NOT_CANCELLABLE


def test_a_ticket_this_session_was_not_given_is_not_found(client: flight.FlightClient) -> None:
    made_up = flight.FlightInfo(
        pa.schema([]),
        select("SELECT 1"),
        [flight.FlightEndpoint(ticket("TicketStatementQuery", statement_handle=b"x"), [])],
        -1,
        -1,
    )
    with pytest.raises(KeyError, match="not given such a statement"):
        _status(client, "CancelFlightInfo", made_up)


@pytest.mark.parametrize("action", ["CancelFlightInfo", "CancelQuery"])
def test_a_cancel_action_ends_the_stream_it_names(
    canned_server: CannedServer, client: flight.FlightClient, action: str
) -> None:
    info = client.get_flight_info(select("trick slow"))
    reader = client.do_get(info.endpoints[0].ticket)
    assert reader.read_chunk().data.num_rows == 1
    assert canned_server.backend.running.wait(SOON_S)
    assert _status(client, action, info) == CANCELLED
    with pytest.raises(flight.FlightCancelledError, match="The statement was cancelled"):
        reader.read_chunk()
    assert canned_server.backend.closed.wait(SOON_S)


def test_what_the_engine_says_when_interrupted_is_not_told(
    canned_server: CannedServer, client: flight.FlightClient
) -> None:
    info = client.get_flight_info(select("trick vague"))
    reader = client.do_get(info.endpoints[0].ticket)
    assert reader.read_chunk().data.num_rows == 1
    assert canned_server.backend.running.wait(SOON_S)
    bodies(client, "CancelQuery", packed("ActionCancelQueryRequest", info=info.serialize()))
    with pytest.raises(flight.FlightCancelledError, match="The statement was cancelled"):
        reader.read_chunk()


def test_a_stream_of_another_session_cannot_be_cancelled(
    canned_server: CannedServer, client: flight.FlightClient
) -> None:
    info = client.get_flight_info(select("trick slow"))
    reader = client.do_get(info.endpoints[0].ticket)
    assert reader.read_chunk().data.num_rows == 1
    body = packed("ActionCancelQueryRequest", info=info.serialize())
    with closing(flight.connect(canned_server.uri)) as stranger, pytest.raises(KeyError):
        bodies(stranger, "CancelQuery", body)
    assert not canned_server.backend.interrupted.is_set()
    reader.cancel()


def test_closing_the_session_ends_its_streams(
    canned_server: CannedServer, client: flight.FlightClient
) -> None:
    reader = client.do_get(client.get_flight_info(select("trick slow")).endpoints[0].ticket)
    assert reader.read_chunk().data.num_rows == 1
    assert canned_server.backend.running.wait(SOON_S)
    bodies(client, "CloseSession", b"")
    with pytest.raises(flight.FlightCancelledError, match="The session was closed"):
        reader.read_chunk()


def test_a_stream_read_to_its_end_is_closed(
    canned_server: CannedServer, client: flight.FlightClient
) -> None:
    assert fetched(client, "SELECT 1 AS a") == [{"a": 1}]
    assert canned_server.backend.closed.wait(SOON_S)
    assert not canned_server.backend.interrupted.is_set()


class TestPlaces:
    def test_one_too_many_is_told_to_retry(self, backend: CannedBackend) -> None:
        server = serve(backend, Access(allow_anonymous=True), max_streams=1, stream_wait_s=0.1)
        with closing(flight.connect(f"grpc://127.0.0.1:{server.port}")) as client:
            info = client.get_flight_info(select("trick slow"))
            reader = client.do_get(info.endpoints[0].ticket)
            assert reader.read_chunk().data.num_rows == 1
            with pytest.raises(
                flight.FlightUnavailableError, match=r"max_streams.*Retry in about 1 s"
            ):
                fetched(client, "SELECT 1")
            # Browsing needs no place.
            assert client.get_flight_info(select("SELECT 1")).schema.names == ["1"]
            reader.cancel()
            assert backend.closed.wait(SOON_S)
            deadline = time.monotonic() + SOON_S
            while True:
                try:
                    assert fetched(client, "SELECT 1 AS a") == [{"a": 1}]
                    break
                except flight.FlightUnavailableError:
                    assert time.monotonic() < deadline
        assert server.stop(10)

    def test_one_that_waits_for_a_place_is_counted_as_long_as_it_does(
        self, backend: CannedBackend
    ) -> None:
        server = serve(
            backend, Access(allow_anonymous=True), max_streams=1, stream_wait_s=SOON_S
        )
        count = partial(server.gate.calls.waiting_for, "slot")
        with (
            closing(flight.connect(f"grpc://127.0.0.1:{server.port}")) as client,
            ThreadPoolExecutor(1) as asking,
        ):
            info = client.get_flight_info(select("trick slow"))
            reader = client.do_get(info.endpoints[0].ticket)
            assert reader.read_chunk().data.num_rows == 1
            assert count() == 0
            second = asking.submit(fetched, client, "SELECT 1 AS a")
            until_s = time.monotonic() + SOON_S
            while not count():
                assert time.monotonic() < until_s
                time.sleep(0.01)
            reader.cancel()
            assert second.result(SOON_S) == [{"a": 1}]
            assert count() == 0
        assert server.stop(10)

    def test_a_place_comes_back_after_every_kind_of_end(self, backend: CannedBackend) -> None:
        server = serve(
            backend, Access(allow_anonymous=True), max_streams=1, stream_wait_s=SOON_S
        )
        with closing(flight.connect(f"grpc://127.0.0.1:{server.port}")) as client:
            for _ in range(3):
                with pytest.raises(flight.FlightInternalError):
                    fetched(client, "trick late_bug")
                with pytest.raises(pa.ArrowInvalid):
                    client.do_get(flight.Ticket(packed("TicketStatementQuery"))).read_all()
                assert fetched(client, "SELECT 1 AS a") == [{"a": 1}]
        assert server.stop(10)
