"""Random Iceberg tables whose rows are known, and random conditions on them.

Values are few, so that conditions hit and miss, and as awkward as their types allow: NaN and -0.0, text longer
than a bound, times before 1970, years 0001 and 9999.
"""

from __future__ import annotations

import datetime as dt
import decimal
import random
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from pyiceberg import transforms
from pyiceberg import types as ice
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table

NAN = float("nan")
UTC = dt.UTC

#: Names of columns with the keys of ``TYPES``; one may be there more than once.
Columns = list[tuple[str, str]]

TYPES: dict[str, ice.PrimitiveType] = {
    "i": ice.IntegerType(),
    "l": ice.LongType(),
    "f": ice.FloatType(),
    "d": ice.DoubleType(),
    "n": ice.DecimalType(9, 2),
    "day": ice.DateType(),
    "ts": ice.TimestampType(),
    "tz": ice.TimestamptzType(),
    "s": ice.StringType(),
    "b": ice.BinaryType(),
    "x": ice.FixedType(4),
    "u": ice.UUIDType(),
    "t": ice.BooleanType(),
}
_NUMBERS = (-7, -1, 0, 1, 2, 3, 10, 11, 2_000_000_000)
_TIMES = (
    dt.datetime(1, 1, 1),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    dt.datetime(1970, 1, 1),
    dt.datetime(2026, 3, 29, 1, 30),
    dt.datetime(2026, 3, 29, 2, 30, 0, 1),
    dt.datetime(2026, 4, 1),
    dt.datetime(9999, 12, 31, 23, 59, 59),
)
POOLS: dict[str, tuple[Any, ...]] = {
    "i": _NUMBERS,
    "l": (*_NUMBERS, 2**53 + 1, 2**62),
    "f": (0.0, -0.0, 0.5, 1.0, 2.0, -7.5, 1e30, NAN),
    "d": (0.0, -0.0, 0.5, 1.0, 2.0, -7.5, 1e300, NAN),
    "n": tuple(map(decimal.Decimal, ("-7.50", "0.00", "0.01", "1.00", "2.50", "1000000.00"))),
    "day": tuple(moment.date() for moment in _TIMES),
    "ts": _TIMES,
    "tz": tuple(moment.replace(tzinfo=UTC) for moment in _TIMES),
    "s": ("", "a", "ab", "ab%", "b", "é" * 30, "é" * 30 + "z", "z" * 20, "\U0010ffff" * 17, "zz"),
    "b": (b"", b"\x00", b"ab", b"\xff" * 20, b"\xff" * 16 + b"a"),
    "x": (b"\x00\x00\x00\x00", b"abcd", b"\xff\xff\xff\xff"),
    "u": tuple(uuid.UUID(int=number) for number in (0, 5, 2**127, 2**128 - 1)),
    "t": (False, True),
}  # fmt: skip
_OF_TIME: tuple[transforms.Transform[Any, Any], ...] = (
    transforms.YearTransform(),
    transforms.MonthTransform(),
    transforms.DayTransform(),
)
_OF_ANY: tuple[transforms.Transform[Any, Any], ...] = (
    transforms.IdentityTransform(),
    transforms.BucketTransform(3),
)
TRANSFORMS: dict[str, tuple[transforms.Transform[Any, Any], ...]] = {
    "i": (*_OF_ANY, transforms.TruncateTransform(5)),
    "l": (*_OF_ANY, transforms.TruncateTransform(5)),
    "n": (*_OF_ANY, transforms.TruncateTransform(100)),
    "day": (*_OF_ANY, *_OF_TIME),
    "ts": (*_OF_TIME, transforms.HourTransform()),
    "tz": (*_OF_TIME, transforms.HourTransform()),
    "s": (*_OF_ANY, transforms.TruncateTransform(2)),
    "b": (transforms.BucketTransform(3),),
    "u": (transforms.BucketTransform(3),),
    "t": (transforms.IdentityTransform(),),
}


