"""SQLAlchemy's dialect: ``thermocline://user:password@host:31337/catalog?tls=false``, on 1.4 and 2.x.

Postgres' SQL but for types and operators that mean another thing to the engine, DuckDB; what is there comes from
``information_schema``. A store that only reads: there is nothing to commit, to create or to insert.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import exc
from sqlalchemy import types as sqltypes
from sqlalchemy.dialects.postgresql.base import PGIdentifierPreparer
from sqlalchemy.engine import default, reflection

from thermocline_client.connecting import DEFAULT_PORT, driver_options
from thermocline_client.errors import sentence_of
from thermocline_client.sqlalchemy_compiler import (
    ThermoclineCompiler,
    ThermoclineTypeCompiler,
)
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
        return {"constrained_columns": [], "name": None}

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
