"""Connections, logins, sessions and calls, one after the other and without end."""

from __future__ import annotations

import base64
import contextlib
import os
import random
import socket
import threading
from collections.abc import Callable

from pyarrow import flight

from tests.harness.raw_http2 import RawConnection
from tests.protocol.attacks import statements
from tests.protocol.attacks.attacker import Attacker
from tests.protocol.attacks.forgeries import Forged


def storms(attacker: Attacker, rng: random.Random) -> None:
    """Connections, logins and sessions, one after the other and without end."""
    sent, act = rng.choice(_STORMS)(attacker, rng)
    attacker.attempt(sent, act)


def _connections(attacker: Attacker, rng: random.Random) -> Forged:
    first = rng.choice((b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00", rng.randbytes(500), b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + rng.randbytes(100)))  # fmt: skip
    number = rng.randint(1, 200)

    def act() -> None:
        with contextlib.ExitStack() as stack:
            for _ in range(number):
                connection = stack.enter_context(
                    socket.create_connection(("127.0.0.1", attacker.port), 10)
                )
                connection.sendall(first)

    return f"{number} connections that say {first[:20]!r}", act


def _clients(attacker: Attacker, rng: random.Random) -> Forged:
    def act() -> None:
        for _ in range(rng.randint(1, 10)):
            fresh = Attacker(
                attacker.port,
                attacker.user,
                attacker.password,
                attacker.tally,
                attacker.deadline_s,
            )
            with contextlib.closing(fresh):
                fresh.ask("SELECT 1 AS a")

    return "clients that log in and ask once", act


def _passwords(attacker: Attacker, rng: random.Random) -> Forged:
    user = rng.choice(
        (
            "quiet",
            "admin",
            attacker.user,
            "x" * statements.count(rng, 4_000),
            os.urandom(8).hex(),
        )
    )
    password = rng.choice(("", "wrong", "x" * statements.count(rng, 4_000), "\0"))

    def act() -> None:
        options = flight.FlightCallOptions(timeout=attacker.deadline_s)
        attacker.client.authenticate_basic_token(user, password, options)

    return f"password for {user[:20]}", act


def _sessions(attacker: Attacker, rng: random.Random) -> Forged:
    def act() -> None:
        for _ in range(rng.randint(1, 50)):
            attacker.login()

    return "logins of one user", act


#: Calls of one flood, and one flood at a time: gRPC gives each call a thread before anything of ours may refuse it,
#: so thousands at once stop a server that has no proxy before it (docs/limits.md).
_FLOOD = 100
_flooding = threading.Lock()


def _floods(attacker: Attacker, rng: random.Random) -> Forged:
    """Headers of calls, as fast as they go, and the connection is gone."""
    basic = (
        f"Basic {base64.b64encode(f'{attacker.user}:{attacker.password}'.encode()).decode()}"
    )
    method = rng.choice(
        (
            "GetFlightInfo",
            "DoGet",
            "DoAction",
            "Handshake",
            "ListFlights",
            "DoExchange",
            "nosuch",
        )
    )
    number = rng.randint(1, _FLOOD)

    def act() -> None:
        with _flooding, contextlib.closing(RawConnection(attacker.port)) as connection:
            for _ in range(number):
                connection.begin(method, rng.choice((None, basic, "Bearer x")))

    return f"{number} calls of {method} that are dropped", act


_STORMS: tuple[Callable[[Attacker, random.Random], Forged], ...] = (
    _connections,
    _clients,
    _passwords,
    _sessions,
    _floods,
)
