"""Tickets, handles, messages, options and headers that are not what they say."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable

from pyarrow import flight

from proxy.flightsql import messages
from tests.harness.wire import command, packed
from tests.protocol.attacks import statements
from tests.protocol.attacks.attacker import Attacker

#: What is sent, in words, and how.
Forged = tuple[str, Callable[[], None]]


def forgeries(attacker: Attacker, rng: random.Random) -> None:
    """Tickets, handles, messages, options and headers that are not what they say."""
    sent, act = rng.choice(_FORGED)(attacker, rng)
    attacker.attempt(sent, act)


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
    request = flight.FlightDescriptor.for_command(
        _altered(rng, packed(name, prepared_statement_handle=handle))
    )
    return f"forged handle of {len(handle)} bytes", lambda: _described(attacker, request)


def _described(attacker: Attacker, descriptor: flight.FlightDescriptor) -> None:
    attacker.receive(
        str(attacker.client.get_flight_info(descriptor, attacker.options())).encode(),
        "forged command",
    )


def _message(attacker: Attacker, rng: random.Random) -> Forged:
    body = rng.choice((packed("CommandGetTables", include_schema=True), packed("CommandGetSqlInfo"), rng.randbytes(200),
                       packed("CommandGetTables", table_name_filter_pattern="%_" * statements.count(rng, 20_000)),
                       packed("CommandGetDbSchemas", db_schema_filter_pattern="a%" * statements.count(rng, 20_000))))  # fmt: skip
    request = flight.FlightDescriptor.for_command(_altered(rng, body))

    def act() -> None:
        info = attacker.client.get_flight_info(request, attacker.options())
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
    request = messages.SetSessionOptionsRequest()
    name = rng.choice(
        ("catalog", "schema", "time_zone", "max_message_bytes", "x" * 1_000, "profile", "\0")
    )
    request.session_options[name].string_value = rng.choice(
        ("", "../..", "x" * statements.count(rng, 1 << 20), "\0", "-1", "9" * 400)
    )
    body = request.SerializeToString()

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
        request = command("CommandStatementQuery", query="SELECT 1 AS a")
        attacker.receive(
            str(attacker.client.get_flight_info(request, options)).encode(), "forged token"
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
