"""What Superset asks of a database's engine: time grains, times as SQL, tables by name. Loaded by Superset alone.

Superset finds it by the entry point ``superset.db_engine_specs``.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from superset.db_engine_specs.postgres import PostgresBaseEngineSpec


class ThermoclineEngineSpec(PostgresBaseEngineSpec):  # type: ignore[misc]
    """As Postgres, whose time grains the engine takes; but it has no ``TO_TIMESTAMP(text, format)``."""

    engine = "thermocline"
    engine_name = "Thermocline"
    default_driver = "flightsql"
    sqlalchemy_uri_placeholder = "thermocline://user:password@host:31337/catalog?tls=true"
    supports_catalog = False
    supports_dynamic_catalog = False
    allows_sql_comments = True
    allow_dml = False

    @classmethod
    def convert_dttm(
        cls, target_type: str, dttm: dt.datetime, db_extra: dict[str, Any] | None = None
    ) -> str | None:
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
