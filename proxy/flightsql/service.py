"""Flight SQL without Flight: each command of the protocol, given a session, and its answer.

The layer above carries requests and answers over Flight; the backend below runs SQL. What is here decides
which message may come where, what a ticket is, and when the backend is asked: once per client call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import pyarrow as pa

from planner.errors import BadParameter, UnknownTable, UnsupportedStatement
from planner.sql_text import same_name
from proxy.access.limits import Blame, UserLimits
from proxy.flightsql import messages
from proxy.flightsql.backend import Backend
from proxy.flightsql.messages import Malformed, UnknownCommand
from proxy.flightsql.metadata import commands as metadata
from proxy.flightsql.metadata.commands import MetadataRequest, SchemaCache
from proxy.flightsql.metadata.sqlinfo import Product
from proxy.flightsql.outgoing import sendable, shaped_schema, shaping
from proxy.flightsql.session_sql import as_query, change_of
from proxy.flightsql.state.calls import Call
from proxy.flightsql.state.client_session import (
    ClientSession,
    Statement,
    UnknownHandle,
    endpoints,
    is_whole,
    max_message_bytes,
    with_settings,
)
from proxy.flightsql.state.sessions import Sessions
from proxy.flightsql.state.statement_list import StatementList
from proxy.flightsql.state.streams import StreamQueue
from proxy.session import Deadline, Planned, Prepared, Session


@dataclass(frozen=True, slots=True)
class Request:
    """One client call: its session, the call, its limits and its deadline."""

    client: ClientSession
    call: Call
    limits: UserLimits
    deadline: Deadline


@dataclass(frozen=True, slots=True)
class Info:
    """An answer that tickets fetch: all of it one, or each a part of it."""

    schema: pa.Schema
    tickets: tuple[bytes, ...]
    app_metadata: bytes = b""
    expires_at_us: int | None = None


@dataclass(frozen=True, slots=True)
class FlightAnswer:
    """An answer on its way. ``batches`` raise what ends it early."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class ServerState:
    """What calls go by. ``check_open`` raises where nothing new may begin; what was planned before is still fetched."""

    sessions: Sessions
    statements: StatementList
    streams: StreamQueue
    check_open: Callable[[], None]
    blame: Blame

    def begin(self, request: Request, sql: str) -> None:
        """Note what is asked.

        Raises:
            Unavailable, Overloaded: nothing new may begin, or nothing of this user.
        """
        request.call.record.asks(sql)
        self.check_open()
        self.blame.check(request.client.session.user)


