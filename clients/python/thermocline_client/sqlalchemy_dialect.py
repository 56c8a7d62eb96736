"""SQLAlchemy's dialect: ``thermocline://user:password@host:31337/catalog?tls=false``, on 1.4 and 2.x.

Postgres' SQL but for types and operators that mean another thing to the engine, DuckDB; what is there comes from
``information_schema``. A store that only reads: there is nothing to commit, to create or to insert.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import exc
from sqlalchemy import types as sqltypes
from sqlalchemy.dialects.postgresql.base import PGCompiler, PGIdentifierPreparer
from sqlalchemy.engine import default, reflection
from sqlalchemy.sql import compiler, operators
from sqlalchemy.sql.elements import BindParameter

from thermocline_client.connecting import DEFAULT_PORT, driver_options
from thermocline_client.errors import sentence_of
from thermocline_client.sqlalchemy_types import type_of

F = TypeVar("F", bound=Callable[..., Any])

#: Parameters of a URL that are settings of the session.
SETTINGS = (
    "schema",
    "time_zone",
    "freshness",
    "cut",
    "wait_for",
    "profile",
    "hugeint",
    "timestamp_unit",
)
_TLS = {"true": True, "false": False}

_SCHEMAS = (
    "SELECT schema_name FROM information_schema.schemata WHERE catalog_name = ?"
    " ORDER BY schema_name"
)
_TABLES = (
    "SELECT table_name FROM information_schema.tables WHERE table_catalog = ?"
    " AND table_schema = ? AND (table_type = 'VIEW') = ? ORDER BY table_name"
)
_COLUMNS = (
    "SELECT column_name, data_type, is_nullable, COLUMN_COMMENT FROM information_schema.columns"
    " WHERE table_catalog = ? AND table_schema = ? AND table_name = ?"
    " ORDER BY ordinal_position"
)
_COMMENT = (
    "SELECT TABLE_COMMENT FROM information_schema.tables WHERE table_catalog = ?"
    " AND table_schema = ? AND table_name = ?"
)
_KEY = (
    "SELECT k.constraint_name, k.column_name FROM information_schema.table_constraints t"
    " JOIN information_schema.key_column_usage k USING (constraint_name, table_catalog, table_schema, table_name)"
    " WHERE t.constraint_type = 'PRIMARY KEY' AND table_catalog = ? AND table_schema = ? AND table_name = ?"
    " ORDER BY k.ordinal_position"
)


class ThermoclineTypeCompiler(compiler.GenericTypeCompiler):
    """Names of types as DuckDB means them: its FLOAT has 32 bits, its bare NUMERIC three decimals."""

    def visit_FLOAT(self, type_: Any, **kw: Any) -> str:
        return "DOUBLE"

    def visit_DOUBLE_PRECISION(self, type_: Any, **kw: Any) -> str:
        return "DOUBLE"

    def visit_NUMERIC(self, type_: Any, **kw: Any) -> str:
        if type_.precision is None:
            return "DECIMAL(38, 10)"
        return f"DECIMAL({type_.precision}, {type_.scale or 0})"

    def visit_DECIMAL(self, type_: Any, **kw: Any) -> str:
        return self.visit_NUMERIC(type_, **kw)

    def visit_TIMESTAMP(self, type_: Any, **kw: Any) -> str:
        return "TIMESTAMP WITH TIME ZONE" if type_.timezone else "TIMESTAMP"

    def visit_DATETIME(self, type_: Any, **kw: Any) -> str:
        return self.visit_TIMESTAMP(type_, **kw)

    def visit_BLOB(self, type_: Any, **kw: Any) -> str:
        return "BLOB"

    def visit_BINARY(self, type_: Any, **kw: Any) -> str:
        return "BLOB"

    def visit_VARBINARY(self, type_: Any, **kw: Any) -> str:
        return "BLOB"

    def visit_uuid(self, type_: Any, **kw: Any) -> str:
        return "UUID"


#: Operators by the beginning of their names: those of patterns that may have any text before them, and after.
_OPEN_BEFORE = ("contains", "not_contains", "icontains", "not_icontains", "endswith", "not_endswith", "iendswith", "not_iendswith")  # fmt: skip
_OPEN_AFTER = ("contains", "not_contains", "icontains", "not_icontains", "startswith", "not_startswith", "istartswith", "not_istartswith")  # fmt: skip


class _EscapedPattern(sqltypes.TypeDecorator):  # type: ignore[type-arg]
    """Sends a pattern of LIKE with an escape character as a regular expression."""

    impl = sqltypes.String
    cache_ok = True

    def __init__(self, escape: str, before: str, after: str) -> None:
        super().__init__()
        self.escape = escape
        self.before = before
        self.after = after

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        if value is None:
            return None
        return f"{self.before}{''.join(self._pieces(value))}{self.after}"

    process_literal_param = process_bind_param

    def _pieces(self, pattern: str) -> Iterator[str]:
        characters = iter(pattern)
        for each in characters:
            if each == self.escape:
                each = next(characters, each)
            elif each in "%_":
                yield ".*" if each == "%" else "."
                continue
            yield f"\\{each}" if each in r"\.^$*+?()[]{}|" else each


def _joined(element: Any) -> Iterator[Any]:
    """Yield what is concatenated, as the percent signs around what a text contains; without what 2.x notes of letters' case."""
    if getattr(element, "operator", None) is operators.concat_op:
        for each in element.get_children():
            yield from _joined(each)
    elif type(element).__name__ in ("Grouping", "ilike_case_insensitive"):
        yield from _joined(element.element)
    else:
        yield element


