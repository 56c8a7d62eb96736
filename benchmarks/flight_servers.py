"""Servers to hold ours against, each a process of its own.

One is our protocol layer over a backend without an engine: a statement's answer is rows in memory. Another is a
raw pyarrow Flight server with nothing of ours in it, which streams the same rows without Python (``RecordBatchStream``). The
third is such a server over plain DuckDB: what is asked by Flight SQL takes at least as long as there.
"""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection

import duckdb
import numpy as np
import pyarrow as pa
from pyarrow import flight

from benchmarks.world import Serving
from planner.errors import UnknownTable, UnsupportedStatement
from proxy.access.authentication.callers import Access
from proxy.access.limits import ServerPolicy
from proxy.engine.result import MaterializedResult
from proxy.flightsql import messages
from proxy.flightsql.backend import Browsing
from proxy.flightsql.metadata.sqlinfo import Product
from proxy.flightsql.server import Address, ServerOptions, start
from proxy.session import Deadline, Planned, Prepared, Renewed, Session, Table, TicketSummary

COLUMNS = 8
#: 2 MiB, which is what the seam asks of a backend (``proxy.flightsql.backend.Stream``).
BATCH_ROWS = 32_768
#: That many batches are different: 64 MiB, more than caches hold. A stream repeats them.
_DISTINCT = 32
_SEED = 1
#: What the servers are asked for: many rows, or a single one. Ours takes them for statements.
MANY, ONE = "SELECT * FROM longs", "SELECT 1"
_HOST = "127.0.0.1"
#: Of a batch that plain DuckDB hands over.
_ENGINE_ROWS = 131_072
_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 30.0

#: How a message of Flight SQL begins: the tag of its type URL.
_WRAPPED = b"\x0a"

_Answers = Mapping[str, tuple[pa.Schema, Sequence[pa.RecordBatch]]]

SCHEMA = pa.schema([(f"c{number}", pa.int64()) for number in range(COLUMNS)])
#: Columns of a listed table, as a bound one has them.
_LISTED = pa.schema(
    [
        pa.field("kafka_partition", pa.int32(), nullable=False),
        pa.field("kafka_offset", pa.int64(), nullable=False),
        pa.field("kafka_timestamp", pa.timestamp("us", "UTC")),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("src", pa.utf8()),
        pa.field("dst", pa.utf8()),
        pa.field("src_port", pa.int32()),
        pa.field("bytes", pa.int64()),
        pa.field("price", pa.decimal128(18, 4)),
        pa.field("blocked", pa.bool_()),
    ]
)


