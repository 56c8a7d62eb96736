"""What a condition on a rounded time says of the time: ``date_trunc('day', ts) = X``, ``CAST(ts AS DATE) <= X``.

Rounded <= time < next rounded. Bounds are whole days, which suit every type of time, with one day of slack: where
clocks go back an hour comes twice, and rounding within it gives the later one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from planner.pruning import Operator
from planner.statement.ast import Node, kind_of
from planner.statement.parameters import call, cast, constant
from planner.statement.scope import fold

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
    if kind_of(node) == "FUNCTION" and fold(node["function_name"]) in (
        "date_trunc",
        "datetrunc",
    ):
        part, column = node["children"] if len(node["children"]) == 2 else (node, node)
        unit = str(part.get("value", {}).get("value")).lower().removesuffix("s")
        if unit in _DAYS and kind_of(column) == "COLUMN_REF":
            return column, _DAYS[unit]
    return None, 0


def _offset_days(time: Node) -> int:
    """0 for what is known to have no offset from UTC beside its date."""
    if kind_of(time) == "CONSTANT":
        text = time["value"].get("value")
        return (
            0 if isinstance(text, str) and _PLAIN_TEXT.issuperset(text[10:]) else _OFFSET_DAYS
        )
    return _OFFSET_DAYS if kind_of(time) == "PARAMETER" else 0


def _shifted(time: Node, days: int) -> Node:
    """The midnight before ``time``, plus ``days``."""
    shift = call("to_days", constant(days, "INTEGER"))
    return call("+", cast(time, _DATE), shift, is_operator=True)
