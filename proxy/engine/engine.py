"""The engine: one locked DuckDB instance per server, a cursor per statement.

It knows relations and parsed statements. The lock (docs/internals/engine.md) is the second wall behind the gate: no
file outside the storage roots, no extension, no setting, no other statement's relations.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import msgspec
import pyarrow as pa

from connectors import duckdb_extensions as extensions
from connectors import syntax_trees
from connectors.store.object_store import is_object_store
from planner.errors import (
    BadConfig,
    BadStatement,
    FederationError,
    LimitExceeded,
    Overloaded,
    UnsupportedStatement,
)
from planner.reading.parsed_statement import PrintedStatement
from planner.sql_text import literal, tokens
from planner.statement.ast import Node, statement
from planner.statement.gate import check_text
from planner.statement.references import (
    is_refused_name,
    long_names,
    stand_ins,
    tables_among,
    with_schemas,
    with_stand_ins,
)
from proxy.engine import macros
from proxy.engine.describe import Parameter, describe, describe_bound, execute
from proxy.engine.errors import readable, translate, unsupported
from proxy.engine.macros import When
from proxy.engine.relations import Relation, nested, plain_names, prelude
from proxy.engine.result import Result, rows_per_batch
from proxy.engine.running import EngineCall, Watch, give_way, working_user
from proxy.engine.segments import Segments
from proxy.engine.statement_cache import StatementCache

T = TypeVar("T")

#: Directories that hold more than tables: as a storage root they would open the machine to SQL.
_SYSTEM_ROOTS = frozenset(
    "/ /bin /boot /dev /etc /home /lib /lib64 /opt /proc /root /run /sbin /srv /sys /tmp /usr /var".split()  # noqa: SIM905
)
#: Printed statements are remembered: printing and reading back takes 1 ms, a prepared statement runs often.
_MAX_REMEMBERED = 256
_MAX_REMEMBERED_BYTES = 1 << 18


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """The statements that give the engine keys of object stores (``connectors.store.object_store``).

    ``ca_file`` has the authorities that all stores' certificates are of, where these are not the machine's.
    """

    secrets: Sequence[str] = field(default=(), repr=False)
    ca_file: Path | None = None


class Engine:
    """Runs statements over relations. Thread-safe. The caller closes it.

    ``storage_roots`` are the directories or prefixes (``s3://bucket/warehouse``) below which files may be
    read. ``spill_dir`` must exist and be ours alone: statements spill to it.
    """

    def __init__(
        self,
        *,
        storage_roots: Sequence[str],
        spill_dir: Path,
        memory_limit_bytes: int | None = None,
        threads: int | None = None,
        stores: StoreAccess = StoreAccess(),
    ) -> None:
        roots = [_root(root) for root in storage_roots]
        settings = _settings(memory_limit_bytes, threads)
        # Threads that the engine starts share the work of what takes long. Small statements end on their own.
        with ThreadPoolExecutor(1, initializer=give_way) as starting:
            self._connection = starting.submit(
                duckdb.connect, ":memory:", config=settings
            ).result()
        try:
            self.segments = Segments(self._connection, spill_dir)
            self._prepare(roots, spill_dir, stores)
        except BaseException:
            self._connection.close()
            raise
        #: What runs, and how to stop it.
        self.watch = Watch()
        self._printed = StatementCache(_MAX_REMEMBERED)

    def _prepare(self, roots: list[str], spill_dir: Path, stores: StoreAccess) -> None:
        connection = self._connection
        extensions.load(connection, extensions.LOCAL)
        if stores.secrets or any("://" in root for root in roots):
            extensions.load(connection, extensions.REMOTE)
            # Iceberg's files never change, so their lengths need not be asked for again. Without this, each statement
            # asks for each file once, even where it is in memory.
            connection.execute("SET GLOBAL enable_http_metadata_cache = true")
            # Else each file has a connection of its own, and a handshake.
            connection.execute("SET GLOBAL httpfs_connection_caching = true")
            if stores.ca_file is not None:
                connection.execute(f"SET GLOBAL ca_cert_file = {literal(str(stores.ca_file))}")
        for secret in stores.secrets:
            _keep(secret, connection)
        # Else each statement decodes the footer of each file it reads: 1 to 2 ms for 10 files of 18 columns. They count
        # as memory of the engine and give way to statements; a file that changed is read anew (1.5.5).
        connection.execute("SET GLOBAL parquet_metadata_cache = true")
        connection.execute("SET GLOBAL TimeZone = 'UTC'")
        for macro in macros.STATEMENTS:
            connection.execute(macro)
        connection.execute(f"SET GLOBAL temp_directory = {literal(str(spill_dir))}")
        # In this order: allowed_directories cannot change once external access is off.
        listed = ", ".join(literal(root) for root in roots)
        connection.execute(f"SET GLOBAL allowed_directories = [{listed}]")
        connection.execute("SET GLOBAL enable_external_access = false")
        connection.execute("SET GLOBAL allowed_configs = ['timezone']")
        connection.execute("SET GLOBAL lock_configuration = true")
        # CVE-2026-47735: settings are read back, a typing error must not leave the door open.
        for name, expected in (("enable_external_access", False), ("lock_configuration", True)):
            # All of the result: one that is not read to its end keeps its transaction open, and as long as the
            # oldest transaction is, no dropped table's memory is freed (DuckDB 1.5.5).
            # By its whole name: the macro of that name tells of no setting but one.
            sql = f"SELECT system.main.current_setting('{name}')"
            rows = connection.execute(sql).fetchall()
            if rows != [(expected,)]:
                raise BadConfig(f"the engine did not take {name} = {str(expected).lower()}.")

    def close(self) -> None:
        """Interrupt what runs, and free everything."""
        self.watch.close()
        self.segments.close()
        self._connection.close()

    def take_secret(self, secret: str) -> None:
        """Take a CREATE SECRET (``connectors.store.object_store``) while statements run; it counts from the next file on.

        Raises:
            BadConfig: it is none.
        """
        with contextlib.closing(self._connection.cursor()) as cursor:
            _keep(secret, cursor)

    def open_file(self, path: str) -> None:
        """Have length and footer of a Parquet file on an object store in memory; nothing for one on a disk.

        It takes two requests, one after the other. A statement over the file then asks for columns alone.

        Raises:
            FederationError: it cannot be read.
        """
        if is_object_store(path):
            sql = "SELECT 1 FROM parquet_file_metadata(?)"
            self._planned(lambda cursor: cursor.execute(sql, [path]).fetchall())

    def try_manifests(self, metadata_location: str, snapshot_id: int) -> None:
        """Have the Iceberg extension read all manifests of a snapshot, as its scan does.

        Here what it raises ends a statement. Its scan reads them on threads of its own, and does not survive an error there
        (1.5.5). What was read from an object store stays in memory for the scan, as far as there is room.

        Raises:
            FederationError: it cannot read them.
        """
        sql = "SELECT count(*) FROM iceberg_metadata(?, snapshot_from_id => ?)"
        values = [metadata_location, snapshot_id]
        self._planned(lambda cursor: cursor.execute(sql, values).fetchall())

    def healthy(self) -> bool:
        """Whether the engine still answers.

        After an internal error DuckDB refuses all work until it is started again, and statements that provoke
        one exist (1.5.5). The process must then be replaced.
        """
        try:
            return self._ask("SELECT ?", "yes") == ("yes",)
        except (LimitExceeded, Overloaded):  # its memory is full: it works, and statements end
            return True
        except FederationError:
            return False

    def parse(self, sql: str) -> Node:
        """Parse one query; nothing is bound or executed.

        Raises BadStatement; UnsupportedStatement for more than one statement, one that is no query, or too large a one.
        """
        check_text(sql)
        document = syntax_trees.parse(self._ask, sql)
        if is_refused_name(document):
            document = self._with_long_names(sql)
        if document["error"]:
            if document["error_type"] == "not implemented":
                raise UnsupportedStatement(_not_a_query(sql, document["error_message"]))
            raise BadStatement(readable(document["error_message"]))
        statement(document)
        return document

    def _with_long_names(self, sql: str) -> Node:
        """Parse a text that the parser refused for names of tables in nested namespaces."""
        words = stand_ins(sql, long_names(sql))
        document = syntax_trees.parse(self._ask, with_stand_ins(sql, words))
        tables = () if document["error"] else tables_among(document, words)
        return syntax_trees.parse(self._ask, with_schemas(sql, tables)) if tables else document

    def unparse(self, document: Node) -> str:
        """Return the SQL of a tree, which parses to the same tree again, or raise UnsupportedStatement."""
        # In an eighth of Python's time, which is interpreter's lock for all others.
        text = msgspec.json.encode(document).decode()

        def printed() -> str:
            return syntax_trees.unparse(self._ask, text, document)

        if len(text) > _MAX_REMEMBERED_BYTES:
            return printed()
        return self._printed.get(text, printed)

    def run(
        self,
        rewritten: Node | PrintedStatement,
        relations: Sequence[Relation],
        parameters: Sequence[Parameter] = (),
        *,
        when: When = When(),  # noqa: B008  a value
        cut: str = "",
    ) -> Result:
        """Start a rewritten statement; its result streams, and must be closed.

        It has the deadline of this thread's caller, and its user (``proxy.engine.running.working_for``). ``parameters`` are
        in the order of ``planner.statement.ast.parameters``. ``cut`` is what ``thermocline_cut()`` says.

        Raises:
            BadStatement, UnsupportedStatement, BadParameter: it does not bind, or fails at once.
            DeadlineExceeded, Cancelled, LimitExceeded, SnapshotExpired, ColdStoreUnavailable.
        """
        if not isinstance(rewritten, PrintedStatement):
            rewritten = PrintedStatement(rewritten, self.unparse(rewritten))
        document, sql = rewritten.document, rewritten.sql

        def started(cursor: duckdb.DuckDBPyConnection) -> tuple[pa.RecordBatchReader, int]:
            _set_time_zone(cursor, when.time_zone)
            macros.set_time(cursor, sql, when.statement_time)
            macros.set_cut(cursor, sql, cut)
            execute(cursor, prelude(cursor, relations) + nested(sql), document, parameters)
            batch_rows = rows_per_batch([column[1].id for column in cursor.description or ()])
            return cursor.to_arrow_reader(batch_rows), batch_rows

        running = EngineCall(self._connection.cursor(), self.watch)
        try:
            reader, batch_rows = running.call(started)
        except BaseException:
            running.close()
            raise
        return Result(reader, running, plain_names(reader.schema, relations), batch_rows)

    def evaluate(
        self, document: Node, columns: str, values: Mapping[str, Any], when: When
    ) -> pa.Table:
        """Return ``columns``, expressions of our own, over the row of constants a gated statement selects.

        ``values`` come from ``parameters.bound``, by the names of the parameters.

        Raises:
            FederationError: a constant cannot be worked out.
        """
        sql = f"SELECT {columns} FROM ({self.unparse(document)})"  # noqa: S608 - printed by DuckDB, gated

        def evaluated(cursor: duckdb.DuckDBPyConnection) -> pa.Table:
            macros.set_time(cursor, sql, when.statement_time)
            # Room for one row. Room for a million, which is what it reserves unasked, takes 1 ms (DuckDB 1.5.5).
            return cursor.execute(sql, dict(values)).to_arrow_table(1)

        return self._planned(evaluated, when.time_zone)

    def describe(
        self, document: Node, relations: Sequence[Relation], *, time_zone: str = "UTC"
    ) -> tuple[pa.Schema, tuple[pa.DataType, ...]]:
        """Return the columns of a rewritten statement and the types of its parameters. Reads no data.

        ``time_zone`` is part of the type of a time that has one.

        Raises:
            BadStatement, UnsupportedStatement: it does not bind.
        """
        schema, types = self._planned(
            lambda cursor: describe(cursor, self.unparse, document, relations), time_zone
        )
        return plain_names(schema, relations), types

    def describe_bound(
        self,
        document: Node,
        relations: Sequence[Relation],
        parameters: Sequence[Parameter],
        *,
        time_zone: str = "UTC",
    ) -> pa.Schema:
        """Return the columns that ``run`` will answer with these parameters. Reads no data.

        Raises:
            BadStatement, UnsupportedStatement, BadParameter: it does not bind.
        """
        schema = self._planned(
            lambda cursor: describe_bound(
                cursor, self.unparse, document, relations, parameters
            ),
            time_zone,
        )
        return plain_names(schema, relations)

    def _planned(
        self, function: Callable[[duckdb.DuckDBPyConnection], T], time_zone: str = "UTC"
    ) -> T:
        """Return what ``function`` does with a cursor, by the deadline of this thread's caller."""

        def planned(cursor: duckdb.DuckDBPyConnection) -> T:
            _set_time_zone(cursor, time_zone)
            return function(cursor)

        with self._connection.cursor() as cursor:
            return EngineCall(cursor, self.watch).call(planned)

    def _ask(self, sql: str, argument: str) -> tuple[str, ...]:
        """Return the one row of texts that a query of our own has."""
        try:
            # It is over in milliseconds or heeds no interrupt: the watch is not woken for it.
            with self.watch.expected(), self._connection.cursor() as cursor:
                row: tuple[str, ...] | None = cursor.execute(sql, [argument]).fetchone()
        except duckdb.Error as error:
            raise self.watch.blamed(translate(error), working_user(), ran_s=0.0) from error
        return row or ()


def _set_time_zone(cursor: duckdb.DuckDBPyConnection, time_zone: str) -> None:
    if time_zone != "UTC":
        cursor.execute(f"SET TimeZone = {literal(time_zone)}")


def _not_a_query(sql: str, message: str) -> str:
    """Say what a text is that parses, but is not queries only.

    Not by DuckDB's ``extract_statements``: it runs part of PRAGMA and IMPORT.
    """
    if "SELECT" not in message:
        return unsupported(message)
    word = next((token[0].upper() for token in tokens(sql) if token["word"]), "")
    if word in ("PIVOT", "FROM", "SELECT", "WITH"):
        return (
            "one query is expected, and PIVOT needs its values: PIVOT ... ON column IN (...)."
        )
    return f"{word} statements are not supported; this server answers queries only."


def _keep(secret: str, connection: duckdb.DuckDBPyConnection) -> None:
    try:
        connection.execute(secret)
    except duckdb.Error:
        # Without DuckDB's words: they may repeat the key.
        raise BadConfig(
            "the engine did not take the s3 properties of a catalog; look at its endpoint and keys."
        ) from None


def _settings(memory_limit_bytes: int | None, threads: int | None) -> dict[str, Any]:
    settings = {
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "allow_community_extensions": "false",
        "allow_persistent_secrets": "false",
        # Else a thread of the engine stays with one statement for minutes, and that of its caller asks in a loop whether it
        # is done, each time with Python's lock. A twentieth at most for scans of 20 ms, nothing for longer ones (1.5.5).
        "scheduler_process_partial": "true",
        "python_enable_replacements": "false",
        # Else what a thread of ours freed stays with it: 166 MB after 143 MB of rows were packed to 42 (1.5.5).
        "allocator_background_threads": "true",
    }
    if memory_limit_bytes is not None:
        settings["memory_limit"] = f"{memory_limit_bytes}B"
    if threads is not None:
        settings["threads"] = str(threads)
    return settings


def _root(root: str) -> str:
    """Return a storage root as DuckDB compares it: without file://, with one slash at the end.

    Raises:
        BadConfig: it is relative, or a directory of the system.
    """
    path = root.removeprefix("file://").rstrip("/") or "/"
    if "://" in path:
        return f"{path}/"
    if not path.startswith("/") or ".." in Path(path).parts:
        raise BadConfig(f"storage root {root!r} is not an absolute path or an address.")
    if path in _SYSTEM_ROOTS:
        raise BadConfig(
            f"storage root {root!r} is a system directory; give the warehouse below it."
        )
    return f"{path}/"
