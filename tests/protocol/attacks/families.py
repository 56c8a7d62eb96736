"""The families of attacks: each is one act, drawn by a seed, of somebody who has an account and nothing else."""

from __future__ import annotations

import base64
import contextlib
import os
import random
import socket
import struct
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
from pyarrow import flight

from proxy.flightsql import messages, uploads
from tests.protocol.attacks import statements
from tests.protocol.attacks.attacker import Attacker
from tests.protocol.conftest import Served
from tests.protocol.lying import LIES, ROWS, Lie, lying, row
from tests.protocol.raw_http2 import RawConnection
from tests.protocol.test_idle_callers import PHASES, Idler
from tests.protocol.test_uploads import nested
from tests.protocol.wire import command, packed, prepare

Act = Callable[[Attacker, random.Random], None]

#: How long idle calls are left so, and how many are begun at a time: more than all the server has.
IDLE_S = 20.0
MANY = 530
#: One of these phases takes a connection of the attacker's for each call.
_MANY_CONNECTIONS = 100


def lying_uploads(attacker: Attacker, rng: random.Random) -> None:
    """Parameters whose buffers lie, or that are too many, too deep, too wide, too large; then their answer."""
    batch, times = _upload(rng)
    sent = f"upload of {batch.num_columns} columns, {str(batch.schema.field(0).type)[:80]}"
    sql = rng.choice(
        (
            "SELECT $1 AS it",
            "SELECT hex($1::BLOB) AS it",
            "SELECT [$1, $1] AS it",
            "SELECT typeof($1)",
        )
    )
    attacker.attempt(sent, lambda: _bind_and_read(attacker, sql, batch, times))


def _bind_and_read(attacker: Attacker, sql: str, batch: pa.RecordBatch, times: int) -> None:
    options = attacker.options()
    handle = prepare(attacker.client, sql, options).prepared_statement_handle
    bound = command("CommandPreparedStatementQuery", prepared_statement_handle=handle)
    writer, answers = attacker.client.do_put(bound, batch.schema, options)
    with writer:
        for _ in range(times):
            writer.write_batch(batch)
        writer.done_writing()
        answers.read()
    info = attacker.client.get_flight_info(bound, options)
    attacker.read(info.endpoints[0].ticket, sql)


def _upload(rng: random.Random) -> tuple[pa.RecordBatch, int]:
    shape = rng.randrange(10)
    if shape < 3:
        return lying(rng.choice(LIES)), 1
    if shape < 7:
        return _drawn_lie(rng), 1
    if shape == 7:
        return row("int64").slice(0, rng.randint(0, 1)), statements.count(
            rng, uploads.MAX_BATCHES
        )
    if shape == 8:
        columns = [ROWS[rng.choice(list(ROWS))]] * statements.count(rng, uploads.MAX_FIELDS)
        return pa.record_batch(
            columns, names=["n" * statements.count(rng, 100)] * len(columns)
        ), 1
    return rng.choice(
        (
            lambda: pa.record_batch([pa.nulls(1, nested(statements.count(rng, 60)))], names=["1"]),
            lambda: pa.record_batch([pa.array([b"x" * statements.count(rng, uploads.MAX_PARAMETER_BYTES)])], names=["1"]),
            lambda: pa.record_batch([pa.nulls(1)], names=["n" * statements.count(rng, uploads.MAX_SCHEMA_BYTES)]),
            lambda: pa.record_batch([pa.nulls(1, pa.timestamp("us", rng.choice(("../../etc/passwd", "x" * 1_000, "\0"))))], names=["1"]),
        )
    )(), 1  # fmt: skip


def _drawn_lie(rng: random.Random) -> pa.RecordBatch:
    """Any type, any of its buffers, any number that is an edge of something."""
    edges = (0, 1, -1, 5, 64, 4_096, 65_536, 1 << 20, (1 << 31) - 1, -(1 << 31))
    while True:
        form = rng.choice(("<i", "<2i", "<q", "<2q", "<b"))
        says = tuple(
            rng.choice([edge for edge in edges if form != "<b" or -128 <= edge < 128])
            for _ in range(2 if "2" in form else 1)
        )
        with contextlib.suppress(
            AssertionError,
            AttributeError,
            IndexError,
            TypeError,
            struct.error,
            pa.ArrowException,
        ):
            return lying(Lie(rng.choice(list(ROWS)), rng.randint(0, 3), form, says))


