"""Reads a condition of Spark's SQL over one table's columns without Spark: where its reader has none.

Columns are compared with constants and joined by AND, OR and NOT; what else Spark knows is refused.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from planner.errors import BadParameter
from planner.names import TableName
from planner.schema import Column, TableSchema
from planner.spark_conditions import (
    Both,
    Comparator,
    Comparison,
    Negation,
    SparkCondition,
    compared_as,
)

#: A condition that a person writes.
MAX_CHARS = 20_000
_MAX_DEPTH = 100
#: Texts with backslashes, doubled quotes and double quotes mean what settings of the session say.
_TOKEN = re.compile(
    r"""\s*(?:(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,4})?(?!\w))
      |(?P<word>[^\W\d]\w*)
      |`(?P<quoted>(?:[^`]|``)+)`
      |'(?P<text>[^'\\\x00]*)'(?!')
      |(?P<mark><=>|<=|>=|<>|!=|==|[=<>(),.+-]))""",
    re.VERBOSE,
)
_COMPARATORS: dict[str, Comparator] = {
    "=": "=", "==": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="
}  # fmt: skip
_MIRRORED: dict[Comparator, Comparator] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - of times without a zone
_WORDS = frozenset(
    ("AND", "OR", "NOT", "IN", "IS", "NULL", "BETWEEN", "TRUE", "FALSE", "LIKE", "RLIKE", "ILIKE", "CASE", "EXISTS")
)  # fmt: skip
#: Exact in 64-bit floating numbers: integers below the first, decimals of at most this many digits.
_EXACT_INTEGERS, _EXACT_DIGITS = 2**53, 15
_TIMES = {"DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ"}


def parse_condition(text: str, table: TableName, schema: TableSchema) -> SparkCondition:
    """Read a condition over the columns of ``schema``, whose names have no case, as in Spark.

    Raises:
        BadParameter: it is none, or more than is understood here.
    """
    parser = _Parser(_tokens(text), str(table), schema)
    condition = parser.any_of(0)
    parser.end()
    return condition


def _refused(why: str) -> BadParameter:
    return BadParameter(
        f"option filter: {why}; it takes columns compared with constants (=, <>, <, IN, BETWEEN, IS NULL), joined by AND, OR "
        f"and NOT. Filter by more with .where() after load().",
        option="filter",
    )


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str

    def says(self, *words: str) -> bool:
        return self.kind in ("word", "mark") and self.text.upper() in words


_END = _Token("end", "")


def _tokens(text: str) -> list[_Token]:
    if len(text) > MAX_CHARS:
        raise _refused(f"it is longer than {MAX_CHARS:,} characters")
    tokens, at, stop = [], 0, len(text.rstrip())
    while at < stop:
        match = _TOKEN.match(text, at)
        if match is None:
            raise _refused(f"what begins with {text[at:].strip()[:40]!r} is not read here")
        kind = str(match.lastgroup)
        word = match[kind]
        tokens.append(_Token(kind, word.replace("``", "`") if kind == "quoted" else word))
        at = match.end()
    return tokens


