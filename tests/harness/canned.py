"""A backend for tests of the protocol layer: plain DuckDB over a few tables, and failures on request.

A statement "trick <word> …" misbehaves in the way the word says. Every call is counted.
"""

from __future__ import annotations

import dataclasses
import re
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa

from planner import errors
from proxy.access.authentication.callers import Access
from proxy.access.limits import Blame, LimitsOf, ServerPolicy, UserLimits
from proxy.flightsql.backend import Browsing
from proxy.flightsql.metadata.sqlinfo import Product
from proxy.flightsql.server import Address, FlightSqlServer, ServerOptions, Tls, start
from proxy.session import (
    COMMENT,
    TYPE_NAME,
    Deadline,
    Planned,
    Prepared,
    Renewed,
    Session,
    Table,
    TicketSummary,
)

#: A text that must never reach a client.
SECRET = "/srv/secret/path.py"

_PARAMETER_TYPES = {
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "VARCHAR": pa.utf8(),
    "BOOLEAN": pa.bool_(),
    "TIMESTAMP": pa.timestamp("ms"),
    "TIME": pa.time32("ms"),
    "DATE": pa.date32(),
    "DECIMAL": pa.decimal128(18, 4),
    "BLOB": pa.binary(),
}

TABLES = (
    Table("lake", "main", "flows"),
    Table("lake", "main", "we_ird%"),
    Table("lake", "main", 'Quo"ted.Name é'),
    Table("lake", "main", "v_flows", kind="VIEW"),
    Table("lake", "other", "flows"),
    Table("lake", "main", "unreadable"),
    Table("second", "main", "plain"),
)

COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata={COMMENT: b"the key"}),
        pa.field("name", pa.utf8()),
        pa.field("price", pa.decimal128(18, 4)),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("tag", pa.utf8(), metadata={TYPE_NAME: b"UUID"}),
        pa.field("parts", pa.list_(pa.int32())),
    ]
)


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """One for all backends, which keep nothing in it: to open it takes longer than most tests."""
    return duckdb.connect()


class CannedBackend:
    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.closed = threading.Event()
        self.interrupted = threading.Event()
        self.release = threading.Event()
        self.running = threading.Event()
        self.planned_in: Session | None = None
        self.extra_tables = 0
        self.columns = COLUMNS
        self.open_streams = 0
        self.lock = threading.Lock()
        self._planned: dict[bytes, tuple[str, list[object], str | None]] = {}

    @property
    def browser(self) -> Browsing:
        return self

    def configure(self, session: Session, before: Session | None = None) -> Session:
        self.calls["configure"] += 1
        if session.catalog not in (None, "lake", "second"):
            raise errors.BadParameter(f"There is no catalog {session.catalog}.")
        if session.time_zone not in (None, "UTC", "Europe/Zurich"):
            raise errors.BadParameter(f"There is no time zone {session.time_zone}.")
        return dataclasses.replace(
            session, catalog=session.catalog or "lake", schema=session.schema or "main"
        )

    def prepare(self, session: Session, sql: str, deadline: Deadline) -> Prepared:
        self.calls["prepare"] += 1
        if (trick := _trick(sql)) is not None:
            if trick == "stuck_prepare":
                self._wait(deadline)
            if trick == "fail_prepare":
                raise _error_named(sql)
            return Prepared(pa.schema([("n", pa.int64())]), pa.schema([]))
        parameters = _parameter_schema(sql)
        return Prepared(self._schema(session, sql, len(parameters)), parameters)

    def plan(
        self,
        session: Session,
        sql: str,
        parameters: pa.RecordBatch | None,
        deadline: Deadline,
    ) -> Planned:
        self.calls["plan"] += 1
        self.planned_in = session
        trick = _trick(sql)
        if trick == "stuck_plan":
            self._wait(deadline)
        if trick == "deaf":
            self.running.set()
            self.release.wait(20)
        if trick == "fail":
            raise _error_named(sql)
        if trick == "bug":
            raise KeyError(SECRET)
        values: list[object] = []
        if parameters is not None:
            values = list(parameters.to_pylist()[0].values()) if parameters.num_rows else []
        if trick is None and len(values) != len(_parameter_schema(sql)):
            raise errors.BadParameter(
                f"The statement has {len(_parameter_schema(sql))} parameters, {len(values)} were bound."
            )
        ticket = secrets.token_bytes(8)
        self._planned[ticket] = (sql, values, session.user)
        schema = (
            pa.schema([("n", pa.int64())]) if trick else self._schema(session, sql, len(values))
        )
        return Planned(ticket, schema)

    def update(
        self,
        session: Session,
        sql: str,
        rows: Iterable[pa.RecordBatch],
        deadline: Deadline,
    ) -> int:
        self.calls["update"] += 1
        raise errors.UnsupportedStatement(
            "This server is read-only: no updates, no executemany."
        )

    def renew(self, session: Session, ticket: bytes) -> Renewed:
        if ticket not in self._planned:
            raise errors.BadTicket("The ticket was not issued by this server.")
        again = secrets.token_bytes(8)
        self._planned[again] = self._planned[ticket]
        return Renewed(again, 4_000_000_000_000_000)

    def about(self, session: Session, ticket: bytes) -> TicketSummary:
        if ticket not in self._planned:
            raise errors.BadTicket("The ticket was not issued by this server.")
        return TicketSummary(self._planned[ticket][0], {"lake.main.flows": "snapshot 7"})

    def open(self, session: Session, ticket: bytes, deadline: Deadline) -> CannedStream:
        self.calls["open"] += 1
        if ticket not in self._planned:
            raise errors.BadTicket("The ticket was not issued by this server.")
        sql, values, user = self._planned[ticket]
        if user != session.user:
            raise errors.BadTicket("The ticket was issued to another user.")
        if _trick(sql) == "stuck_open":
            self._wait(deadline)
        return CannedStream(self, sql, values, deadline, session)

    def catalogs(self, session: Session) -> Sequence[str]:
        return ["second", "lake"]

    def schemas(self, session: Session) -> Sequence[tuple[str, str]]:
        return [("second", "main"), ("lake", "other"), ("lake", "main")]

    def tables(self, session: Session) -> Sequence[Table]:
        extra = (Table("lake", "main", f"t{n}") for n in range(self.extra_tables))
        return [*TABLES, *extra]

    def table_schema(self, session: Session, table: Table) -> pa.Schema:
        if table.name == "unreadable":
            raise errors.UnsupportedType("lake.main.unreadable: column t holds time.")
        return self.columns

    def cursor(self, session: Session) -> duckdb.DuckDBPyConnection:
        cursor = _database().cursor()
        cursor.execute(f"SET TimeZone = '{session.time_zone or 'UTC'}'")
        return cursor

    def _schema(self, session: Session, sql: str, parameters: int) -> pa.Schema:
        cursor = self.cursor(session)
        try:
            cursor.execute(f"SELECT * FROM ({sql}) LIMIT 0", [None] * parameters)
            return cursor.to_arrow_table().schema
        except duckdb.Error as error:
            raise errors.BadStatement(str(error)) from error

    def _wait(self, deadline: Deadline) -> None:
        """Work that ends only by being interrupted (or by the test, after 20 s)."""
        with deadline.cancellation.interrupting(self._interrupt):
            self.running.set()
            self.release.wait(20)
        deadline.cancellation.check()

    def _interrupt(self) -> None:
        self.interrupted.set()
        self.release.set()


