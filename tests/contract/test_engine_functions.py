"""What the engine's functions mean: clocks and zones, and the built-in ones that are bounded."""

import datetime as dt

import duckdb
import pyarrow as pa
import pytest

from planner.errors import (
    UnsupportedStatement,
)
from proxy.engine.engine import Engine
from proxy.engine.macros import When
from tests.contract.engine import NOW, arrow, prepared, rows, table, value

# --- time ---

CLOCK = [
    "now()",
    "get_current_timestamp()",
    "transaction_timestamp()",
    "current_timestamp",
    "current_date",
    "today()",
    "current_date()",
    "current_time",
    "get_current_time()",
    "localtime",
    "localtimestamp",
    "current_localtime()",
    "current_localtimestamp()",
]


@pytest.mark.parametrize("call", CLOCK)
def test_the_clock_stands_still_and_keeps_its_type(engine: Engine, call: str) -> None:
    sql = f"SELECT {call} AS t, typeof({call}) AS kind"
    first, again = rows(engine, sql), rows(engine, sql)
    assert first == again
    document = engine.parse(f"SELECT typeof(system.main.{plain(call)}) AS kind")
    with engine.run(document, (), when=When(NOW)) as result:  # around the gate: the built-in
        assert first[0]["kind"] == next(iter(result)).column("kind")[0].as_py()


def plain(call: str) -> str:
    names = {"current_timestamp": "get_current_timestamp", "current_time": "get_current_time"}
    names |= {"localtime": "current_localtime", "localtimestamp": "current_localtimestamp"}
    name = call.removesuffix("()")
    return names.get(name, name) + "()"


@pytest.mark.parametrize(
    ("zone", "expected"),
    [
        ("UTC", ["2026-03-01 23:30:15.25+00", dt.date(2026, 3, 1), dt.time(23, 30, 15, 250_000)]),
        ("Asia/Tokyo", ["2026-03-02 08:30:15.25+09", dt.date(2026, 3, 2), dt.time(8, 30, 15, 250_000)]),
        ("America/New_York", ["2026-03-01 18:30:15.25-05", dt.date(2026, 3, 1), dt.time(18, 30, 15, 250_000)]),
    ],
)  # fmt: skip
def test_dates_and_printed_times_follow_the_sessions_zone(
    engine: Engine, zone: str, expected: list[object]
) -> None:
    sql = "SELECT now()::VARCHAR AS n, current_date AS d, localtime AS t"
    (row,) = rows(engine, sql, time_zone=zone)
    assert list(row.values()) == expected
    assert table(engine, "SELECT now() AS n", time_zone=zone).schema.types == [
        pa.timestamp("us", zone)
    ]
    assert value(engine, "SELECT now()::VARCHAR") == "2026-03-01 23:30:15.25+00"


def test_names_of_columns_stay_those_of_the_functions(engine: Engine) -> None:
    result = table(
        engine, "SELECT now(), current_date, now() + INTERVAL 1 DAY, age(DATE '2026-01-01')"
    )
    assert result.column_names[:2] == ["now()", "current_date"]
    assert result.column_names[3].startswith("age(CAST('2026-01-01'")


def test_a_column_comes_before_a_clock_of_its_name(engine: Engine) -> None:
    assert value(engine, "SELECT current_date FROM (SELECT 5 AS current_date)") == 5


def test_ages_are_counted_from_the_statements_day(engine: Engine) -> None:
    assert value(engine, "SELECT age(TIMESTAMP '2026-02-01')::VARCHAR") == "1 month"
    assert (
        value(engine, "SELECT age(TIMESTAMP '2026-02-01', TIMESTAMP '2026-01-01')::VARCHAR")
        == "1 month"
    )
    assert value(engine, "SELECT ago(INTERVAL 1 DAY)::VARCHAR") == "2026-02-28 23:30:15.25+00"


def test_an_unknown_zone_is_an_error(engine: Engine) -> None:
    with pytest.raises(
        UnsupportedStatement, match="Unknown TimeZone 'Mars/Olympus'; SELECT 1'"
    ):
        table(engine, "SELECT 1", time_zone="Mars/Olympus'; SELECT 1")


# --- bounded functions ---

TAME = [
    "repeat('ab', 3)", "repeat([1], 2)", "repeat(NULL, 3)", "repeat('a', NULL)", "repeat('a'::BLOB, 2)", "lpad('a', 5, 'xy')",
    "rpad('a', 5, 'xy')", "range(3)", "range(2, 5)", "generate_series(3)", "generate_series(2, 5)",
    "list_resize([1], 3)", "list_resize([1], 3, 0)", "array_resize([1], 2)", "array_resize([1], 2, 9)",
    "bar(1, 0, 2)", "bar(1, 0, 2, 10)", "bitstring('1', 4)", "replace('aXa', 'X', 'yyy')",
    "replace(NULL, 'X', 'y')", "regexp_replace('abc', '[ab]', 'x')", "levenshtein('ab', 'cd')",
    "regexp_replace('abc', '[ab]', 'x', 'g')", "damerau_levenshtein('ab', 'ba')", "editdist3('a', 'b')",
    "jaro_similarity('ab', 'ba')", "jaro_similarity('ab', 'ba', 0.9)", "jaro_winkler_similarity('ab', 'ac')",
    "jaro_winkler_similarity('ab', 'ac', 0.1)", "age(DATE '2026-02-01', DATE '2026-01-01')",
]  # fmt: skip


@pytest.mark.parametrize("call", TAME)
def test_a_bounded_function_is_the_built_in_for_ordinary_arguments(
    engine: Engine, call: str
) -> None:
    ours = value(engine, f"SELECT ({call})::VARCHAR")
    document = engine.parse(f"SELECT (system.main.{call})::VARCHAR AS v")
    with engine.run(document, (), when=When(NOW)) as result:
        assert ours == next(iter(result)).column("v")[0].as_py()


PATTERNS = [
    "%b%",
    "a_c",
    "%",
    "",
    "_",
    "%a%b%c%",
    "a\\%",
    "100%_",
    "[ab]%",
    "%.%",
    "%é_",
    "a\nb",
    "%\n%",
]
TEXTS = ["abc", "aXc", "", "a", "a\\bc", "100% x", "[ab]c", "x.y", "xéz", "a\nb", "ABC", "ÉA"]


@pytest.mark.parametrize("operator", ["LIKE", "NOT LIKE", "ILIKE", "NOT ILIKE"])
def test_linear_like_is_like(engine: Engine, operator: str) -> None:
    content = pa.table(
        {"a": [text for text in TEXTS for _ in PATTERNS], "p": PATTERNS * len(TEXTS)}
    )
    sql = f"SELECT a, p, a {operator} p AS m FROM t"
    assert "_linear" in engine.unparse(prepared(engine, sql, [arrow("t", content)]))
    plain_duckdb = duckdb.connect()
    plain_duckdb.register("t", content)
    expected = plain_duckdb.execute(sql).to_arrow_table().to_pylist()
    assert rows(engine, sql, [arrow("t", content)]) == expected
