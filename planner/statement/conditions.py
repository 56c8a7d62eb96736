"""Conditions of a statement on the columns of its tables: conjuncts that every relevant row must satisfy.

For each place that names a table: the conjuncts of WHERE, and those of ON where the join drops other rows; none in a
place that this module does not understand. A name without qualifier goes to every table it may belong to, and the
caller keeps it where the table has such a column.

It is safe because a column of a FROM clause comes before an alias of the SELECT list and before an outer query (DuckDB
1.5.5), and a name two tables share is an error, but for USING and NATURAL. Conditions that NULL can satisfy are taken
from a single table only: in an outer join they also apply to rows without a match.

What a condition on a rounded time says of the time: ``date_trunc('day', ts) = X``, ``CAST(ts AS DATE) <= X``.

Rounded <= time < next rounded. Bounds are whole days, which suit every type of time, with one day of slack: where
clocks go back an hour comes twice, and rounding within it gives the later one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import Literal, TypeVar

from planner.statement.allowed import words
from planner.statement.ast import Node, Scope, fold, is_table, kind_of, scoped, visible_name
from planner.statement.parameters import call, cast, constant
from planner.statement.references import TableReference, reference_of

#: Most values of an IN list that are compared with bounds.
MAX_VALUES = 200
#: More alternatives take longer to compare with files than they save.
MAX_ALTERNATIVES = 100
T = TypeVar("T")

#: Functions of constants only, none of them volatile within a statement.
_FOLDED = words("""
    + - * trunc date_trunc date_add epoch_ms timezone
    current_localtimestamp now get_current_timestamp transaction_timestamp today current_date
    make_date make_timestamp make_timestamptz to_timestamp strptime
    to_years to_months to_weeks to_days to_hours to_minutes to_seconds to_milliseconds to_microseconds
    """)

#: What a name without qualifier means where no column and no alias has it.
CLOCKS = frozenset(("current_timestamp", "current_date", "localtimestamp"))

_COMPARISONS: Mapping[str, tuple[Operator, Operator]] = {
    "COMPARE_EQUAL": ("=", "="),
    "COMPARE_LESSTHAN": ("<", ">"),
    "COMPARE_LESSTHANOREQUALTO": ("<=", ">="),
    "COMPARE_GREATERTHAN": (">", "<"),
    "COMPARE_GREATERTHANOREQUALTO": (">=", "<="),
}

_NULL_TESTS: Mapping[str, Operator] = {
    "OPERATOR_IS_NULL": "is null",
    "OPERATOR_IS_NOT_NULL": "is not null",
}

#: Joins that keep or drop each row of a table by its own values. ASOF and POSITIONAL depend on its neighbours.
_PLAIN_JOINS = frozenset(("REGULAR", "CROSS", "NATURAL"))


@dataclass(frozen=True, slots=True, eq=False)
class Conjunct:
    """A column, an operator, and expressions without columns in them.

    The operands of one conjunct are compared in one type, common to all of them and the column.
    """

    column: str
    operator: Operator
    operands: tuple[Node, ...] = ()
    clocks: frozenset[str] = frozenset()

    @property
    def is_fixed(self) -> bool:
        """Whether the operands are literals: no parameters, no time functions."""
        pending = list(self.operands)
        while pending:
            node = pending.pop()
            if kind_of(node) == "CAST":
                pending.append(node["child"])
            elif kind_of(node) != "CONSTANT":
                return False
        return True

    def over(self, operands: tuple[Node, ...]) -> Conjunct:
        """Return the same with constants of the same types."""
        return Conjunct(self.column, self.operator, operands, self.clocks)


#: The conjuncts at each place that names the table.
Positions = tuple[tuple[Conjunct, ...], ...]


def conjuncts(document: Node) -> dict[TableReference, Positions]:
    """Return, for each of ``references(document)``, the conjuncts at each place that names it.

    The statement has passed the gate.
    """
    per_table: dict[TableReference, list[tuple[Conjunct, ...]]] = {}
    by_table: dict[int, tuple[Conjunct, ...]] = {}
    for node, scope in scoped(document):
        if node.get("type") == "SELECT_NODE":
            by_table.update(_of_select(node, scope))
        elif is_table(node) and not scope.is_cte(node):
            per_table.setdefault(reference_of(node), []).append(by_table.get(id(node), ()))
    return {reference: tuple(positions) for reference, positions in per_table.items()}


def alternatives(condition: Node) -> Positions:
    """Return conjuncts by alternative: a row of one table that makes the condition true meets all of one alternative.

    At most ``MAX_ALTERNATIVES``. Column names are taken without their qualifiers.
    """
    understood = tuple(conjunct for conjunct, _ in _understood(condition))
    if condition["type"] == "CONJUNCTION_AND":
        return reduce(both, map(alternatives, condition["children"]))
    if condition["type"] == "CONJUNCTION_OR" and not understood:
        arms = tuple(chain.from_iterable(map(alternatives, condition["children"])))
        return arms if len(arms) <= MAX_ALTERNATIVES else ((),)
    return (understood,)


def both(
    one: tuple[tuple[T, ...], ...], other: tuple[tuple[T, ...], ...]
) -> tuple[tuple[T, ...], ...]:
    """Return alternatives that both imply; not always the narrowest."""
    if len(one) * len(other) > MAX_ALTERNATIVES:
        return one
    return tuple((*left, *right) for left in one for right in other)


def _of_select(select: Node, scope: Scope) -> dict[int, tuple[Conjunct, ...]]:
    """Return the conjuncts by the ``id`` of the table's node."""
    top = select["from_table"]
    if select["sample"] or not _is_plain(top):
        return {}
    names = Counter(fold(visible_name(table)) for table in _tables(top, hidden=True))
    shared = _shared_columns(top)
    may_alias = _may_alias_clocks(select["select_list"])
    by_table: dict[int, list[Conjunct]] = {}
    for condition, below in _conditions(select, top):
        tables = list(_tables(below))
        alone = len(tables) == 1 and below is top
        for conjunct, qualifier in _split(condition):
            if conjunct.operator == "is null" and not alone:
                continue
            if conjunct.clocks and (may_alias or not alone):
                continue
            for table in tables:
                name = fold(visible_name(table))
                if qualifier is None:
                    meant = shared is not None and fold(conjunct.column) not in shared
                else:
                    meant = fold(qualifier) == name and names[name] == 1
                if meant and _is_addressable(table, scope):
                    by_table.setdefault(id(table), []).append(conjunct)
    return {key: tuple(conditions) for key, conditions in by_table.items()}


