"""The fixed result schemas of Flight SQL: names, order, types and nullability (FlightSql.proto).

Where the comments of FlightSql.proto and the C++, Java and Go implementations differ (the last two columns of
the primary keys), this follows the implementations; clients were written against those.
"""

from __future__ import annotations

import pyarrow as pa


def _required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


_utf8 = pa.utf8()
_int32 = pa.int32()

CATALOGS = pa.schema([_required("catalog_name", _utf8)])

DB_SCHEMAS = pa.schema(
    [pa.field("catalog_name", _utf8), _required("db_schema_name", _utf8)],
)

TABLES = pa.schema(
    [
        pa.field("catalog_name", _utf8),
        pa.field("db_schema_name", _utf8),
        _required("table_name", _utf8),
        _required("table_type", _utf8),
    ]
)

TABLES_WITH_SCHEMA = TABLES.append(_required("table_schema", pa.binary()))

TABLE_TYPES = pa.schema([_required("table_type", _utf8)])

PRIMARY_KEYS = pa.schema(
    [
        pa.field("catalog_name", _utf8),
        pa.field("db_schema_name", _utf8),
        _required("table_name", _utf8),
        _required("column_name", _utf8),
        _required("key_sequence", _int32),
        pa.field("key_name", _utf8),
    ]
)

FOREIGN_KEYS = pa.schema(
    [
        pa.field("pk_catalog_name", _utf8),
        pa.field("pk_db_schema_name", _utf8),
        _required("pk_table_name", _utf8),
        _required("pk_column_name", _utf8),
        pa.field("fk_catalog_name", _utf8),
        pa.field("fk_db_schema_name", _utf8),
        _required("fk_table_name", _utf8),
        _required("fk_column_name", _utf8),
        _required("key_sequence", _int32),
        pa.field("fk_key_name", _utf8),
        pa.field("pk_key_name", _utf8),
        _required("update_rule", pa.uint8()),
        _required("delete_rule", pa.uint8()),
    ]
)

_int32_list = pa.list_(pa.field("item", _int32))

#: The members in the order of their type codes 0 to 5.
SQL_INFO_VALUE = pa.dense_union(
    [
        _required("string_value", _utf8),
        _required("bool_value", pa.bool_()),
        _required("bigint_value", pa.int64()),
        _required("int32_bitmask", _int32),
        _required("string_list", pa.list_(pa.field("item", _utf8))),
        _required("int32_to_int32_list_map", pa.map_(_int32, _int32_list)),
    ]
)

SQL_INFO = pa.schema([_required("info_name", pa.uint32()), _required("value", SQL_INFO_VALUE)])

XDBC_TYPE_INFO = pa.schema(
    [
        _required("type_name", _utf8),
        _required("data_type", _int32),
        pa.field("column_size", _int32),
        pa.field("literal_prefix", _utf8),
        pa.field("literal_suffix", _utf8),
        pa.field("create_params", pa.list_(_required("item", _utf8))),
        _required("nullable", _int32),
        _required("case_sensitive", pa.bool_()),
        _required("searchable", _int32),
        pa.field("unsigned_attribute", pa.bool_()),
        _required("fixed_prec_scale", pa.bool_()),
        pa.field("auto_increment", pa.bool_()),
        pa.field("local_type_name", _utf8),
        pa.field("minimum_scale", _int32),
        pa.field("maximum_scale", _int32),
        _required("sql_data_type", _int32),
        pa.field("datetime_subcode", _int32),
        pa.field("num_prec_radix", _int32),
        pa.field("interval_precision", _int32),
    ]
)