class ThermoclineCompiler(PGCompiler):
    """Postgres' statements, where the engine reads them as Postgres does."""

    def visit_like_op_binary(self, binary: Any, operator: Any, **kw: Any) -> Any:
        return self._escaped(binary, operator, "(?s)", **kw) or super().visit_like_op_binary(
            binary, operator, **kw
        )

    def visit_not_like_op_binary(self, binary: Any, operator: Any, **kw: Any) -> Any:
        matches = self._escaped(binary, operator, "(?s)", **kw)
        if matches is None:
            return super().visit_not_like_op_binary(binary, operator, **kw)
        return f"NOT {matches}"

    def visit_ilike_op_binary(self, binary: Any, operator: Any, **kw: Any) -> Any:
        return self._escaped(binary, operator, "(?is)", **kw) or super().visit_ilike_op_binary(
            binary, operator, **kw
        )

    def visit_not_ilike_op_binary(self, binary: Any, operator: Any, **kw: Any) -> Any:
        matches = self._escaped(binary, operator, "(?is)", **kw)
        if matches is None:
            return super().visit_not_ilike_op_binary(binary, operator, **kw)
        return f"NOT {matches}"

    def _escaped(self, binary: Any, operator: Any, flags: str, **kw: Any) -> str | None:
        """Return a search by a regular expression: the server takes ESCAPE with literal patterns alone, and these are values.

        None: there is no escape character, or more than one value is the pattern.
        """
        escape = binary.modifiers.get("escape")
        parts = [
            each for each in _joined(binary.right) if not getattr(each, "is_literal", False)
        ]
        if not escape or len(parts) != 1 or not isinstance(parts[0], BindParameter):
            return None
        # Of the same key: a statement that was compiled before gets its values by it.
        pattern = parts[0]._clone(maintain_key=True)
        name = operator.__name__.removesuffix("_op")
        before = "" if name in _OPEN_BEFORE else r"\A"
        after = "" if name in _OPEN_AFTER else r"\z"
        pattern.type = _EscapedPattern(escape, flags + before, after)
        left = self.process(binary.left, **kw)
        return f"regexp_matches({left}, {self.process(pattern, **kw)})"

    def visit_regexp_match_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """The engine's ``~`` matches the whole text, Postgres' anywhere in it."""
        left = self.process(binary.left, **kw)
        return f"regexp_matches({left}, {self.process(binary.right, **kw)})"

    def visit_not_regexp_match_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return f"NOT {self.visit_regexp_match_op_binary(binary, operator, **kw)}"


class _Bytes(sqltypes.LargeBinary):
    """Sends bytes as they are: the driver's module has no ``Binary`` (PEP 249)."""

    def bind_processor(self, dialect: Any) -> None:
        return None


