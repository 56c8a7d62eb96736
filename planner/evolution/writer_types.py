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


@dataclass(frozen=True, slots=True)
class Logical:
    """What a value means. ``precision`` and ``scale`` are a decimal's.

    ``timestamp-*`` are moments in UTC, ``local-timestamp-*`` have no zone, ``timestamp-text`` is a moment as ISO 8601.
    """

    meaning: Meaning
    precision: int = 0
    scale: int = 0


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
        """Hash of all that decides what the bytes of a record mean: 32 hexadecimal digits.

        Neither of the text nor of Avro's canonical form, which leaves logical types, scales and defaults out.
        """
        facts = [
            _facts(self.root),
            [[name, _facts(each)] for name, each in sorted(self.recursive.items())],
        ]
        text = json.dumps(facts, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

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


def all_ids(first: WriterIds, second: WriterIds) -> WriterIds:
    """Return the ids of the records of both."""
    return None if first is None or second is None else first | second
