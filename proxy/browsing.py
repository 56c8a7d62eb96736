"""What clients browse: catalogs, schemas, tables, columns; and what a session may set."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from zoneinfo import available_timezones

import pyarrow as pa

from planner.errors import BadParameter, UnknownTable
from planner.names import TableName
from planner.statement.references import ResolvedTable, quoted
from proxy.cuts import Pins
from proxy.flightsql.backend import Session, Table
from proxy.grants import Grants
from proxy.shown import shown_schema


class Browser:
    """``proxy.flightsql.backend.Browsing`` over the tables there are pins of. Thread-safe.

    A session knows of the tables it may read; of others, and of catalogs without any, there is no trace. The
    server's default catalog and schema are known to all.
    """

    def __init__(self, pins: Pins, grants: Grants, default_path: tuple[str, str]) -> None:
        self._pins = pins
        self._grants = grants
        self._default_path = default_path

    def configure(self, session: Session) -> Session:
        """Fill in default catalog, schema and time zone; names compare without case."""
        catalogs = {name.lower(): name for name in self.catalogs(session)}
        catalog = self._default_path[0]
        if session.catalog:
            found = catalogs.get(session.catalog.lower())
            if found is None:
                raise UnknownTable(
                    f"there is no catalog {quoted(session.catalog)}; there are "
                    f"{', '.join(sorted(catalogs.values()))}.",
                    catalog=session.catalog,
                )
            catalog = found
        if session.time_zone is not None and session.time_zone not in available_timezones():
            raise BadParameter(
                f"{session.time_zone!r} is not a time zone; use a name such as Europe/Berlin, or UTC.",
                time_zone=session.time_zone,
            )
        return replace(
            session,
            catalog=catalog,
            schema=session.schema or self._default_path[1],
            time_zone=session.time_zone or "UTC",
        )

    def catalogs(self, session: Session) -> Sequence[str]:
        return sorted(
            {table.catalog for table in self._visible(session)} | {self.path(session)[0]}
        )

    def schemas(self, session: Session) -> Sequence[tuple[str, str]]:
        return sorted({(table.catalog, table.schema) for table in self._visible(session)})

    def tables(self, session: Session) -> Sequence[Table]:
        """List tables with their comments where a pin is held; a listing never waits for a catalog."""
        comments = {
            held.table: held.pin.comment for held in self._pins.status() if held.pin is not None
        }
        return [
            Table(table.catalog, table.schema, table.name, comment=comments.get(table))
            for table in self._visible(session)
        ]

    def table_schema(self, session: Session, table: Table) -> pa.Schema:
        name = next(
            (
                held
                for held in self._visible(session)
                if (held.catalog, held.schema, held.name)
                == (table.catalog, table.schema, table.name)
            ),
            None,
        )
        if name is None:
            raise UnknownTable(
                f"there is no table {table.catalog}.{table.schema}.{table.name}."
            )
        schema = self._pins.get(name).schema
        return shown_schema(self._grants.seen(session, ResolvedTable(name), schema).schema)

    def _visible(self, session: Session) -> Collection[TableName]:
        return self._grants.visible(session, self._pins.tables())

    def path(self, session: Session) -> tuple[str, str]:
        """Where unqualified names are looked up: the session's choice, else the server's."""
        catalog, schema = self._default_path
        return session.catalog or catalog, session.schema or schema