class _Decimals(sqltypes.Numeric):  # type: ignore[type-arg]
    """Reads decimals as such, and as decimals what the engine computes in floating point, as quotients are."""

    def result_processor(self, dialect: Any, coltype: Any) -> Any:
        if not self.asdecimal:
            return super().result_processor(dialect, coltype)
        return lambda value: Decimal(repr(value)) if isinstance(value, float) else value


def _cached(reflect: F) -> F:
    """Have an inspector remember what it reflects. SQLAlchemy 1.4 writes code of annotations that Python cannot read."""
    reflect.__annotations__ = {}
    return reflection.cache(reflect)


class _Uuids(getattr(sqltypes, "Uuid", sqltypes.String)):  # type: ignore[misc]  # 1.4 has none
    """Sends and reads the text of a UUID, which the engine compares with its own: the driver has no such value.

    Without ``native_uuid`` a column is of texts, of 32 digits as SQLAlchemy writes them.
    """

    def bind_processor(self, dialect: Any) -> Any:
        if not self.native_uuid:
            return super().bind_processor(dialect)
        return lambda value: None if value is None else str(value)

    def result_processor(self, dialect: Any, coltype: Any) -> Any:
        if not self.native_uuid:
            return super().result_processor(dialect, coltype)
        if not self.as_uuid:
            return None
        return lambda value: None if value is None else UUID(value)


