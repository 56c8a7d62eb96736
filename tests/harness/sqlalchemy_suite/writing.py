"""The dialect with a foreign writer beside it: what the suite creates and inserts goes to the Iceberg catalog by pyiceberg."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import NoSuchTableError
from sqlalchemy import schema, types
from sqlalchemy.sql import dml

from planner.names import TableName
from tests.fixtures.server import SqlServer
from thermocline_client.sqlalchemy_dialect import ThermoclineDialect

SCHEMA = "main"
_TYPES: tuple[tuple[Any, Any], ...] = (
    (types.Boolean, pa.bool_()),
    (types.BigInteger, pa.int64()),
    (types.Integer, pa.int32()),
    (types.Float, pa.float64()),
    (types.Date, pa.date32()),
    (types.Time, pa.time64("us")),
    (types.LargeBinary, pa.large_binary()),
    (types.String, pa.string()),
    (types.Enum, pa.string()),
)


def arrow_type(kind: Any) -> pa.DataType:
    """Raises KeyError: Iceberg has none."""
    if isinstance(kind, types.TypeDecorator):
        return arrow_type(kind.impl)
    if isinstance(kind, types.DateTime):
        return pa.timestamp("us", "UTC" if kind.timezone else None)
    if isinstance(kind, types.Numeric) and not isinstance(kind, types.Float):
        return pa.decimal128(kind.precision or 38, 10 if kind.scale is None else kind.scale)
    for python, arrow in _TYPES:
        if isinstance(kind, python):
            return arrow
    raise KeyError(kind)


class WritingDialect(ThermoclineDialect):
    """Executes CREATE TABLE, DROP TABLE and INSERT of values; all else as it is."""

    supports_statement_cache = True
    server: SqlServer

    def do_execute(
        self, cursor: Any, statement: str, parameters: Any, context: Any = None
    ) -> None:
        if not self._is_written(context, [parameters]):
            super().do_execute(cursor, statement, parameters, context)

    def do_executemany(
        self, cursor: Any, statement: str, parameters: Any, context: Any = None
    ) -> None:
        if not self._is_written(context, parameters):
            super().do_executemany(cursor, statement, parameters, context)

    def _is_written(self, context: Any, _parameters: Sequence[Any]) -> bool:
        compiled = None if context is None else context.compiled
        match getattr(compiled, "statement", None):
            case schema.CreateTable(element=table):
                self._create(table)
            case schema.DropTable(element=table):
                self._drop(table)
            case dml.Insert() as insert if insert.select is None:
                self._insert(insert.table, context.compiled_parameters)
            case _:
                return False
        return True

    def _create(self, table: Any) -> None:
        self._drop(table)
        fields = [pa.field(each.name, arrow_type(each.type)) for each in table.columns]
        with self.server.catalog() as catalog:
            name = self._name(table)
            catalog.create_namespace_if_not_exists(name.namespace)
            catalog.create_table((*name.namespace, name.name), pa.schema(fields))
        self.server.refresh()

    def _drop(self, table: Any) -> None:
        name = self._name(table)
        with self.server.catalog() as catalog, contextlib.suppress(NoSuchTableError):
            catalog.drop_table((*name.namespace, name.name))
        self.server.refresh()

    def _insert(self, table: Any, rows: Sequence[dict[str, Any]]) -> None:
        fields = pa.schema(
            [pa.field(each.name, arrow_type(each.type)) for each in table.columns]
        )
        values = [{field.name: row.get(field.name) for field in fields} for row in rows]
        name = self._name(table)
        with self.server.catalog() as catalog:
            catalog.load_table((*name.namespace, name.name)).append(
                pa.Table.from_pylist(values, fields)
            )
        self.server.refresh(name)

    def _name(self, table: Any) -> TableName:
        return TableName("lake", (table.schema or SCHEMA,), table.name)