def _may_alias_clocks(select_list: Sequence[Node]) -> bool:
    """Whether a name of ``CLOCKS`` may be an alias. Those are visible in WHERE, where no column is called so."""
    return any(
        fold(item["alias"]) in CLOCKS or "\\" in item["alias"] or item.get("rename_list")
        for item in select_list
    )


def _is_addressable(table: Node, scope: Scope) -> bool:
    return (
        is_table(table)
        and not scope.is_cte(table)
        and not table["column_name_alias"]
        and not table["sample"]
    )


def _is_plain(top: Node) -> bool:
    """Whether every join below keeps or drops rows by conditions alone."""
    return all(
        join["ref_type"] in _PLAIN_JOINS and join["join_type"] in _SIDES for join in _joins(top)
    )


def _joins(top: Node) -> Iterator[Node]:
    """Yield the joins of a FROM clause."""
    pending = [top]
    while pending:
        node = pending.pop()
        if node["type"] == "JOIN":
            yield node
            pending += [node["left"], node["right"]]


#: By join type: the sides that a condition in WHERE may name, and the sides that a condition in ON filters.
_SIDES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "INNER": (("left", "right"), ("left", "right")),
    "LEFT": (("left", "right"), ("right",)),
    "RIGHT": (("left", "right"), ("left",)),
    "FULL": (("left", "right"), ()),
    "SEMI": (("left",), ("right",)),
    "ANTI": (("left",), ("right",)),
}