def long_texts(attacker: Attacker, rng: random.Random) -> None:
    _ask_or_prepare(attacker, rng, statements.long_text(rng))


def wide_statements(attacker: Attacker, rng: random.Random) -> None:
    _ask_or_prepare(attacker, rng, statements.wide(rng))


def costly_statements(attacker: Attacker, rng: random.Random) -> None:
    sql = statements.costly(rng)
    attacker.attempt(sql, lambda: attacker.ask(sql))


def _ask_or_prepare(attacker: Attacker, rng: random.Random, sql: str) -> None:
    def plan() -> None:
        attacker.receive(
            prepare(attacker.client, sql, attacker.options()).SerializeToString(), sql
        )

    attacker.attempt(sql, (lambda: attacker.ask(sql)) if rng.random() < 0.7 else plan)


def idle_callers(
    attacker: Attacker, rng: random.Random, *, many: int = MANY, idle_s: float = IDLE_S
) -> None:
    """Calls that are begun and left, all in one phase."""
    phase = rng.choice(list(PHASES))
    count = (
        min(many, _MANY_CONNECTIONS) if "headers" in phase or "nobody reads" in phase else many
    )

    def leave() -> None:
        served = cast("Served", SimpleNamespace(uri=attacker.uri, port=attacker.port))
        with contextlib.closing(Idler(served)) as idler:
            for _ in range(count):
                with contextlib.suppress(pa.ArrowException, flight.FlightError, OSError):
                    PHASES[phase](idler)
            time.sleep(idle_s)

    attacker.attempt(f"{count} times {phase}", leave)


def forgeries(attacker: Attacker, rng: random.Random) -> None:
    """Tickets, handles, messages, options and headers that are not what they say."""
    sent, act = rng.choice(_FORGED)(attacker, rng)
    attacker.attempt(sent, act)


Forged = tuple[str, Callable[[], None]]


