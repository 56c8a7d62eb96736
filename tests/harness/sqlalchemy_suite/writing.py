"""The dialect with a foreign writer beside it: what the suite creates and inserts is sent to a process that has the catalog.

Loaded where the suite runs, which may be an environment without anything of the server's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
from sqlalchemy import schema, types
from sqlalchemy.sql import dml

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


#: What is not written, nor asked of the server. 1.4 has views as texts, of ``DDL``.
_LEFT_OUT = tuple(
    getattr(schema, name)
    for name in (
        *("SetTableComment", "SetColumnComment", "CreateIndex", "CreateView", "DropView"),
        *("AddConstraint", "DropConstraint", "DDL"),
    )
    if hasattr(schema, name)
)
_UUID = getattr(types, "Uuid", ())


def arrow_type(kind: Any) -> pa.DataType:
    """Raises KeyError: Iceberg has none."""
    if isinstance(kind, types.TypeDecorator):
        return arrow_type(kind.impl)
    if isinstance(kind, types.DateTime):
        return pa.timestamp("us", "UTC" if kind.timezone else None)
    if isinstance(kind, types.Numeric) and not isinstance(kind, types.Float):
        return pa.decimal128(kind.precision or 38, 10 if kind.scale is None else kind.scale)
    if isinstance(kind, _UUID):
        return pa.uuid() if kind.native_uuid else pa.string()
    for python, arrow in _TYPES:
        if isinstance(kind, python):
            return arrow
    raise KeyError(kind)


class WritingDialect(ThermoclineDialect):
    """Executes CREATE TABLE, DROP TABLE, INSERT of values and DELETE of all; leaves out comments, views, indexes and constraints."""

    supports_statement_cache = True
    #: Takes what to do, schema and name of a table, and Arrow's bytes; returns once a server shows it.
    write: Callable[[str, tuple[str, str], bytes], None]

    @classmethod
    def import_dbapi(cls) -> Any:
        return ThermoclineDialect.import_dbapi()

    def do_execute(
        self, cursor: Any, statement: str, parameters: Any, context: Any = None
    ) -> None:
        if not self._is_written(context):
            super().do_execute(cursor, statement, parameters, context)

    def do_executemany(
        self, cursor: Any, statement: str, parameters: Any, context: Any = None
    ) -> None:
        if not self._is_written(context):
            super().do_executemany(cursor, statement, parameters, context)

    def _is_written(self, context: Any) -> bool:
        match _statement(context):
            case schema.CreateTable() as create:
                self._create(create.element)
            case schema.DropTable() as drop:
                self._drop(drop.element)
            case dml.Insert() as insert if insert.select is None:
                inline = {
                    getattr(column, "key", column): getattr(value, "value", None)
                    for column, value in (insert._values or {}).items()
                }
                rows = [{**inline, **row} for row in context.compiled_parameters or [{}]]
                self._insert(insert.table, rows)
            case dml.Delete() as delete if delete.whereclause is None:
                self.write("empty", _name(delete.table), b"")
            case other:
                return isinstance(other, _LEFT_OUT)
        return True

    def _create(self, table: Any) -> None:
        self.write("create", _name(table), _fields(table).serialize().to_pybytes())

    def _drop(self, table: Any) -> None:
        self.write("drop", _name(table), b"")

    def _insert(self, table: Any, rows: Sequence[dict[str, Any]]) -> None:
        fields = _fields(table)
        values = [
            {each.name: _value(row.get(each.name), each.type) for each in table.columns}
            for row in rows
        ]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, fields) as stream:
            stream.write_table(pa.Table.from_pylist(values, fields))
        self.write("append", _name(table), sink.getvalue().to_pybytes())


def _fields(table: Any) -> pa.Schema:
    """Return the columns, with their comments where pyiceberg looks for them."""
    return pa.schema(
        [
            pa.field(
                each.name, arrow_type(each.type), each.nullable, {"doc": each.comment or ""}
            )
            for each in table.columns
        ]
    )


def _statement(context: Any) -> Any:
    """Return what is executed, with its own values: a compiled statement is of the first that was like it. None: a text."""
    if context is None or context.compiled is None:
        return None
    invoked = context.invoked_statement
    return context.compiled.statement if invoked is None else invoked


def _value(value: Any, kind: Any) -> Any:
    """Return what pyarrow takes for a column: a database would convert."""
    if value is None:
        return None
    if isinstance(kind, _UUID):
        one = UUID(str(value))
        return one.bytes if kind.native_uuid else one.hex
    stored = arrow_type(kind)
    if isinstance(value, float) and pa.types.is_decimal(stored):
        return Decimal(repr(value))
    if isinstance(value, Decimal) and pa.types.is_floating(stored):
        return float(value)
    return value


def _name(table: Any) -> tuple[str, str]:
    return table.schema or SCHEMA, table.name