def _tables(top: Node, *, hidden: bool = False) -> Iterator[Node]:
    """Yield the tables whose columns can be named outside of this part of a FROM clause, or all."""
    pending = [top]
    while pending:
        node = pending.pop()
        if node["type"] == "JOIN":
            sides = ("left", "right") if hidden else _SIDES[node["join_type"]][0]
            pending += [node[side] for side in sides]
        else:
            yield node


def _shared_columns(top: Node) -> frozenset[str] | None:
    """Return the columns of USING, folded; None for NATURAL, which does not name them."""
    joins = list(_joins(top))
    if any(join["ref_type"] == "NATURAL" for join in joins):
        return None
    return frozenset(fold(name) for join in joins for name in join["using_columns"])


def _conditions(select: Node, top: Node) -> Iterator[tuple[Node, Node]]:
    """Yield each condition with the part of the FROM clause whose rows must meet it."""
    if select["where_clause"]:
        yield select["where_clause"], top
    for join in _joins(top):
        if join["condition"]:
            for side in _SIDES[join["join_type"]][1]:
                yield join["condition"], join[side]


def _split(condition: Node) -> Iterator[tuple[Conjunct, str | None]]:
    """Yield the conjuncts that are understood, with the qualifier of the column."""
    pending = [condition]
    while pending:
        node = pending.pop()
        if node["type"] == "CONJUNCTION_AND":
            pending += node["children"]
        else:
            yield from _understood(node)


def _understood(node: Node) -> Iterator[tuple[Conjunct, str | None]]:
    kind = node["type"]
    if kind in _COMPARISONS:
        plain, mirrored = _COMPARISONS[kind]
        yield from _conjunct_of(node["left"], plain, (node["right"],))
        yield from _conjunct_of(node["right"], mirrored, (node["left"],))
    elif kind == "COMPARE_BETWEEN":
        yield from _conjunct_of(node["input"], "between", (node["lower"], node["upper"]))
    elif kind == "COMPARE_IN":
        first, *rest = node["children"]
        yield from _conjunct_of(first, "in", rest)
    elif kind in _NULL_TESTS:
        yield from _conjunct_of(node["children"][0], _NULL_TESTS[kind], ())
    elif kind == "CONJUNCTION_OR":
        yield from _any_of(node["children"])
    elif kind == "FUNCTION":
        yield from _prefix(node)


def _conjunct_of(
    column: Node, operator: Operator, operands: Sequence[Node]
) -> Iterator[tuple[Conjunct, str | None]]:
    if kind_of(column) != "COLUMN_REF":
        for time, bound, operand in bounds_of_rounded(column, operator, operands):
            yield from _conjunct_of(time, bound, (operand,))
        return
    if len(operands) > MAX_VALUES:
        return
    *qualifiers, name = column["column_names"]
    names = [clocks_of(operand) for operand in operands]
    if len(qualifiers) <= 1 and None not in names:
        clocks = frozenset(chain.from_iterable(filter(None, names)))
        conjunct = Conjunct(name, operator, tuple(operands), clocks)
        yield conjunct, qualifiers[0] if qualifiers else None


def _any_of(arms: Sequence[Node]) -> Iterator[tuple[Conjunct, str | None]]:
    """``a = 1 OR a = 2`` is ``a IN (1, 2)``, if all arms are such."""
    operands: list[Node] = []
    clocks: set[str] = set()
    about: set[tuple[str, str | None]] = set()
    for arm in arms:
        matches = [each for each in _understood(arm) if each[0].operator in ("=", "in")]
        if len(matches) != 1:
            return
        ((conjunct, qualifier),) = matches
        operands += conjunct.operands
        clocks |= conjunct.clocks
        about.add((fold(conjunct.column), None if qualifier is None else fold(qualifier)))
    if len(about) == 1 and len(operands) <= MAX_VALUES:
        yield Conjunct(conjunct.column, "in", tuple(operands), frozenset(clocks)), qualifier


def _prefix(node: Node) -> Iterator[tuple[Conjunct, str | None]]:
    """``a LIKE 'web%'`` and ``starts_with(a, 'web')``."""
    name, arguments = node["function_name"], node["children"]
    if name not in ("~~", "starts_with", "prefix", "^@") or len(arguments) != 2:
        return
    text = arguments[1].get("value", {}).get("value")
    if isinstance(text, str) and kind_of(arguments[1]) == "CONSTANT":
        if name == "~~":
            text = text.split("%", 1)[0].split("_", 1)[0]
        if text:
            literal = {**arguments[1], "value": {**arguments[1]["value"], "value": text}}
            yield from _conjunct_of(arguments[0], "starts with", (literal,))


