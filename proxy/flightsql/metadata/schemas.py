"""The fixed result schemas of Flight SQL: names, order, types and nullability (FlightSql.proto).

Where the comments of FlightSql.proto and the C++, Java and Go implementations differ (the last two columns of
the primary keys), this follows the implementations; clients were written against those.
"""

from __future__ import annotations

import pyarrow as pa


def _fields(names: str, kind: pa.DataType | None = None) -> list[pa.Field]:
    """Fields of these names, all of one type, by default text; those with a question mark may be null."""
    kind = kind or pa.utf8()
    return [
        pa.field(name.rstrip("?"), kind, nullable=name.endswith("?")) for name in names.split()
    ]


_INT32 = pa.int32()

CATALOGS = pa.schema(_fields("catalog_name"))
DB_SCHEMAS = pa.schema(_fields("catalog_name? db_schema_name"))
TABLES = pa.schema(_fields("catalog_name? db_schema_name? table_name table_type"))
TABLES_WITH_SCHEMA = pa.schema([*TABLES, *_fields("table_schema", pa.binary())])
TABLE_TYPES = pa.schema(_fields("table_type"))
PRIMARY_KEYS = pa.schema(
    [
        *_fields("catalog_name? db_schema_name? table_name column_name"),
        *_fields("key_sequence", _INT32),
        *_fields("key_name?"),
    ]
)
FOREIGN_KEYS = pa.schema(
    [
        *_fields("pk_catalog_name? pk_db_schema_name? pk_table_name pk_column_name"),
        *_fields("fk_catalog_name? fk_db_schema_name? fk_table_name fk_column_name"),
        *_fields("key_sequence", _INT32),
        *_fields("fk_key_name? pk_key_name?"),
        *_fields("update_rule delete_rule", pa.uint8()),
    ]
)
#: The members in the order of their type codes 0 to 5.
SQL_INFO_VALUE = pa.dense_union(
    [
        *_fields("string_value"),
        *_fields("bool_value", pa.bool_()),
        *_fields("bigint_value", pa.int64()),
        *_fields("int32_bitmask", _INT32),
        *_fields("string_list", pa.list_(*_fields("item?"))),
        *_fields(
            "int32_to_int32_list_map", pa.map_(_INT32, pa.list_(*_fields("item?", _INT32)))
        ),
    ]
)
SQL_INFO = pa.schema([*_fields("info_name", pa.uint32()), *_fields("value", SQL_INFO_VALUE)])
XDBC_TYPE_INFO = pa.schema(
    [
        *_fields("type_name"),
        *_fields("data_type column_size?", _INT32),
        *_fields("literal_prefix? literal_suffix?"),
        *_fields("create_params?", pa.list_(*_fields("item"))),
        *_fields("nullable", _INT32),
        *_fields("case_sensitive", pa.bool_()),
        *_fields("searchable", _INT32),
        *_fields("unsigned_attribute? fixed_prec_scale auto_increment?", pa.bool_()),
        *_fields("local_type_name?"),
        *_fields("minimum_scale? maximum_scale? sql_data_type datetime_subcode?", _INT32),
        *_fields("num_prec_radix? interval_precision?", _INT32),
    ]
)
