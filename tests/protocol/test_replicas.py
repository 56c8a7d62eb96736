"""Two servers with one secret and the same users: what one gave out, the other takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any

import pytest
from pyarrow import flight

from proxy.access.authentication.callers import Access, Caller, FixedUsers
from proxy.flightsql.server import FlightSqlServer
from proxy.flightsql.state.tokens import LIFETIME_S, SessionTokens
from tests.harness.canned import USERS, CannedBackend, serve
from tests.harness.wire import bodies, fetched

SECRET = b"one for all replicas"


@dataclass
class Replicas:
    first: FlightSqlServer
    second: FlightSqlServer
    stack: ExitStack[bool | None]

    def client(self, server: FlightSqlServer) -> flight.FlightClient:
        uri = f"grpc://127.0.0.1:{server.port}"
        return self.stack.enter_context(closing(flight.connect(uri)))


def access(users: dict[str, str]) -> Access:
    fixed = FixedUsers(users)
    return Access(verify=fixed.verify, recall=fixed.recall)


@pytest.fixture
def start() -> Iterator[Any]:
    with ExitStack() as stack:

        def run(users: dict[str, str], secret: bytes = SECRET) -> Replicas:
            servers: list[FlightSqlServer] = []
            for value in (USERS, users):
                each = SECRET if value is USERS and not servers else secret
                server = serve(CannedBackend(), access(value), session_secret=each)
                stack.callback(server.stop, 5)
                servers.append(server)
            first, second = servers
            return Replicas(first, second, stack)

        yield run


def login(replicas: Replicas) -> flight.FlightCallOptions:
    header = replicas.client(replicas.first).authenticate_basic_token("ada", USERS["ada"])
    return flight.FlightCallOptions(headers=[header])


def ask(replicas: Replicas, server: FlightSqlServer, options: flight.FlightCallOptions) -> int:
    return len(fetched(replicas.client(server), "select 1", options))


def test_a_session_goes_on_at_another_replica(start: Any) -> None:
    replicas = start(USERS)
    options = login(replicas)
    for server in (replicas.first, replicas.second, replicas.first):
        assert ask(replicas, server, options) == 1


@pytest.mark.parametrize(
    ("users", "secret"),
    [
        (USERS | {"ada": "another password"}, SECRET),
        ({"bob": USERS["bob"]}, SECRET),
        (USERS, b"another secret"),
    ],
    ids=["another password", "no such user", "another secret"],
)
def test_it_does_not_where_the_login_would_fail(
    start: Any, users: dict[str, str], secret: bytes
) -> None:
    replicas = start(users, secret)
    options = login(replicas)
    with pytest.raises(flight.FlightUnauthenticatedError, match="Connect again"):
        ask(replicas, replicas.second, options)
    assert ask(replicas, replicas.first, options) == 1


def test_a_closed_session_stays_closed_though_its_seal_is_good(start: Any) -> None:
    replicas = start(USERS)
    options = login(replicas)
    bodies(replicas.client(replicas.first), "CloseSession", b"", options)
    with pytest.raises(flight.FlightUnauthenticatedError, match="Connect again"):
        ask(replicas, replicas.first, options)


ADA = Caller("ada", stored=b"secret")


def test_a_token_cannot_be_altered_and_ends() -> None:
    now_s = [1_000.0]
    tokens = SessionTokens(SECRET, lambda: now_s[0])
    token = tokens.mint(ADA, {"catalog": "lake"})
    minted = tokens.read(token)
    assert minted is not None
    assert (minted.user, minted.opening) == ("ada", {"catalog": "lake"})
    assert "secret" not in token
    version, body, tag = token.split(".")
    other = tokens.mint(Caller("bob", stored=b"b"), {}).split(".")[1]
    for altered in (
        f"{version}.{other}.{tag}",
        f"{version}.{body}.{tag[:-4]}AAAA",
        f"{version}.{body}.ä",
        f"{version}.ä.{tag}",
        f"tc2.{body}.{tag}",
        body,
        "",
        "." * 3,
        "x" * 1_000_000,
    ):
        assert tokens.read(altered) is None
    now_s[0] += LIFETIME_S + 1
    assert tokens.read(token) is None


def test_a_token_is_of_the_password_it_was_minted_for() -> None:
    tokens = SessionTokens(SECRET, lambda: 0.0)
    minted = tokens.read(tokens.mint(ADA, {}))
    assert minted is not None
    assert tokens.is_of(minted, ADA)
    assert not tokens.is_of(minted, Caller("ada", stored=b"changed"))
    # By a static token or a JWT: only where it was shown is it known whether it holds.
    assert not tokens.is_of(minted, Caller("ada"))
    by_token = tokens.read(tokens.mint(Caller("ada"), {}))
    assert by_token is not None
    assert not tokens.is_of(by_token, Caller("ada"))
