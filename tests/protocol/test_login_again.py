"""Callers whose token says nothing: on a server without users, and after a password's session was idle too long."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import closing

import adbc_driver_flightsql.dbapi as adbc
import pytest
from pyarrow import flight

from proxy.access.authentication.callers import Access, Caller, FixedUsers
from tests.harness.canned import USERS, CannedBackend, CannedServer, serve
from tests.harness.wire import bearer, fetched, get_options, set_options

IDLE_S = 1_800.0


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def idling(backend: CannedBackend, clock: Clock) -> Iterator[CannedServer]:
    """Asks for a password; sessions end after ``IDLE_S``."""
    access = Access(FixedUsers(USERS).verify)
    server = serve(backend, access, clock_s=clock, idle_timeout_s=IDLE_S)
    yield CannedServer(server, backend)
    assert server.stop(10)


def basic(user: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{USERS[user]}".encode()).decode()


@pytest.mark.parametrize("token", ["None", "", "eyJhbGciOiJSUzI1NiJ9.e30.c2ln"])
def test_a_server_without_users_does_not_look_at_tokens(
    canned_server: CannedServer, token: str
) -> None:
    with closing(flight.connect(canned_server.uri)) as client:
        assert fetched(client, "SELECT 1 AS a", bearer(token)) == [{"a": 1}]
    header = {"adbc.flight.sql.authorization_header": f"Bearer {token}"}
    with (
        adbc.connect(canned_server.uri, db_kwargs=header, autocommit=True) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT ? AS a", [1])
        assert cursor.fetchall() == [(1,)]


@pytest.mark.parametrize(
    "access",
    [
        Access(FixedUsers(USERS).verify),
        Access(FixedUsers(USERS).verify, allow_anonymous=True),
        Access(tokens=(lambda _: None,), allow_anonymous=True),
        Access(),
    ],
)
def test_one_that_knows_somebody_does(backend: CannedBackend, access: Access) -> None:
    server = serve(backend, access)
    with (
        closing(flight.connect(f"grpc://127.0.0.1:{server.port}")) as client,
        pytest.raises(flight.FlightUnauthenticatedError, match="unknown or over"),
    ):
        fetched(client, "SELECT 1 AS a", bearer("None"))
    assert server.stop(10)


def test_a_session_that_is_over_is_not_taken_up_in_silence(
    backend: CannedBackend, clock: Clock
) -> None:
    server = serve(backend, Access(allow_anonymous=True), clock_s=clock, idle_timeout_s=IDLE_S)
    with closing(flight.connect(f"grpc://127.0.0.1:{server.port}")) as client:
        _, value = client.authenticate_basic_token(b"any", b"thing")
        session = bearer(value.decode().removeprefix("Bearer "))
        set_options(client, session, catalog="second")
        clock.now_s += 2 * IDLE_S
        with pytest.raises(flight.FlightUnauthenticatedError, match="Connect again"):
            fetched(client, "SELECT 1 AS a", session)
    assert server.stop(10)


def test_a_password_sent_with_every_call_outlives_its_session(
    idling: CannedServer, clock: Clock
) -> None:
    header = {"adbc.flight.sql.authorization_header": basic("ada")}
    with adbc.connect(idling.uri, db_kwargs=header, autocommit=True) as connection:
        for _ in range(3):
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
                assert cursor.fetchall() == [(1,)]
            clock.now_s += 2 * IDLE_S


def test_one_sent_beside_a_token_takes_its_place_when_that_is_over(
    idling: CannedServer, clock: Clock
) -> None:
    with closing(flight.connect(idling.uri)) as client:
        _, value = client.authenticate_basic_token(b"ada", USERS["ada"].encode())
        both = flight.FlightCallOptions(
            headers=[(b"authorization", value), (b"authorization", basic("ada").encode())]
        )
        set_options(client, both, catalog="second")
        assert get_options(client, both)["catalog"] == "second"
        clock.now_s += 2 * IDLE_S
        # A new session, with the settings that a session starts with.
        assert get_options(client, both)["catalog"] == "lake"
        wrong = flight.FlightCallOptions(
            headers=[(b"authorization", value), (b"authorization", b"Basic YWRhOng=")]
        )
        with pytest.raises(flight.FlightUnauthenticatedError, match="wrong password"):
            get_options(client, wrong)
        alone = flight.FlightCallOptions(headers=[(b"authorization", value)])
        with pytest.raises(flight.FlightUnauthenticatedError, match="Connect again"):
            get_options(client, alone)


def test_a_static_token_does_not_idle_out(backend: CannedBackend, clock: Clock) -> None:
    access = Access(tokens=(lambda token: Caller("bi") if token == "static" else None,))
    server = serve(backend, access, clock_s=clock, idle_timeout_s=IDLE_S)
    header = {"adbc.flight.sql.authorization_header": "Bearer static"}
    uri = f"grpc://127.0.0.1:{server.port}"
    with adbc.connect(uri, db_kwargs=header, autocommit=True) as connection:
        for _ in range(2):
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
                assert cursor.fetchall() == [(1,)]
            clock.now_s += 2 * IDLE_S
    assert server.stop(10)
