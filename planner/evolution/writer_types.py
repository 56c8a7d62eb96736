"""The types of the schema that a record was written with, as a tree: one for every format that has such schemas.

A type says how bytes are to be read (``kind``) and what they mean (``logical``). Names in it are full names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal[
    "null",
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "bytes",
    "string",
    "fixed",
    "enum",
    "record",
    "array",
    "map",
    "union",
    "again",
]

Meaning = Literal[
    "decimal",
    "uuid",
    "date",
    "time-millis",
    "time-micros",
    "time-nanos",
    "timestamp-millis",
    "timestamp-micros",
    "timestamp-nanos",
    "local-timestamp-millis",
    "local-timestamp-micros",
    "local-timestamp-nanos",
    "timestamp-text",
    "duration",
]


#: The rule that makes fingerprints of schemas. Ledgers of tables have them, so what rule 1 says of a text never changes: where
#: the parser learns of a text what it ignored before, a rule 2 hashes that, and rule 1 goes on to leave it out.
RULE = "1"

#: A decimal of more digits has a column of so many: more are in no type of Iceberg or Arrow's 128 bits.
MAX_DIGITS = 38


@dataclass(frozen=True, slots=True)
class Logical:
    """What a value means. ``precision`` and ``scale`` are a decimal's, as the schema has them.

    ``timestamp-*`` are moments in UTC, ``local-timestamp-*`` have no zone, ``timestamp-text`` is a moment as ISO 8601.
    """

    meaning: Meaning
    precision: int = 0
    scale: int = 0

    @property
    def digits(self) -> int:
        """The digits that a decimal's values may have: its precision, MAX_DIGITS at most."""
        return min(self.precision, MAX_DIGITS)

    @property
    def limit(self) -> str:
        """Names what a decimal's values are not beyond, for messages."""
        own = "the writer's " if self.precision == self.digits else ""
        return f"{own}decimal({self.digits}, {self.scale})"


@dataclass(frozen=True, slots=True)
class WriterField:
    """A field of a record. ``default`` is the schema's text of it, canonical JSON, or None without one."""

    name: str
    type: WriterType
    default: str | None = None


@dataclass(frozen=True, slots=True)
class WriterType:
    """One type. ``name`` is the full name of a record, an enum or a fixed, ``size`` a fixed's in bytes.

    ``items`` are the element of an array, the value of a map, or the branches of a union in their order. Kind ``again`` is
    a record inside itself: its ``name`` is among ``WriterSchema.recursive``.
    """

    kind: Kind
    logical: Logical | None = None
    name: str = ""
    size: int = 0
    symbols: tuple[str, ...] = ()
    fields: tuple[WriterField, ...] = ()
    items: tuple[WriterType, ...] = ()

    @property
    def short_name(self) -> str:
        """The name without its namespace; the kind where a type has none. Branches of a union are named so."""
        return self.name.rpartition(".")[2] or self.kind

    @property
    def is_optional(self) -> bool:
        """Whether NULL is one of its values."""
        return self.kind == "null" or (
            self.kind == "union" and any(each.kind == "null" for each in self.items)
        )

    @property
    def value(self) -> WriterType:
        """The type of its values that are not null: itself, the only other branch, or the union of the others."""
        if self.kind != "union":
            return self
        others = tuple(each for each in self.items if each.kind != "null")
        return others[0] if len(others) == 1 else WriterType("union", items=others)


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """The whole schema of a writer. ``recursive`` has the records that occur inside themselves, by full name."""

    root: WriterType
    recursive: Mapping[str, WriterType] = field(default_factory=dict)

    @property
    def fingerprint(self) -> str:
        """Hash of all that decides what the bytes of a record mean: its rule, a colon, 32 hexadecimal digits.

        Neither of the text nor of Avro's canonical form, which leaves logical types, scales and defaults out.
        """
        facts = [
            _facts(self.root),
            [[name, _facts(each)] for name, each in sorted(self.recursive.items())],
        ]
        text = json.dumps(facts, separators=(",", ":"))
        return f"{RULE}:{hashlib.sha256(text.encode()).hexdigest()[:32]}"

    @property
    def as_value(self) -> WriterSchema:
        """The schema of the same bytes as one value: a record becomes the field ``value`` of another; others are one value."""
        if self.root.value.kind != "record":
            return self
        around = WriterType("record", fields=(WriterField("value", self.root),))
        return WriterSchema(around, self.recursive)


def walk(root: WriterType) -> Iterator[WriterType]:
    """Yield a type and all types in it, outer ones first."""
    yield root
    for each in (*(item.type for item in root.fields), *root.items):
        yield from walk(each)


def _facts(each: WriterType) -> list[object]:
    """Return what rule 1 hashes of a type."""
    logical = each.logical
    return [
        each.kind,
        None if logical is None else [logical.meaning, logical.precision, logical.scale],
        each.name,
        each.size,
        list(each.symbols),
        [[item.name, item.default, _facts(item.type)] for item in each.fields],
        [_facts(item) for item in each.items],
    ]


#: Ids of schemas that some records were written with; none of no records. None: not known.
WriterIds = frozenset[int] | None
