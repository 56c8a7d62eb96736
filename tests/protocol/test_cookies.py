"""Sessions by cookie, for clients that keep cookies and have no token of this server."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
from pyarrow import flight

from tests.harness.canned import CannedServer
from tests.harness.wire import get_options, set_options

_KEEP = {"adbc.flight.sql.rpc.with_cookie_middleware": "true"}


def test_a_session_goes_on_over_another_connection(canned_server: CannedServer) -> None:
    cookies: list[str] = []
    with closing(_client(canned_server, cookies, keep=True)) as one:
        set_options(one, catalog="second")
    assert len(cookies) == 1
    with closing(_client(canned_server, cookies, keep=True)) as two:
        assert get_options(two)["catalog"] == "second"
    assert len(cookies) == 1


def test_a_made_up_cookie_opens_nothing(canned_server: CannedServer) -> None:
    with closing(_client(canned_server, [], keep=True)) as one:
        set_options(one, catalog="second")
    with closing(_client(canned_server, ["thermocline_session=x"], keep=True)) as two:
        assert get_options(two)["catalog"] == "lake"


def test_another_user_s_cookie_opens_nothing(password_server: CannedServer) -> None:
    cookies: list[str] = []
    ada = (b"authorization", b"Basic YWRhOnDDpHNzd29yZDox")
    bob = (b"authorization", b"Basic Ym9iOmI=")
    with closing(_client(password_server, cookies, keep=True)) as client:
        set_options(client, flight.FlightCallOptions(headers=[ada]), catalog="second")
        assert (
            get_options(client, flight.FlightCallOptions(headers=[ada]))["catalog"] == "second"
        )
        assert get_options(client, flight.FlightCallOptions(headers=[bob]))["catalog"] == "lake"


def test_one_that_keeps_none_has_its_connection_s_session(canned_server: CannedServer) -> None:
    cookies: list[str] = []
    with closing(_client(canned_server, cookies, keep=False)) as client:
        set_options(client, catalog="second")
        for _ in range(10):
            assert get_options(client)["catalog"] == "second"
    assert len(cookies) == 11


def test_a_closed_session_s_cookie_is_void(canned_server: CannedServer) -> None:
    cookies: list[str] = []
    with closing(_client(canned_server, cookies, keep=True)) as client:
        set_options(client, catalog="second")
        list(client.do_action(flight.Action("CloseSession", b"")))
        assert get_options(client)["catalog"] == "lake"


def test_adbc_keeps_them_when_told_to(canned_server: CannedServer) -> None:
    with adbc.connect(canned_server.uri, db_kwargs=_KEEP, autocommit=True) as connected:
        connected.adbc_current_catalog = "second"
        assert connected.adbc_current_catalog == "second"


def _client(
    canned_server: CannedServer, cookies: list[str], *, keep: bool
) -> flight.FlightClient:
    """A client that notes the cookies it is given, and with ``keep`` sends the last one back."""

    class Middleware(flight.ClientMiddleware):
        def sending_headers(self) -> dict[str, str]:
            return {"cookie": f"other=1; {cookies[-1]}"} if cookies and keep else {}

        def received_headers(self, headers: dict[str, list[str]]) -> None:
            cookies.extend(headers.get("set-cookie", []))

    class Factory(flight.ClientMiddlewareFactory):
        def start_call(self, info: Any) -> flight.ClientMiddleware:
            return Middleware()

    return flight.FlightClient(canned_server.uri, middleware=[Factory()])
