"""One column of each type with values on both sides of its borders, conditions on them, and what each must find.

A value is at home in Python (``datetime``, ``Decimal``, ``uuid.UUID``); a condition comes as SQL for Spark and DuckDB, as
an expression for pyiceberg and one for Polars. What it must find is worked out here, from the values alone.
"""

from __future__ import annotations

import ctypes
import datetime as dt
import json
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

import polars as pl
import pyarrow as pa
from pyiceberg import expressions as ice

from planner.schema import TIMESTAMPTZ

Operator = Literal["=", "<", ">=", "IN"]
OPERATORS: tuple[Operator, ...] = ("=", "<", ">=", "IN")

_FIRST, _LAST = dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
_EPOCH, _TICK = dt.datetime(1970, 1, 1), dt.timedelta(microseconds=1)
_TIMES = (_FIRST, _EPOCH - dt.timedelta(1), _EPOCH - _TICK, _EPOCH, _EPOCH + _TICK, _LAST)
_DAY = dt.timedelta(1)


@dataclass(frozen=True)
class Borders:
    """A type and its values, lowest first; ``partitions`` are the transforms besides identity, of a column ``v``."""

    name: str
    kind: pa.DataType
    values: tuple[Any, ...]
    #: Types of a literal in SQL: Spark's, DuckDB's.
    spark: str
    duckdb: str
    partitions: tuple[str, ...] = ()

    def value(self, number: int) -> Any:
        """The values in turn, and None."""
        return (*self.values, None)[number % (len(self.values) + 1)]


def _floats(largest: float, least: float, *others: float) -> tuple[float, ...]:
    """``others`` lie between ``least`` and 1.5."""
    return (
        -math.inf,
        -largest,
        -1.5,
        -least,
        -0.0,
        0.0,
        least,
        *others,
        1.5,
        largest,
        math.inf,
        math.nan,
    )


def _decimals(digits: int) -> tuple[Decimal, ...]:
    most = "9" * (digits - 2) + ".99"
    inner = ("-1.29", "-1.28", "-0.01", "0.00", "0.01", "1.27", "1.28", "2.55", "2.56")
    return tuple(map(Decimal, (f"-{most}", *inner, most)))


def _uuids() -> tuple[uuid.UUID, ...]:
    edges = (0, 1, 2**63, 2**127 - 1, 2**127, 2**127 + 2**63, 2**128 - 1)
    return tuple(uuid.UUID(int=number) for number in edges)


_INT = ("bucket(4, v)", "truncate(10, v)")
_OF_TIMES = ("year(v)", "month(v)", "day(v)", "hour(v)")
_TEXTS = (
    *("", "a", "e\u0301", "x" * 16, "x" * 16 + "\ud7ff", "x" * 16 + "\ue000", "\x7f", "\x80"),
    *(
        "\ud7ff",
        "\ud7ff" * 17,
        "\ue000",
        "\uffff",
        "\U00010000",
        "\U0010ffff",
        "\U0010ffff" * 17,
    ),
)
_BYTES = (
    *(b"", b"\x00", b"\x7f", b"\x7f\xff", b"\x80", b"\x80" * 17, b"\xff", b"\xff" * 16),
    b"\xff" * 17,
)
BORDERS: tuple[Borders, ...] = (
    Borders("boolean", pa.bool_(), (False, True), "BOOLEAN", "BOOLEAN"),
    Borders(
        "int", pa.int32(), (-(2**31), -(2**31) + 1, -1, 0, 1, 2**31 - 1), "INT", "INT", _INT
    ),
    Borders(
        "long",
        pa.int64(),
        (-(2**63), -(2**31) - 1, -1, 0, 1, 2**31, 2**63 - 1),
        "BIGINT",
        "BIGINT",
        _INT,
    ),
    Borders("float", pa.float32(), _floats(2.0**127, 2.0**-149), "FLOAT", "FLOAT"),
    Borders("double", pa.float64(), _floats(2.0**1023, 5e-324, 0.1), "DOUBLE", "DOUBLE"),
    *(
        Borders(
            f"decimal({digits},2)",
            pa.decimal128(digits, 2),
            _decimals(digits),
            f"DECIMAL({digits},2)",
            f"DECIMAL({digits},2)",
            ("bucket(4, v)",),
        )
        for digits in (9, 18, 38)
    ),
    Borders(
        "date",
        pa.date32(),
        (_FIRST.date(), *(_EPOCH.date() + n * _DAY for n in (-1, 0, 1)), _LAST.date()),
        "DATE",
        "DATE",
        ("bucket(4, v)", *_OF_TIMES[:3]),
    ),
    Borders(
        "timestamp",
        pa.timestamp("us"),
        _TIMES,
        "TIMESTAMP_NTZ",
        "TIMESTAMP",
        ("bucket(4, v)", *_OF_TIMES),
    ),
    Borders(
        "timestamptz",
        TIMESTAMPTZ,
        tuple(value.replace(tzinfo=dt.UTC) for value in _TIMES),
        "TIMESTAMP",
        "TIMESTAMPTZ",
        ("bucket(4, v)", *_OF_TIMES),
    ),
    Borders(
        "string",
        pa.string(),
        tuple(sorted(_TEXTS)),
        "STRING",
        "VARCHAR",
        ("bucket(4, v)", "truncate(1, v)"),
    ),
    Borders(
        "binary",
        pa.binary(),
        tuple(sorted(_BYTES)),
        "BINARY",
        "BLOB",
        ("bucket(4, v)", "truncate(1, v)"),
    ),
    Borders(
        "fixed(2)",
        pa.binary(2),
        (b"\x00\x00", b"\x7f\xff", b"\x80\x00", b"\xff\xff"),
        "BINARY",
        "BLOB",
        ("bucket(4, v)",),
    ),
    Borders("uuid", pa.uuid(), _uuids(), "STRING", "UUID", ("bucket(4, v)",)),
)


