"""The Flight server: carries calls between pyarrow.flight and the service, starts and stops.

``serve()`` is never called: it would take over SIGTERM. The constructor listens; ``stop`` ends it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyarrow import flight

from planner.errors import BadConfig, Cancelled, Unavailable
from proxy.access.authentication.callers import Access
from proxy.access.limits import Blame, LimitsOf, Rate, ServerPolicy
from proxy.flightsql import actions, messages, uploads
from proxy.flightsql.backend import Backend
from proxy.flightsql.errors import Boundary, schema_boundary
from proxy.flightsql.messages import Malformed, UnknownCommand
from proxy.flightsql.metadata.sqlinfo import Product
from proxy.flightsql.middleware import CallGate, Handshake
from proxy.flightsql.service import FlightAnswer, Request, Service
from proxy.flightsql.state.calls import Call, Calls
from proxy.flightsql.state.sessions import IDLE_TIMEOUT_S, MAX_SESSIONS, Sessions
from proxy.flightsql.state.streams import StreamQueue
from proxy.flightsql.state.tokens import SessionTokens
from proxy.ops.call_record import Journal

_MIDDLEWARE = "call"
#: How rows go out. Left to pyarrow, it is worked out for each stream, from the environment.
_FORMAT = pa.ipc.IpcWriteOptions()
#: How long the port of a server that stopped listening may stay taken: milliseconds, on a machine with time.
_REBIND_S = 30.0
_REBIND_PAUSE_S = 0.002


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM texts. With ``client_ca`` a client must show a certificate that it signed."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None = None

    def __repr__(self) -> str:
        return "Tls(…)"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens. Port 0: any that is free."""

    host: str
    port: int
    tls: Tls | None = None


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What a server is started with.

    At most ``max_streams`` statements stream at once; ``max_queued`` further ones wait ``stream_wait_s`` for a slot.
    Servers with one ``session_secret`` and the same users take each other's session tokens. ``journals`` get the
    record of every call that is over.
    """

    product: Product
    max_streams: int = 32
    max_queued: int = 256
    stream_wait_s: float = 5.0
    max_sessions: int = MAX_SESSIONS
    idle_timeout_s: float = IDLE_TIMEOUT_S
    session_secret: bytes | None = field(default=None, repr=False)
    journals: Sequence[Journal] = ()


@dataclass(frozen=True, slots=True)
class _Parts:
    """What all listeners of one server share."""

    calls: Calls
    sessions: Sessions
    streams: StreamQueue
    gate: CallGate


class FlightSqlServer:
    """A listening server. ``port`` is the real one, also if 0 was asked for."""

    def __init__(
        self, listen: _Listen, address: Address, policy: ServerPolicy, parts: _Parts
    ) -> None:
        self._listen = listen
        self._policy = policy
        self._parts = parts
        self._changing = threading.Lock()
        self._flight = listen(address.port, address.tls)
        self.port: int = self._flight.port

    @property
    def gate(self) -> CallGate:
        """Lets callers of other protocols in, too."""
        return self._parts.gate

    @property
    def streaming(self) -> int:
        return self._parts.calls.streaming

    def let_in(self, access: Access) -> None:
        """Have callers prove their identity in other ways; sessions that could not be opened so now end."""
        self._policy.access = access
        self._parts.sessions.prove_again()

    def limit(
        self, limits_of: LimitsOf, *, max_streams: int, max_queued: int, stream_wait_s: float
    ) -> None:
        """Let callers take more, or less, from now on; running statements keep their places."""
        self._policy.limits_of = limits_of
        self._parts.streams.resize(max_streams, wait_s=stream_wait_s, max_waiting=max_queued)

    def listen_again(self, tls: Tls | None) -> None:
        """Listen on the same port with another certificate, as clients see it: reconnecting.

        pyarrow cannot change the certificates of a server. The old one stops listening at once and answers the calls
        it has; for the milliseconds until the new one listens, connections are refused.

        Raises:
            BadConfig: the certificate is not usable, and the old one is in force.
            Unavailable: the port was lost in between. Nothing listens: the process should end.
        """
        with self._changing:
            self._listen(0, tls).shutdown()  # tried out on a port of its own
            old = self._flight
            threading.Thread(target=old.shutdown, name="flight-old", daemon=True).start()
            until = time.monotonic() + _REBIND_S
            while True:
                try:
                    self._flight = self._listen(self.port, tls)
                except BadConfig as error:
                    if time.monotonic() > until:
                        raise Unavailable(
                            f"port {self.port} was lost to another process."
                        ) from error
                    time.sleep(_REBIND_PAUSE_S)
                else:
                    return

    def drain(self, deadline_s: float) -> bool:
        """Let running calls end and nothing new begin; False if one still ran at the deadline."""
        return not self._parts.calls.drain(deadline_s)

    def give_up(self, why: str) -> None:
        """Have all calls answered that the process ends, as far as they can be; nothing is waited for."""
        self._parts.calls.give_up(
            Unavailable(
                f"The statement is lost: the server's process ends and starts again ({why}). Retry in a few seconds."
            )
        )

    def stop(self, deadline_s: float) -> bool:
        """Interrupt all calls, then end the server; False if a call was still running at the deadline.

        In that case the port is closed but a thread stays behind: the process should end.
        """
        until = time.monotonic() + deadline_s
        self._parts.calls.close(deadline_s)
        # Waits for running calls without a deadline of its own.
        closing = threading.Thread(
            target=self._flight.shutdown, name="flight-shutdown", daemon=True
        )
        closing.start()
        closing.join(max(0.0, until - time.monotonic()) + 1.0)
        return not closing.is_alive()


def start(
    backend: Backend,
    address: Address,
    policy: ServerPolicy,
    options: ServerOptions,
    blame: Blame | None = None,
    clock_s: Callable[[], float] = time.monotonic,
) -> FlightSqlServer:
    """Listen on ``address`` and serve ``backend``; the caller stops the server. ``blame`` says whose statements are not wanted now.

    Raises:
        BadConfig: the address cannot be listened on, or the certificate is not usable.
    """
    calls = Calls(journals=options.journals)
    secret = options.session_secret
    sessions = Sessions(
        backend.browser,
        policy,
        clock_s=clock_s,
        idle_timeout_s=options.idle_timeout_s,
        max_sessions=options.max_sessions,
        tokens=None if secret is None else SessionTokens(secret, time.time),
    )
    streams = StreamQueue(
        options.max_streams, wait_s=options.stream_wait_s, max_waiting=options.max_queued
    )
    service = Service(
        backend, options.product, sessions, streams, calls.check_open, blame or Blame()
    )
    entry = CallGate(sessions, calls, policy, Rate(clock_s))
    host = address.host

    def listen(port: int, tls: Tls | None) -> _FlightServer:
        try:
            return _FlightServer(service, entry, _location(host, port, tls), tls)
        except (pa.ArrowException, OSError) as error:
            raise BadConfig(
                f"The server cannot listen on {host}:{port}: the address is taken, or not one of this machine"
                + ("." if tls is None else ", or the certificate or its key is not valid."),
                host=host,
                port=port,
            ) from error

    try:
        return FlightSqlServer(listen, address, policy, _Parts(calls, sessions, streams, entry))
    except BadConfig:
        calls.close(0)
        raise


def _location(host: str, port: int, tls: Tls | None) -> flight.Location:
    bracketed = f"[{host}]" if ":" in host else host
    make = flight.Location.for_grpc_tcp if tls is None else flight.Location.for_grpc_tls
    return make(bracketed, port)


class _FlightServer(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    """The calls of Flight, each within the boundary that lets only wire errors out.

    All methods of the base class are overridden: its own raise with a traceback.
    """

    def __init__(
        self,
        service: Service,
        entry: CallGate,
        location: flight.Location,
        tls: Tls | None,
    ) -> None:
        secured = {}
        if tls is not None:
            secured = {
                "tls_certificates": [(tls.certificate, tls.key)],
                "verify_client": tls.client_ca is not None,
                "root_certificates": tls.client_ca,
            }
        self._service = service
        super().__init__(
            location,
            auth_handler=None if entry.policy.access.certificates else Handshake(),
            middleware={_MIDDLEWARE: entry},
            **secured,
        )

    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        call = _call(context)
        with Boundary(call.record), call.blaming():
            info = self._service.info(_enter(context), _command(descriptor))
            # No location, and one endpoint unless more were asked for: "fetch it here" is what every client understands.
            return flight.FlightInfo(
                info.schema,
                descriptor,
                [_endpoint(ticket, info.expires_at_us) for ticket in info.tickets],
                -1,
                -1,
                app_metadata=info.app_metadata,
            )

    def get_schema(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.SchemaResult:
        call = _call(context)
        with schema_boundary(call.record), call.blaming():
            return flight.SchemaResult(
                self._service.schema(_enter(context), _command(descriptor))
            )

    def do_get(
        self, context: flight.ServerCallContext, ticket: flight.Ticket
    ) -> flight.GeneratorStream:
        call = _call(context)
        with Boundary(call.record), call.blaming():
            request = _enter(context)
            answer = self._service.fetch(request, ticket.ticket)
            idle_s = request.limits.reader_idle_s
            return flight.GeneratorStream(
                answer.schema, _outgoing(answer, call, idle_s), _FORMAT
            )

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        call = _call(context)
        with Boundary(call.record), call.blaming():
            request = _enter(context)
            result = self._service.put(
                request,
                _command(descriptor),
                lambda: uploads.checked(_Upload(reader, request)),
            )
            try:
                writer.write(pa.py_buffer(result))
            except OSError as error:  # gRPC tells no more; and no client is left
                raise Cancelled("The client ended the call.") from error

    def do_action(
        self, context: flight.ServerCallContext, action: flight.Action
    ) -> Iterator[flight.Result]:
        call = _call(context)
        with Boundary(call.record), call.blaming():
            request = _enter(context)
            bodies = actions.run(self._service, request, action.type, action.body.to_pybytes())
            return _results(bodies, request)

    def list_actions(self, context: flight.ServerCallContext) -> list[tuple[str, str]]:
        return [(name, action.description) for name, action in actions.ACTIONS.items()]

    def list_flights(
        self, context: flight.ServerCallContext, criteria: bytes
    ) -> Iterable[flight.FlightInfo]:
        return iter(())

    def do_exchange(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.MetadataRecordBatchWriter,
    ) -> None:
        with Boundary(_call(context).record):
            raise UnknownCommand("This server does not have DoExchange.")


def _call(context: flight.ServerCallContext) -> Call:
    call: Call = context.get_middleware(_MIDDLEWARE).call
    return call


def _enter(context: flight.ServerCallContext) -> Request:
    request: Request = context.get_middleware(_MIDDLEWARE).enter(context)
    return request


def _endpoint(ticket: bytes, expires_at_us: int | None) -> flight.FlightEndpoint:
    if expires_at_us is None:
        return flight.FlightEndpoint(ticket, [])
    # By way of its bytes: pyarrow casts the time that its constructor takes, a fifth of this call.
    return flight.FlightEndpoint.deserialize(messages.endpoint(ticket, expires_at_us))


def _command(descriptor: flight.FlightDescriptor) -> bytes:
    command: bytes | None = descriptor.command
    if command is None:
        raise Malformed("This server takes Flight SQL commands; a path was given.")
    return command


def _outgoing(
    answer: FlightAnswer, call: Call, idle_s: float | None
) -> Iterator[pa.RecordBatch]:
    with Boundary(call.record), call.blaming():
        for batch in answer.batches:
            call.await_reader(idle_s)
            yield batch
            call.proceed()
            call.cancellation.check()


def _results(bodies: Iterable[bytes], request: Request) -> Iterator[flight.Result]:
    for body in bodies:
        request.call.await_reader(request.limits.reader_idle_s)
        yield flight.Result(pa.py_buffer(body))
        request.call.proceed()


class _Upload:
    """The messages of an upload; none is waited for longer than the user's limit."""

    def __init__(self, reader: flight.MetadataRecordBatchReader, request: Request) -> None:
        self._reader = reader
        self._request = request

    @property
    def schema(self) -> pa.Schema:
        return self._awaited(lambda: self._reader.schema)

    def __iter__(self) -> Iterator[flight.FlightStreamChunk]:
        while (chunk := self._awaited(lambda: next(self._reader, None))) is not None:
            yield chunk

    def _awaited(self, read: Callable[[], Any]) -> Any:
        call = self._request.call
        call.await_upload(self._request.limits.upload_idle_s)
        try:
            result = read()
        finally:
            call.proceed()
        # A connection that was cut looks like the end of the upload.
        call.cancellation.check()
        return result


#: (port, certificate) -> what listens there. Raises BadConfig.
_Listen = Callable[[int, Tls | None], _FlightServer]
