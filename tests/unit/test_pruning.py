"""What file statistics prove: a file is left out only when no row of it can match."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pyarrow as pa
import pytest

from planner.reading.filters import EVERYTHING, Bounds, Condition, may_hold, prune
from planner.statement.conditions import Operator

NAN = float("nan")
NUMBERS = (None, 1.0, 2.0, 3.0, NAN)
TESTS: tuple[tuple[Operator, tuple[float, ...]], ...] = (
    *(
        (operator, (value,))
        for operator in ("=", "<", "<=", ">", ">=")
        for value in (0.0, 1.0, 2.0, 3.0, 4.0)
    ),
    *(("between", (low, high)) for low in (0.0, 2.0) for high in (1.0, 2.0, 4.0)),
    ("in", (0.0, 4.0)),
    ("in", (0.0, 2.0)),
    ("is null", ()),
    ("is not null", ()),
)


def holds(row: float | None, operator: Operator, values: Sequence[float]) -> bool:
    """Whether DuckDB would find the condition true: NaN is the largest number, NULL is nothing."""
    if operator == "is null":
        return row is None
    if row is None:
        return False
    at = float("inf") if row != row else row
    match operator:
        case "=" | "in":
            return at in values
        case "<":
            return at < values[0]
        case "<=":
            return at <= values[0]
        case ">":
            return at > values[0]
        case ">=":
            return at >= values[0]
        case "between":
            return values[0] <= at <= values[1]
    return True


def bounds_of(files: Sequence[Sequence[float | None]], *, counts: bool) -> Bounds:
    plain = [[row for row in rows if row is not None and row == row] for rows in files]
    nulls = [sum(row is None for row in rows) if counts else None for rows in files]
    nans = [
        sum(row is not None and row != row for row in rows) if counts else None
        for rows in files
    ]
    return Bounds(
        lower=pa.array([min(rows, default=None) for rows in plain], pa.float64()),
        upper=pa.array([max(rows, default=None) for rows in plain], pa.float64()),
        nulls=pa.array(nulls, pa.int64()),
        nans=pa.array(nans, pa.int64()),
        rows=pa.array([len(rows) for rows in files], pa.int64()),
    )


def condition(operator: Operator, values: Sequence[float]) -> Condition:
    return Condition("d", operator, tuple(pa.scalar(value, pa.float64()) for value in values))


@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize(("operator", "values"), TESTS)
def test_no_file_with_a_matching_row_is_left_out(
    operator: Operator, values: tuple[float, ...], counts: bool
) -> None:
    files = list(itertools.product(NUMBERS, repeat=3))
    mask = may_hold(bounds_of(files, counts=counts), condition(operator, values)).to_pylist()
    for rows, may in zip(files, mask, strict=True):
        assert may or not any(holds(row, operator, values) for row in rows), rows


@pytest.mark.parametrize(
    ("operator", "values"),
    [
        ("=", (3.0,)),
        ("<", (1.0,)),
        ("<=", (0.5,)),
        (">", (2.0,)),
        (">=", (2.5,)),
        ("between", (2.5, 9.0)),
        ("in", (0.0, 5.0)),
        ("is null", ()),
    ],
)
def test_statistics_do_leave_files_out(operator: Operator, values: tuple[float, ...]) -> None:
    facts = bounds_of([(1.0, 2.0), (None, None)], counts=True)
    assert may_hold(facts, condition(operator, values)).to_pylist() == [
        False,
        operator == "is null",
    ]


def test_a_file_of_nulls_holds_nothing_that_is_not_null() -> None:
    facts = bounds_of([(None, None), (None, 1.0)], counts=True)
    assert may_hold(facts, condition("is not null", ())).to_pylist() == [False, True]
    assert may_hold(facts, condition("<", (9.0,))).to_pylist() == [False, True]


def test_nan_is_above_every_bound_unless_it_was_counted_out() -> None:
    facts = bounds_of([(1.0, NAN), (1.0, 2.0)], counts=True)
    assert may_hold(facts, condition(">", (5.0,))).to_pylist() == [True, False]
    unknown = bounds_of([(1.0, NAN), (1.0, 2.0)], counts=False)
    assert may_hold(unknown, condition(">", (5.0,))).to_pylist() == [True, True]


def test_a_prefix_is_held_against_bounds_that_were_cut_short() -> None:
    lower = pa.array([b"web", b"wea", b"x", None, b"webs", b"a"], pa.binary())
    upper = pa.array([b"web", b"wec", b"z", None, b"wec", b"we"], pa.binary())
    unknown = pa.nulls(6, pa.int64())
    facts = Bounds(lower, upper, unknown, unknown, unknown)
    request = Condition("s", "starts with", (pa.scalar(b"web"),))
    assert may_hold(facts, request).to_pylist() == [True, True, False, True, True, False]


def test_a_partition_value_is_all_a_file_holds() -> None:
    facts = Bounds.exact(pa.array([1.0, None, NAN], pa.float64()))
    assert may_hold(facts, condition("=", (1.0,))).to_pylist() == [True, False, True]
    assert may_hold(facts, condition("is null", ())).to_pylist() == [False, True, False]
    assert may_hold(facts, condition(">", (1.0,))).to_pylist() == [False, False, True]


def test_whole_numbers_have_no_nan() -> None:
    facts = Bounds.exact(pa.array([1, 5], pa.int64()))
    request = Condition("i", ">", (pa.scalar(1, pa.int64()),))
    assert may_hold(facts, request).to_pylist() == [False, True]


def test_alternatives_keep_what_any_of_them_wants() -> None:
    facts = bounds_of([(1.0, 1.0), (2.0, 2.0), (3.0, 3.0)], counts=True)

    def of(request: Condition) -> list[tuple[Bounds, Condition]]:
        return [(facts, request)] if request.operator != "in" else []

    one, three = condition("=", (1.0,)), condition(">", (2.0,))
    table = prune(((one,), (three,)), of)
    assert table is not None
    assert table.to_pylist() == [True, False, True]
    both = prune(((one, three),), of)
    assert both is not None
    assert not any(both.to_pylist())
    assert prune(EVERYTHING, of) is None
    assert prune(((condition("in", (1.0,)),), (one,)), of) is None, "nothing is known of one"


def test_what_is_known_of_parts_is_known_of_the_whole() -> None:
    first, second = ([(1.0, NAN)], [(None, 2.0), (3.0, 3.0)])
    joined = Bounds.joined([bounds_of(part, counts=True) for part in (first, second)])
    whole = bounds_of([*first, *second], counts=True)
    for name in ("lower", "upper", "nulls", "nans", "rows"):
        assert getattr(joined, name).equals(getattr(whole, name))