def _altered(rng: random.Random, content: bytes) -> bytes:
    altered = bytearray(content or b"\0")
    for _ in range(rng.choice((0, 1, 1, 2, 8))):
        at = rng.randrange(len(altered))
        how = rng.randrange(4)
        if how == 0:
            altered[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            altered[at:at] = rng.randbytes(rng.choice((1, 4, 64, 9_000)))
        elif how == 2 and len(altered) > 1:
            del altered[at:]
        else:
            altered[at : at + 4] = rng.choice(
                (b"\xff\xff\xff\xff", b"\0\0\0\0", b'{""}', b"[[[[")
            )
        altered = altered or bytearray(1)
    return bytes(altered)


def _ticket(attacker: Attacker, rng: random.Random) -> Forged:
    def act() -> None:
        info = attacker.client.get_flight_info(
            command("CommandStatementQuery", query=f"SELECT a FROM {statements.TABLE}"),
            attacker.options(),
        )
        true = info.endpoints[0].ticket.ticket
        attacker.read(flight.Ticket(_altered(rng, true)), "forged ticket")

    return "forged ticket", act


def _handle(attacker: Attacker, rng: random.Random) -> Forged:
    handle = rng.choice(
        (rng.randbytes(16), b"", b"0" * 36, rng.randbytes(100_000), b'{"user":"admin"}')
    )
    name = rng.choice(("CommandPreparedStatementQuery", "CommandPreparedStatementUpdate"))
    asked = flight.FlightDescriptor.for_command(
        _altered(rng, packed(name, prepared_statement_handle=handle))
    )
    return f"forged handle of {len(handle)} bytes", lambda: _described(attacker, asked)


def _described(attacker: Attacker, asked: flight.FlightDescriptor) -> None:
    attacker.receive(
        str(attacker.client.get_flight_info(asked, attacker.options())).encode(),
        "forged command",
    )


def _message(attacker: Attacker, rng: random.Random) -> Forged:
    body = rng.choice((packed("CommandGetTables", include_schema=True), packed("CommandGetSqlInfo"), rng.randbytes(200),
                       packed("CommandGetTables", table_name_filter_pattern="%_" * statements.count(rng, 20_000)),
                       packed("CommandGetDbSchemas", db_schema_filter_pattern="a%" * statements.count(rng, 20_000))))  # fmt: skip
    asked = flight.FlightDescriptor.for_command(_altered(rng, body))

    def act() -> None:
        info = attacker.client.get_flight_info(asked, attacker.options())
        attacker.read(info.endpoints[0].ticket, "forged message")

    return "forged message", act


_ACTIONS = ("CreatePreparedStatement", "ClosePreparedStatement", "CancelFlightInfo", "CancelQuery", "RenewFlightEndpoint",
            "SetSessionOptions", "GetSessionOptions", "CloseSession", "BeginTransaction", "EndTransaction", "nosuch", "x" * 9_000)  # fmt: skip


def _action(attacker: Attacker, rng: random.Random) -> Forged:
    name = rng.choice(_ACTIONS)
    body = _altered(
        rng,
        rng.choice(
            (
                b"",
                rng.randbytes(64),
                packed("ActionCreatePreparedStatementRequest", query="SELECT 1"),
            )
        ),
    )

    def act() -> None:
        for result in attacker.client.do_action(flight.Action(name, body), attacker.options()):
            attacker.receive(result.body.to_pybytes(), name)

    return f"action {name[:40]}", act


def _option(attacker: Attacker, rng: random.Random) -> Forged:
    asked = messages.SetSessionOptionsRequest()
    name = rng.choice(
        ("catalog", "schema", "time_zone", "max_message_bytes", "x" * 1_000, "profile", "\0")
    )
    asked.session_options[name].string_value = rng.choice(
        ("", "../..", "x" * statements.count(rng, 1 << 20), "\0", "-1", "9" * 400)
    )
    body = asked.SerializeToString()

    def act() -> None:
        for result in attacker.client.do_action(
            flight.Action("SetSessionOptions", body), attacker.options()
        ):
            attacker.receive(result.body.to_pybytes(), name)

    return f"option {name[:40]!r}", act


def _header(attacker: Attacker, rng: random.Random) -> Forged:
    name = rng.choice((b"cookie", b"x-forwarded-for", b"thermocline-after", b"thermocline-time-zone", b"catalog", b"schema",
                       b"thermocline-profile", b"thermocline-max-staleness", b"traceparent", b"grpc-timeout", b"x-user"))  # fmt: skip
    value = rng.choice((b"admin", b"thermocline_session=" + rng.randbytes(20).hex().encode(), b"x" * statements.count(rng, 6_000),
                        b"9" * 400, b"{" * 500, b"tc1." + base64.urlsafe_b64encode(b'{"user":"admin"}') + b".x", b"1e999", b"%00"))  # fmt: skip
    return f"header {name.decode()}", lambda: attacker.ask("SELECT 1 AS a", (name, value))


def _token(attacker: Attacker, rng: random.Random) -> Forged:
    claims = base64.urlsafe_b64encode(
        b'{"user":"admin","u":"admin","exp":' + b"9" * statements.count(rng, 400) + b"}"
    )
    text = rng.choice((b"Bearer tc1." + claims + b".AAAA", b"Bearer tc0." + rng.randbytes(32).hex().encode(),
                       b"Bearer eyJhbGciOiJub25lIn0." + claims + b".", b"Basic " + base64.b64encode(rng.randbytes(40)),
                       b"Basic !!!", b"Bearer " + b"x" * statements.count(rng, 7_000), b"Negotiate x", b"Basic " + b"A" * 7_000))  # fmt: skip
    options = flight.FlightCallOptions(
        headers=[(b"authorization", text)], timeout=attacker.deadline_s
    )

    def act() -> None:
        asked = command("CommandStatementQuery", query="SELECT 1 AS a")
        attacker.receive(
            str(attacker.client.get_flight_info(asked, options)).encode(), "forged token"
        )

    return "forged token", act


_FORGED: tuple[Callable[[Attacker, random.Random], Forged], ...] = (
    *(_ticket,) * 2,
    _handle,
    _message,
    _action,
    _option,
    _header,
    _token,
)


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
    number = rng.randint(1, 300)

    def act() -> None:
        with contextlib.closing(RawConnection(attacker.port)) as connection:
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


#: Name -> the act, and how many threads do it at the same time.
FAMILIES: dict[str, tuple[Any, int]] = {
    "lying uploads": (lying_uploads, 4),
    "long texts": (long_texts, 4),
    "idle callers": (idle_callers, 2),
    "wide statements": (wide_statements, 9),
    "costly statements, one at a time": (costly_statements, 1),
    "costly statements, 200 at once": (costly_statements, 200),
    "forgeries": (forgeries, 8),
    "storms": (storms, 8),
}