@dataclass(frozen=True)
class Comparison:
    """A condition on column ``name``: ``operator`` with one value, or with two for IN."""

    borders: Borders
    name: str
    operator: Operator
    values: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.operator} {', '.join(map(repr, self.values))}"

    def of(self, row: Mapping[str, Any]) -> Any:
        """The value of the column in a row as it was produced."""
        value: Any = row
        for name in self.name.split("."):
            value = value[name]
        return value

    def matches(self, value: Any) -> bool:
        """As SQL engines have it: NaN is equal to itself and above all numbers, the zeros are one."""
        if value is None:
            return False
        key, keys = _order(value), [_order(each) for each in self.values]
        match self.operator:
            case "<":
                return bool(key < keys[0])
            case ">=":
                return bool(key >= keys[0])
            case _:
                return key in keys

    def of_spark(self) -> str:
        return self._sql(self.borders.spark, lambda raw: f"X'{raw.hex()}'")

    def of_duckdb(self) -> str:
        return self._sql(self.borders.duckdb, lambda raw: f"from_hex('{raw.hex()}')")

    def _sql(self, kind: str, of_bytes: Callable[[bytes], str]) -> str:
        texts = [
            of_bytes(value) if isinstance(value, bytes) else f"CAST('{_text(value)}' AS {kind})"
            for value in self.values
        ]
        if self.operator == "IN":
            return f"{self.name} IN ({', '.join(texts)})"
        return f"{self.name} {self.operator} {texts[0]}"

    def of_pyiceberg(self) -> ice.BooleanExpression:
        if self.operator == "IN":
            return ice.In(self.name, self.values)  # type: ignore[call-arg,arg-type]
        classes = {"=": ice.EqualTo, "<": ice.LessThan, ">=": ice.GreaterThanOrEqual}
        return classes[self.operator](self.name, self.values[0])

    def of_polars(self) -> pl.Expr:
        column = pl.col(self.name)
        values = [
            value.bytes if isinstance(value, uuid.UUID) else value for value in self.values
        ]
        match self.operator:
            case "=":
                return column == pl.lit(values[0])
            case "<":
                return column < pl.lit(values[0])
            case ">=":
                return column >= pl.lit(values[0])
            case "IN":
                return column.is_in(values)


def conditions(
    borders: Borders, name: str = "v", operators: Sequence[Operator] = OPERATORS
) -> list[Comparison]:
    """Every value with every operator; IN has the next value, too."""
    return [
        Comparison(borders, name, operator, pair if operator == "IN" else pair[:1])
        for operator in operators
        for pair in zip(borders.values, borders.values[1:] + borders.values[:1], strict=True)
    ]


