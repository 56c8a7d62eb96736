"""``information_schema``: the tables a session may see, for tools that browse by SQL (Power BI's connector).

Named as in DuckDB's own; what is not known is NULL. Rows are made of what the listing commands answer.
"""

from __future__ import annotations

import pyarrow as pa

from planner.errors import Inconsistent, RequestError
from planner.statement.references import TableReference
from planner.statement.scope import fold
from proxy.catalog.browser import Browser
from proxy.catalog.sqltypes import SqlType, sql_type
from proxy.session import COMMENT, TYPE_NAME, Session, Table

NAME = "information_schema"


def _texts(names: str) -> list[tuple[str, pa.DataType]]:
    return [(name, pa.string()) for name in names.split()]


_NUMBERS = dict.fromkeys(
    [
        "ordinal_position",
        "character_maximum_length",
        "character_octet_length",
        "numeric_precision",
        "numeric_precision_radix",
        "numeric_scale",
        "datetime_precision",
    ],
    pa.int32(),
)
_CONSTRAINT = "constraint_catalog constraint_schema constraint_name "

SCHEMAS = {
    "schemata": pa.schema(
        _texts(
            "catalog_name schema_name schema_owner default_character_set_catalog "
            "default_character_set_schema default_character_set_name sql_path"
        )
    ),
    "tables": pa.schema(
        _texts(
            "table_catalog table_schema table_name table_type self_referencing_column_name "
            "reference_generation user_defined_type_catalog user_defined_type_schema "
            "user_defined_type_name is_insertable_into is_typed commit_action TABLE_COMMENT"
        )
    ),
    "views": pa.schema(
        _texts(
            "table_catalog table_schema table_name view_definition check_option is_updatable"
        )
    ),
    "columns": pa.schema(
        [
            (name, _NUMBERS.get(name, kind))
            for name, kind in _texts(
                "table_catalog table_schema table_name column_name ordinal_position column_default "
                "is_nullable data_type character_maximum_length character_octet_length "
                "numeric_precision numeric_precision_radix numeric_scale datetime_precision "
                "interval_type character_set_name collation_name is_identity is_generated "
                "is_updatable COLUMN_COMMENT"
            )
        ]
    ),
    # No table here has keys: Iceberg and Kafka know none that is enforced.
    "table_constraints": pa.schema(
        _texts(
            _CONSTRAINT + "table_catalog table_schema table_name constraint_type is_deferrable "
            "initially_deferred enforced nulls_distinct"
        )
    ),
    "key_column_usage": pa.schema(
        [
            *_texts(_CONSTRAINT + "table_catalog table_schema table_name column_name"),
            ("ordinal_position", pa.int64()),
            ("position_in_unique_constraint", pa.int64()),
        ]
    ),
    "constraint_column_usage": pa.schema(
        _texts("table_catalog table_schema table_name column_name " + _CONSTRAINT)
    ),
    "referential_constraints": pa.schema(
        _texts(
            _CONSTRAINT + "unique_constraint_catalog unique_constraint_schema "
            "unique_constraint_name match_option update_rule delete_rule"
        )
    ),
}


def named(reference: TableReference) -> str | None:
    """Which of these tables a reference means; None: another one. The catalog before it does not matter."""
    if reference.schema is None or fold(reference.schema) != NAME:
        return None
    name = fold(reference.name)
    return name if name in SCHEMAS else None


def rows(name: str, listing: Browser, session: Session) -> pa.Table:
    schema = SCHEMAS[name]
    columns: dict[str, list[object]] = {}
    if name == "schemata":
        schemas = sorted(listing.schemas(session))
        columns = {
            "catalog_name": [catalog for catalog, _ in schemas],
            "schema_name": [schema_name for _, schema_name in schemas],
        }
    elif name in ("tables", "views"):
        kinds = ("VIEW",) if name == "views" else ("TABLE", "VIEW")
        columns = _tables(
            [
                schema_name
                for schema_name in _sorted(listing, session)
                if schema_name.kind in kinds
            ]
        )
        if name == "views":
            columns.pop("table_type")
    elif name == "columns":
        columns = _columns(listing, session)
    size = max((len(schema_name) for schema_name in columns.values()), default=0)
    return pa.Table.from_arrays(
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
