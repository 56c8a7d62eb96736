"""Reads the text of an Avro schema (specification 1.12) as a tree of writer types, within bounds.

Lenient where Java's parser is not: a default that does not fit its type, or a name that some language does not allow, is
no reason to refuse records that were written with it. An unknown or misplaced logical type is ignored, as the
specification asks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast, get_args

from planner.evolution.writer_types import (
    MAX_DIGITS,
    Kind,
    Logical,
    Meaning,
    WriterField,
    WriterSchema,
    WriterType,
)

#: Of the text and of what it refers to.
MAX_BYTES = 1 << 20
MAX_DEPTH = 64
#: Of all fields, branches and elements, once references and names stand for what they mean.
MAX_TYPES = 10_000

_PRIMITIVES = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)

#: Kinds that a logical type may stand on. Decimals have a check of their own.
_MEANINGS: Mapping[str, tuple[Kind, ...]] = {
    "decimal": ("bytes", "fixed"),
    "uuid": ("string", "fixed"),
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "time-nanos": ("long",),
    "duration": ("fixed",),
    **{
        name: ("long",)
        for name in get_args(Meaning)
        if name.startswith(("timestamp-", "local-"))
    },
    "timestamp-text": ("string",),
}

#: Names of Kafka Connect's and Debezium's types (``connect.name``) by what they mean.
CONNECT_MEANINGS: Mapping[str, Meaning] = {
    "org.apache.kafka.connect.data.Date": "date",
    "org.apache.kafka.connect.data.Time": "time-millis",
    "org.apache.kafka.connect.data.Timestamp": "timestamp-millis",
    "io.debezium.time.Date": "date",
    "io.debezium.time.Time": "time-millis",
    "io.debezium.time.MicroTime": "time-micros",
    "io.debezium.time.NanoTime": "time-nanos",
    "io.debezium.time.Timestamp": "local-timestamp-millis",
    "io.debezium.time.MicroTimestamp": "local-timestamp-micros",
    "io.debezium.time.NanoTimestamp": "local-timestamp-nanos",
    "io.debezium.time.ZonedTimestamp": "timestamp-text",
    "io.debezium.data.Uuid": "uuid",
}


class BadSchema(Exception):
    """A text that is not an Avro schema, or one beyond the bounds. Says what, and at which name."""


def parse_schema(text: str, references: Mapping[str, str] | None = None) -> WriterSchema:
    """Read a schema; ``references`` are the texts of the types it refers to, by name, in the order they need each other.

    Raises:
        BadSchema: as it says.
    """
    references = references or {}
    size = sum(len(each.encode(errors="replace")) for each in (text, *references.values()))
    if size > MAX_BYTES:
        raise BadSchema(
            f"it has {size:,} bytes with what it refers to; {MAX_BYTES:,} are allowed"
        )
    reader = _Reader()
    for each in references.values():
        reader.define(_load(each))
    root = reader.read(_load(text), "", 0)
    return WriterSchema(root, dict(reader.recursive))


def _load(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise BadSchema(f"it is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError:
        # Registries keep a primitive's bare name, too.
        if text.strip() in _PRIMITIVES:
            return text.strip()
        raise BadSchema("it is not JSON") from None


@dataclass(slots=True)
class _Reader:
    """``texts`` has the definition of each name as it was written, with the namespace around it."""

    texts: dict[str, tuple[Mapping[str, Any], str]] = field(default_factory=dict)
    recursive: dict[str, WriterType] = field(default_factory=dict)
    _open: list[str] = field(default_factory=list)
    _count: int = 0

    def define(self, node: Any, space: str = "", depth: int = 0) -> None:
        """Note the names that a text defines, and those inside."""
        if depth > MAX_DEPTH:
            raise BadSchema(f"it is nested deeper than {MAX_DEPTH} levels")
        if isinstance(node, list):
            for each in node:
                self.define(each, space, depth + 1)
        if not isinstance(node, dict):
            return
        kind = node.get("type")
        if kind in ("record", "error", "enum", "fixed"):
            name, space = _full_name(node, space)
            self.texts.setdefault(name, (node, space))
        if isinstance(kind, (dict, list)):
            self.define(kind, space, depth + 1)
        for key in ("items", "values"):
            self.define(node.get(key), space, depth + 1)
        fields = node.get("fields")
        for each in fields if isinstance(fields, list) else ():
            self.define(each.get("type") if isinstance(each, dict) else None, space, depth + 1)

    def read(self, node: Any, space: str, depth: int) -> WriterType:
        """Read one type inside a namespace."""
        self._count += 1
        if depth > MAX_DEPTH:
            raise BadSchema(f"it is nested deeper than {MAX_DEPTH} levels")
        if self._count > MAX_TYPES:
            raise BadSchema(
                f"it has more than {MAX_TYPES:,} types, counting each use of a name"
            )
        if isinstance(node, str):
            return self._by_name(node, space, depth)
        if isinstance(node, list):
            return self._union(node, space, depth)
        if not isinstance(node, dict):
            raise BadSchema(f"a type is {_quoted(node)}, which is neither a name nor an object")
        kind = node.get("type")
        if kind in ("record", "error", "enum", "fixed"):
            self.define(node, space)
            name, _ = _full_name(node, space)
            return self._by_name(f".{name}" if "." not in name else name, space, depth)
        if kind == "array":
            return WriterType("array", items=(self.read(node.get("items"), space, depth + 1),))
        if kind == "map":
            return WriterType("map", items=(self.read(node.get("values"), space, depth + 1),))
        if isinstance(kind, str):
            return _with_meaning(self._by_name(kind, space, depth), node)
        return self.read(kind, space, depth + 1)

    def _by_name(self, name: str, space: str, depth: int) -> WriterType:
        if name in _PRIMITIVES:
            return WriterType(cast("Kind", name))
        choices = [name.lstrip(".")]
        if "." not in name and space:
            choices.insert(0, f"{space}.{name}")
        full = next((each for each in choices if each in self.texts), None)
        if full is None:
            raise BadSchema(f"the type {_quoted(name)} is not defined")
        if full in self._open:
            self.recursive.setdefault(full, WriterType("again", name=full))
            return WriterType("again", name=full)
        node, inner = self.texts[full]
        self._open.append(full)
        try:
            named = self._named(node, full, inner, depth)
        finally:
            self._open.pop()
        if full in self.recursive and full not in self._open:
            self.recursive[full] = named
        return named

    def _named(self, node: Mapping[str, Any], name: str, space: str, depth: int) -> WriterType:
        if node["type"] == "enum":
            symbols = node.get("symbols")
            if not _are_texts(symbols) or not symbols or len(set(symbols)) != len(symbols):
                raise BadSchema(f"the symbols of enum {_quoted(name)} are not a list of names")
            return WriterType("enum", name=name, symbols=tuple(symbols))
        if node["type"] == "fixed":
            size = node.get("size")
            if type(size) is not int or not 0 <= size < 1 << 31:
                raise BadSchema(f"the size of fixed {_quoted(name)} is {_quoted(size)}")
            return _with_meaning(WriterType("fixed", name=name, size=size), node)
        fields = node.get("fields")
        if not isinstance(fields, list):
            raise BadSchema(f"record {_quoted(name)} has no list of fields")
        read = tuple(self._field(each, name, space, depth) for each in fields)
        if len({each.name for each in read}) != len(read):
            raise BadSchema(f"record {_quoted(name)} has two fields of one name")
        return WriterType("record", name=name, fields=read)

    def _field(self, node: Any, record: str, space: str, depth: int) -> WriterField:
        name = node.get("name") if isinstance(node, dict) else None
        if not isinstance(name, str) or not name:
            raise BadSchema(f"a field of record {_quoted(record)} has no name")
        default = json.dumps(node["default"], sort_keys=True) if "default" in node else None
        return WriterField(name, self.read(node.get("type"), space, depth + 1), default)

    def _union(self, node: list[Any], space: str, depth: int) -> WriterType:
        branches = tuple(self.read(each, space, depth + 1) for each in node)
        kinds = [each.name or each.kind for each in branches]
        if not branches or "union" in kinds or len(set(kinds)) != len(kinds):
            raise BadSchema("a union is empty, has another one inside, or one type twice")
        return WriterType("union", items=branches)


def _full_name(node: Mapping[str, Any], space: str) -> tuple[str, str]:
    """Return the full name that a definition has, and the namespace of the names inside."""
    name, own = node.get("name"), node.get("namespace")
    if not isinstance(name, str) or not name.strip("."):
        raise BadSchema(f"a type of kind {_quoted(node.get('type'))} has no name")
    if "." in name:
        return name.lstrip("."), name.rpartition(".")[0]
    if isinstance(own, str):
        space = own
    return (f"{space}.{name}" if space else name), space


def _with_meaning(base: WriterType, node: Mapping[str, Any]) -> WriterType:
    """Return the type with its logical type, where that may stand on it; else as it is."""
    meaning = node.get("logicalType")
    name = node.get("connect.name")
    if isinstance(name, str) and name in CONNECT_MEANINGS:
        meaning = CONNECT_MEANINGS[name]
    if not isinstance(meaning, str) or base.kind not in _MEANINGS.get(meaning, ()):
        return base
    logical: Logical | None = Logical(cast("Meaning", meaning))
    if meaning == "decimal":
        logical = _decimal(base, node)
    elif base.kind == "fixed" and base.size != {"uuid": 16, "duration": 12}.get(meaning):
        logical = None
    return WriterType(base.kind, logical, base.name, base.size)


def _decimal(base: WriterType, node: Mapping[str, Any]) -> Logical | None:
    """Return a decimal whose scale 128 bits hold; Connect writes 64 digits where its source names none."""
    precision, scale = node.get("precision"), node.get("scale", 0)
    if type(precision) is not int or type(scale) is not int:
        return None
    if not 0 <= scale <= min(precision, MAX_DIGITS) or precision < 1:
        return None
    if base.kind == "fixed" and precision > _digits(base.size):
        return None
    return Logical("decimal", precision, scale)


def _digits(size: int) -> int:
    """Return how many decimal digits always fit into so many bytes of two's complement."""
    return math.floor((8 * size - 1) * math.log10(2)) if size else 0


def _are_texts(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(each, str) for each in values)


def _quoted(value: Any) -> str:
    """Return what a schema says, for a message: cut, without line ends."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return repr(text if len(text) <= 60 else f"{text[:60]}…")