class CannedStream:
    def __init__(
        self,
        backend: CannedBackend,
        sql: str,
        values: list[object],
        deadline: Deadline,
        session: Session,
    ) -> None:
        self._backend = backend
        self._is_open = True
        with backend.lock:
            backend.open_streams += 1
        self._sql = sql
        self._deadline = deadline
        self._cursor = backend.cursor(session)
        self._trick = _trick(sql)
        if self._trick is None:
            self._cursor.execute(sql, values)
            self._reader = self._cursor.to_arrow_reader(10_000)
            self.schema = self._reader.schema
        elif self._trick == "wide":
            self.schema = pa.schema([("n", pa.utf8())])
        else:
            self.schema = pa.schema([("n", pa.int64())])

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        one = pa.record_batch({"n": pa.array([1], pa.int64())})
        if self._trick is None:
            with self._deadline.cancellation.interrupting(self._cursor.interrupt):
                yield from self._reader
        elif self._trick == "slow":
            while True:
                yield one
                self._backend._wait(self._deadline)
        elif self._trick == "vague":
            yield one
            with self._deadline.cancellation.interrupting(self._backend._interrupt):
                self._backend.running.set()
                self._backend.release.wait(20)
            raise errors.LogUnavailable("Interrupted system call.")
        elif self._trick == "late_fail":
            yield one
            raise _error_named(self._sql)
        elif self._trick == "late_bug":
            yield one
            raise OSError(SECRET)
        elif self._trick == "wide":
            yield pa.record_batch({"n": pa.array(["x" * 6_000] * 4_096)})
        elif self._trick == "empties":
            for _ in range(300):
                yield one.slice(0, 0)
            yield one

    def close(self) -> None:
        with self._backend.lock:
            self._backend.open_streams -= self._is_open
            self._is_open = False
        self._cursor.close()
        self._backend.closed.set()


def _trick(sql: str) -> str | None:
    items = re.match(r"trick (\w+)", sql)
    return items[1] if items else None


def _error_named(sql: str) -> errors.FederationError:
    name = sql.split()[-1]
    kind: type[errors.FederationError] = getattr(errors, name)
    return kind(f"lake.main.flows: this is what {name} says.")


def _parameter_schema(sql: str) -> pa.Schema:
    return pa.schema(
        [
            (str(index), _PARAMETER_TYPES.get(kind or "VARCHAR", pa.utf8()))
            for index, kind in enumerate(re.findall(r"\?(?:::([A-Z]+))?", sql), start=1)
        ]
    )


PRODUCT = Product("Thermocline", "1.2.3", keywords=("QUALIFY",), string_functions=("upper",))
USERS = {"ada": "pässword:1", "bob": "b"}


@dataclass
class CannedServer:
    server: FlightSqlServer
    backend: CannedBackend

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def uri(self) -> str:
        return f"grpc://127.0.0.1:{self.port}"


def _limits_of(_user: str | None, _groups: frozenset[str]) -> UserLimits:
    return UserLimits(max_failures_per_s=None)


def serve(
    backend: CannedBackend,
    access: Access,
    *,
    tls: Tls | None = None,
    limits_of: LimitsOf = _limits_of,
    blame: Blame | None = None,
    clock_s: Callable[[], float] = time.monotonic,
    **options: Any,
) -> FlightSqlServer:
    """Serve on a free port; ``options`` of ``ServerOptions``."""
    address, policy = Address("127.0.0.1", 0, tls), ServerPolicy(access, limits_of)
    return start(backend, address, policy, ServerOptions(PRODUCT, **options), blame, clock_s)
