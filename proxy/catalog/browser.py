"""What clients browse: catalogs, schemas, tables, columns; and what a session may set.

``information_schema``: the same for tools that browse by SQL (Power BI's connector). Columns are named as in DuckDB's own;
what is not known is NULL.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NoReturn

import pyarrow as pa
from cachetools import LRUCache

from connectors.iceberg.pin_cache import PinCache
from planner.errors import BadParameter, Inconsistent, RequestError, UnknownTable
from planner.names import TableName
from planner.schema import TableSchema
from planner.sql_text import same_name
from planner.statement.ast import fold
from planner.statement.references import ResolvedTable, TableReference, check_no_side, quoted
from proxy.access.policy import AccessPolicy
from proxy.catalog.sqltypes import SqlType, sql_type
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
        path = session.catalog, session.schema
        if before is None or path != (before.catalog, before.schema):
            try:
                path = self._path(session, self._visible(session))
            except UnknownTable:
                # Perhaps it is new.
                newer = self._grants.visible(
                    session,
                    self._pins.relist(session.user, partial(self._grants.is_open, session)),
                )
                path = self._path(session, newer)
        return replace(
            session, catalog=path[0], schema=path[1], time_zone=session.time_zone or "UTC"
        )

    def _path(self, session: Session, visible: Collection[TableName]) -> tuple[str, str]:
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


INFORMATION_SCHEMA = "information_schema"


def _fields(names: str, kind: pa.DataType | None = None) -> list[tuple[str, pa.DataType]]:
    return [(name, kind or pa.string()) for name in names.split()]


_CONSTRAINT = "constraint_catalog constraint_schema constraint_name "
LISTING_SCHEMAS = {
    "schemata": pa.schema(
        _fields(
            "catalog_name schema_name schema_owner default_character_set_catalog "
            "default_character_set_schema default_character_set_name sql_path"
        )
    ),
    "tables": pa.schema(
        _fields(
            "table_catalog table_schema table_name table_type self_referencing_column_name "
            "reference_generation user_defined_type_catalog user_defined_type_schema "
            "user_defined_type_name is_insertable_into is_typed commit_action TABLE_COMMENT"
        )
    ),
    "views": pa.schema(
        _fields(
            "table_catalog table_schema table_name view_definition check_option is_updatable"
        )
    ),
    "columns": pa.schema(
        [
            *_fields("table_catalog table_schema table_name column_name"),
            ("ordinal_position", pa.int32()),
            *_fields("column_default is_nullable data_type"),
            *_fields(
                "character_maximum_length character_octet_length numeric_precision", pa.int32()
            ),
            *_fields("numeric_precision_radix numeric_scale datetime_precision", pa.int32()),
            *_fields(
                "interval_type character_set_name collation_name is_identity is_generated"
            ),
            *_fields("is_updatable COLUMN_COMMENT"),
        ]
    ),
    # No table here has keys: Iceberg and Kafka know none that is enforced.
    "table_constraints": pa.schema(
        _fields(
            _CONSTRAINT + "table_catalog table_schema table_name constraint_type is_deferrable "
            "initially_deferred enforced nulls_distinct"
        )
    ),
    "key_column_usage": pa.schema(
        [
            *_fields(_CONSTRAINT + "table_catalog table_schema table_name column_name"),
            *_fields("ordinal_position position_in_unique_constraint", pa.int64()),
        ]
    ),
    "constraint_column_usage": pa.schema(
        _fields("table_catalog table_schema table_name column_name " + _CONSTRAINT)
    ),
    "referential_constraints": pa.schema(
        _fields(
            _CONSTRAINT + "unique_constraint_catalog unique_constraint_schema "
            "unique_constraint_name match_option update_rule delete_rule"
        )
    ),
}


def listing_of(reference: TableReference) -> str | None:
    """Which of these tables a reference means; None: another one. The catalog before it does not matter."""
    if reference.schema is None or fold(reference.schema) != INFORMATION_SCHEMA:
        return None
    name = fold(reference.name)
    return name if name in LISTING_SCHEMAS else None


def listing_rows(name: str, listing: Browser, session: Session) -> pa.Table:
    schema = LISTING_SCHEMAS[name]
    columns: dict[str, list[object]] = {}
    if name == "schemata":
        schemas = listing.schemas(session)
        columns = {
            "catalog_name": [catalog for catalog, _ in schemas],
            "schema_name": [schema_name for _, schema_name in schemas],
        }
    elif name == "tables":
        columns = _tables(_sorted(listing, session))
    elif name == "views":
        columns = _tables(
            [table for table in _sorted(listing, session) if table.kind == "VIEW"]
        )
    elif name == "columns":
        columns = _columns(listing, session)
    size = max(map(len, columns.values()), default=0)
    return pa.table(
        [
            pa.array(columns[field.name], field.type)
            if field.name in columns
            else pa.nulls(size, field.type)
            for field in schema
        ],
        schema=schema,
    )


def _sorted(listing: Browser, session: Session) -> list[Table]:
    return sorted(
        listing.tables(session), key=lambda table: (table.catalog, table.schema, table.name)
    )


def _tables(tables: list[Table]) -> dict[str, list[object]]:
    return {
        "table_catalog": [table.catalog for table in tables],
        "table_schema": [table.schema for table in tables],
        "table_name": [table.name for table in tables],
        "table_type": ["VIEW" if table.kind == "VIEW" else "BASE TABLE" for table in tables],
        "is_insertable_into": ["NO"] * len(tables),
        "is_typed": ["NO"] * len(tables),
        "TABLE_COMMENT": [table.comment for table in tables],
    }


def _columns(listing: Browser, session: Session) -> dict[str, list[object]]:
    names = (
        "table_catalog table_schema table_name column_name ordinal_position is_nullable data_type "
        "numeric_precision numeric_scale is_generated is_updatable COLUMN_COMMENT"
    )
    columns: dict[str, list[object]] = {name: [] for name in names.split()}
    types: dict[pa.DataType, SqlType] = {}
    for table in _sorted(listing, session):
        try:
            schema = listing.table_schema(session, table)
        except (RequestError, Inconsistent):
            continue  # gone, or not servable: listed as a table, without columns
        for position, field in enumerate(schema, start=1):
            kind = types.setdefault(field.type, sql_type(field.type))
            metadata = field.metadata or {}
            numeric = kind.scale is not None and not pa.types.is_temporal(field.type)
            values = (
                table.catalog,
                table.schema,
                table.name,
                field.name,
                position,
                "YES" if field.nullable else "NO",
                metadata[TYPE_NAME].decode() if TYPE_NAME in metadata else kind.name,
                kind.precision if numeric else None,
                kind.scale if numeric else None,
                "NEVER",
                "NO",
                metadata[COMMENT].decode() if COMMENT in metadata else None,
            )
            for column, value in zip(columns.values(), values, strict=True):
                column.append(value)
    return columns
