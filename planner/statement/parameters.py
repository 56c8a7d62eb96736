"""The places of a statement's parameters, and other nodes in those places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from planner.statement.allowed import words
from planner.statement.ast import Node, copied, fold, kind_of, node_fields, statement, walk

_ARITHMETIC = frozenset(("+", "-", "*", "/", "//", "%", "**", "^"))
_ADDING = frozenset(("+", "-"))

#: Arguments, from 0, that functions take as INTEGER and not as BIGINT, the usual type of a parameter.
INTEGER_ARGUMENTS: Mapping[str, frozenset[int]] = {
    **dict.fromkeys(("chr", "factorial"), frozenset((0,))),
    **dict.fromkeys(
        words("bitstring get_bit lpad round round_even roundbankers rpad trunc"),
        frozenset((1,)),
    ),
    **dict.fromkeys(("set_bit", "to_base"), frozenset((1, 2))),
    **dict.fromkeys(("regexp_extract", "regexp_extract_all"), frozenset((2,))),
}
#: Functions of one whole number of either size: a text in its place is ambiguous.
_WHOLE = frozenset(
    f"to_{unit}s" for unit in ("day", "week", "month", "quarter", "year", "decade")
) | {"to_centuries", "to_millennia"}

#: Fields of nodes that do not affect the types of a query's columns, and expressions that are BOOLEAN.
_UNTYPED = frozenset(
    ("where_clause", "having", "qualify", "modifiers", "condition", "filter", "order_bys")
)
_BOOLEAN = frozenset(("BETWEEN", "COMPARISON", "CONJUNCTION"))


def counts(document: Node) -> frozenset[str]:
    """Return the parameters that are whole numbers by their place: those of LIMIT and OFFSET."""
    names: set[str] = set()
    for node, _ in walk(document):
        if kind_of(node) == "LIMIT_MODIFIER":
            names.update(_named(node["limit"]), _named(node["offset"]))
    return frozenset(names)


def operands(document: Node) -> frozenset[str]:
    """Return the parameters that are operands of arithmetic."""
    return _arguments(document, _ARITHMETIC)


def addends(document: Node) -> frozenset[str]:
    """Return the parameters that are added or taken away."""
    return _arguments(document, _ADDING)


def _arguments(document: Node, functions: Collection[str]) -> frozenset[str]:
    names: set[str] = set()
    for node, _ in walk(document):
        if kind_of(node) == "FUNCTION" and fold(node["function_name"]) in functions:
            for child in node["children"]:
                names.update(_named(child))
    return frozenset(names)


def integers(document: Node) -> frozenset[str]:
    """Return the parameters that occur in ``INTEGER_ARGUMENTS`` only."""
    counts: Counter[str] = Counter()
    narrow: Counter[str] = Counter()
    for node, _ in walk(document):
        kind = kind_of(node)
        if kind == "PARAMETER":
            counts[node["identifier"]] += 1
        elif kind == "FUNCTION":
            positions = INTEGER_ARGUMENTS.get(fold(node["function_name"]), ())
            # ``price.round(?)``: the first argument stands in the schema's place.
            before = 1 if node["schema"] else 0
            for position, child in enumerate(node["children"], start=before):
                if position in positions:
                    narrow.update(_named(child))
    return frozenset(name for name, count in narrow.items() if count == counts[name])


def whole_numbers(document: Node) -> frozenset[str]:
    """Return the parameters that are whole numbers of any size by their place: days, months, years …."""
    return _arguments(document, _WHOLE)


def may_type_columns(document: Node) -> bool:
    """Whether the value of a parameter may change the type of a column. In doubt it may."""
    pending: list[Any] = [statement(document)]
    while pending:
        item = pending.pop()
        if isinstance(item, list):
            pending += item
            continue
        kind = kind_of(item)
        if kind == "PARAMETER":
            return True
        if kind not in _BOOLEAN:
            fields = (name for name in node_fields(item) if name not in _UNTYPED)
            pending += [item[name] for name in fields if item.get(name)]
    return False


def _named(node: Node | None) -> list[str]:
    return [node["identifier"]] if node and kind_of(node) == "PARAMETER" else []


def substituted(document: Node, values: Mapping[str, Node]) -> Node:
    """Return a copy with the given parameters replaced by other expressions."""
    copy = copied(document)
    for node, _ in walk(copy):
        if kind_of(node) == "PARAMETER" and node["identifier"] in values:
            alias = node["alias"]
            replacement = values[node["identifier"]]
            node.clear()
            node.update(replacement, alias=alias)
    return copy


def constant(value: int | str | None, kind: str) -> Node:
    """Return a literal of a type without parameters; None is NULL, of type "NULL"."""
    literal: Node = {"type": {"id": kind, "type_info": None}, "is_null": value is None}
    if value is not None:
        literal["value"] = value
    return _expression("CONSTANT", "VALUE_CONSTANT", value=literal)


def cast(child: Node, kind: Node) -> Node:
    """Return ``CAST(child AS kind)``; ``kind`` as in the tree: {"id": "DECIMAL", "type_info": ...}."""
    cast_type = {**kind, "type_info": kind.get("type_info")}
    return _expression(
        "CAST", "OPERATOR_CAST", child=child, cast_type=cast_type, try_cast=False
    )


def call(name: str, *arguments: Node, schema: str = "", is_operator: bool = False) -> Node:
    """Return ``name(arguments)``; ``is_operator`` has it printed between its arguments."""
    return _expression(
        "FUNCTION",
        "FUNCTION",
        function_name=name,
        schema=schema,
        catalog="",
        children=list(arguments),
        filter=None,
        order_bys={"type": "ORDER_MODIFIER", "orders": []},
        distinct=False,
        is_operator=is_operator,
        export_state=False,
    )


def _expression(kind: str, operation: str, **fields: Any) -> Node:
    return {"class": kind, "type": operation, "alias": "", "query_location": 0, **fields}