def field(value: Any) -> Any:
    """A value as records carry it."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {name: field(each) for name, each in value.items()}
    if isinstance(value, list):
        return [field(each) for each in value]
    return _text(value, "T", "Z")


def record(**values: Any) -> bytes:
    document = {name: field(value) for name, value in values.items()}
    return json.dumps(document, ensure_ascii=False).encode()


def _text(value: Any, between: str = " ", zone: str = "+00:00") -> str:
    if isinstance(value, dt.datetime):
        text = value.replace(tzinfo=None).isoformat(between, timespec="microseconds")
        return text if value.tzinfo is None else text + zone
    if isinstance(value, float):
        return {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(
            repr(value), repr(value)
        )
    return str(value)


def _order(value: Any) -> Any:
    """A key of the order that Iceberg's spec gives a type's values."""
    if isinstance(value, float):
        return (math.isnan(value), 0.0 if math.isnan(value) else value)
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, uuid.UUID):
        return value.bytes
    return value


ENGINES = ("Spark", "DuckDB", "pyiceberg", "Polars")


@dataclass(frozen=True)
class Loss:
    """A note of docs/engines.md, "What each finds, by type": where an engine answers otherwise than Flight SQL.

    ``by``: partition terms of column ``v``, "" for none; None: all. ``of``: conditions that are concerned.
    """

    note: str
    engines: tuple[str, ...]
    types: tuple[str, ...]
    by: tuple[str, ...] | None
    of: Callable[[Comparison], bool]

    def concerns(self, engine: str, comparison: Comparison, by: str) -> bool:
        return (
            engine in self.engines
            and comparison.borders.name in self.types
            and (self.by is None or by in self.by)
            and self.of(comparison)
        )


def _any(_: Comparison) -> bool:
    return True


def _of_nan(comparison: Comparison) -> bool:
    return comparison.matches(math.nan)


def _of_zero(comparison: Comparison) -> bool:
    return comparison.operator in ("=", "IN") and 0.0 in comparison.values


def _of_python(comparison: Comparison) -> bool:
    return _of_nan(comparison) or not all(map(math.isfinite, comparison.values))


def _of_zero_in(comparison: Comparison) -> bool:
    return comparison.operator == "IN" and 0.0 in comparison.values


def _beside_float(comparison: Comparison) -> bool:
    return any(
        comparison.matches(value) != comparison.matches(ctypes.c_float(value).value)
        for value in comparison.borders.values
    )


def _of_least(comparison: Comparison) -> bool:
    return any(map(comparison.matches, comparison.borders.values[:2]))


def _before_1970(comparison: Comparison) -> bool:
    return any(map(comparison.matches, comparison.borders.values[1:3]))


def _of_year_1(comparison: Comparison) -> bool:
    return comparison.operator != "IN" and comparison.values[0].year == 1


def _of_accent(comparison: Comparison) -> bool:
    return comparison.matches("e\u0301")


def _in_order(comparison: Comparison) -> bool:
    return comparison.operator in ("<", ">=")


def _by_value(comparison: Comparison) -> bool:
    return not _in_order(comparison)


_FLOATS, _WHOLE, _INSTANTS = ("float", "double"), ("int", "long"), ("timestamp", "timestamptz")
_OF_PYTHON = ("pyiceberg", "Polars")
LOSSES: tuple[Loss, ...] = (
    Loss("a", ("DuckDB",), _FLOATS, None, _of_nan),
    # Bounds from -inf to inf leave no file out: only files of one value each do.
    Loss("a", ("Spark",), _FLOATS, ("v",), _of_nan),
    Loss("b", ("Spark",), _FLOATS, ("v",), _of_zero),
    Loss("c", ("pyiceberg",), _FLOATS, None, _of_python),
    Loss("d", _OF_PYTHON, ("double",), ("v",), _beside_float),
    Loss("e", ("Spark", "DuckDB", "pyiceberg"), _WHOLE, ("truncate(10, v)",), _of_least),
    Loss("f", ("DuckDB",), _INSTANTS, ("month(v)", "day(v)"), _before_1970),
    Loss("g", _OF_PYTHON, ("date", *_INSTANTS), ("year(v)", "month(v)"), _of_year_1),
    Loss("h", ("DuckDB",), ("string",), ("truncate(1, v)",), _of_accent),
    Loss("i", ("Spark",), ("uuid",), ("", "v"), _in_order),
    Loss("j", ("DuckDB",), ("uuid",), ("v", "bucket(4, v)"), _any),
    Loss("k", ("pyiceberg",), ("uuid",), None, _any),
    Loss("l", ("pyiceberg",), _FLOATS, None, _of_zero_in),
)