@dataclass
class RandomTable:
    """One table, and its rows as dictionaries by column. ``kinds`` are the keys of ``TYPES`` by column."""

    random: Random
    table: Table
    rows: list[dict[str, Any]] = field(default_factory=list)
    kinds: dict[str, str] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)
    partitioned: list[str] = field(default_factory=list)

    @classmethod
    def create(cls, chosen: Random, catalog: Catalog, name: str) -> RandomTable:
        kinds = ["l", *chosen.sample(list(TYPES), chosen.randint(3, 7))]
        columns = {"id": "l"} | {f"{kind}{number}": kind for number, kind in enumerate(kinds)}
        schema = Schema(
            *(
                ice.NestedField(number, column, TYPES[kind], required=False)
                for number, (column, kind) in enumerate(columns.items(), start=1)
            )
        )
        made = cls(chosen, catalog.create_table(("n", name), schema), kinds=columns)
        made.partition()
        for _ in range(chosen.randint(2, 4)):
            made.append()
            if chosen.random() < 0.6:
                made.evolve()
        made.append()
        return made

    def partition(self) -> None:
        """Change the partition spec: none, or up to two fields."""
        spec = self.table.spec()
        columns = [name for name, kind in self.kinds.items() if kind in TRANSFORMS]
        chosen = self.random.sample(columns, min(len(columns), self.random.randint(0, 2)))
        with self.table.update_spec() as update:
            for field in spec.fields:
                update.remove_field(field.name)
            for column in chosen:
                transform = self.random.choice(TRANSFORMS[self.kinds[column]])
                name = f"p{len(self.steps)}_{column}"
                update.add_field(column, transform, name)
                self.partitioned.append(column)
                self.steps.append(f"partition by {transform}({column})")

    @property
    def columns(self) -> Columns:
        """What conditions are made of: columns that partition the table more often than others."""
        often = [*self.kinds, *self.partitioned * 3]
        return [(name, self.kinds[name]) for name in often if name != "id"]

    def append(self) -> None:
        rows = [self._row() for _ in range(self.random.randint(1, 6))]
        self.rows += rows
        self.table.append(arrow(rows, self.table))
        self.steps.append(f"append {len(rows)}")

    def evolve(self) -> None:
        column = self.random.choice([name for name in self.kinds if name != "id"])
        kind = self.kinds[column]
        used = {
            field.source_id for spec in self.table.specs().values() for field in spec.fields
        }
        is_free = self.table.schema().find_field(column).field_id not in used
        match self.random.choice(("rename", "add", "widen", "drop", "partition", "delete")):
            case "rename" if is_free:
                name = f"{column}r"
                with self.table.update_schema() as update:
                    update.rename_column(column, name)
                self.kinds = {
                    name if key == column else key: field for key, field in self.kinds.items()
                }
                for row in self.rows:
                    row[name] = row.pop(column)
                self.steps.append(f"rename {column}")
            case "add":
                kind = self.random.choice(list(TYPES))
                name = f"{kind}a{len(self.steps)}"
                with self.table.update_schema() as update:
                    update.add_column(name, TYPES[kind])
                self.kinds[name] = kind
                for row in self.rows:
                    row[name] = None
                self.steps.append(f"add {name}")
            case "widen" if kind in ("i", "f", "n") and is_free:
                wider = {
                    "i": ice.LongType(),
                    "f": ice.DoubleType(),
                    "n": ice.DecimalType(20, 2),
                }
                with self.table.update_schema() as update:
                    update.update_column(column, wider[kind])
                self.kinds[column] = {"i": "l", "f": "d", "n": "n"}[kind]
                self.steps.append(f"widen {column}")
            case "drop" if is_free and len(self.kinds) > 3:
                with self.table.update_schema() as update:
                    update.delete_column(column)
                del self.kinds[column]
                for row in self.rows:
                    del row[column]
                self.steps.append(f"drop {column}")
            case "partition":
                self.partition()
            case "delete" if self.rows:
                gone = self.random.choice(self.rows)["id"]
                self.table.delete(f"id == {gone}")
                self.rows = [row for row in self.rows if row["id"] != gone]
                self.steps.append(f"delete {gone}")

    def _row(self) -> dict[str, Any]:
        """A row of values that lie together, so that files can be told apart."""
        at = self.random.random()
        row: dict[str, Any] = {"id": self.random.getrandbits(40)}
        for column, kind in self.kinds.items():
            if column != "id":
                pool = POOLS[kind]
                near = min(len(pool) - 1, int(at * len(pool)) + self.random.randint(0, 1))
                row[column] = None if self.random.random() < 0.15 else pool[near]
        return row


