"""The columns a plan tells with parameters bound are those that come."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.errors import FederationError
from planner.statement.allowed import FUNCTIONS
from planner.statement.parameters import INTEGER_ARGUMENTS
from proxy.engine.engine import Engine
from proxy.query.executor import Statements
from proxy.session import Deadline, Session
from tests.contract.engine import table
from tests.doubles.cold import MemoryColdStore
from tests.doubles.log import MemoryLog
from tests.harness.serving import SESSION, forget, serve

_AT = dt.datetime(2024, 2, 29, 12)
#: What drivers bind: each type with a value, and without.
VALUES = (
    *(pa.scalar(7, kind) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
    *(pa.scalar(7, kind) for kind in (pa.uint8(), pa.uint32(), pa.uint64(), pa.float32())),
    *(pa.scalar(value) for value in (2**62, -(2**40), 0.5, "x", "%z", "day", "", b"x", True)),
    pa.scalar(_AT),
    *(pa.scalar(_AT, pa.timestamp(unit)) for unit in ("s", "ms", "ns")),
    pa.scalar(_AT, pa.timestamp("us", "Europe/Zurich")),
    pa.scalar(_AT.date()),
    pa.scalar(_AT.time()),
    pa.scalar(Decimal("1.50")),
    pa.scalar(Decimal("-3"), pa.decimal128(38, 4)),
    pa.scalar([1, 2]),
    pa.scalar(["a"]),
    *(pa.scalar(None, kind) for kind in (pa.null(), pa.int64(), pa.string(), pa.date32())),
)
EXPRESSIONS = (
    *("?", "qty + ?", "qty - ?", "qty * ?", "qty / ?", "qty // ?", "qty % ?", "price + ?"),
    *("price * ?", "weight * ?", "day + ?", "day - ?", "ts - ?", "name || ?", "-?", "abs(?)"),
    *("coalesce(qty, ?)", "coalesce(name, ?)", "greatest(qty, ?)", "nullif(qty, ?)", "qty > ?"),
    *("CASE WHEN ok THEN ? ELSE 0 END", "CASE WHEN ok THEN ? END", "count(*) OVER () * ?"),
    *(
        "round(weight, ?)",
        "round(price, ?)",
        "lpad(name, ?, 'x')",
        "to_days(?)",
        "to_months(?)",
    ),
    *(
        "date_trunc(?, day)",
        "strptime('+01', ?)",
        "[?]",
        "{'a': ?}",
        "unnest(?)",
        "sum(?) OVER ()",
    ),
    *(
        "try_cast(? AS DECIMAL(9, 2))",
        "pg_typeof(?)",
        "(SELECT max(?))",
        "lag(qty, 1, ?) OVER ()",
    ),
)
FROM = (
    "FROM (SELECT 3::INT AS qty, 1.50::DECIMAL(9, 2) AS price, 1.25::DOUBLE AS weight, 'ab' AS name, "
    "DATE '2024-02-29' AS day, TIMESTAMPTZ '2024-02-29 00:00:00Z' AS ts, true AS ok) t"
)


@pytest.fixture(scope="module")
def statements(engine: Engine) -> Iterator[Statements]:
    board, tails, statements = serve(MemoryColdStore(), MemoryLog(), runs_in=engine)
    yield statements
    forget(board, tails)


def is_the_same(statements: Statements, session: Session, sql: str, value: pa.Scalar) -> bool:
    """Whether the plan tells what comes; what cannot be planned or run tells nothing wrong."""
    parameters = pa.record_batch({"1": pa.array([value.as_py()], value.type)})
    try:
        planned = statements.plan(session, sql, parameters, Deadline(60))
        stream = statements.open(session, planned.ticket, Deadline(60))
    except FederationError:
        return False
    with closing(stream):
        assert planned.schema.equals(stream.schema), (sql, value)
    return True


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.sampled_from(EXPRESSIONS),
    st.sampled_from(VALUES),
    st.sampled_from(("UTC", "Europe/Zurich")),
)
def test_the_columns_told_are_those_that_come(
    statements: Statements, expression: str, value: pa.Scalar, zone: str
) -> None:
    session = replace(statements.browser.configure(SESSION), time_zone=zone)
    is_the_same(statements, session, f"SELECT {expression} AS v, ts, now() AS n {FROM}", value)


@pytest.mark.soak
@pytest.mark.parametrize("zone", ["UTC", "Europe/Zurich"])
def test_all_of_them(statements: Statements, zone: str) -> None:
    session = replace(statements.browser.configure(SESSION), time_zone=zone)
    ran = [
        is_the_same(statements, session, f"SELECT {expression} AS v, ts {FROM}", value)
        for expression in EXPRESSIONS
        for value in VALUES
    ]
    assert sum(ran) > len(ran) / 2


def test_functions_that_take_integer_only_are_listed() -> None:
    types_at: dict[tuple[str, int], set[str]] = {}
    rows = duckdb.sql(
        "SELECT function_name, parameter_types FROM duckdb_functions() WHERE function_type = 'scalar'"
    ).fetchall()
    for name, types in rows:
        for position, kind in enumerate(types if name in FUNCTIONS else ()):
            types_at.setdefault((name, position), set()).add(kind)
    narrow = {place for place, kinds in types_at.items() if kinds <= {"INTEGER", "VARCHAR[]"}}
    narrow = {place for place in narrow if "INTEGER" in types_at[place]}
    # An operator, of constants only, and an aggregate's size.
    narrow -= {("!__postfix", 0)}
    macros = {("round_even", 1), ("roundbankers", 1)}
    listed = {
        (name, position) for name, places in INTEGER_ARGUMENTS.items() for position in places
    }
    assert narrow | macros == listed


@pytest.mark.parametrize(
    ("sql", "value", "expected"),
    [
        ("round(1.257::DOUBLE, ?)", 2, 1.26),
        ("round(1.257, ?)", -1, Decimal(0)),
        ("round_even(2.5, ?)", 0, 2.0),
        ("trunc(1.257::DOUBLE, ?)", 1, 1.2),
        ("lpad('a', ?, 'x')", 3, "xxa"),
        ("rpad('a', ?, 'x')", pa.scalar(3, pa.int8()), "axx"),
        ("chr(?)", 65, "A"),
        ("to_base(255, ?)", 16, "FF"),
        ("regexp_extract('ab', '(a)(b)', ?)", 2, "b"),
        ("to_days(?)::VARCHAR", 2, "2 days"),
        ("to_months(?)::VARCHAR", 14, "1 year 2 months"),
        ("DATE '2024-02-29' + ?", 1, dt.date(2024, 3, 1)),
        ("DATE '2024-02-29' - ?", 1, dt.date(2024, 2, 28)),
        # Whole numbers stay BIGINT elsewhere: no sum of two INTEGERs overflows.
        ("2147483647 + ?", 1, 2**31),
        ("typeof(?)", 1, "BIGINT"),
        ("typeof(1::INTEGER + ?)", 1, "BIGINT"),
        ("round(1.257::DOUBLE, ?)", None, None),
    ],
)
def test_whole_numbers_fit_where_integer_is_taken(
    engine: Engine, sql: str, value: Any, expected: Any
) -> None:
    answer = table(engine, f"SELECT {sql} AS v", (), [value])
    assert answer["v"].to_pylist() == [expected]


def test_what_does_not_fit_is_refused(engine: Engine) -> None:
    with pytest.raises(FederationError, match="round"):
        table(engine, "SELECT round(1.5::DOUBLE, ?)", (), [2**31])


def test_drivers_are_told_to_send_whole_numbers(engine: Engine) -> None:
    sql = (
        "SELECT lpad(name, ?, 'x'), to_days(?), to_months(?), round(weight, ?), day + ?, day - ?, "
        f"regexp_extract(name, 'a', ?) {FROM}"
    )
    _, types = engine.describe(engine.parse(sql), ())
    assert set(types) == {pa.int64()}
