"""Parts of a scan: they are disjoint, together everything, and of about the same size, whatever there is."""

from __future__ import annotations

import json
from collections.abc import Sequence

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.offsets import OffsetRange
from planner.reading.filters import EVERY_FILE, NO_FILE, POSITIONS, FileSpan, position_of
from planner.reading.needs import StatementNeeds
from planner.reading.shares import split_name, split_scan
from planner.statement.references import ResolvedTable
from tests.harness.builders import FLOWS

positions = st.integers(0, POSITIONS - 1)
files = st.lists(st.tuples(positions, st.integers(0, 1 << 30)), max_size=40)
tails = st.lists(st.integers(1, 1 << 20), max_size=12).map(
    lambda sizes: [OffsetRange(number, 5, 5 + size) for number, size in enumerate(sizes)]
)


@settings(max_examples=100)
@given(st.none() | files, tails, st.integers(1, 64), st.lists(positions, max_size=5))
def test_every_file_and_range_is_in_one_part(
    listed: list[tuple[int, int]] | None,
    ranges: list[OffsetRange],
    count: int,
    others: list[int],
) -> None:
    shares = split_scan(listed, ranges, count)
    assert 1 <= len(shares) <= count
    assert sorted(item for _, part in shares for item in part) == sorted(ranges)
    spans = sorted((span.start, span.stop) for span, _ in shares if not span.is_empty)
    # One after another, from the first place to the last: also files that were not listed are in one.
    assert [start for start, _ in spans] == [0, *(stop for _, stop in spans[:-1])]
    assert spans[-1][1] == POSITIONS
    for place in (*others, *(place for place, _ in listed or ())):
        assert sum(start <= place < stop for start, stop in spans) == 1
    if listed is None:
        assert spans == [(0, POSITIONS)]


def test_parts_are_of_about_the_same_size() -> None:
    listed = [(position_of(f"file-{number}"), 1_000_000) for number in range(64)]
    shares = split_scan(listed, [], 8)
    assert [
        sum(span.start <= place < span.stop for place, _ in listed) for span, _ in shares
    ] == [8] * 8
    # The tail goes to readers who have less: here to those without a file.
    ranges = [OffsetRange(number, 0, 1_000) for number in range(4)]
    shares = split_scan(listed[:1], ranges, 3)
    assert [(span, len(part)) for span, part in shares] == [
        (EVERY_FILE, 0),
        (NO_FILE, 2),
        (NO_FILE, 2),
    ]
    assert split_scan([], [], 5) == ((EVERY_FILE, ()),)
    assert split_scan(None, [], 5) == ((EVERY_FILE, ()),)


def test_a_span_has_files_by_their_paths() -> None:
    middle = position_of("b")
    assert FileSpan(middle, middle + 1).has("b")
    assert not FileSpan(0, middle).has("b")
    assert EVERY_FILE.has("b")
    assert not NO_FILE.has("b")
    for start, stop in ((2, 1), (-1, 1), (0, POSITIONS + 1)):
        with pytest.raises(ValueError, match="not a span of positions"):
            FileSpan(start, stop)


def test_a_split_is_known_by_its_name() -> None:
    ranges = [OffsetRange(0, 0, 9), OffsetRange(1, 0, 9)]
    shares = split_scan([(7, 5), (9, 5)], ranges, 2)
    name = split_name(shares, "uuid", 3, None)
    assert name == split_name(split_scan([(9, 5), (7, 5)], ranges[::-1], 2), "uuid", 3, None)
    others = [
        split_name(shares, "uuid", 4, None),
        split_name(shares, "uuid", 3, 1),
        split_name(split_scan([(7, 5), (9, 5)], ranges[:1], 2), "uuid", 3, None),
        split_name(split_scan([(7, 5), (8, 5)], ranges, 2), "uuid", 3, None),
    ]
    assert len({name, *others}) == 5


def parsed(sql: str) -> dict[str, object]:
    with duckdb.connect() as duck:
        [[text]] = duck.execute("SELECT json_serialize_sql(?)", [sql]).fetchall()
    document: dict[str, object] = json.loads(text)
    return document


def needs(sql: str) -> StatementNeeds:
    return StatementNeeds.of(parsed(sql), {ResolvedTable(FLOWS): ((),)})


PLAIN = (
    "SELECT * FROM t",
    "FROM t",
    "SELECT a, t.b AS c FROM s.t WHERE a > 1 AND (b = 'x' OR c IS NULL)",
    "SELECT * EXCLUDE (a) FROM t AS q WHERE q.a IN (1, 2)",
    "SELECT upper(a), b + 1, CAST(c AS DATE), CASE WHEN a THEN 1 END FROM t WHERE a LIKE 'x%'",
    "SELECT list_transform(a, lambda v: v + 1), list_sum(b) FROM t WHERE a BETWEEN ? AND $2",
    "SELECT a FROM t WHERE b > now() - INTERVAL 1 HOUR",
    "SELECT 1 FROM t AT (VERSION => 'c:x')",
)
NOT_PLAIN: Sequence[str] = (
    "SELECT 1",
    "SELECT count(*) FROM t",
    "SELECT a, sum(b) FROM t GROUP BY a",
    "SELECT max(a) + 1 FROM t",
    "SELECT a FROM t GROUP BY ALL",
    "SELECT DISTINCT a FROM t",
    "SELECT a FROM t ORDER BY a",
    "SELECT a FROM t LIMIT 5",
    "SELECT a FROM t LIMIT 5%",
    "SELECT a FROM t OFFSET 5",
    "SELECT row_number() OVER () FROM t",
    "SELECT a FROM t QUALIFY row_number() OVER () = 1",
    "SELECT unnest(a) FROM t",
    "SELECT random() FROM t",
    "SELECT a FROM t WHERE random() < 0.5",
    "SELECT uuid() FROM t",
    "SELECT thermocline_cut() FROM t",
    "SELECT a FROM t WHERE a IN (SELECT b FROM u)",
    "SELECT (SELECT max(a) FROM u) FROM t",
    "SELECT * FROM t, u",
    "SELECT * FROM t JOIN u USING (a)",
    "SELECT * FROM t TABLESAMPLE 10%",
    "SELECT * FROM t USING SAMPLE 3 ROWS",
    "SELECT * FROM (FROM t)",
    "WITH c AS (FROM t) FROM c",
    "WITH c AS (FROM t) FROM u",
    "FROM t UNION ALL FROM t",
    "SELECT * FROM range(9)",
    "VALUES (1)",
)


@pytest.mark.parametrize("sql", PLAIN)
def test_what_looks_at_rows_alone_is_a_plain_scan(sql: str) -> None:
    assert needs(sql).plain_scan


@pytest.mark.parametrize("sql", NOT_PLAIN)
def test_what_depends_on_more_is_none(sql: str) -> None:
    assert not needs(sql).plain_scan


def test_what_depends_on_the_time_is_told() -> None:
    for where in (
        "b > now()",
        "b > current_timestamp",
        "age(b) > INTERVAL 1 DAY",
        "today() > b",
    ):
        assert needs(f"SELECT a FROM t WHERE {where}").tells_time
    for sql in PLAIN[:5]:
        assert not needs(sql).tells_time
