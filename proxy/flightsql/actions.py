"""The actions of DoAction: prepared statements, cancelling, sessions.

Those of FlightSql.proto travel inside ``Any`` both ways, those of Flight.proto bare.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from planner.errors import RequestError
from proxy.flightsql import messages
from proxy.flightsql.messages import Malformed, UnknownCommand
from proxy.flightsql.outgoing import shaped_schema
from proxy.flightsql.service import Request, Service, refuse_transaction
from proxy.flightsql.state.client_session import (
    SETTINGS,
    Fate,
    UnknownHandle,
    settings_of,
    with_settings,
)
from proxy.session import OptionValue

# Flight.proto: CancelStatus, SetSessionOptionsResult.ErrorValue, CloseSessionResult.Status.
_CANCELLED = 1
_NOT_CANCELLABLE = 3
_INVALID_NAME = 1
_INVALID_VALUE = 2
_CLOSED = 1


@dataclass(frozen=True, slots=True)
class Action:
    description: str
    run: Callable[[Service, Request, bytes], list[bytes]]


def run(service: Service, request: Request, name: str, body: bytes) -> list[bytes]:
    """Run one action and return the bodies of its results.

    Raises:
        UnknownCommand: this server does not have the action.
        RequestError: the body is not its message; and what the backend raises.
    """
    action = ACTIONS.get(name)
    if action is None:
        raise UnknownCommand(f"This server does not have the action {name[:100]!r}.")
    return action.run(service, request, body)


def _wrapped(body: bytes, name: str) -> Any:
    message = messages.unpack(body)
    if messages.kind(message) != name:
        raise Malformed(f"This action takes {name}, not {messages.kind(message)}.")
    return message


def _create_prepared_statement(service: Service, request: Request, body: bytes) -> list[bytes]:
    message = _wrapped(body, "ActionCreatePreparedStatementRequest")
    refuse_transaction(message)
    handle, statement = service.prepare(request, message.query)
    dataset = shaped_schema(request.client.session, statement.prepared.dataset_schema)
    result = messages.ActionCreatePreparedStatementResult(
        prepared_statement_handle=handle,
        dataset_schema=dataset.serialize().to_pybytes(),
        parameter_schema=statement.prepared.parameter_schema.serialize().to_pybytes(),
        is_update=statement.is_change,
    )
    return [messages.pack(result)]


def _close_prepared_statement(service: Service, request: Request, body: bytes) -> list[bytes]:
    message = _wrapped(body, "ActionClosePreparedStatementRequest")
    request.client.forget(message.prepared_statement_handle)
    return []


def _cancel_flight_info(service: Service, request: Request, body: bytes) -> list[bytes]:
    message = messages.parse(messages.CancelFlightInfoRequest, body)
    status = _cancel(service, request, message.info)
    return [messages.CancelFlightInfoResult(status=status).SerializeToString()]


def _cancel_query(service: Service, request: Request, body: bytes) -> list[bytes]:
    message = _wrapped(body, "ActionCancelQueryRequest")
    status = _cancel(service, request, messages.parse(messages.FlightInfo, message.info))
    return [messages.pack(messages.ActionCancelQueryResult(result=status))]


def _cancel(service: Service, request: Request, info: Any) -> int:
    """Give up what streams the info's tickets, and make them void: not a further batch is sent.

    Raises:
        UnknownHandle: none of the tickets was given to this session.
    """
    tickets = {endpoint.ticket.ticket for endpoint in info.endpoint}
    fates = {request.client.cancel(ticket) for ticket in tickets}
    calls = service.sessions.streaming(request.client, tickets)
    for call in calls:
        call.cancellation.request()
    if calls or fates & {Fate.PLANNED, Fate.CANCELLED}:
        return _CANCELLED
    if Fate.FETCHED in fates:
        return _NOT_CANCELLABLE  # its last row has been sent
    raise UnknownHandle("This session was not given such a statement.")


def _renew_flight_endpoint(service: Service, request: Request, body: bytes) -> list[bytes]:
    message = messages.parse(messages.RenewFlightEndpointRequest, body)
    ticket, expires_at_us = service.renew(request, message.endpoint.ticket.ticket)
    endpoint = messages.FlightEndpoint()
    endpoint.CopyFrom(message.endpoint)
    endpoint.ticket.ticket = ticket
    endpoint.expiration_time.FromMicroseconds(expires_at_us)
    return [endpoint.SerializeToString()]


def _set_session_options(service: Service, request: Request, body: bytes) -> list[bytes]:
    message = messages.parse(messages.SetSessionOptionsRequest, body)
    result = messages.SetSessionOptionsResult()
    client = request.client
    # One by one, so that a bad value keeps no other from taking effect; in the order of SETTINGS.
    for name in filter(message.session_options.__contains__, SETTINGS):
        option = (name, _option(message.session_options[name]))
        try:
            service.sessions.configure(client, with_settings(client.session, [option]))
        except RequestError:
            result.errors[name].value = _INVALID_VALUE
    for name in set(message.session_options) - SETTINGS.keys():
        result.errors[name].value = _INVALID_NAME
    return [result.SerializeToString()]


def _option(value: Any) -> OptionValue | None:
    member = value.WhichOneof("option_value")
    option: OptionValue | None = None if member is None else getattr(value, member)
    return tuple(value.string_list_value.values) if member == "string_list_value" else option


def _get_session_options(service: Service, request: Request, body: bytes) -> list[bytes]:
    messages.parse(messages.GetSessionOptionsRequest, body)
    result = messages.GetSessionOptionsResult()
    for name, value in settings_of(request.client.session).items():
        member = "int64_value" if isinstance(value, int) else "string_value"
        setattr(result.session_options[name], member, value)
    return [result.SerializeToString()]


def _close_session(service: Service, request: Request, body: bytes) -> list[bytes]:
    messages.parse(messages.CloseSessionRequest, body)
    service.sessions.close(request.client, request.call)
    return [messages.CloseSessionResult(status=_CLOSED).SerializeToString()]


#: Every action of this server; ListActions answers from it.
ACTIONS: dict[str, Action] = {
    "CreatePreparedStatement": Action(
        "Check a statement and keep it under a handle.", _create_prepared_statement
    ),
    "ClosePreparedStatement": Action(
        "Forget a prepared statement; doing so twice is fine.", _close_prepared_statement
    ),
    "CancelFlightInfo": Action("Give up a running statement.", _cancel_flight_info),
    "CancelQuery": Action("Give up a running statement (deprecated name).", _cancel_query),
    "RenewFlightEndpoint": Action(
        "Make a statement's ticket good for longer.", _renew_flight_endpoint
    ),
    "SetSessionOptions": Action(
        f"Set {', '.join(SETTINGS)}; no value: the default.", _set_session_options
    ),
    "GetSessionOptions": Action("Read what is set in this session.", _get_session_options),
    "CloseSession": Action("End this session; its token is void.", _close_session),
}
