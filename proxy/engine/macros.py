"""Functions the engine answers itself: those of the current time, those of unbounded cost, and one of Postgres.

Defined once, before the lock, as macros in the engine's own catalog, which DuckDB searches before its
built-ins. A macro keeps the names of result columns (``now()`` stays ``now()``), knows the session's time
zone, and lets constant arguments fold as before.

* Time comes from a variable each statement sets: a statement that is run again from its ticket gives the same
  answer. Without the variable they fail: the real clock is never read.
* ``planner.statement.allowed.BOUNDED`` have one row's cost checked before the built-in is called. The check
  sits inside an argument, so the built-in cannot be evaluated first.
* ``date_bin`` is what Postgres and the Grafana plugin call ``time_bucket``. A bin starts at 1970 where no origin is
  given, as in other servers of that plugin, not on a Monday as in ``time_bucket``.
* ``current_setting`` tells the session's time zone, for each argument.
* ``like_linear`` and its kin replace LIKE where DuckDB's matcher would try every position for every ``%``
  (a 3,000 character text and five wildcards ran for minutes); RE2 is linear.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import Self

import duckdb

from planner.sql_text import literal

#: Characters or elements that one call may build on one row; the engine works on 2,048 rows at a time.
MAX_BUILT = 10_000
#: Cells of the table that comparing two texts fills.
MAX_COMPARED = 250_000

#: The variable that holds the statement's time.
TIME_VARIABLE = "thermocline_statement_time"
#: The variable that holds the text of the statement's cut; NULL where there is none.
CUT_VARIABLE = "thermocline_cut"
#: Starts every message of these macros; ``proxy.engine.errors`` knows it.
REFUSED = "thermocline refused: "

#: The same in front of a table and two partitions that a key of it is in.
IN_TWO_PARTITIONS = "tc:in two partitions "


def _unless(condition: str, why: str, value: str) -> str:
    """Return ``value``, or an error where the condition holds. NULL passes."""
    return f"CASE WHEN {condition} THEN error('{REFUSED}{why}') ELSE {value} END"


def _built(function: str, size: str, value: str) -> str:
    why = f"{function} would build more than {MAX_BUILT} characters or elements in one row"
    return _unless(f"{size} > {MAX_BUILT}", why, value)


def _compared(function: str) -> str:
    why = f"{function} of texts this long is too costly"
    return _unless(f"len(a)::HUGEINT * len(b) > {MAX_COMPARED}", why, "a")


def _replaced(function: str) -> str:
    """Bound a replacement: each character may become ``c``. Small growth is fine for any text."""
    size = (
        f"CASE WHEN len(c) <= 4 THEN 0 ELSE len(a)::HUGEINT * len(c) // {MAX_BUILT // 1000} END"
    )
    return _built(function, size, "c")


#: DuckDB folds a CASE before it plans, so that time filters prune; a coalesce() with error() runs for every row (1.5.5).
_TIME = (
    f"CASE WHEN getvariable('{TIME_VARIABLE}') IS NULL THEN error('the statement has no time') "
    f"ELSE getvariable('{TIME_VARIABLE}') END::TIMESTAMPTZ"
)

_LIKE_PATTERN = r"system.main.replace(system.main.replace(regexp_escape(b), '\%', '(?s:.*)'), '_', '(?s:.)')"
_LOWER_PATTERN = _LIKE_PATTERN.replace("(b)", "(lower(b))")

_MACROS = (
    f"now() AS {_TIME}",
    f"get_current_timestamp() AS {_TIME}",
    f"transaction_timestamp() AS {_TIME}",
    f"current_date() AS {_TIME}::DATE",
    f"today() AS {_TIME}::DATE",
    f"get_current_time() AS {_TIME}::TIMETZ",
    f"current_localtime() AS {_TIME}::TIMESTAMP::TIME",
    f"current_localtimestamp() AS {_TIME}::TIMESTAMP",
    f"age(a) AS system.main.age({_TIME}::DATE::TIMESTAMP, a), (a, b) AS system.main.age(a, b)",
    "current_setting(a) AS system.main.current_setting('TimeZone')",
    f"thermocline_cut() AS CAST(getvariable('{CUT_VARIABLE}') AS VARCHAR)",
    "date_bin(a, b) AS system.main.time_bucket(a, b, TIMESTAMP '1970-01-01'), "
    "(a, b, c) AS system.main.time_bucket(a, b, c)",
    *(
        f"""{name}(a) AS system.main.{name}({_built(name, "a::HUGEINT", "a")}),
        (a, b) AS system.main.{name}(a, {_built(name, "b::HUGEINT - a", "b")})"""
        for name in ("range", "generate_series")
    ),
    *(
        f"""{name}(a, b) AS system.main.list_resize(a, {_built(name, "b", "b")}),
        (a, b, c) AS system.main.list_resize(a, {_built(name, "b", "b")}, c)"""
        for name in ("list_resize", "array_resize")
    ),
    *(
        f"{name}(a, b, c) AS system.main.{name}(a, {_built(name, 'b', 'b')}, c)"
        for name in ("lpad", "rpad")
    ),
    *(
        f"{name}(a, b) AS system.main.{name}({_compared(name)}, b)"
        for name in ("levenshtein", "damerau_levenshtein", "editdist3")
    ),
    *(
        f"{name}(a, b) AS system.main.{name}({_compared(name)}, b), "
        f"(a, b, c) AS system.main.{name}({_compared(name)}, b, c)"
        for name in ("jaro_similarity", "jaro_winkler_similarity")
    ),
    f"like_linear(a, b) AS regexp_full_match(a, {_LIKE_PATTERN})",
    f"not_like_linear(a, b) AS NOT regexp_full_match(a, {_LIKE_PATTERN})",
    f"ilike_linear(a, b) AS regexp_full_match(lower(a), {_LOWER_PATTERN})",
    f"not_ilike_linear(a, b) AS NOT regexp_full_match(lower(a), {_LOWER_PATTERN})",
    f"""repeat(a, b) AS system.main.repeat(a, {_built("repeat", "len(a)::HUGEINT * b", "b")}),
        (a BLOB, b) AS system.main.repeat(a, {_built("repeat", "octet_length(a)::HUGEINT * b", "b")})""",
    f"replace(a, b, c) AS system.main.replace(a, b, {_replaced('replace')})",
    f"""regexp_replace(a, b, c) AS system.main.regexp_replace(a, b, {_replaced("regexp_replace")}),
        (a, b, c, d) AS system.main.regexp_replace(a, b, {_replaced("regexp_replace")}, d)""",
    f"""bar(a, b, c) AS system.main.bar(a, b, c),
        (a, b, c, d) AS system.main.bar(a, b, c, {_built("bar", "d", "d")})""",
    f"bitstring(a, b) AS system.main.bitstring(a, {_built('bitstring', 'b', 'b')})",
)
#: To be run once on a new instance.
STATEMENTS = tuple(f"CREATE MACRO {macro}" for macro in _MACROS)

#: A text without these words calls no function of the time.
_CLOCK_WORDS = ("now", "today", "current_", "localtime", "transaction_timestamp")
_AGES = re.compile(r"\bag[eo]\b")
#: In a longer text that search takes longer than what it may spare, with Python's lock held: 100 ms in 1 MB.
_SEARCHED_CHARS = 2_000
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class When:
    """The time of a statement: what ``now()`` says, and the zone of dates, of printed times and of times without one."""

    statement_time: dt.datetime = _EPOCH
    time_zone: str = "UTC"

    @classmethod
    def at(cls, now_us: int, time_zone: str) -> Self:
        """``now_us`` is microseconds since 1970."""
        return cls(_EPOCH + dt.timedelta(microseconds=now_us), time_zone)

    @property
    def microseconds(self) -> int:
        """The time since 1970."""
        return (self.statement_time - _EPOCH) // dt.timedelta(microseconds=1)


def set_time(
    cursor: duckdb.DuckDBPyConnection, sql: str, statement_time: dt.datetime = _EPOCH
) -> None:
    """Give the cursor's statements their time. Skipped (0.2 ms) where nothing asks for it.

    For a statement that is only bound any time will do: constants are folded while binding.
    """
    if _asks_time(sql):
        text = statement_time.astimezone(dt.UTC).isoformat()
        cursor.execute(f"SET VARIABLE {TIME_VARIABLE} = TIMESTAMPTZ '{text}'")


def _asks_time(sql: str) -> bool:
    text = sql.lower()
    if any(word in text for word in _CLOCK_WORDS):
        return True
    # Parts of many names.
    is_age = "age" in text or "ago" in text
    return is_age and (len(text) > _SEARCHED_CHARS or _AGES.search(text) is not None)


def set_cut(cursor: duckdb.DuckDBPyConnection, sql: str, cut: str) -> None:
    """Give the cursor's statements the text of their cut; "" leaves it NULL."""
    if cut and "thermocline_cut" in sql.lower():
        cursor.execute(f"SET VARIABLE {CUT_VARIABLE} = {literal(cut)}")
