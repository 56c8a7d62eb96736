"""Compiles SQLAlchemy's statements and types for the engine: Postgres' SQL but for what means another thing to DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import types as sqltypes
from sqlalchemy.dialects.postgresql.base import PGCompiler
from sqlalchemy.sql import compiler, operators
from sqlalchemy.sql.elements import BindParameter


class ThermoclineTypeCompiler(compiler.GenericTypeCompiler):
    """Names of types as DuckDB means them: its FLOAT has 32 bits, its bare NUMERIC three decimals."""

    def visit_FLOAT(self, type_: Any, **kw: Any) -> str:
        return "DOUBLE"

    def visit_DOUBLE_PRECISION(self, type_: Any, **kw: Any) -> str:
        return "DOUBLE"

    def visit_NUMERIC(self, type_: Any, **kw: Any) -> str:
        if type_.precision is None:
            return "DECIMAL(38, 10)"
        return f"DECIMAL({type_.precision}, {type_.scale or 0})"

    def visit_DECIMAL(self, type_: Any, **kw: Any) -> str:
        return self.visit_NUMERIC(type_, **kw)

    def visit_TIMESTAMP(self, type_: Any, **kw: Any) -> str:
        return "TIMESTAMP WITH TIME ZONE" if type_.timezone else "TIMESTAMP"

    def visit_DATETIME(self, type_: Any, **kw: Any) -> str:
        return self.visit_TIMESTAMP(type_, **kw)

    def visit_BLOB(self, type_: Any, **kw: Any) -> str:
        return "BLOB"

    def visit_BINARY(self, type_: Any, **kw: Any) -> str:
        return "BLOB"

    def visit_VARBINARY(self, type_: Any, **kw: Any) -> str:
        return "BLOB"

    def visit_uuid(self, type_: Any, **kw: Any) -> str:
        return "UUID"


class _EscapedPattern(sqltypes.TypeDecorator):  # type: ignore[type-arg]
    """Sends a pattern of LIKE with an escape character as a regular expression."""

    impl = sqltypes.String
    cache_ok = True

    def __init__(self, escape: str, before: str, after: str) -> None:
        super().__init__()
        self.escape = escape
        self.before = before
        self.after = after

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        if value is None:
            return None
        return f"{self.before}{''.join(self._pieces(value))}{self.after}"

    process_literal_param = process_bind_param

    def _pieces(self, pattern: str) -> Iterator[str]:
        characters = iter(pattern)
        for each in characters:
            if each == self.escape:
                each = next(characters, each)
            elif each in "%_":
                yield ".*" if each == "%" else "."
                continue
            yield f"\\{each}" if each in r"\.^$*+?()[]{}|" else each


def _joined(element: Any) -> Iterator[Any]:
    """Yield what is concatenated, without what 2.x notes of letters' case."""
    if getattr(element, "operator", None) is operators.concat_op:
        for each in element.get_children():
            yield from _joined(each)
    elif type(element).__name__ in ("Grouping", "ilike_case_insensitive"):
        yield from _joined(element.element)
    else:
        yield element


class ThermoclineCompiler(PGCompiler):
    """Postgres' statements, where the engine reads them as Postgres does."""

    def visit_like_op_binary(self, binary: Any, operator: Any, **kw: Any) -> Any:
        matches = self._escaped(binary, "(?s)", **kw)
        return matches or super().visit_like_op_binary(binary, operator, **kw)

    def visit_not_like_op_binary(self, binary: Any, operator: Any, **kw: Any) -> Any:
        matches = self._escaped(binary, "(?s)", **kw)
        return (matches and f"NOT {matches}") or super().visit_not_like_op_binary(
            binary, operator, **kw
        )

    def visit_ilike_op_binary(self, binary: Any, operator: Any, **kw: Any) -> Any:
        matches = self._escaped(binary, "(?is)", **kw)
        return matches or super().visit_ilike_op_binary(binary, operator, **kw)

    def visit_not_ilike_op_binary(self, binary: Any, operator: Any, **kw: Any) -> Any:
        matches = self._escaped(binary, "(?is)", **kw)
        return (matches and f"NOT {matches}") or super().visit_not_ilike_op_binary(
            binary, operator, **kw
        )

    def _escaped(self, binary: Any, flags: str, **kw: Any) -> str | None:
        """Return a search by a regular expression: the server takes ESCAPE with literal patterns alone, and these are values.

        None: there is no escape character, or the pattern is not one value, but for the percent signs around what a text contains.
        """
        escape = binary.modifiers.get("escape")
        pieces = list(_joined(binary.right))
        percent = self._like_percent_literal
        values = [each for each in pieces if each is not percent]
        if not escape or len(values) != 1 or not isinstance(values[0], BindParameter):
            return None
        # Of the same key: a statement that was compiled before gets its values by it.
        pattern = values[0]._clone(maintain_key=True)
        before = "" if pieces[0] is percent else r"\A"
        after = "" if pieces[-1] is percent else r"\z"
        pattern.type = _EscapedPattern(escape, flags + before, after)
        left = self.process(binary.left, **kw)
        return f"regexp_matches({left}, {self.process(pattern, **kw)})"

    def visit_regexp_match_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """The engine's ``~`` matches the whole text, Postgres' anywhere in it."""
        left = self.process(binary.left, **kw)
        return f"regexp_matches({left}, {self.process(binary.right, **kw)})"

    def visit_not_regexp_match_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        return f"NOT {self.visit_regexp_match_op_binary(binary, operator, **kw)}"