class ThermoclineDialect(default.DefaultDialect):
    """Reads; see the module."""

    name = "thermocline"
    driver = "flightsql"
    statement_compiler = ThermoclineCompiler
    preparer = PGIdentifierPreparer
    type_compiler = ThermoclineTypeCompiler
    type_compiler_cls = ThermoclineTypeCompiler

    colspecs = {  # noqa: RUF012 - SQLAlchemy's own name and form
        sqltypes.LargeBinary: _Bytes,
        sqltypes.Numeric: _Decimals,
        **({sqltypes.Uuid: _Uuids} if hasattr(sqltypes, "Uuid") else {}),
    }
    default_paramstyle = "qmark"
    max_identifier_length = 255
    supports_statement_cache = True
    supports_native_boolean = True
    supports_native_decimal = True
    supports_native_uuid = True
    supports_unicode_statements = True
    supports_unicode_binds = True
    returns_unicode_strings = True
    supports_empty_insert = False
    supports_alter = False
    supports_comments = True
    supports_sane_rowcount = False
    supports_sane_multi_rowcount = False
    postfetch_lastrowid = False
    #: ``/`` of whole numbers is not whole.
    div_is_floordiv = False
    _backslash_escapes = False
    _catalog = ""

    @classmethod
    def dbapi(cls) -> Any:  # type: ignore[override]  # of 1.4
        return cls.import_dbapi()

    @classmethod
    def import_dbapi(cls) -> Any:
        import adbc_driver_flightsql.dbapi

        return adbc_driver_flightsql.dbapi

    def create_connect_args(self, url: Any) -> Any:
        """Read a URL; raises ArgumentError: of a parameter that means nothing here."""
        query = dict(url.query)
        tls = _TLS.get(query.pop("tls", "true"))
        roots = query.pop("tls_roots", None)
        # As a password without a user: SQLAlchemy and Superset show what stands elsewhere in a URL.
        secret = None if url.password is None else str(url.password)
        token = None if url.username else secret
        unknown = sorted(query.keys() - set(SETTINGS))
        if tls is None or unknown:
            raise exc.ArgumentError(
                f"{unknown[0] if unknown else 'tls'} in the URL: it takes tls=true or tls=false, "
                f"tls_roots (a file), {', '.join(SETTINGS)}."
            )
        settings = {name: str(value) for name, value in query.items()}
        if url.database:
            settings["catalog"] = url.database
        try:
            options = driver_options(
                user=url.username or None,
                password=secret,
                token=token,
                tls_roots=None if roots is None else Path(roots).read_text(encoding="utf-8"),
                settings=settings,
            )
        except ValueError as error:
            raise exc.ArgumentError(str(error)) from None
        host = url.host or "127.0.0.1"
        host = f"[{host}]" if ":" in host else host
        address = f"grpc{'+tls' if tls else ''}://{host}:{url.port or DEFAULT_PORT}"
        return (address,), {"db_kwargs": options, "autocommit": True}

    def do_execute(
        self, cursor: Any, statement: str, parameters: Any, context: Any = None
    ) -> None:
        cursor.execute(statement, tuple(parameters) or None)

    def do_executemany(
        self, cursor: Any, statement: str, parameters: Any, context: Any = None
    ) -> None:
        """Run a statement once for each set: the server takes one set of parameters at a time."""
        for each in parameters:
            self.do_execute(cursor, statement, each, context)

    def do_begin(self, dbapi_connection: Any) -> None:
        """Each statement is a moment of its own."""

    def do_commit(self, dbapi_connection: Any) -> None:
        """There is nothing to write."""

    def do_rollback(self, dbapi_connection: Any) -> None:
        """There is nothing to undo."""

    def do_ping(self, dbapi_connection: Any) -> bool:
        with dbapi_connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            cursor.fetchall()
        return True

    def is_disconnect(self, e: Any, connection: Any, cursor: Any) -> bool:
        """Whether the connection is of no use: the server has gone, or does not know the session any more."""
        sentence = sentence_of(str(e))
        return sentence is not None and (
            sentence.is_of_no_server or sentence.status == "Unauthenticated"
        )

    # --- what there is ---

    def _get_server_version_info(self, connection: Any) -> tuple[int, ...]:
        return (0,)

    def _get_default_schema_name(self, connection: Any) -> str:
        """The schema where names without one are looked up; and the catalog, which one engine never leaves."""
        [[self._catalog]] = connection.exec_driver_sql("SELECT current_catalog").fetchall()
        [[name]] = connection.exec_driver_sql("SELECT current_schema()").fetchall()
        return str(name)

    def _rows(self, connection: Any, sql: str, *parameters: Any) -> list[Any]:
        """Ask ``information_schema`` of the connection's catalog, which is the first parameter."""
        result = connection.exec_driver_sql(sql, (self._catalog, *parameters))
        return list(result.fetchall())

    def _columns(self, connection: Any, table_name: str, schema: str | None) -> list[Any]:
        return self._rows(connection, _COLUMNS, schema or self.default_schema_name, table_name)

    @_cached
    def get_schema_names(self, connection: Any, **kw: Any) -> list[str]:
        return [name for [name] in self._rows(connection, _SCHEMAS)]

    def _names(self, connection: Any, schema: str | None, *, views: bool) -> list[str]:
        schema = schema or self.default_schema_name
        return [name for [name] in self._rows(connection, _TABLES, schema, views)]

    @_cached
    def get_table_names(
        self, connection: Any, schema: str | None = None, **kw: Any
    ) -> list[str]:
        return self._names(connection, schema, views=False)

    @_cached
    def get_view_names(
        self, connection: Any, schema: str | None = None, **kw: Any
    ) -> list[str]:
        return self._names(connection, schema, views=True)

    @_cached
    def has_table(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> bool:
        return bool(self._columns(connection, table_name, schema))

    @_cached
    def get_columns(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[Any]:
        """Raises NoSuchTableError: there is none, or this user may not see it."""
        rows = self._columns(connection, table_name, schema)
        if not rows:
            raise exc.NoSuchTableError(table_name)
        return [
            {
                "name": name,
                "type": type_of(kind),
                "nullable": is_nullable == "YES",
                "default": None,
                "comment": comment,
            }
            for name, kind, is_nullable, comment in rows
        ]

    @_cached
    def get_pk_constraint(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        self._check(connection, table_name, schema)
        rows = self._rows(connection, _KEY, schema or self.default_schema_name, table_name)
        return {
            "constrained_columns": [column for _, column in rows],
            "name": rows[0][0] if rows else None,
        }

    @_cached
    def get_foreign_keys(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[Any]:
        self._check(connection, table_name, schema)
        return []

    get_indexes = get_unique_constraints = get_check_constraints = get_foreign_keys

    @_cached
    def get_table_comment(
        self, connection: Any, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        schema = schema or self.default_schema_name
        rows = self._rows(connection, _COMMENT, schema, table_name)
        if not rows:
            raise exc.NoSuchTableError(table_name)
        return {"text": rows[0][0]}

    def _check(self, connection: Any, table_name: str, schema: str | None) -> None:
        if not self.has_table(connection, table_name, schema):
            raise exc.NoSuchTableError(table_name)