class _Parser:
    """Recursive descent, in the order of Spark's operators: OR, AND, NOT, comparison."""

    def __init__(self, tokens: Sequence[_Token], table: str, schema: TableSchema) -> None:
        self._tokens = tokens
        self._at = 0
        self._table = table
        self._schema = schema

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else _END

    def _take(self) -> _Token:
        token = self._next
        self._at += 1
        return token

    def _accept(self, *words: str) -> bool:
        if not self._next.says(*words):
            return False
        self._at += 1
        return True

    def _expect(self, word: str) -> None:
        if not self._accept(word):
            raise _refused(f"{self._next.text[:40]!r} stands where {word} should")

    def end(self) -> None:
        if self._next is not _END:
            raise _refused(f"{self._next.text[:40]!r} is not understood there")

    def any_of(self, depth: int) -> SparkCondition:
        if depth > _MAX_DEPTH:
            raise _refused("its parentheses are nested too deeply")
        parts = [self._all_of(depth)]
        while self._accept("OR"):
            parts.append(self._all_of(depth))
        return parts[0] if len(parts) == 1 else Both(tuple(parts), is_any=True)

    def _all_of(self, depth: int) -> SparkCondition:
        parts = [self._not(depth)]
        while self._accept("AND"):
            parts.append(self._not(depth))
        return parts[0] if len(parts) == 1 else Both(tuple(parts))

    def _not(self, depth: int) -> SparkCondition:
        if self._accept("NOT"):
            if depth > _MAX_DEPTH:
                raise _refused("its parentheses are nested too deeply")
            return Negation(self._not(depth + 1))
        if self._accept("("):
            inner = self.any_of(depth + 1)
            self._expect(")")
            return inner
        return self._comparison()

    def _comparison(self) -> SparkCondition:
        if self._is_constant():
            constant = self._constant()
            comparator = self._comparator()
            if comparator is None:
                raise _refused(f"{constant.text[:40]!r} is compared with nothing")
            return self._leaf(self._column(), _MIRRORED.get(comparator, comparator), constant)
        column = self._column()
        comparator = self._comparator()
        if comparator is not None:
            return self._leaf(column, comparator, self._constant())
        if self._accept("IS"):
            is_negated = self._accept("NOT")
            self._expect("NULL")
            leaf = Comparison(column, "is null")
            return Negation(leaf) if is_negated else leaf
        is_negated = self._accept("NOT")
        if self._accept("IN"):
            inner: SparkCondition = self._in(column)
        elif self._accept("BETWEEN"):
            low = self._leaf(column, ">=", self._constant())
            self._expect("AND")
            inner = Both((low, self._leaf(column, "<=", self._constant())))
        elif column.type == pa.bool_() and not is_negated:
            inner = self._leaf(column, "=", _Constant("boolean", "TRUE"))
        else:
            raise _refused(f"{self._next.text[:40]!r} is not understood behind a column")
        return Negation(inner) if is_negated else inner

    def _in(self, column: Column) -> Comparison:
        self._expect("(")
        constants = [self._constant()]
        while self._accept(","):
            constants.append(self._constant())
        self._expect(")")
        return self._leaf(column, "in", *constants)

    def _leaf(
        self, column: Column, comparator: Comparator, *constants: _Constant
    ) -> Comparison:
        if column.type == pa.bool_() and comparator not in ("=", "<>", "in"):
            raise _refused(f"{comparator} does not compare truths")
        return Comparison(
            column, comparator, tuple(self._scalar(column, each) for each in constants)
        )

    def _comparator(self) -> Comparator | None:
        comparator = _COMPARATORS.get(self._next.text) if self._next.kind == "mark" else None
        if comparator is not None:
            self._at += 1
        return comparator

    def _column(self) -> Column:
        token = self._take()
        if token.kind not in ("word", "quoted") or (
            token.kind == "word" and token.text.upper() in _WORDS
        ):
            raise _refused(f"{token.text[:40]!r} stands where a column should")
        if self._next.says(".", "("):
            what = "a field within a column" if self._next.text == "." else "a function"
            raise _refused(f"{token.text[:40]}{self._next.text} begins {what}")
        matches = [
            column
            for column in self._schema.columns
            if column.name.lower() == token.text.lower()
        ]
        if len(matches) != 1:
            names = " and ".join(column.name for column in matches)
            why = f"may be {names}" if matches else "is no column of the table"
            raise BadParameter(
                f"{self._table}: option filter: {token.text[:80]} {why}.",
                table=self._table,
                option="filter",
            )
        return matches[0]

    def _is_constant(self) -> bool:
        token = self._next
        if token.says(*_TIMES):
            after = self._tokens[self._at + 1 : self._at + 2]
            return any(each.kind == "text" for each in after)
        return token.kind in ("number", "text") or token.says("-", "+", "TRUE", "FALSE", "NULL")

    def _constant(self) -> _Constant:
        if not self._is_constant():
            raise _refused(f"{self._next.text[:40]!r} stands where a constant should")
        token = self._take()
        if token.says("-", "+"):
            number = self._take()
            if number.kind != "number":
                raise _refused(f"{number.text[:40]!r} stands where a number should")
            return _Constant("number", token.text + number.text)
        if token.kind in ("number", "text"):
            return _Constant(token.kind, token.text)
        if token.says(*_TIMES):
            return _Constant(token.text.upper(), self._take().text)
        if token.says("NULL"):
            raise _refused("nothing equals NULL; write IS NULL")
        return _Constant("boolean", token.text.upper())

    def _scalar(self, column: Column, constant: _Constant) -> pa.Scalar:
        kind = compared_as(column.type)
        read = next((read for fits, read in _READERS if fits(kind)), None)
        value = None if read is None else read(constant, kind)
        if value is None:
            raise BadParameter(
                f"{self._table}: option filter: {constant.text[:80]} is no constant of column {column.name}, of type "
                f"{kind}; times have a zone where the column has one, as in '2026-11-24T08:00:00Z', and none elsewhere.",
                table=self._table,
                column=column.name,
                option="filter",
            )
        return value


