"""The option ``filter`` of a ``load()``: a condition in the server's SQL over the columns of one table.

It was read as Spark's SQL once. What meant another thing then is refused by name (``_other_meaning``).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import duckdb
import msgspec
import pyarrow as pa

from connectors import syntax_trees
from connectors.file_conditions import scan_filter
from planner.errors import BadParameter, BadStatement, RequestError
from planner.names import TableName
from planner.reading.filters import ScanFilter
from planner.schema import Column, TableSchema
from planner.sql_text import identifier, tokens
from planner.statement.ast import Node, fold, kind_of, walk
from planner.statement.conditions import alternatives
from planner.statement.gate import check_text
from planner.statement.rewrite import CHANGED, make_printable
from planner.statement.row_expression import (
    CURRENT_GROUPS,
    CURRENT_USER,
    columns_of,
    row_expression,
)
from planner.type_text import exact_select, sql_type

#: What Spark's SQL has and the server's has not, outside of quotes, and what to write instead.
_SPELLINGS = (
    (re.compile("`"), 'double quotes around names, as in "my name"'),
    (re.compile("<=>"), "IS NOT DISTINCT FROM for <=>"),
    (re.compile(r"\b(?:rlike|regexp)\b", re.IGNORECASE), "regexp_matches(column, pattern)"),
    (re.compile(r"\btimestamp_ntz\b", re.IGNORECASE), "TIMESTAMP for TIMESTAMP_NTZ"),
    (re.compile(r"\btimestamp_ltz\b", re.IGNORECASE), "TIMESTAMPTZ for TIMESTAMP_LTZ"),
    (re.compile(r"\b\d+(?:l|s|y|bd)\b", re.IGNORECASE), "numbers without a letter behind"),
)
#: A condition that a person writes.
_MAX_CHARS = 20_000
_QUOTED = frozenset(("comment", "text", "escaped", "quoted", "dollar", "open"))
#: Nothing is read but the text.
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "threads": 1,
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}


@dataclass(frozen=True, slots=True)
class RowFilter:
    """``sql`` is the condition as it was written, over ``columns``. ``files``: what statistics of files are compared with."""

    sql: str
    columns: tuple[Column, ...]
    files: ScanFilter

    @property
    def names(self) -> frozenset[str]:
        return frozenset(column.name for column in self.columns)

    def rows_of(self, rows: str, columns: Sequence[Column]) -> str:
        """Return a SELECT of ``columns`` of those of ``rows`` in files, a SELECT, that the condition is true of.

        ``columns`` are among others those of the condition.
        """
        exact = frozenset(column.name for column in columns) - self.names
        source = exact_select(_arrow(columns), f"({rows})", exact)
        return f"SELECT * FROM ({source}) WHERE {in_parentheses(self.sql)}"  # noqa: S608 - the user's own

    def apply(
        self, cursor: duckdb.DuckDBPyConnection, table: str, rows: pa.RecordBatch
    ) -> pa.RecordBatch:
        """Return those of a table's ``rows`` that the condition is true of.

        It is selected: pyarrow, to which DuckDB 1.5.5 hands the WHERE over Arrow rows, finds NaN greater than nothing.
        """
        source = exact_select(_arrow(self.columns), "arrow_rows")
        sql = f"SELECT CAST({in_parentheses(self.sql)} AS BOOLEAN) AS truth FROM ({source})"  # noqa: S608 - as above
        cursor.register("arrow_rows", rows.select(sorted(self.names)))
        try:
            with row_errors(table, self):
                truth = cursor.execute(sql).to_arrow_table()["truth"]
        finally:
            cursor.unregister("arrow_rows")
        return rows.filter(truth.combine_chunks())


def parse_filter(text: str, table: TableName, schema: TableSchema) -> RowFilter:
    """Read a condition over the columns of ``schema``.

    Raises:
        BadParameter: it is none, or meant something else as Spark's SQL.
    """
    expression = check_filter(text, table, schema)
    columns = tuple(_columns(expression, table, schema))
    try:
        _ask(f"SELECT count(*) FROM ({_nulls(columns)}) WHERE {in_parentheses(text)}")  # noqa: S608 - as above
    except duckdb.Error as error:
        raise _refused(table, _sentence(str(error)), text) from error
    return RowFilter(text, columns, scan_filter(_evaluate, alternatives(expression), schema))


def check_filter(text: str, table: TableName, schema: TableSchema) -> Node:
    """Return the tree of a condition whose types are not looked at.

    Raises:
        BadParameter: as ``parse_filter``.
    """
    try:
        check_text(text)
        document = syntax_trees.parse(_ask, f"SELECT {text}")
        if document["error"]:
            raise BadStatement(_sentence(document["error_message"]))
        expression = row_expression(document, "a filter")
    except RequestError as error:
        raise _refused(table, error.message, text) from error
    columns = {fold(column.name): column for column in _columns(expression, table, schema)}
    for node, _ in walk(document):
        meaning = _other_meaning(node, columns)
        if meaning is not None:
            raise _refused(table, meaning)
    return expression


@contextlib.contextmanager
def row_errors(table: str, condition: RowFilter | None) -> Iterator[None]:
    """Translate what DuckDB raises about a value that a condition cannot be worked out for."""
    try:
        yield
    except (duckdb.ConversionException, duckdb.OutOfRangeException) as error:
        if condition is None:
            raise
        raise _refused(table, _sentence(str(error))) from error


def _columns(expression: Node, table: TableName, schema: TableSchema) -> Iterator[Column]:
    """Yield the columns that an expression names, each once.

    Raises:
        BadParameter: it names none, another, or one that may be two.
    """
    names = tuple(dict.fromkeys(map(fold, columns_of(expression))))
    if not names:
        raise _refused(table, "it names no column.")
    for name in names:
        matches = [column for column in schema.columns if fold(column.name) == name]
        if len(matches) != 1:
            several = " and ".join(column.name for column in matches)
            why = f"may be {several}" if matches else "is no column of the table"
            raise _refused(table, f"{name[:80]} {why}.")
        yield matches[0]


# --- what meant something else ---


def _other_meaning(node: Node, columns: Mapping[str, Column]) -> str | None:
    """Say what was read otherwise in Spark's SQL; None: nothing of this node."""
    kind = kind_of(node)
    if kind == "COLUMN_REF" and fold(node["column_names"][0]) in (CURRENT_USER, CURRENT_GROUPS):
        return f"{node['column_names'][0]} is not known in a filter."
    if kind == "CAST" and node["cast_type"]["id"] == "TIMESTAMP":
        text = _constant(node["child"], "VARCHAR")
        if text is not None and _has_zone(text):
            return f"TIMESTAMP leaves out the zone of '{text[:40]}'; write TIMESTAMPTZ '{text[:40]}'."
    operands = _compared(node)
    for column in filter(None, (columns.get(_name(operand)) for operand in operands)):
        for operand in operands:
            if column.type == pa.float32() and not _is_float(operand):
                return (
                    f"column {column.name} is compared in its type, FLOAT, which does not have this number; write it as a "
                    f"DOUBLE, as in {column.name} > 0.1::DOUBLE, or as a FLOAT."
                )
            text = _constant(operand, "VARCHAR")
            if column.type == pa.uuid() and text is not None and not _is_canonical(text):
                return (
                    f"'{text[:40]}' is compared with {column.name} as a UUID; write it in small letters, in groups of "
                    f"8-4-4-4-12."
                )
    return None


