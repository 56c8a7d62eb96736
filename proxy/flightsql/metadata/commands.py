"""Answers of the metadata commands: what tools show as the tree of catalogs, schemas, tables and columns."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from planner.errors import Inconsistent, RequestError, UnknownTable
from proxy.flightsql.backend import Browsing
from proxy.flightsql.metadata import schemas
from proxy.flightsql.metadata.like import Like
from proxy.flightsql.metadata.sqlinfo import Product, sql_info
from proxy.flightsql.metadata.types import described, xdbc_type_info
from proxy.flightsql.outgoing import Shape, shape_of
from proxy.session import Session, Table

_log = logging.getLogger(__name__)

#: Schemas that go out together; what the seam asks of a backend (``proxy.flightsql.backend.Stream``).
_BATCH_BYTES = 2 << 20
TABLE_KINDS = ("TABLE", "VIEW")
# What Grafana and Power BI ask for, besides any upper or lower case.
_KIND_ALIASES = {"BASE TABLE": "TABLE"}


@dataclass(frozen=True, slots=True)
class MetadataRequest:
    """One metadata command with what is needed to answer it."""

    message: Any
    session: Session
    browsing: Browsing
    product: Product
    schemas_sent: SchemaCache

    def filter(self, field: str) -> Any:
        """An optional field: absent means no filter, an empty text "those that have none"."""
        return getattr(self.message, field) if self.message.HasField(field) else None


@dataclass(frozen=True, slots=True)
class Metadata:
    """A metadata command: its schema (the message may choose) and its answer, at least one batch."""

    schema: Callable[[Any], pa.Schema]
    answer: Callable[[MetadataRequest], Iterable[pa.RecordBatch]]


def _catalogs(request: MetadataRequest) -> pa.RecordBatch:
    names = sorted(request.browsing.catalogs(request.session))
    return pa.RecordBatch.from_arrays([pa.array(names, pa.utf8())], schema=schemas.CATALOGS)


def _db_schemas(request: MetadataRequest) -> pa.RecordBatch:
    in_catalog = _catalog_filter(request.filter("catalog"))
    like = _pattern(request.filter("db_schema_filter_pattern"))
    rows = [
        {"catalog_name": catalog, "db_schema_name": schema}
        for catalog, schema in sorted(request.browsing.schemas(request.session))
        if in_catalog(catalog) and like(schema)
    ]
    return pa.RecordBatch.from_pylist(rows, schemas.DB_SCHEMAS)


def _tables(request: MetadataRequest) -> Iterable[pa.RecordBatch]:
    in_catalog = _catalog_filter(request.filter("catalog"))
    like_schema = _pattern(request.filter("db_schema_filter_pattern"))
    like_table = _pattern(request.filter("table_name_filter_pattern"))
    kinds = {kind.upper() for kind in request.message.table_types}
    kinds |= {_KIND_ALIASES[kind] for kind in kinds if kind in _KIND_ALIASES}
    chosen = sorted(
        (
            table
            for table in request.browsing.tables(request.session)
            if in_catalog(table.catalog)
            and like_schema(table.schema)
            and like_table(table.name)
            and (not kinds or table.kind in kinds)
        ),
        key=lambda table: (table.catalog, table.schema, table.name, table.kind),
    )
    if not request.message.include_schema:
        return [_rows(chosen, schemas.TABLES)]
    return _with_schemas(request, chosen)


def _with_schemas(
    request: MetadataRequest, chosen: Iterable[Table]
) -> Iterator[pa.RecordBatch]:
    """The tables with their schemas, as they are described: 10,000 take half a second and 70 MB.

    The client reads while the rest is made; to make one array of it all, and parts of that, takes as long as to describe.
    """
    tables: list[Table] = []
    serialized: list[bytes] = []
    size, is_first = 0, True
    for table in chosen:
        schema = _table_schema(request, table)
        if schema is None:
            continue
        if tables and size + len(schema) > _BATCH_BYTES:
            yield _rows(tables, schemas.TABLES_WITH_SCHEMA, serialized)
            tables, serialized, size, is_first = [], [], 0, False
        tables.append(table)
        serialized.append(schema)
        size += len(schema)
    if tables or is_first:
        yield _rows(tables, schemas.TABLES_WITH_SCHEMA, serialized)


def _rows(tables: list[Table], schema: pa.Schema, *more: list[bytes]) -> pa.RecordBatch:
    columns = [
        [table.catalog for table in tables],
        [table.schema for table in tables],
        [table.name for table in tables],
        [table.kind for table in tables],
        *more,
    ]
    return pa.record_batch(columns, schema=schema)


def _table_schema(request: MetadataRequest, table: Table) -> bytes | None:
    """The described schema, as GetTables tells it; without columns for a table that cannot be served.

    None for a table that went away. JDBC reads the columns of all tables in one call, so one broken table must
    not fail that call.
    """
    try:
        schema = request.browsing.table_schema(request.session, table)
    except UnknownTable:
        return None
    except (RequestError, Inconsistent) as error:
        _log.info("listed without columns: %s", error)
        return _NO_COLUMNS
    return request.schemas_sent.of(table, schema, shape_of(request.session))


_NO_COLUMNS: bytes = pa.schema([]).serialize().to_pybytes()
#: So many tables' schemas are remembered at most.
_MAX_SCHEMAS = 50_000


class SchemaCache:
    """Tables' schemas as they were told last: making one takes 0.1 ms, and tools list all of them again and again.

    Thread-safe. What a table has now is compared with what was told, so nothing here is ever out of date.
    """

    def __init__(self) -> None:
        self._serialized: dict[tuple[str, str, str, Shape | None], tuple[pa.Schema, bytes]] = {}

    def of(self, table: Table, schema: pa.Schema, shape: Shape | None) -> bytes:
        key = (table.catalog, table.schema, table.name, shape)
        cached = self._serialized.get(key)
        if cached is not None and cached[0].equals(schema, check_metadata=True):
            return cached[1]
        shaped = schema if shape is None else shape.schema(schema)
        columns = described(
            shaped, catalog=table.catalog, db_schema=table.schema, table=table.name
        )
        schemas_sent: bytes = columns.serialize().to_pybytes()
        if len(self._serialized) >= _MAX_SCHEMAS:
            self._serialized = {}
        self._serialized[key] = (schema, schemas_sent)
        return schemas_sent


def _table_types(request: MetadataRequest) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(TABLE_KINDS, pa.utf8())], schema=schemas.TABLE_TYPES
    )


def _sql_info(request: MetadataRequest) -> pa.RecordBatch:
    return sql_info(request.product, request.message.info)


def _xdbc_type_info(request: MetadataRequest) -> pa.RecordBatch:
    return xdbc_type_info(request.filter("data_type"))


def _whole(
    answer: Callable[[MetadataRequest], pa.RecordBatch],
) -> Callable[[MetadataRequest], Iterable[pa.RecordBatch]]:
    return lambda request: [answer(request)]


def _always(schema: pa.Schema) -> Callable[[Any], pa.Schema]:
    return lambda message: schema


def _no_rows(schema: pa.Schema) -> Metadata:
    """No table here has keys: Iceberg and Kafka know none that is enforced."""
    return Metadata(_always(schema), lambda _: [pa.RecordBatch.from_pylist([], schema)])


#: Every metadata command of FlightSql.proto, by message name.
COMMANDS: dict[str, Metadata] = {
    "CommandGetCatalogs": Metadata(_always(schemas.CATALOGS), _whole(_catalogs)),
    "CommandGetDbSchemas": Metadata(_always(schemas.DB_SCHEMAS), _whole(_db_schemas)),
    "CommandGetTables": Metadata(
        lambda message: (
            schemas.TABLES_WITH_SCHEMA if message.include_schema else schemas.TABLES
        ),
        _tables,
    ),
    "CommandGetTableTypes": Metadata(_always(schemas.TABLE_TYPES), _whole(_table_types)),
    "CommandGetPrimaryKeys": _no_rows(schemas.PRIMARY_KEYS),
    "CommandGetExportedKeys": _no_rows(schemas.FOREIGN_KEYS),
    "CommandGetImportedKeys": _no_rows(schemas.FOREIGN_KEYS),
    "CommandGetCrossReference": _no_rows(schemas.FOREIGN_KEYS),
    "CommandGetSqlInfo": Metadata(_always(schemas.SQL_INFO), _whole(_sql_info)),
    "CommandGetXdbcTypeInfo": Metadata(
        _always(schemas.XDBC_TYPE_INFO), _whole(_xdbc_type_info)
    ),
}


def _pattern(pattern: str | None) -> Callable[[str], bool]:
    if pattern is None:
        return lambda name: True
    return Like(pattern).matches


def _catalog_filter(catalog: str | None) -> Callable[[str], bool]:
    """Exact by the specification; some tools send ``%`` for "any", and no catalog is named so."""
    if catalog is None or "%" in catalog:
        return _pattern(catalog)
    return lambda name: name == catalog
