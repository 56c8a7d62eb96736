"""Calls with the same credentials come in one after the other; nobody else waits for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from pyarrow import flight

from proxy.access.authentication.callers import Access, Caller, FixedUsers
from proxy.access.fairness import Slots
from proxy.flightsql import middleware
from proxy.flightsql.middleware import _HANDSHAKE_S
from tests.harness.canned import USERS, CannedBackend, CannedServer, serve
from tests.harness.wire import fetched

SOON_S = 30.0


class PasswordChecks:
    """Passwords whose checks are noted, and wait while they are told to."""

    def __init__(self) -> None:
        self._passwords = FixedUsers(USERS)
        self.times_s: list[float] = []
        self.users: list[str] = []
        self.go_on = threading.Event()
        self.go_on.set()

    def verify(self, user: str, password: str) -> Caller | None:
        self.times_s.append(time.monotonic())
        self.users.append(user)
        assert self.go_on.wait(SOON_S)
        return self._passwords.verify(user, password)


@pytest.fixture
def checks() -> PasswordChecks:
    return PasswordChecks()


@pytest.fixture
def server(
    backend: CannedBackend, checks: PasswordChecks, monkeypatch: pytest.MonkeyPatch
) -> Iterator[CannedServer]:
    monkeypatch.setattr(middleware, "_ENTRIES", 1 << 16)  # no collision
    server = serve(backend, Access(checks.verify))
    yield CannedServer(server, backend)
    checks.go_on.set()
    assert server.stop(10)


def login(server: CannedServer, user: str) -> flight.FlightCallOptions:
    with closing(flight.connect(server.uri)) as client:
        return flight.FlightCallOptions(
            headers=[client.authenticate_basic_token(user, USERS[user])]
        )


def test_one_at_a_time_and_others_pass(server: CannedServer, checks: PasswordChecks) -> None:
    session = login(server, "bob")
    checks.users.clear()
    checks.go_on.clear()
    threads = [threading.Thread(target=login, args=(server, "ada")) for _ in range(8)]
    try:
        for thread in threads:
            thread.start()
        until = time.monotonic() + SOON_S
        while not checks.users and time.monotonic() < until:
            time.sleep(0.01)
        with closing(flight.connect(server.uri)) as client:
            for _ in range(10):
                assert fetched(client, "SELECT 1 AS a", session) == [{"a": 1}]
        others = threading.Thread(target=login, args=(server, "bob"))
        others.start()
        while len(checks.users) < 2 and time.monotonic() < until:
            time.sleep(0.01)
        assert checks.users == ["ada", "bob"]
    finally:
        checks.go_on.set()
        for thread in threads:
            thread.join(SOON_S)
    others.join(SOON_S)
    assert sorted(checks.users) == ["ada"] * 8 + ["bob"]


def test_a_token_comes_in_while_as_many_passwords_as_may_be_are_checked(
    server: CannedServer, checks: PasswordChecks, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = login(server, "bob")
    gate = server.server.gate
    monkeypatch.setattr(gate, "_logins", Slots(0, "logins"))
    with closing(flight.connect(server.uri)) as client:
        assert fetched(client, "SELECT 1 AS a", session) == [{"a": 1}]
        with pytest.raises(flight.FlightUnavailableError, match="too many logins"):
            client.authenticate_basic_token("ada", USERS["ada"])


def test_logins_without_end_are_spaced(server: CannedServer, checks: PasswordChecks) -> None:
    for _ in range(11):
        login(server, "ada")
    between = [
        later - sooner
        for sooner, later in zip(checks.times_s, checks.times_s[1:], strict=False)
    ]
    assert len(between) == 10
    assert sum(between) > 9.5 * _HANDSHAKE_S


def test_a_flood_of_logins_keeps_no_call_of_the_same_credentials_out() -> None:
    entry = middleware._Entry()
    over = threading.Event()

    def flood() -> None:
        while not over.is_set():
            entry.pace()

    threads = [threading.Thread(target=flood) for _ in range(50)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            assert entry.lock.acquire(timeout=0)
            entry.lock.release()
    finally:
        over.set()
        for thread in threads:
            thread.join()
