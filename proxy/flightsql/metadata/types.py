"""What clients are told of types: the metadata of a column, and the type table of XDBC."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from proxy.catalog.sqltypes import sql_type
from proxy.flightsql.metadata.schemas import XDBC_TYPE_INFO
from proxy.session import COMMENT, TYPE_NAME

_PREFIX = "ARROW:FLIGHT:SQL:"
_CATALOG, _DB_SCHEMA, _TABLE = (
    f"{_PREFIX}{name}".encode() for name in ("CATALOG_NAME", "DB_SCHEMA_NAME", "TABLE_NAME")
)


def described(schema: pa.Schema, *, catalog: str, db_schema: str, table: str) -> pa.Schema:
    """A table's schema with the column metadata GetTables carries, and no other.

    For GetTables only: JDBC shows REMARKS of a result's field as the column's label.
    """
    place = (
        (_CATALOG, catalog.encode()),
        (_DB_SCHEMA, db_schema.encode()),
        (_TABLE, table.encode()),
    )
    # Making Arrow's metadata is most of the work, and columns of one type have the same.
    made: dict[object, pa.KeyValueMetadata] = {}
    fields = []
    for field in schema:
        kind, own_metadata = field.type, field.metadata
        said = (
            ()
            if own_metadata is None
            else (own_metadata.get(TYPE_NAME), own_metadata.get(COMMENT))
        )
        key = (kind, *said) if said else kind
        metadata = made.get(key)
        if metadata is None:
            metadata = made[key] = pa.KeyValueMetadata(place + _of_column(kind, *said))
        fields.append(field.with_metadata(metadata))
    return pa.schema(fields)


@functools.lru_cache(maxsize=4096)
def _of_column(
    kind: pa.DataType, type_name: bytes | None = None, comment: bytes | None = None
) -> tuple[tuple[bytes, bytes], ...]:
    sql = sql_type(kind)
    name = sql.name if type_name is None else type_name.decode()
    metadata = {
        "TYPE_NAME": name,
        "IS_AUTO_INCREMENT": "0",
        "IS_CASE_SENSITIVE": "1" if name == "VARCHAR" else "0",
        "IS_READ_ONLY": "1",
        "IS_SEARCHABLE": "1",
        "PRECISION": sql.precision,
        "SCALE": sql.scale,
        "REMARKS": None if comment is None else comment.decode(),
    }
    return tuple(
        (f"{_PREFIX}{key}".encode(), str(value).encode())
        for key, value in metadata.items()
        if value is not None
    )


# Codes of XdbcDataType, XdbcDatetimeSubcode, Nullable and Searchable in FlightSql.proto.
_NULLABLE = 1
_SEARCHABLE_FULL = 3
_SEARCHABLE_NONE = 0
_SQL_DATETIME = 9


@dataclass(frozen=True, slots=True)
class _Xdbc:
    name: str
    code: int
    size: int | None = None
    quote: str | None = None
    create_params: tuple[str, ...] = ()
    scales: tuple[int, int] | None = None
    radix: int | None = None
    subcode: int | None = None


_XDBC = (
    _Xdbc("BIGINT", -5, 19, scales=(0, 0), radix=10),
    _Xdbc("BLOB", -3, 2_147_483_647, "'"),
    _Xdbc("BOOLEAN", -7, 1),
    _Xdbc("DATE", 91, 10, "'", subcode=1),
    _Xdbc("DECIMAL", 3, 38, create_params=("precision", "scale"), scales=(0, 38), radix=10),
    _Xdbc("DOUBLE", 8, 53, radix=2),
    _Xdbc("FLOAT", 7, 24, radix=2),
    _Xdbc("INTEGER", 4, 10, scales=(0, 0), radix=10),
    _Xdbc("SMALLINT", 5, 5, scales=(0, 0), radix=10),
    _Xdbc("TIME", 92, 15, "'", scales=(0, 6), subcode=2),
    _Xdbc("TIMESTAMP", 93, 26, "'", scales=(0, 6), subcode=3),
    _Xdbc("TIMESTAMP WITH TIME ZONE", 93, 32, "'", scales=(0, 6), subcode=5),
    _Xdbc("TINYINT", -6, 3, scales=(0, 0), radix=10),
    _Xdbc("UUID", 1, 36, "'"),
    _Xdbc("VARCHAR", 12, 2_147_483_647, "'"),
)


def xdbc_type_info(data_type: int | None) -> pa.RecordBatch:
    """The scalar types of the server, sorted by code and name; of one code if ``data_type`` is given."""
    chosen = sorted(
        (row for row in _XDBC if data_type is None or row.code == data_type),
        key=lambda row: (row.code, row.name),
    )
    return pa.RecordBatch.from_pylist([_xdbc_row(row) for row in chosen], XDBC_TYPE_INFO)


def _xdbc_row(row: _Xdbc) -> dict[str, Any]:
    numeric = row.radix is not None
    return {
        "type_name": row.name,
        "data_type": row.code,
        "column_size": row.size,
        "literal_prefix": row.quote,
        "literal_suffix": row.quote,
        "create_params": list(row.create_params),
        "nullable": _NULLABLE,
        "case_sensitive": row.name == "VARCHAR",
        "searchable": _SEARCHABLE_NONE if row.name == "BLOB" else _SEARCHABLE_FULL,
        "unsigned_attribute": False if numeric else None,
        "fixed_prec_scale": False,
        "auto_increment": False if numeric else None,
        "local_type_name": row.name,
        "minimum_scale": row.scales[0] if row.scales else None,
        "maximum_scale": row.scales[1] if row.scales else None,
        "sql_data_type": row.code if row.subcode is None else _SQL_DATETIME,
        "datetime_subcode": row.subcode,
        "num_prec_radix": row.radix,
        "interval_precision": None,
    }
