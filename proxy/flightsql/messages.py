"""Protobuf messages of Flight and Flight SQL, from a descriptor set in a private pool.

Generated modules would register in protobuf's global pool, where a second copy (flightsql-dbapi's, say) is a
duplicate symbol, and would tie the program to one protobuf major. Message classes made
at run time have no static types, hence ``Any``.
"""

from __future__ import annotations

from importlib import resources
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from planner.errors import RequestError

_SQL = "arrow.flight.protocol.sql."
_FLIGHT = "arrow.flight.protocol."
_URL = "type.googleapis.com/"
#: The largest that means something is a ticket, of 8 MiB; CancelFlightInfo and FlightInfo hold one, and a schema.
MAX_BYTES = 16 << 20


class Malformed(RequestError):
    """Bytes that are not the message they should be, or a message in the wrong place."""


class UnknownCommand(RequestError):
    """A command or action this server does not implement."""


def _load() -> descriptor_pool.DescriptorPool:
    compiled = resources.files("proxy.flightsql").joinpath("proto", "flightsql.desc")
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(compiled.read_bytes()).file:
        pool.Add(file)
    return pool


_POOL = _load()


def _class(full_name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(full_name))


_ANY = _class("google.protobuf.Any")

#: Answers that only a server with transactions gives.
_NOT_HERE = ("ActionBeginSavepointResult", "ActionBeginTransactionResult")
_OF_SQL = _POOL.FindMessageTypeByName(_SQL + "TicketStatementQuery").file.message_types_by_name
#: The messages that travel inside ``Any``, by the last part of their type URL.
WRAPPED: dict[str, Any] = {
    name: _class(_SQL + name)
    for name in _OF_SQL
    if name.startswith(("Action", "Command", "Ticket")) and name not in _NOT_HERE
}

TicketStatementQuery = WRAPPED["TicketStatementQuery"]
ActionCreatePreparedStatementResult = WRAPPED["ActionCreatePreparedStatementResult"]
ActionCancelQueryResult = WRAPPED["ActionCancelQueryResult"]

# Not wrapped: answers inside PutResult.app_metadata, and the actions of Flight.proto.
DoPutUpdateResult = _class(_SQL + "DoPutUpdateResult")
DoPutPreparedStatementResult = _class(_SQL + "DoPutPreparedStatementResult")
FlightInfo = _class(_FLIGHT + "FlightInfo")
FlightEndpoint = _class(_FLIGHT + "FlightEndpoint")
RenewFlightEndpointRequest = _class(_FLIGHT + "RenewFlightEndpointRequest")
CancelFlightInfoRequest = _class(_FLIGHT + "CancelFlightInfoRequest")
CancelFlightInfoResult = _class(_FLIGHT + "CancelFlightInfoResult")
SetSessionOptionsRequest = _class(_FLIGHT + "SetSessionOptionsRequest")
SetSessionOptionsResult = _class(_FLIGHT + "SetSessionOptionsResult")
GetSessionOptionsRequest = _class(_FLIGHT + "GetSessionOptionsRequest")
GetSessionOptionsResult = _class(_FLIGHT + "GetSessionOptionsResult")
CloseSessionRequest = _class(_FLIGHT + "CloseSessionRequest")
CloseSessionResult = _class(_FLIGHT + "CloseSessionResult")


def kind(message: Any) -> str:
    return str(message.DESCRIPTOR.name)


def pack(message: Any) -> bytes:
    url = _URL + message.DESCRIPTOR.full_name
    return bytes(_ANY(type_url=url, value=message.SerializeToString()).SerializeToString())


def endpoint(ticket: bytes, expires_at_us: int) -> bytes:
    """A FlightEndpoint without a location; the time is in microseconds since 1970."""
    message = FlightEndpoint()
    message.ticket.ticket = ticket
    message.expiration_time.FromMicroseconds(expires_at_us)
    return bytes(message.SerializeToString())


def unpack(data: bytes) -> Any:
    """Read the message of ``WRAPPED`` that an ``Any`` holds.

    Raises:
        Malformed: not an ``Any``, or its value is not the message it names.
        UnknownCommand: another message; never taken for SQL text.
    """
    wrapped = parse(_ANY, data)
    _, slash, full_name = wrapped.type_url.rpartition("/")
    if not slash:
        raise Malformed(
            "This is not a Flight SQL command: a google.protobuf.Any with a type URL is needed."
        )
    kind = WRAPPED.get(full_name.removeprefix(_SQL)) if full_name.startswith(_SQL) else None
    if kind is None:
        raise UnknownCommand(f"This server does not know the message {full_name[:100]!r}.")
    return parse(kind, wrapped.value)


def parse(message_class: Any, data: bytes) -> Any:
    """Read one bare message.

    Raises:
        Malformed: the bytes are not that message, or too many.
    """
    if len(data) > MAX_BYTES:
        raise Malformed(f"A message has {len(data):,} bytes; {MAX_BYTES:,} is the limit.")
    try:
        return message_class.FromString(data)
    except DecodeError as error:
        name = message_class.DESCRIPTOR.name
        raise Malformed(f"These bytes are not a valid {name} message.") from error
