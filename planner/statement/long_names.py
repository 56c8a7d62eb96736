"""Names of tables in namespaces of several levels: ``lake.shop.public.orders``.

DuckDB's parser (1.5.5) takes three parts before it says "NameListToString NOT IMPLEMENTED", while a column may have any
number of them. Which name is a table's is asked of the parser itself: it gets the text with a stand-in for each long
name, an identifier that the text has nowhere else, and the tree says which of them are tables. Those are then written
with their levels as one identifier, ``lake."shop.public".orders``, which means the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.sql_text import identifier, tokens
from planner.statement.ast import Node

#: What the parser takes: catalog, schema, table.
_MAX_PARTS = 3


@dataclass(frozen=True, slots=True)
class LongName:
    """A name of more than three parts in a text, from ``start`` to ``stop`` (exclusive), its parts without quotes."""

    start: int
    stop: int
    parts: tuple[str, ...]


def is_refused_name(document: Node) -> bool:
    """Whether the parser refused a text for the number of a name's parts."""
    return bool(document["error"]) and "NameListToString" in document["error_message"]


def long_names(sql: str) -> tuple[LongName, ...]:
    """Find the names of more than three parts, in order; there may be space and comments around the dots."""
    return tuple(name for name in _names(sql) if len(name.parts) > _MAX_PARTS)


def _names(sql: str) -> Iterator[LongName]:
    start = stop = 0
    parts: list[str] = []
    is_behind_dot = True
    for token in tokens(sql):
        match token.lastgroup:
            case "space" | "comment":
                continue
            case "word" | "quoted":
                if not is_behind_dot:
                    yield LongName(start, stop, tuple(parts))
                if not is_behind_dot or not parts:
                    start, parts = token.start(), []
                quoted = token["quoted"]
                parts.append(token[0] if quoted is None else quoted.replace('""', '"'))
                stop, is_behind_dot = token.end(), False
            case "mark" if token[0] == "." and parts and not is_behind_dot:
                is_behind_dot = True
            case _:
                if parts and not is_behind_dot:
                    yield LongName(start, stop, tuple(parts))
                parts, is_behind_dot = [], True
    if parts and not is_behind_dot:
        yield LongName(start, stop, tuple(parts))


def stand_ins(sql: str, names: Sequence[LongName]) -> dict[str, LongName]:
    """Give each name an identifier that the text has nowhere: one with the text's own hash in it."""
    digest = hashlib.sha256(sql.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return {f"{digest} {number}": name for number, name in enumerate(names)}


def with_stand_ins(sql: str, words: Mapping[str, LongName]) -> str:
    return _replaced(sql, [(name, identifier(word)) for word, name in words.items()])


def tables_among(document: Node, words: Mapping[str, LongName]) -> tuple[LongName, ...]:
    """Return the names whose stand-ins are tables in the tree of the text with stand-ins, in order."""
    named: set[str] = set()
    pending: list[Any] = [document]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += value
        elif isinstance(value, dict):
            if value.get("type") == "BASE_TABLE":
                named.add(value["table_name"])
            pending += value.values()
    return tuple(name for word, name in words.items() if word in named)


def with_schemas(sql: str, names: Collection[LongName]) -> str:
    """Write the levels between the first and the last part of each name as one identifier."""
    return _replaced(sql, [(name, _as_three(name.parts)) for name in names])


def _as_three(parts: tuple[str, ...]) -> str:
    return ".".join(map(identifier, (parts[0], ".".join(parts[1:-1]), parts[-1])))


def _replaced(sql: str, changes: Sequence[tuple[LongName, str]]) -> str:
    pieces, end = [], 0
    for name, text in changes:
        pieces += [sql[end : name.start], text]
        end = name.stop
    return "".join([*pieces, sql[end:]])
