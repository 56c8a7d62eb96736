"""What Superset asks of a database's engine: time grains, times as SQL, schemas, tables by name, the end of a query.

Superset finds it by the entry point ``superset.db_engine_specs``. Without Superset it can be imported, and is of no use.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from typing import Any

try:
    from superset.db_engine_specs.postgres import PostgresBaseEngineSpec
except ImportError:
    PostgresBaseEngineSpec = object


class ThermoclineEngineSpec(PostgresBaseEngineSpec):  # type: ignore[misc]
    """As Postgres, whose time grains the engine takes; but it has no ``TO_TIMESTAMP(text, format)``."""

    engine = "thermocline"
    engine_name = "Thermocline"
    default_driver = "flightsql"
    sqlalchemy_uri_placeholder = "thermocline://user:password@host:31337/catalog?tls=true"
    supports_catalog = False
    supports_dynamic_catalog = False
    supports_dynamic_schema = True
    supports_multivalues_insert = False
    allow_dml = False

    @classmethod
    def convert_dttm(
        cls, target_type: str, dttm: dt.datetime, db_extra: dict[str, Any] | None = None
    ) -> str | None:
        """Return a time as the text of SQL, for a column of a type; None: it is no time."""
        kind = target_type.upper()
        if kind == "DATE":
            return f"DATE '{dttm.date().isoformat()}'"
        if kind.startswith(("TIMESTAMP", "DATETIME")):
            return f"TIMESTAMP '{dttm.isoformat(sep=' ', timespec='microseconds')}'"
        return None

    @classmethod
    def get_table_names(cls, database: Any, inspector: Any, schema: str | None) -> set[str]:
        return set(inspector.get_table_names(schema))

    @classmethod
    def get_view_names(cls, database: Any, inspector: Any, schema: str | None) -> set[str]:
        return set(inspector.get_view_names(schema))

    @classmethod
    def adjust_engine_params(
        cls,
        uri: Any,
        connect_args: dict[str, Any],
        catalog: str | None = None,
        schema: str | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Have names without a schema looked up in the one that SQL Lab has chosen."""
        return (uri.update_query_dict({"schema": schema}) if schema else uri), connect_args

    @classmethod
    def get_schema_from_engine_params(
        cls, sqlalchemy_uri: Any, connect_args: dict[str, Any]
    ) -> str | None:
        schema = sqlalchemy_uri.query.get("schema")
        return None if schema is None else str(schema)

    @classmethod
    def get_cancel_query_id(cls, cursor: Any, query: Any) -> str:
        """Return the session of a cursor: what ``cancel_query`` ends."""
        cursor.execute("SELECT id FROM system.sessions WHERE is_own")
        [[session]] = cursor.fetchall()
        return str(session)

    @classmethod
    def cancel_query(cls, cursor: Any, query: Any, cancel_query_id: str) -> bool:
        """End what runs in a session, by another connection of the same user; return whether something ran.

        Callers without a name see no other session.
        """
        cursor.execute(
            "SELECT id FROM system.statements WHERE session = ? AND state <> 'ended'",
            (cancel_query_id,),
        )
        from adbc_driver_manager.dbapi import DatabaseError

        ended = 0
        for [statement] in cursor.fetchall():
            # That one was planned, and is read under another id now; or it has ended.
            with contextlib.suppress(DatabaseError):
                cursor.execute(f"CANCEL QUERY '{statement}'")
                cursor.fetchall()
                ended += 1
        return ended > 0
