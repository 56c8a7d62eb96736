"""Tables people read: aligned, cut to the terminal, safe to print."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pyarrow as pa
import pytest
from rich.cells import cell_len

from thermocline.output.table import Grid, show


def access_filter(
    rows: dict[str, list[object]], width: int | None = None, max_rows: int = 0
) -> str:
    table = pa.table(rows)
    grid = Grid.of(table.schema, width=width, colour=False)
    return show(grid, table.to_batches(max_chunksize=2), max_rows=max_rows).text


def test_numbers_stand_right_and_texts_left() -> None:
    assert access_filter({"n": [1, 200, None], "name": ["a", "漢字", None]}).splitlines() == [
        "   n  name",
        "────  ────",
        "   1  a",
        " 200  漢字",
        "NULL  NULL",
    ]


def test_wide_columns_are_cut_until_the_terminal_holds_them() -> None:
    text = access_filter({"a": ["x" * 50], "b": ["y" * 20]}, width=40)
    assert max(map(cell_len, text.splitlines())) == 40
    assert "…" in text


def test_too_many_columns_become_records() -> None:
    text = access_filter({f"column_{n}": ["value"] for n in range(9)}, width=60)
    assert text.splitlines()[:2] == ["─ row 1 ───", "column_0 │ value"]


def test_rows_beyond_the_limit_are_not_read() -> None:
    items = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(5):
            items.append(number)
            yield pa.record_batch({"n": [number, number]})

    grid = Grid.of(pa.schema([("n", pa.int64())]), width=None, colour=False)
    result = show(grid, batches(), max_rows=3)
    assert (result.rows, result.has_more, items) == (3, True, [0, 1])


def test_a_limit_that_is_met_exactly_says_nothing_of_more() -> None:
    batch = pa.record_batch({"n": [1, 2, 3]})
    result = show(Grid.of(batch.schema, width=None, colour=False), [batch], max_rows=3)
    assert (result.rows, result.has_more) == (3, False)


@pytest.mark.parametrize("records", [False, True])
def test_neither_a_value_nor_a_name_can_move_the_cursor(records: bool) -> None:
    batch = pa.record_batch({"a\033[1m": ["\033[2Jgone\n\u202e", "x"]})
    grid = Grid.of(batch.schema, width=None, colour=False)
    text = show(grid, [batch], max_rows=0, records=records).text
    assert "a\\x1b[1m" in text
    assert "\\x1b[2Jgone\\n\\u202e" in text
    assert "\033" not in text


def test_colours_mark_headings_and_nulls() -> None:
    batch = pa.record_batch({"n": [None, "NULL"]})
    grid = Grid.of(batch.schema, width=None, colour=True)
    lines = show(grid, [batch], max_rows=0).text.splitlines()
    assert lines[0].startswith("\033[1m")
    assert lines[2].startswith("\033[2m")
    assert lines[3] == "NULL"


def test_a_result_without_rows_shows_its_columns() -> None:
    assert access_filter({"a": []}) == "a\n─"


def test_numbers_and_times_are_never_cut_and_names_first() -> None:
    at = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    text = access_filter(
        {"a_very_long_name": [12345], "when_it_was": [at], "note": ["n" * 60]}, width=50
    )
    assert text.splitlines() == [
        "a_very_…  when_it_was           note",
        "────────  ────────────────────  ──────────────────",
        "   12345  2026-01-02 03:04:05Z  nnnnnnnnnnnnnnnnn…",
    ]
    assert access_filter({"n": [10**18]}, width=10).startswith("─ row 1")


def test_a_table_that_goes_on_repeats_its_headings_when_a_column_grows() -> None:
    grid = Grid.of(
        pa.schema([("n", pa.int64()), ("name", pa.string())]), width=80, colour=False
    )
    assert grid.lines([(1, "ab"), (2, None)]) == ["n  name", "─  ────", "1  ab", "2  NULL"]
    assert grid.lines([(3, "c")]) == ["3  c"]
    assert grid.lines([(10, "d")]) == [" n  name", "──  ────", "10  d"]
    assert grid.lines([(4, "e")]) == [" 4  e"]
