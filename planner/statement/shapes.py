"""The shape of a statement: its text without the constants that columns are compared with.

Statements of one shape differ in those constants alone, so what was analysed of one is true of the others: what a statement
may hold, which tables it names, how it is rewritten, which columns it answers with. A constant is *lifted* where it stands in
the WHERE clause of a SELECT over tables, on the other side of a column, in a comparison, a BETWEEN or a list after IN. All
others stay in the shape: the gate bounds some of them (counts of ``repeat`` and ``range``, pads, AT, LIMIT), and columns are
named after some. So do numbers that equal zero: whether a statement compares with zero is part of its needs.

Whether a statement binds, and to which types, does not depend on such a constant's value, only on its type (DuckDB 1.5.5).
What is taken for a lifted constant is proved for each shape by the parser (``proves``), not by what is read of the text here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from planner.sql_text import literal, tokens
from planner.statement.ast import Node, copied, kind_of, statement, walk
from planner.statement.rewrite import same

#: Longer texts are a shape of their own: reading them for constants is no small part of a small statement.
MAX_CHARS = 2_000
#: Most constants of a text that are looked at, and the longest text among them.
_MAX_CONSTANTS = 50
_MAX_TEXT = 200
#: Whole numbers from here on are BIGINT, and from there on HUGEINT or DOUBLE, which stay in the shape.
_BIGINT, _HUGEINT = 1 << 31, 1 << 63
_INTEGER, _LONG, _TEXT = "INTEGER", "BIGINT", "VARCHAR"
#: Kinds of tokens that a number may stand next to without a space. Next to others it is a part of something.
_APART = frozenset((None, "space", "other"))
_COLUMN = "COLUMN_REF"


@dataclass(frozen=True, slots=True)
class TextConstant:
    """A constant in a text: where it begins, and its type as DuckDB has it."""

    start: int
    stop: int
    type: str
    value: int | str


@dataclass(frozen=True, slots=True)
class TextShape:
    """A text, with what may be lifted constants. ``outline`` is the text with the type of each in its place."""

    outline: str
    constants: tuple[TextConstant, ...] = ()

    @classmethod
    def of(cls, sql: str) -> TextShape:
        # Places in the tree are bytes; and no text has the mark of a constant.
        is_plain = len(sql) <= MAX_CHARS and sql.isascii() and "\0" not in sql
        constants = list(_constants(sql)) if is_plain and "where" in sql.lower() else []
        if not 0 < len(constants) <= _MAX_CONSTANTS:
            return cls(sql)
        return cls(
            _with(sql, constants, [f"\0{each.type}" for each in constants]), tuple(constants)
        )

    def key(self, lifted: Sequence[int]) -> tuple[object, ...]:
        """Name the shape where the constants with these numbers are lifted."""
        fixed = (
            each.value for number, each in enumerate(self.constants) if number not in lifted
        )
        # Their numbers, as the same values elsewhere are another shape, and a text may look like an outline.
        return self.outline, tuple(lifted), *fixed

    def values(self, lifted: Sequence[int]) -> tuple[int | str, ...]:
        return tuple(self.constants[number].value for number in lifted)


def _constants(sql: str) -> Iterator[TextConstant]:
    before: str | None = None
    number: TextConstant | None = None
    for token in tokens(sql):
        kind = token.lastgroup
        if number is not None and kind in _APART:
            yield number
        number = None
        if kind in ("comment", "open", "dollar", "tag", "escaped"):
            return
        value = token[0]
        is_apart = before in _APART or (before == "mark" and sql[token.start() - 1] == "=")
        if kind == "number" and is_apart and value[0] not in "-0" and int(value) < _HUGEINT:
            whole = int(value)
            number = TextConstant(*token.span(), _INTEGER if whole < _BIGINT else _LONG, whole)
        elif kind == "text" and _is_plain(token["text"]):
            yield TextConstant(*token.span(), _TEXT, token["text"])
        before = kind
    if number is not None:
        yield number


def _is_plain(text: str) -> bool:
    """Whether a text prints as it is, and equals no number: those may be a zero."""
    if len(text) > _MAX_TEXT or not text.isprintable() or "'" in text or "\\" in text:
        return False
    try:
        float(text)
    except ValueError:
        return True
    return False


def _with(sql: str, constants: Sequence[TextConstant], texts: Sequence[str]) -> str:
    parts, at = [], 0
    for each, text in zip(constants, texts, strict=True):
        parts += [sql[at : each.start], text]
        at = each.stop
    return "".join([*parts, sql[at:]])


@dataclass(frozen=True, slots=True)
class Lifts:
    """The lifted constants of one statement: their numbers among those of its text."""

    shape: TextShape
    numbers: tuple[int, ...] = ()

    @classmethod
    def of(cls, shape: TextShape, document: Node) -> Lifts:
        """Find them in the tree of the text, which has passed the gate."""
        at = {each.start: number for number, each in enumerate(shape.constants)}
        numbers = (
            at[constant["query_location"]]
            for constant in (_compared(statement(document)["node"]) if at else ())
            if constant["query_location"] in at
            and _has(constant, shape.constants[at[constant["query_location"]]])
        )
        return cls(shape, tuple(sorted(numbers)))

    @property
    def constants(self) -> tuple[TextConstant, ...]:
        return tuple(self.shape.constants[number] for number in self.numbers)

    def fill(self, document: Node, values: Sequence[int | str]) -> Node:
        """Return a copy of the statement's tree, rewritten or not, with other values in place of the lifted ones."""
        copy, filled = copied(document), self.filling(values)
        for node, _ in walk(copy):
            if kind_of(node) == "CONSTANT":
                node.update(filled(node))
        return copy

    def filling(self, values: Sequence[int | str]) -> Callable[[Node], Node]:
        """Return what gives a node of the statement's tree as ``fill`` has it: any but a lifted constant as it is."""
        by_place = {
            each.start: (each, value)
            for each, value in zip(self.constants, values, strict=True)
        }

        def filled(node: Node) -> Node:
            lifted = by_place.get(node.get("query_location", -1))
            if lifted is None or kind_of(node) != "CONSTANT" or not _has(node, lifted[0]):
                return node
            _, value = lifted
            return {**node, "value": {**node["value"], "value": value}}

        return filled

    def proves(self, sql: str, document: Node, parse: Callable[[str], Node]) -> bool:
        """Whether the parser reads a text with other constants in those places as the tree with other constants."""
        values = self.marks
        parsed = parse(_with(sql, self.constants, [_printed(value) for value in values]))
        return same(statement(parsed)["node"], statement(self.fill(document, values))["node"])

    @property
    def marks(self) -> tuple[int | str, ...]:
        """Values of the same types that occur nowhere else, one for each."""
        return tuple(_MARKS[each.type](number) for number, each in enumerate(self.constants))