@dataclass(frozen=True, slots=True)
class _Constant:
    """``kind``: number, text, boolean, or the word in front of a text."""

    kind: str
    text: str


def _boolean(constant: _Constant, _: pa.DataType) -> pa.Scalar | None:
    return pa.scalar(constant.text == "TRUE") if constant.kind == "boolean" else None


def _number(constant: _Constant, kind: pa.DataType) -> pa.Scalar | None:
    """A number that the type has exactly; of floating ones the nearest, as in Spark.

    To Spark 1e3 is floating, and so are comparisons with it: only of numbers that such have exactly they mean the same.
    """
    if constant.kind != "number":
        return None
    number = decimal.Decimal(constant.text)
    value: Any = number
    if "e" in constant.text.lower() and (
        (pa.types.is_integer(kind) and abs(number) >= _EXACT_INTEGERS)
        or (pa.types.is_decimal(kind) and kind.precision > _EXACT_DIGITS)
    ):
        return None
    if pa.types.is_floating(kind):
        value = float(number)
        if math.isinf(value):
            return None
    elif pa.types.is_integer(kind):
        # 1e9999 has ten thousand digits.
        if abs(number) >= 2**63 or number != int(number):
            return None
        value = int(number)
    try:
        scalar = pa.scalar(value, kind)
    except (pa.ArrowInvalid, OverflowError):
        return None
    return scalar if pa.types.is_floating(kind) or scalar.as_py() == number else None


def _string(constant: _Constant, kind: pa.DataType) -> pa.Scalar | None:
    if constant.kind != "text":
        return None
    try:
        return pa.scalar(constant.text, kind)
    except UnicodeEncodeError:  # half a surrogate pair
        return None


def _date(constant: _Constant, kind: pa.DataType) -> pa.Scalar | None:
    if constant.kind not in ("text", "DATE"):
        return None
    try:
        return pa.scalar(dt.date.fromisoformat(constant.text), kind)
    except ValueError:
        return None


def _timestamp(constant: _Constant, kind: pa.DataType) -> pa.Scalar | None:
    """A time with a zone where the type has one, else without: else the session's zone would decide."""
    words = ("text", "TIMESTAMP", "TIMESTAMP_LTZ") if kind.tz else ("TIMESTAMP_NTZ",)
    if constant.kind not in words:
        return None
    try:
        time = dt.datetime.fromisoformat(constant.text)
    except ValueError:
        return None
    if (time.tzinfo is None) != (kind.tz is None):
        return None
    epoch = _EPOCH if time.tzinfo is None else _EPOCH.replace(tzinfo=dt.UTC)
    return pa.scalar((time - epoch) // dt.timedelta(microseconds=1), pa.int64()).cast(kind)


_READERS: tuple[
    tuple[Callable[[pa.DataType], bool], Callable[[_Constant, pa.DataType], pa.Scalar | None]],
    ...,
] = (
    (pa.types.is_boolean, _boolean),
    (pa.types.is_integer, _number),
    (pa.types.is_floating, _number),
    (pa.types.is_decimal, _number),
    (pa.types.is_string, _string),
    (pa.types.is_date32, _date),
    (lambda kind: pa.types.is_timestamp(kind) and kind.unit == "us", _timestamp),
)