class Service:
    """The commands of Flight SQL over one backend. Thread-safe."""

    def __init__(self, backend: Backend, product: Product, server: ServerState) -> None:
        self.sessions = server.sessions
        self._server = server
        self._backend = backend
        self._product = product
        self._schema_cache = SchemaCache()

    def info(self, request: Request, command: bytes) -> Info:
        """GetFlightInfo: plan a statement, or describe a metadata command, which is its own ticket.

        Raises:
            RequestError: unknown, malformed or misplaced command; and what the backend raises.
        """
        message = messages.unpack(command)
        answered = metadata.COMMANDS.get(messages.kind(message))
        if answered is not None:
            return Info(answered.schema(message), (command,))
        if self._changed(request, message):
            return Info(_NOTHING, (messages.pack(_NO_ROWS),))
        planned = self._plan(request, message, endpoints(request.call.max_endpoints))
        tickets = tuple(
            messages.pack(messages.TicketStatementQuery(statement_handle=each))
            for each in planned.shares or (planned.ticket,)
        )
        for ticket in tickets:
            request.client.planned(ticket)
        schema = shaped_schema(request.client.session, planned.schema)
        return Info(schema, tickets, planned.app_metadata, planned.expires_at_us)

    def schema(self, request: Request, command: bytes) -> pa.Schema:
        """GetSchema: describe a command's answer; nothing is executed. Bound parameters have their say.

        Raises:
            RequestError: as ``info``.
        """
        message = messages.unpack(command)
        name = messages.kind(message)
        answered = metadata.COMMANDS.get(name)
        if answered is not None:
            return answered.schema(message)
        if name == "CommandStatementQuery":
            refuse_transaction(message)
            prepared = self._prepared(request, message.query)
            return shaped_schema(request.client.session, prepared.dataset_schema)
        if name == "CommandPreparedStatementQuery":
            statement = request.client.statement(message.prepared_statement_handle)
            schema = statement.prepared.dataset_schema
            if statement.parameters is not None:
                schema = self._plan(request, message).schema
            return shaped_schema(request.client.session, schema)
        raise _misplaced(name, "GetSchema")

    def fetch(self, request: Request, ticket: bytes) -> FlightAnswer:
        """DoGet: execute what a ticket names.

        Raises:
            RequestError: not a ticket of this server; and what the backend raises.
            Overloaded: too many statements are streaming.
        """
        message = messages.unpack(ticket)
        name = messages.kind(message)
        answered = metadata.COMMANDS.get(name)
        if answered is not None:
            metadata_request = MetadataRequest(
                message,
                request.client.session,
                self._backend.browser,
                self._product,
                self._schema_cache,
            )
            batches = map(sendable, answered.answer(metadata_request))
            return FlightAnswer(answered.schema(message), chain.from_iterable(batches))
        if name == "TicketStatementQuery":
            if message == _NO_ROWS:
                return FlightAnswer(_NOTHING, iter(()))
            return self._open(request, message.statement_handle, ticket)
        if name == "CommandPreparedStatementQuery":
            return self._open(request, self._plan(request, message).ticket, ticket)
        raise _misplaced(name, "DoGet")

    def renew(self, request: Request, ticket: bytes) -> tuple[bytes, int]:
        """RenewFlightEndpoint: a ticket for the same answer, and until when it is good (µs since 1970).

        Raises:
            RequestError: not a ticket of a statement; and what the backend raises.
            Cancelled: it was cancelled.
        """
        message = messages.unpack(ticket)
        if messages.kind(message) != "TicketStatementQuery" or message == _NO_ROWS:
            raise Malformed("Only a statement's ticket expires and can be renewed.")
        request.client.check(ticket)
        renewed = self._backend.renew(request.client.session, message.statement_handle)
        again = messages.pack(messages.TicketStatementQuery(statement_handle=renewed.ticket))
        request.client.planned(again)
        return again, renewed.expires_at_us

    def put(
        self, request: Request, command: bytes, rows: Callable[[], Iterable[pa.RecordBatch]]
    ) -> bytes:
        """DoPut: bind parameters, or change the session; return the metadata of the one answer.

        ``rows`` reads the upload, whose batches are valid (``uploads``).

        Raises:
            UnsupportedStatement: an ingestion; and what the backend raises for an update.
            BadParameter: not exactly one row, or too large a one.
        """
        message = messages.unpack(command)
        name = messages.kind(message)
        if name == "CommandPreparedStatementQuery":
            handle = message.prepared_statement_handle
            request.client.statement(handle)
            request.client.bind(handle, _one_row(rows()))
            result = messages.DoPutPreparedStatementResult(prepared_statement_handle=handle)
            return bytes(result.SerializeToString())
        if name == "CommandStatementIngest":
            raise UnsupportedStatement("This server is read-only: it takes no rows in.")
        if self._changed(request, message):
            _drained(rows())
            return bytes(messages.DoPutUpdateResult(record_count=0).SerializeToString())
        if name in _UPDATES:
            return self._update(request, message, rows())
        raise _misplaced(name, "DoPut")

    def prepare(self, request: Request, sql: str) -> tuple[bytes, Statement]:
        """Check a statement and keep it in the session; return its handle."""
        is_change = change_of(sql) is not None
        statement = Statement(sql, self._prepared(request, sql), is_change)
        return request.client.keep(statement), statement

    def _prepared(self, request: Request, sql: str) -> Prepared:
        self._server.begin(request, sql)
        if change_of(sql) is not None:
            return Prepared(_NOTHING, _NOTHING)
        session = _asking(request)
        with request.call.record.step("prepare"):
            return self._backend.prepare(session, as_query(sql, session), request.deadline)

    def _changed(self, request: Request, message: Any) -> bool:
        """Carry out a statement that changes the session; False: it is another one.

        Raises:
            RequestError: it sets what cannot be set; nothing changed.
        """
        client, (sql, _) = request.client, _statement(request, message)
        change = change_of(sql)
        if change is None:
            return False
        self._server.begin(request, sql)
        if change.cancels is not None:
            self._cancel(request, change.cancels)
        settings = dict(change.settings) | self._schema_settings(client.session, change.path)
        if settings:
            self.sessions.configure(client, with_settings(client.session, settings.items()))
        request.call.record.ended()
        return True

    def _cancel(self, request: Request, statement_id: str) -> None:
        """Give up a running statement.

        Raises:
            UnknownHandle: none that the caller may cancel runs under this id.
        """
        request.call.record.cancels = statement_id
        if not self._server.statements.cancel(request.client.session, statement_id):
            raise UnknownHandle(
                f"There is no running statement {statement_id[:80]!r} of yours."
            )

    def _update(self, request: Request, message: Any, rows: Iterable[pa.RecordBatch]) -> bytes:
        refuse_transaction(message)
        sql, _ = _statement(request, message)
        self._server.begin(request, sql)
        with request.call.record.step("plan"):
            count = self._backend.update(_asking(request), sql, rows, request.deadline)
        _drained(rows)
        request.call.record.ended()
        return bytes(messages.DoPutUpdateResult(record_count=count).SerializeToString())

    def _schema_settings(self, session: Session, path: tuple[str, ...]) -> dict[str, str]:
        """What USE sets: a catalog and a schema of it, or else a schema of the present one."""
        if not path:
            return {}
        if same_name(path[0], self._backend.browser.catalogs(session)) is not None:
            schemas = {"schema": ".".join(path[1:])} if len(path) > 1 else {}
            return {"catalog": path[0], **schemas}
        here = [
            schema
            for catalog, schema in self._backend.browser.schemas(session)
            if catalog == session.catalog
        ]
        name = ".".join(path)
        schema = same_name(name, here)
        if schema is not None:
            return {"schema": schema}
        if len(path) > 1:
            return {"catalog": path[0], "schema": ".".join(path[1:])}
        raise UnknownTable(f"There is no catalog and no schema {name[:80]!r} here.")

    def _plan(self, request: Request, message: Any, max_endpoints: int = 1) -> Planned:
        name = messages.kind(message)
        if name not in ("CommandStatementQuery", "CommandPreparedStatementQuery"):
            raise _misplaced(name, "GetFlightInfo")
        refuse_transaction(message)
        sql, parameters = _statement(request, message)
        self._server.begin(request, sql)
        session = _asking(request)
        if request.call.after is not None:
            session = replace(session, after=request.call.after)
        if max_endpoints > 1:
            session = replace(session, max_endpoints=max_endpoints)
        if is_whole(request.call.whole):
            session = replace(session, is_whole=True)
        with request.call.record.step("plan"):
            return self._backend.plan(
                session, as_query(sql, session), parameters, request.deadline
            )

    def _open(self, request: Request, planned: bytes, ticket: bytes) -> FlightAnswer:
        call, record = request.call, request.call.record
        opened_in = request.client.session
        record.redeems(planned, lambda: self._backend.about(opened_in, planned))
        limits, blame = request.limits, self._server.blame
        blame.check(opened_in.user)
        most = blame.most(opened_in.user, limits.max_streams)
        with request.deadline.paused(), request.deadline.waiting("slot"):
            self._server.streams.take(call, opened_in.user, most)
        # In this order: a cancel marks the ticket first and looks for calls second.
        call.ticket = ticket
        request.client.fetched(ticket)
        with record.step("first"):
            stream = self._backend.open(opened_in, planned, request.deadline)
        call.resources.callback(stream.close)
        record.streams()
        session = request.client.session
        schema, shape = shaping(session, stream.schema)
        limit = max_message_bytes(session)

        def batches() -> Iterator[pa.RecordBatch]:
            try:
                for batch in stream:
                    for message in sendable(shape(batch), limit):
                        call.cancellation.check()
                        record.sent(message)
                        limits.check_size(record.rows, record.bytes)
                        yield message
                call.cancellation.check()
                record.ended()
            finally:
                stream.close()

        return FlightAnswer(schema, batches())


