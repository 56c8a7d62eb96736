"""The Flight server: carries calls between pyarrow.flight and the service, starts and stops.

``serve()`` is never called: it would take over SIGTERM. The constructor listens; ``stop`` ends it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
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
from proxy.flightsql.service import FlightAnswer, Request, ServerState, Service
from proxy.flightsql.state.calls import Call, Calls
from proxy.flightsql.state.sessions import SessionOptions, Sessions
from proxy.flightsql.state.statement_list import EndedStatements, StatementList
from proxy.flightsql.state.streams import StreamQueue
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
class ServerOptions(SessionOptions):
    """What a server is started with.

    At most ``max_streams`` statements stream at once; ``max_queued`` further ones wait ``stream_wait_s`` for a slot.
    ``journals`` get the record of every call that is over.
    """

    product: Product
    max_streams: int = 32
    max_queued: int = 256
    stream_wait_s: float = 5.0
    journals: Sequence[Journal] = ()
    #: Whether those who see a statement see its text, as in the audit log.
    audit_text: bool = False


class FlightSqlServer:
    """A listening server. ``port`` is the real one, also if 0 was asked for."""

    def __init__(
        self, listen: _Listen, address: Address, gate: CallGate, server: ServerState
    ) -> None:
        #: Lets callers of other protocols in, too.
        self.gate = gate
        self.statements = server.statements
        self._listen = listen
        self._streams = server.streams
        self._changing = threading.Lock()
        self._flight = listen(address.port, address.tls)
        self.port: int = self._flight.port

    @property
    def streaming(self) -> int:
        return self.gate.calls.streaming

    def let_in(self, access: Access) -> None:
        """Have callers prove their identity in other ways; sessions that could not be opened so now end."""
        self.gate.policy.access = access
        self.gate.sessions.prove_again()

    def limit(
        self, limits_of: LimitsOf, *, max_streams: int, max_queued: int, stream_wait_s: float
    ) -> None:
        """Let callers take more, or less, from now on; running statements keep their places."""
        self.gate.policy.limits_of = limits_of
        self._streams.resize(max_streams, wait_s=stream_wait_s, max_waiting=max_queued)

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
        return self.gate.calls.drain(deadline_s)

    def give_up(self, why: str) -> None:
        """Have all calls answered that the process ends, as far as they can be; nothing is waited for."""
        self.gate.calls.give_up(
            Unavailable(
                f"The statement is lost: the server's process ends and starts again ({why}). Retry in a few seconds."
            )
        )

    def stop(self, deadline_s: float) -> bool:
        """Interrupt all calls, then end the server; False if a call was still running at the deadline.

        In that case the port is closed but a thread stays behind: the process should end.
        """
        until = time.monotonic() + deadline_s
        self.gate.calls.close(deadline_s)
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
    ended = EndedStatements(with_text=options.audit_text)
    calls = Calls(journals=(*options.journals, ended.records.note))
    sessions = Sessions(backend.browser, policy, options, clock_s)
    statements = StatementList(calls, sessions, policy, ended)
    streams = StreamQueue(
        options.max_streams, wait_s=options.stream_wait_s, max_waiting=options.max_queued
    )
    server = ServerState(sessions, statements, streams, calls.check_open, blame or Blame())
    service = Service(backend, options.product, server)
    gate = CallGate(sessions, calls, policy, Rate(clock_s))
    host = address.host

    def listen(port: int, tls: Tls | None) -> _FlightServer:
        try:
            return _FlightServer(service, gate, _location(host, port, tls), tls)
        except (pa.ArrowException, OSError) as error:
            raise BadConfig(
                f"The server cannot listen on {host}:{port}: the address is taken, or not one of this machine"
                + ("." if tls is None else ", or the certificate or its key is not valid."),
                host=host,
                port=port,
            ) from error

    try:
        return FlightSqlServer(listen, address, gate, server)
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
        self, service: Service, gate: CallGate, location: flight.Location, tls: Tls | None
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
            auth_handler=None if gate.policy.access.certificates else Handshake(),
            middleware={_MIDDLEWARE: gate},
            **secured,
        )

    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        with _boundary(context):
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
        with schema_boundary(_boundary(context)):
            schema = self._service.schema(_enter(context), _command(descriptor))
            return flight.SchemaResult(schema)

    def do_get(
        self, context: flight.ServerCallContext, ticket: flight.Ticket
    ) -> flight.GeneratorStream:
        with _boundary(context):
            request = _enter(context)
            answer = self._service.fetch(request, ticket.ticket)
            return flight.GeneratorStream(answer.schema, _outgoing(answer, request), _FORMAT)

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        with _boundary(context):
            request = _enter(context)
            rows = partial(uploads.checked, _Upload(reader, request))
            result = self._service.put(request, _command(descriptor), rows)
            try:
                writer.write(pa.py_buffer(result))
            except OSError as error:  # gRPC tells no more; and no client is left
                raise Cancelled("The client ended the call.") from error

    def do_action(
        self, context: flight.ServerCallContext, action: flight.Action
    ) -> Iterator[flight.Result]:
        with _boundary(context):
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
        with _boundary(context):
            raise UnknownCommand("This server does not have DoExchange.")


def _boundary(context: flight.ServerCallContext) -> Boundary:
    call: Call = context.get_middleware(_MIDDLEWARE).call
    return Boundary(call.record, call.cancellation)


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


def _outgoing(answer: FlightAnswer, request: Request) -> Iterator[pa.RecordBatch]:
    call = request.call
    with Boundary(call.record, call.cancellation):
        for batch in answer.batches:
            call.await_reader(request.limits.reader_idle_s)
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
