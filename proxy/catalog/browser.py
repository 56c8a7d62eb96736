"""What clients browse: catalogs, schemas, tables, columns; and what a session may set."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NoReturn

import pyarrow as pa
from cachetools import LRUCache

from connectors.iceberg.pin_cache import PinCache
from planner.errors import BadParameter, UnknownTable
from planner.names import TableName
from planner.schema import TableSchema
from planner.sql_text import same_name
from planner.statement.references import ResolvedTable, check_no_side, quoted
from proxy.access.policy import AccessPolicy
from proxy.session import COMMENT, TYPE_NAME, Session, Table, time_zones

#: Lists of tables, of users who see different ones, whose names are held.
_MAX_LISTS = 16
#: Names that a refusal offers.
_MAX_NAMED = 10


class Browser:
    """``proxy.flightsql.backend.Browsing`` over the tables there are pins of. Thread-safe.

    A session knows of the tables it may read; of others, and of catalogs without any, there is no trace. The
    server's default catalog and schema are known to all.
    """

    def __init__(
        self, pins: PinCache, grants: AccessPolicy, default_path: tuple[str, str]
    ) -> None:
        self._pins = pins
        self._grants = grants
        self._default_path = default_path
        self._lock = threading.Lock()
        #: With the list itself: while it is here, no other has its id.
        self._names: LRUCache[
            int, tuple[Collection[TableName], Mapping[tuple[str, str, str], TableName]]
        ] = LRUCache(_MAX_LISTS)

    def configure(self, session: Session, before: Session | None = None) -> Session:
        """Fill in default catalog, schema and time zone; names compare without case.

        The default schema is the server's where the catalog has it, else the first by name.

        Raises:
            UnknownTable: there is no such catalog or schema.
            BadParameter: no such time zone.
            CatalogUnavailable: one that may have it never answered.
        """
        if session.time_zone is not None and session.time_zone not in time_zones():
            raise BadParameter(
                f"{session.time_zone!r} is not a time zone; use a name such as Europe/Berlin, or UTC.",
                time_zone=session.time_zone,
            )
        place = session.catalog, session.schema
        if before is None or place != (before.catalog, before.schema):
            try:
                place = self._place(session, self._visible(session))
            except UnknownTable:
                # Perhaps it is new.
                newer = self._grants.visible(
                    session,
                    self._pins.relist(session.user, partial(self._grants.is_open, session)),
                )
                place = self._place(session, newer)
        return replace(
            session, catalog=place[0], schema=place[1], time_zone=session.time_zone or "UTC"
        )

    def _place(self, session: Session, visible: Collection[TableName]) -> tuple[str, str]:
        """Where a session looks names up, as it is written there."""
        catalog, schema = self._default_path
        if session.catalog:
            names = {table.catalog for table in visible} | {catalog}
            catalog = same_name(session.catalog, names) or _no(
                "catalog", session.catalog, names
            )
        schemas = {table.schema for table in visible if table.catalog == catalog}
        if not session.schema:
            return catalog, schema if schema in schemas or not schemas else min(schemas)
        name = same_name(session.schema, schemas or {schema})
        return catalog, name or _no(
            f"schema of {quoted(catalog)} called", session.schema, schemas
        )

    def catalogs(self, session: Session) -> Sequence[str]:
        return sorted(
            {table.catalog for table in self._visible(session)} | {self._default_path[0]}
        )

    def schemas(self, session: Session) -> Sequence[tuple[str, str]]:
        return sorted({(table.catalog, table.schema) for table in self._visible(session)})

    def tables(self, session: Session) -> Sequence[Table]:
        """List tables with their comments where a pin is held; a listing never waits for a catalog."""
        comments = {
            status.table: status.pin.comment
            for status in self._pins.status()
            if status.pin is not None
        }
        return [
            Table(table.catalog, table.schema, table.name, comment=comments.get(table))
            for table in self._visible(session)
        ]

    def table_schema(self, session: Session, table: Table) -> pa.Schema:
        name = self._named(session).get((table.catalog, table.schema, table.name))
        if name is None:
            raise UnknownTable(
                f"there is no table {table.catalog}.{table.schema}.{table.name}."
            )
        check_no_side(name, self._visible(session))
        schema = self._pins.get(name).schema
        return _client_schema(
            self._grants.visible_table(session, ResolvedTable(name), schema).schema
        )

    def _named(self, session: Session) -> Mapping[tuple[str, str, str], TableName]:
        """What the session sees, by what tables are listed as. Made once for each list: tools ask for every table."""
        visible = self._visible(session)
        with self._lock:
            cached = self._names.get(id(visible))
        if cached is None:
            names: dict[tuple[str, str, str], TableName] = {}
            for table in visible:
                names.setdefault((table.catalog, table.schema, table.name), table)
            cached = visible, names
            with self._lock:
                self._names[id(visible)] = cached
        return cached[1]

    def _visible(self, session: Session) -> Collection[TableName]:
        return self._grants.visible(session, self._pins.tables())

    def path(self, session: Session) -> tuple[str, str]:
        """Where unqualified names are looked up: the session's choice, else the server's."""
        catalog, schema = self._default_path
        return session.catalog or catalog, session.schema or schema


def _no(what: str, name: str, names: Collection[str]) -> NoReturn:
    there = ", ".join(quoted(other) for other in sorted(names)[:_MAX_NAMED])
    more = " and others" if len(names) > _MAX_NAMED else ""
    raise UnknownTable(
        f"there is no {what} {quoted(name[:80])}"
        + (f"; there are {there}{more}." if there else "."),
        name=name[:80],
    )


def _client_schema(schema: TableSchema) -> pa.Schema:
    """Return the columns with comments, under the types a query returns; a UUID arrives as text and says so."""
    fields = []
    for column in schema.columns:
        metadata = {COMMENT: column.doc.encode()} if column.doc else {}
        if column.type == pa.uuid():
            metadata[TYPE_NAME] = b"UUID"
        fields.append(
            pa.field(
                column.name,
                _returned(column.type),
                nullable=not column.required,
                metadata=metadata,
            )
        )
    return pa.schema(fields)


def _returned(kind: pa.DataType) -> pa.DataType:
    if kind == pa.uuid():
        return pa.string()
    if pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind):
        return pa.list_(_returned(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_returned(kind.key_type), _returned(kind.item_type))
    if pa.types.is_struct(kind):
        members = (kind.field(index) for index in range(kind.num_fields))
        return pa.struct([pa.field(member.name, _returned(member.type)) for member in members])
    return kind