_NOTHING = pa.schema([])
#: The ticket of a statement that has done its work. No backend's: those are sealed.
_NO_ROWS = messages.TicketStatementQuery(statement_handle=b"no rows")
_UPDATES = frozenset({"CommandPreparedStatementUpdate", "CommandStatementUpdate"})


def _asking(request: Request) -> Session:
    """The session with what its client says for this call only.

    Raises:
        BadParameter: it says what is not possible.
    """
    return with_settings(request.client.session, request.call.settings.items())


def _statement(request: Request, message: Any) -> tuple[str, pa.RecordBatch | None]:
    """The SQL of a statement's message, and the parameters bound to it; no SQL: it is another message."""
    match messages.kind(message):
        case "CommandStatementQuery" | "CommandStatementUpdate":
            return message.query, None
        case "CommandPreparedStatementQuery" | "CommandPreparedStatementUpdate":
            statement = request.client.statement(message.prepared_statement_handle)
            return statement.sql, statement.parameters
        case _:
            return "", None


def _drained(batches: Iterable[pa.RecordBatch]) -> None:
    """Read an upload to its end: a client that still writes would take the answer for a failure."""
    for _ in batches:
        pass


def _one_row(batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch | None:
    """The one row of an upload; None where it has no rows or no columns, as clients send for "no parameters"."""
    row = None
    for batch in batches:
        if batch.num_rows == 0 or batch.num_columns == 0:
            continue
        if batch.num_rows > 1 or row is not None:
            raise BadParameter(
                "A query takes one set of parameters; more than one was bound. Execute it once for each."
            )
        row = batch
    return row


def refuse_transaction(message: Any) -> None:
    if getattr(message, "transaction_id", None):  # a prepared statement has none
        raise UnsupportedStatement(
            "This server has no transactions; every statement is its own."
        )


def _misplaced(name: str, call: str) -> Malformed | UnknownCommand:
    if name == "CommandStatementSubstraitPlan":
        # A message for these calls; UNIMPLEMENTED is what drivers turn into "not supported".
        return UnknownCommand("This server takes SQL, not Substrait plans.")
    return Malformed(f"{name} is not a message for {call}.")