def _compared(node: Node) -> list[Node]:
    """Return what a node compares with one another."""
    if not str(node.get("type", "")).startswith("COMPARE_"):
        return []
    sides = [
        node[name] for name in ("left", "right", "input", "lower", "upper") if name in node
    ]
    return [*sides, *node.get("children", ())]


def _name(operand: Node) -> str:
    names: list[str] = operand["column_names"] if kind_of(operand) == "COLUMN_REF" else []
    return fold(names[0]) if len(names) == 1 else ""


def _constant(operand: Node, kind: str) -> Any:
    """Return the value of a literal of this type; None: it is none."""
    if kind_of(operand) != "CONSTANT" or operand["value"]["type"]["id"] != kind:
        return None
    return operand["value"].get("value")


def _is_float(operand: Node) -> bool:
    """Whether a number, if it is one without a type of its own, is one that 32 bits have."""
    if kind_of(operand) == "FUNCTION" and operand["function_name"] in ("+", "-"):
        return all(map(_is_float, operand["children"]))
    if kind_of(operand) != "CONSTANT" or operand["value"]["type"]["id"] in (
        "DOUBLE",
        "VARCHAR",
    ):
        return True
    value, kind = operand["value"].get("value"), operand["value"]["type"]
    if value is None:
        return True
    if not isinstance(value, int):  # two halves
        return False
    number = Decimal(value).scaleb(-(kind["type_info"] or {}).get("scale", 0))
    return bool(Decimal(pa.scalar(float(number), pa.float32()).as_py()) == number)


def _is_canonical(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return True  # DuckDB's to refuse


def _has_zone(text: str) -> bool:
    try:
        return dt.datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


# --- DuckDB ---


@functools.cache
def _parser() -> duckdb.DuckDBPyConnection:
    """Return a DuckDB of this process that reads nothing."""
    connection = duckdb.connect(":memory:", config=_SETTINGS)
    connection.execute("SET GLOBAL TimeZone = 'UTC'")
    return connection


def _ask(sql: str, *arguments: str) -> tuple[Any, ...]:
    row = _parser().cursor().execute(sql, list(arguments)).fetchone()
    assert row is not None  # noqa: S101 - it is asked for one
    return row


def _evaluate(constants: Node, columns: str) -> pa.Table:
    for node, _ in walk(constants):
        if kind_of(node) in CHANGED:
            make_printable(node)
    sql = syntax_trees.unparse(_ask, msgspec.json.encode(constants).decode(), constants)
    try:
        answer = _parser().cursor().execute(f"SELECT {columns} FROM ({sql})")  # noqa: S608 - printed by DuckDB
        return answer.to_arrow_table(1)
    except duckdb.Error as error:
        raise BadStatement(_sentence(str(error))) from error


def in_parentheses(text: str) -> str:
    """Return a condition as an operand. A comment may end it."""
    return f"(\n{text}\n)"


def _arrow(columns: Sequence[Column]) -> pa.Schema:
    return pa.schema([pa.field(column.name, column.type) for column in columns])


def _nulls(columns: Sequence[Column]) -> str:
    listed = ", ".join(
        f"CAST(NULL AS {sql_type(column.type)}) AS {identifier(column.name)}"
        for column in columns
    )
    return f"SELECT {listed}"


def _refused(table: TableName | str, why: str, text: str = "") -> BadParameter:
    """``text``: the condition, if it may be Spark's."""
    bare = "".join(
        " " if token.lastgroup in _QUOTED else token[0] for token in tokens(text[:_MAX_CHARS])
    )
    advice = [instead for pattern, instead in _SPELLINGS if pattern.search(bare)]
    if advice:
        why = f"{why} It takes the server's SQL, not Spark's: write {', '.join(advice)}."
    return BadParameter(f"{table}: option filter: {why}", table=str(table), option="filter")


def _sentence(message: str) -> str:
    """Return the first line of DuckDB's message, without its kind, as a sentence."""
    line = message.strip().split("\n", 1)[0][:300]
    return f"{line.partition(' Error: ')[2] or line}".rstrip(".") + "."