def batches(rows: int) -> list[pa.RecordBatch]:
    """At least ``rows`` rows of eight random longs, in whole batches."""
    chance, count = np.random.default_rng(_SEED), -(-rows // BATCH_ROWS)
    made = [
        pa.record_batch(
            [pa.array(chance.integers(-(2**62), 2**62, BATCH_ROWS)) for _ in SCHEMA],
            schema=SCHEMA,
        )
        for _ in range(min(count, _DISTINCT))
    ]
    return [made[number % _DISTINCT] for number in range(count)]


def _answers(rows: int) -> _Answers:
    """What both servers hold, by the text that asks for it."""
    one = pa.record_batch({"1": pa.array([1], pa.int32())})
    return {MANY: (SCHEMA, batches(rows)), ONE: (one.schema, [one])}


class MemoryBackend:
    """Answers two texts, and lists ``tables`` tables of 11 columns."""

    def __init__(self, answers: _Answers, tables: int) -> None:
        self._answers = answers
        self._tables = [Table("lake", f"s{n % 100:02}", f"t{n:05}") for n in range(tables)]
        # As the pins of a real server: a schema for each table, made once.
        self._schemas = {
            table.name: _LISTED.append(pa.field(f"of_{table.name}", pa.int64()))
            for table in self._tables
        }

    @property
    def browser(self) -> Browsing:
        return self

    def configure(self, session: Session, before: Session | None = None) -> Session:
        return session

    def prepare(self, session: Session, sql: str, deadline: Deadline) -> Prepared:
        return Prepared(self._answers[sql][0], pa.schema([]))

    def plan(
        self,
        session: Session,
        sql: str,
        parameters: pa.RecordBatch | None,
        deadline: Deadline,
    ) -> Planned:
        return Planned(sql.encode(), self._answers[sql][0])

    def update(
        self,
        session: Session,
        sql: str,
        rows: Iterable[pa.RecordBatch],
        deadline: Deadline,
    ) -> int:
        raise UnsupportedStatement("This server is read-only.")

    def open(self, session: Session, ticket: bytes, deadline: Deadline) -> MaterializedResult:
        schema, value = self._answers[ticket.decode()]
        return MaterializedResult(schema, tuple(value))

    def renew(self, session: Session, ticket: bytes) -> Renewed:
        raise UnsupportedStatement("Tickets of this server do not expire.")

    def about(self, session: Session, ticket: bytes) -> TicketSummary:
        return TicketSummary(ticket.decode(), {})

    def catalogs(self, session: Session) -> Sequence[str]:
        return sorted({table.catalog for table in self._tables})

    def schemas(self, session: Session) -> Sequence[tuple[str, str]]:
        return sorted({(table.catalog, table.schema) for table in self._tables})

    def tables(self, session: Session) -> Sequence[Table]:
        return self._tables

    def table_schema(self, session: Session, table: Table) -> pa.Schema:
        try:
            return self._schemas[table.name]
        except KeyError as error:
            raise UnknownTable(f"There is no table {table.name}.") from error


class _RawServer(flight.FlightServerBase):  # pyarrow has no types
    """Plain texts, and the five calls of a Flight SQL client that prepares, executes and closes."""

    def __init__(self, answers: _Answers) -> None:
        self._answers = answers
        super().__init__(flight.Location.for_grpc_tcp(_HOST, 0))

    def get_flight_info(
        self, context: flight.ServerCallContext, descriptor: flight.FlightDescriptor
    ) -> flight.FlightInfo:
        text = _text(descriptor.command)
        endpoint = flight.FlightEndpoint(text, [])
        return flight.FlightInfo(self._schema(text), descriptor, [endpoint], -1, -1)

    def do_get(
        self, context: flight.ServerCallContext, ticket: flight.Ticket
    ) -> flight.RecordBatchStream:
        schema, value = self._answers[ticket.ticket.decode()]
        return flight.RecordBatchStream(pa.Table.from_batches(value, schema))

    def do_action(
        self, context: flight.ServerCallContext, action: flight.Action
    ) -> Iterable[bytes]:
        if action.type != "CreatePreparedStatement":
            return []
        text = messages.unpack(action.body.to_pybytes()).query
        answer = messages.ActionCreatePreparedStatementResult(
            prepared_statement_handle=text.encode(),
            dataset_schema=self._schema(text).serialize().to_pybytes(),
        )
        return [messages.pack(answer)]

    def _schema(self, text: str) -> pa.Schema:
        return self._answers[text][0]


class _PlainServer(_RawServer):
    """Plain DuckDB behind the same calls: each text is run as it is, columns are described once."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self._schemas: dict[str, pa.Schema] = {}
        super().__init__({})

    def do_get(
        self, context: flight.ServerCallContext, ticket: flight.Ticket
    ) -> flight.GeneratorStream:
        reader = self._connection.cursor().execute(ticket.ticket.decode())
        batches = reader.to_arrow_reader(_ENGINE_ROWS)
        return flight.GeneratorStream(batches.schema, iter(batches))

    def _schema(self, text: str) -> pa.Schema:
        if text not in self._schemas:
            empty = self._connection.cursor().execute(f"SELECT * FROM ({text}) LIMIT 0")
            self._schemas[text] = empty.to_arrow_table().schema
        return self._schemas[text]


def _text(command: bytes) -> str:
    if not command.startswith(_WRAPPED):
        return command.decode()
    message = messages.unpack(command)
    if messages.kind(message) == "CommandPreparedStatementQuery":
        return str(message.prepared_statement_handle.decode())
    return str(message.query)


def serve_ours(connection: Connection, rows: int, tables: int) -> None:
    """Serve our protocol layer until the other end of ``connection`` is closed."""
    server = start(
        MemoryBackend(_answers(rows), tables),
        Address(_HOST, 0),
        ServerPolicy(Access(allow_anonymous=True)),
        ServerOptions(Product("Thermocline", "benchmark", keywords=(), string_functions=())),
    )
    _until_closed(connection, server.port)
    server.stop(_STOP_TIMEOUT_S)


def serve_raw(connection: Connection, rows: int) -> None:
    """Serve raw pyarrow Flight until the other end of ``connection`` is closed."""
    server = _RawServer(_answers(rows))
    _until_closed(connection, server.port)
    server.shutdown()


def serve_plain(connection: Connection, set_up: Sequence[str]) -> None:
    """Serve plain DuckDB after the statements ``set_up``, until the other end of ``connection`` is closed."""
    with duckdb.connect() as engine:
        for text in set_up:
            engine.execute(text)
        server = _PlainServer(engine)
        _until_closed(connection, server.port)
        server.shutdown()


def _until_closed(connection: Connection, port: int) -> None:
    connection.send(port)
    with contextlib.suppress(EOFError):
        connection.recv()


@contextlib.contextmanager
def served(target: Callable[..., None], *arguments: object) -> Iterator[Serving]:
    """Run ``target`` in a process of its own."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=target, args=(there, *arguments), daemon=True)
    process.start()
    there.close()
    try:
        if not here.poll(_START_TIMEOUT_S):
            raise RuntimeError("a server did not start")
        yield Serving(f"grpc://{_HOST}:{here.recv()}", process.pid or 0)
    finally:
        here.close()
        process.join(_STOP_TIMEOUT_S)
