"""Flight SQL messages as bytes, for tests that speak Flight without a driver."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyarrow import flight

from proxy.flightsql import messages
from tests.harness.canned import USERS

SOON_S = 30


def packed(name: str, /, **fields: Any) -> bytes:
    return messages.pack(messages.WRAPPED[name](**fields))


def command(name: str, /, **fields: Any) -> flight.FlightDescriptor:
    return flight.FlightDescriptor.for_command(packed(name, **fields))


def select(sql: str) -> flight.FlightDescriptor:
    return command("CommandStatementQuery", query=sql)


def ticket(name: str, /, **fields: Any) -> flight.Ticket:
    return flight.Ticket(packed(name, **fields))


def fetched(client: flight.FlightClient, sql: str, options: Any = None) -> list[dict[str, Any]]:
    """Plan and execute a statement: its rows."""
    info = client.get_flight_info(select(sql), options)
    rows: list[dict[str, Any]] = (
        client.do_get(info.endpoints[0].ticket, options).read_all().to_pylist()
    )
    return rows


def bodies(
    client: flight.FlightClient, action: str, body: bytes, options: Any = None
) -> list[bytes]:
    return [
        result.body.to_pybytes()
        for result in client.do_action(flight.Action(action, body), options)
    ]


def prepare(client: flight.FlightClient, sql: str, options: Any = None) -> Any:
    """The result message of CreatePreparedStatement."""
    [body] = bodies(
        client,
        "CreatePreparedStatement",
        packed("ActionCreatePreparedStatementRequest", query=sql),
        options,
    )
    return messages.unpack(body)


def bearer(token: str) -> flight.FlightCallOptions:
    return flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())])


def set_options(client: flight.FlightClient, options: Any = None, **settings: Any) -> Any:
    """Set session options; the result message. None erases."""
    request = messages.SetSessionOptionsRequest()
    for name, value in settings.items():
        entry = request.session_options[name]
        if isinstance(value, str):
            entry.string_value = value
        elif value is not None:
            entry.int64_value = value
    [body] = bodies(client, "SetSessionOptions", request.SerializeToString(), options)
    return messages.parse(messages.SetSessionOptionsResult, body)


def get_options(client: flight.FlightClient, options: Any = None) -> dict[str, str]:
    [body] = bodies(client, "GetSessionOptions", b"", options)
    result = messages.parse(messages.GetSessionOptionsResult, body).session_options
    return {name: value.string_value for name, value in result.items()}


class NoHandshake(flight.ClientAuthHandler):
    """Performs the Handshake call with whatever headers the call has."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        pass

    def get_token(self) -> bytes:
        return b""


def login(client: flight.FlightClient, user: str) -> flight.FlightCallOptions:
    """Call options with a token of a new session."""
    name, value = client.authenticate_basic_token(user.encode(), USERS[user].encode())
    assert name == b"authorization"
    return bearer(value.decode().removeprefix("Bearer "))


def nested(levels: int) -> pa.DataType:
    kind = pa.int8()
    for _ in range(levels):
        kind = pa.list_(kind)
    return kind


def refused(call: Callable[[], Any], within_s: float = SOON_S) -> str:
    """Repeat a call until the server refuses it; what it says."""
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        try:
            call()
        except flight.FlightUnavailableError as error:
            return str(error)
    raise AssertionError("it was never refused")
