"""Which tables a statement names, and which tables of this server they are.

Names of tables in namespaces of several levels: ``lake.shop.public.orders``.

DuckDB's parser (1.5.5) takes three parts before it says "NameListToString NOT IMPLEMENTED", while a column may have any
number of them. Which name is a table's is asked of the parser itself: it gets the text with a stand-in for each long
name, an identifier that the text has nowhere else, and the tree says which of them are tables. Those are then written
with their levels as one identifier, ``lake."shop.public".orders``, which means the same.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from planner.errors import BadConfig, BadStatement, UnknownTable, UnsupportedStatement
from planner.names import Side, TableName, side_name
from planner.sql_text import identifier, tokens
from planner.statement.ast import Node, fold, is_table, scoped

#: A longer name is no slip, and comparing it takes its time.
_MISTYPED_CHARS = 200

#: Marks of a name that means a file or an address. Tables may have such names too: see ``references``.
PATH = re.compile(
    r"[/\\*?\[\]]|:|\.(parquet|csv|tsv|json|jsonl|ndjson|txt|arrow|avro|db|duckdb|gz|zst)$",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class AtClause:
    """``AT (VERSION => 3)``. ``expression`` is its tree as JSON text, the same wherever it is written."""

    unit: str
    expression: str

    @property
    def tree(self) -> Node:
        node: Node = json.loads(self.expression)
        return node

    def __str__(self) -> str:
        """The clause where it is a literal, to name it."""
        value = self.tree.get("value", {}).get("value")
        return f"AT ({self.unit} => {'...' if value is None else str(value)[:40]})"


@dataclass(frozen=True, slots=True)
class TableReference:
    """A table as the statement names it; missing parts are None."""

    catalog: str | None
    schema: str | None
    name: str
    at: AtClause | None = None

    def __str__(self) -> str:
        parts = (self.catalog, self.schema, self.name)
        return ".".join(quoted(part) for part in parts if part is not None)


@dataclass(frozen=True, slots=True)
class ResolvedTable:
    """A table of this server, or one of the views on its two sides (``"flows$cold"``).

    ``by_contract``: the statement named the table, and its freshness contract chose the side.
    """

    table: TableName
    side: Side = Side.BOTH
    at: AtClause | None = None
    by_contract: bool = False

    @property
    def key(self) -> CutKey:
        return self.table, self.at


#: The part of a statement with one cut: a table as it is, or as it was.
CutKey: TypeAlias = tuple[TableName, AtClause | None]


def references(document: Node) -> tuple[TableReference, ...]:
    """Return the tables a statement reads, each once, in order of appearance.

    Names of WITH clauses are left out where they are visible. The statement has passed the gate.

    Raises:
        UnsupportedStatement: an AT clause stands at the name of a WITH clause.
    """
    ordered: dict[TableReference, None] = {}
    for node, scope in scoped(document):
        if not is_table(node):
            continue
        if not scope.is_cte(node):
            ordered[reference_of(node)] = None
        elif node["at_clause"] is not None:
            raise UnsupportedStatement(
                f"{node['table_name']} is a WITH clause and has no versions; write AT at its tables."
            )
    return tuple(ordered)


def reference_of(table: Node) -> TableReference:
    catalog, schema = table["catalog_name"] or None, table["schema_name"] or None
    clause, at = table["at_clause"], None
    if clause is not None:
        expression = json.dumps(_without_positions(clause["expr"]), sort_keys=True)
        at = AtClause(clause["unit"], expression)
    return TableReference(catalog, schema, table["table_name"], at)


def _without_positions(tree: Any) -> Any:
    """Return a tree without its places in the text."""
    if isinstance(tree, list):
        return [_without_positions(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    # A position that no parser gives: the printer needs the field.
    return {
        name: 0 if name == "query_location" else _without_positions(value)
        for name, value in tree.items()
    }


def resolve(
    reference: TableReference,
    default_catalog: str,
    default_schema: str,
    tables: Collection[TableName],
) -> ResolvedTable:
    """Return the table that a reference means.

    Names compare as in DuckDB: without ASCII case, an exact match first. ``a.b`` is table b of schema a, or
    of catalog a. ``a.b.c`` is table c of catalog a, else of schema ``a.b``, whose levels are joined by dots. A table
    that is really called ``flows$cold`` is read where there is no table ``flows`` beside it.

    Raises:
        UnknownTable: there is none.
        BadConfig: as ``check_no_side``.
        UnsupportedStatement: there is none, and the name is like a file's.
        BadStatement: there are several.
    """
    side = side_name(reference.name)
    for paths in _paths_of(reference, default_catalog, default_schema):
        match = _match(reference, reference.name, paths, tables)
        base = None if side is None else _match(reference, side[0], paths, tables)
        if match is not None and base is not None:
            raise _of_both(match, base)
        for table in (match, base):
            if table is not None:
                check_no_side(table, tables)
                means = Side.BOTH if side is None or table is match else side[1]
                return ResolvedTable(table, means, reference.at)
    if PATH.search(reference.name):
        name = reference.name if len(reference.name) <= 80 else f"{reference.name[:77]}..."
        raise UnsupportedStatement(
            f"'{name}' is not a table of this server; files and addresses cannot be read.",
            table=reference.name,
        )
    raise UnknownTable(
        f"there is no table {reference}{_suggestion(reference.name, tables)}",
        table=str(reference),
    )


def check_no_side(table: TableName, tables: Collection[TableName]) -> None:
    """Refuse a table of a catalog that has the name of a side of another one, such as ``flows$cold`` beside ``flows``.

    Raises:
        BadConfig: it has.
    """
    side = side_name(table.name)
    if side is None:
        return
    names = (fold(table.catalog), fold(table.schema), fold(side[0]))
    for base in sorted(tables):
        if _folded(base) == names:
            raise _of_both(table, base)


def _of_both(table: TableName, base: TableName) -> BadConfig:
    return BadConfig(
        f"{_qualified(table)} is a table of its catalog, and its name means a side of table {_qualified(base)} here; rename "
        f"or drop it there.",
        table=str(table),
    )


def _paths_of(
    reference: TableReference, default_catalog: str, default_schema: str
) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Return the (catalog, schema) pairs a reference may mean: those of one entry before those of the next."""
    if reference.catalog is not None:
        schema = reference.schema or default_schema
        whole = (reference.catalog, schema)
        return ((whole,), ((default_catalog, f"{reference.catalog}.{schema}"),))
    if reference.schema is None:
        return (((default_catalog, default_schema),),)
    return (((default_catalog, reference.schema), (reference.schema, default_schema)),)