def arrow(rows: list[dict[str, Any]], table: Table) -> pa.Table:
    """Return rows in the table's own Arrow types."""
    schema = table.schema().as_arrow()
    columns = [
        pa.array([_stored(row[value.name]) for row in rows], value.type) for value in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _stored(value: Any) -> Any:
    return value.bytes if isinstance(value, uuid.UUID) else value


def literals(chosen: random.Random, kind: str, value: Any) -> str:
    """Write a value as SQL, in one of the ways people do: of the column's type, or of another."""
    match kind:
        case "i" | "l":
            return chosen.choice(
                [
                    f"{value}",
                    f"{value}",
                    f"{value}.0",
                    f"{value}.5",
                    f"{value}::DOUBLE",
                    f"'{value}'",
                ]
            )
        case "f" | "d":
            return chosen.choice(
                [f"'{value}'::DOUBLE", f"'{value}'::FLOAT", f"{1 if value != value else value}"]
            )
        case "n":
            return chosen.choice([f"{value}", f"{value}5", f"{int(value)}", f"{value}::DOUBLE"])
        case "day":
            return chosen.choice(
                [
                    f"DATE '{value:%Y}-{value:%m-%d}'",
                    f"'{value.isoformat()}'",
                    f"TIMESTAMP '{value.isoformat()} 12:00:00'",
                ]
            )
        case "ts" | "tz":
            plain = value.replace(tzinfo=None).isoformat(sep=" ")
            ways = [
                f"TIMESTAMP '{plain}'",
                f"'{plain}'",
                f"TIMESTAMPTZ '{plain}+00:00'",
                f"DATE '{value.date()}'",
            ]
            return chosen.choice(ways)
        case "s":
            return f"'{value}'"
        case "b" | "x":
            return "'" + "".join(f"\\x{byte:02x}" for byte in value) + "'::BLOB"
        case "u":
            return chosen.choice([f"UUID '{value}'", f"'{value}'", f"'{str(value).upper()}'"])
        case _:
            return str(value).lower()
    raise AssertionError(kind)


def condition(chosen: random.Random, columns: Columns, prefix: str = "") -> str:
    """Return a random condition on the columns of one table."""
    column, kind = chosen.choice(columns)
    name = f"{prefix}{column}"

    def one() -> str:
        return literals(chosen, kind, chosen.choice(POOLS[kind]))

    match chosen.randint(0, 11):
        case 0:
            return f"{name} BETWEEN {one()} AND {one()}"
        case 1:
            return f"{name} IN ({one()}, {one()}, {one()})"
        case 2:
            return f"({name} = {one()} OR {name} = {one()})"
        case 3:
            return chosen.choice([f"{name} IS NULL", f"{name} IS NOT NULL"])
        case 4 if kind == "s":
            start = chosen.choice(POOLS["s"])
            return chosen.choice(
                [
                    f"{name} LIKE '{start}%'",
                    f"starts_with({name}, '{start}')",
                    f"{name} LIKE '{start}_'",
                ]
            )
        case 5:
            return f"NOT ({name} < {one()})"
        case 6:
            return f"({condition(chosen, columns, prefix)} AND {condition(chosen, columns, prefix)})"
        case 7:
            return f"({condition(chosen, columns, prefix)} OR {condition(chosen, columns, prefix)})"
        case _:
            operator = chosen.choice(("=", "=", "<", "<=", ">", ">=", "<>"))
            sides = (name, operator, one())
            return " ".join(sides if chosen.random() < 0.8 else sides[::-1])


def statement(chosen: random.Random, columns: Columns) -> str:
    """Return a statement over table ``t`` whose answer is the ids it finds."""
    match chosen.randint(0, 12):
        case 0:
            return (
                f"SELECT a.id, b.id FROM t AS a {chosen.choice(('LEFT', 'RIGHT', 'FULL', 'INNER'))} JOIN t AS b "
                f"ON a.id = b.id AND {condition(chosen, columns, 'b.')} WHERE {condition(chosen, columns, 'a.')}"
            )
        case 1:
            return (
                f"SELECT a.id, b.id FROM t AS a LEFT JOIN t AS b ON a.id = b.id AND {condition(chosen, columns, 'a.')} "
                f"WHERE {condition(chosen, columns, 'b.')}"
            )
        case 2:
            return (
                f"WITH r AS (SELECT * FROM t WHERE {condition(chosen, columns)}) SELECT id, 0 FROM r "
                f"WHERE {condition(chosen, columns)} AND id {chosen.choice(('IN', 'NOT IN'))} "
                f"(SELECT id FROM t WHERE {condition(chosen, columns)})"
            )
        case 4:
            return (
                f"SELECT a.id, b.id FROM t AS a {chosen.choice(('LEFT', 'RIGHT', 'FULL'))} JOIN t AS b "
                f"ON a.id = b.id AND {condition(chosen, columns, 'a.')} AND {condition(chosen, columns, 'b.')}"
            )
        case 5:
            return (
                f"SELECT a.id, 0 FROM t AS a {chosen.choice(('SEMI', 'ANTI'))} JOIN t AS b ON a.id = b.id "
                f"AND {condition(chosen, columns, 'a.')} AND {condition(chosen, columns, 'b.')}"
            )
        case 3:
            return (
                f"SELECT a.id, 0 FROM t AS a {chosen.choice(('SEMI', 'ANTI'))} JOIN t AS b "
                f"ON a.id = b.id AND {condition(chosen, columns, 'b.')} WHERE {condition(chosen, columns, 'a.')}"
            )
        case _:
            conditions = " AND ".join(
                condition(chosen, columns) for _ in range(chosen.randint(1, 2))
            )
            return f"SELECT id, 0 FROM t WHERE {conditions}"


def folder_of(path: Path) -> dict[str, str]:
    """Return the properties of a catalog whose files are all in one folder."""
    return {"type": "sql", "uri": f"sqlite:///{path}/c.db", "warehouse": f"file://{path}"}