def clocks_of(expression: Node, *, bound: bool = True) -> frozenset[str] | None:
    """Return the names of ``CLOCKS`` in an expression that has one value for all rows; None: it has not.

    A comparison with such a value is a plain one. ``bound``: a parameter counts as one.
    """
    clocks: set[str] = set()
    pending: list[Node] = [expression]
    while pending:
        node = pending.pop()
        kind = kind_of(node)
        if kind == "CAST":
            pending.append(node["child"])
        elif kind == "FUNCTION" and fold(node["function_name"]) in _FOLDED:
            pending += node["children"]
        elif kind == "COLUMN_REF" and fold(node["column_names"][-1]) in CLOCKS:
            if len(node["column_names"]) > 1:
                return None
            clocks.add(fold(node["column_names"][0]))
        elif kind != "CONSTANT" and not (bound and kind == "PARAMETER"):
            return None
    return frozenset(clocks)


#: The most days from one rounded time to the next; a date of the column is exact. Longer units round up before Christ.
_DAYS = {
    **dict.fromkeys(("microsecond", "millisecond", "second", "minute", "hour", "day"), 1),
    "week": 7,
    "month": 31,
    "quarter": 92,
    "year": 366,
}

#: Beside the day to spare: a text may have an offset from UTC, of 99 hours at most, which its date leaves out.
_OFFSET_DAYS = 5
_TRUNC = ("date_trunc", "datetrunc")

_PLAIN_TEXT = frozenset("0123456789:. T")
_FROM = frozenset(("=", ">", ">=", "between"))

_UNTIL = frozenset(("=", "<", "<=", "between"))

_DATE: Node = {"id": "DATE"}


def bounds_of_rounded(
    rounded: Node, operator: Operator, operands: Sequence[Node]
) -> Iterator[tuple[Node, Operator, Node]]:
    """Yield (column, operator, operand) that a condition on a rounded column implies; nothing for other conditions."""
    column, days = _rounded(rounded)
    if column is None or not operands:
        return
    if operator in _FROM:
        yield column, ">=", _shifted(operands[0], -1 - _offset_days(operands[0]))
    if operator in _UNTIL:
        # Not less than: both may be infinite.
        last = operands[-1]
        yield column, "<=", _shifted(last, days + 2 + _offset_days(last))


def _rounded(node: Node) -> tuple[Node | None, int]:
    """Return the column that is rounded, and the most days to the next; None for another expression."""
    if kind_of(node) == "CAST" and node["cast_type"]["id"] == "DATE":
        return (node["child"], 0) if kind_of(node["child"]) == "COLUMN_REF" else (None, 0)
    if kind_of(node) == "FUNCTION" and fold(node["function_name"]) in _TRUNC:
        part, column = node["children"] if len(node["children"]) == 2 else (node, node)
        unit = str(part.get("value", {}).get("value")).lower().removesuffix("s")
        if unit in _DAYS and kind_of(column) == "COLUMN_REF":
            return column, _DAYS[unit]
    return None, 0


def _offset_days(time: Node) -> int:
    """0 for what is known to have no offset from UTC beside its date."""
    if kind_of(time) == "CONSTANT":
        text = time["value"].get("value")
        is_plain = isinstance(text, str) and _PLAIN_TEXT.issuperset(text[10:])
        return 0 if is_plain else _OFFSET_DAYS
    return _OFFSET_DAYS if kind_of(time) == "PARAMETER" else 0


def _shifted(time: Node, days: int) -> Node:
    """The midnight before ``time``, plus ``days``."""
    shift = call("to_days", constant(days, "INTEGER"))
    return call("+", cast(time, _DATE), shift, is_operator=True)


Operator = Literal[
    "=", "<", "<=", ">", ">=", "between", "in", "starts with", "is null", "is not null"
]