def _match(
    reference: TableReference,
    name: str,
    paths: Iterable[tuple[str, str]],
    tables: Collection[TableName],
) -> TableName | None:
    candidates = {(catalog, schema, name) for catalog, schema in paths}
    # Namespaces rarely hold dots inside a level, so the exact name is usually found without a scan.
    exact = [
        table
        for catalog, schema, _ in candidates
        if (table := TableName(catalog, tuple(schema.split(".")), name)) in tables
    ]
    if not exact:
        folded = {tuple(map(fold, parts)) for parts in candidates}
        near = [table for table in tables if _folded(table) in folded]
        same = [each for each in near if (each.catalog, each.schema, each.name) in candidates]
        exact = same or near
    if len(exact) > 1:
        names = " or ".join(_qualified(table) for table in sorted(exact))
        raise BadStatement(
            f"table name {reference} is ambiguous: it may mean {names}; write the full name.",
            table=str(reference),
        )
    return exact[0] if exact else None


def _folded(table: TableName) -> tuple[str, str, str]:
    return fold(table.catalog), fold(table.schema), fold(table.name)


def _suggestion(name: str, tables: Collection[TableName]) -> str:
    if len(name) > _MISTYPED_CHARS:
        return "."
    by_name = {fold(table.name): table for table in sorted(tables, reverse=True)}
    close = difflib.get_close_matches(fold(name), by_name, n=1)
    return f"; did you mean {_qualified(by_name[close[0]])}?" if close else "."


def _qualified(table: TableName) -> str:
    return f"{quoted(table.catalog)}.{quoted(table.schema)}.{quoted(table.name)}"


def quoted(name: str) -> str:
    """Write an identifier, in quotes where SQL needs them."""
    if name.isidentifier() and name.isascii() and name == name.lower():
        return name
    return identifier(name)


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