_MARKS: Mapping[str, Callable[[int], int | str]] = {
    _INTEGER: lambda number: 2_047_913_600 + number,
    _LONG: lambda number: 7_913_604_582_913_600_000 + number,
    _TEXT: lambda number: f"__tc:constant:{number}:",
}


def _printed(value: int | str) -> str:
    return literal(value) if isinstance(value, str) else str(value)


@dataclass(frozen=True, slots=True)
class Template:
    """Printed SQL in pieces, with a lifted constant between each and the next; ``order`` is theirs."""

    pieces: tuple[str, ...]
    order: tuple[int, ...]

    @classmethod
    def of(
        cls, lifts: Lifts, document: Node, unparse: Callable[[Node], str]
    ) -> Template | None:
        """Print a tree, rewritten or not; None: not each constant is printed once."""
        marks = list(map(_printed, lifts.marks))
        printed = unparse(lifts.fill(document, lifts.marks))
        if any(printed.count(mark) != 1 for mark in marks):
            return None
        order = sorted(range(len(marks)), key=lambda number: printed.index(marks[number]))
        pieces = []
        for number in order:
            piece, printed = printed.split(marks[number])
            pieces.append(piece)
        return cls((*pieces, printed), tuple(order))

    def filled(self, values: Sequence[int | str]) -> str:
        parts = [self.pieces[0]]
        for number, piece in zip(self.order, self.pieces[1:], strict=True):
            parts += (_printed(values[number]), piece)
        return "".join(parts)


def _has(node: Node, constant: TextConstant) -> bool:
    value = node["value"]
    return (value["type"]["id"], value.get("value")) == (constant.type, constant.value)


def _compared(node: Node) -> Iterator[Node]:
    """Yield the constants that stand on the other side of a column, of a SELECT over tables."""
    if node["type"] != "SELECT_NODE" or node["cte_map"]["map"] or not node["where_clause"]:
        return
    if not _is_of_tables(node["from_table"]):
        return
    pending = [node["where_clause"]]
    while pending:
        condition = pending.pop()
        kind = kind_of(condition)
        if kind == "CONJUNCTION":
            pending += condition["children"]
            continue
        if kind == "COMPARISON":
            sides = [condition["left"], condition["right"]]
        elif kind == "BETWEEN":
            sides = [condition["input"], condition["lower"], condition["upper"]]
        elif condition["type"] == "COMPARE_IN":
            sides = condition["children"]
        else:
            continue
        columns = [side for side in sides if kind_of(side) == _COLUMN]
        constants = [side for side in sides if kind_of(side) == "CONSTANT"]
        if len(columns) == 1 and len(constants) == len(sides) - 1:
            yield from constants


def _is_of_tables(source: Node) -> bool:
    """Whether a FROM clause is tables by their own columns' names."""
    pending = [source]
    while pending:
        table = pending.pop()
        if table["type"] == "JOIN":
            pending += table["left"], table["right"]
        elif table["type"] != "BASE_TABLE" or table["column_name_alias"]:
            return False
    return True
