"""The rows of a ``TableRead`` answer a statement as all rows would: over a store that leaves out all that may be left out.

Each row of the store lies in a file of its own, with exact bounds. A file is left out where the filter, the span or the
columns of a read allow it, so a decision that leaves out too much shows as another answer than that of plain DuckDB.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from planner.names import Side
from planner.ports import ArrowRelation
from planner.reading.filters import (
    EVERY_FILE,
    EVERYTHING,
    Bounds,
    Condition,
    FileSpan,
    ScanFilter,
    position_of,
    prune,
)
from planner.reading.plan import ColdMode, TableRead, plan_read
from planner.seam.cut import ColdSlice
from proxy.query import relations
from proxy.session import Deadline
from tests.doubles.cold import MemoryColdStore
from tests.harness.asking import bag, duck
from tests.harness.flows import PLACES, places, tier, write, written
from tests.harness.lake import FLOWS, Lake
from tests.harness.serving import SESSION

#: Kinds of reads that the examples came to: a decision that none makes proves nothing.
EVENTS: Counter[object] = Counter()


@pytest.fixture(autouse=True, scope="module")
def every_kind_of_read() -> Iterator[None]:
    """The examples came to each."""
    yield
    assert {
        *ColdMode,
        Side.BOTH,
        Side.COLD,
        Side.TAIL,
        True,
        False,
        "extremes",
    } <= EVENTS.keys()


class PruningStore(MemoryColdStore):
    """Leaves out each row and column that a scan may leave out."""

    def scan(
        self,
        cold: ColdSlice,
        expected: ScanFilter = EVERYTHING,
        names: Collection[str] | None = None,
        span: FileSpan = EVERY_FILE,
    ) -> ArrowRelation:
        rows = _pruned(super().scan(cold).table, expected)
        rows = rows.filter(pa.array(map(span.has, _paths(rows)), pa.bool_()))
        return ArrowRelation(rows if names is None else rows.select(list(names)))

    def file_positions(  # type: ignore[override]
        self, cold: ColdSlice, expected: ScanFilter = EVERYTHING
    ) -> Sequence[tuple[int, int]]:
        rows = _pruned(super().scan(cold).table, expected)
        return [(position_of(path), 100) for path in _paths(rows)]


def _paths(rows: pa.Table) -> Iterator[str]:
    columns = (rows[name].to_pylist() for name in ("kafka_partition", "kafka_offset"))
    return (f"{partition}/{offset}" for partition, offset in zip(*columns, strict=True))


def _pruned(rows: pa.Table, expected: ScanFilter) -> pa.Table:
    def bounds_of(condition: Condition) -> Iterator[tuple[Bounds, Condition]]:
        yield Bounds.exact(rows[condition.column].combine_chunks()), condition

    mask = prune(expected, bounds_of)
    return rows if mask is None else rows.filter(mask)


COLUMNS = (
    "*",
    "n, host",
    "kafka_offset",
    "t.ratio, n + 1 AS m",
    "upper(host) AS h, t.at.x AS x",
    "t AS whole",
)
GATHERED = (
    *("count(*) AS c", "count(*) AS c, sum(n) AS s", "max(ratio)::VARCHAR AS r, min(host) AS h"),
    *("count(ratio) AS c, bool_or(isnan(ratio)) AS b", "count(DISTINCT host) AS c", "host, count(*) AS c"),
)  # fmt: skip
#: Answered by bounds of files, of some types.
EXTREMES = (
    *("max(kafka_timestamp) AS m", "min(n) AS a, max(n) AS b, count(*) AS c", "max(seen) AS m, count(*) AS c"),
    *("max(price) AS p, min(kafka_offset) AS o", "max(n) - min(n) AS d, max(kafka_timestamp)::VARCHAR AS t"),
    *("min(ratio)::VARCHAR AS r, max(n) AS n", "count(*) AS c, max(host) AS h", "min(t.n) AS a, max(N) AS b"),
)  # fmt: skip
CONDITIONS = (
    *("kafka_partition = 1", "kafka_offset BETWEEN 2 AND 5", "kafka_offset IN (1, 4) AND n > 0"),
    *("n = 3", "ratio > 1", "ratio = 0", "ratio <= 0.1 OR n = 2", "host IS NULL", "host LIKE 'a%'"),
    *("price = 1.5", "seen < now()", "tags IS NOT NULL AND kafka_partition < 1"),
)  # fmt: skip
SIDES = ("flows", '"flows$cold"', '"flows$tail"')
SETTINGS = ("live", "cold", "tail", "cut", "after", "news", "newest", "shares")


@dataclass(frozen=True)
class Question:
    """A statement over the tables of ``SIDES``; ``limit`` of its rows answer it, whichever they are."""

    sql: str
    settings: str
    limit: int | None = None


@st.composite
def selects(draw: st.DrawFn, sources: Sequence[str] = SIDES) -> str:
    items = draw(st.sampled_from((*COLUMNS, *GATHERED)))
    where = " AND ".join(draw(st.lists(st.sampled_from(CONDITIONS), max_size=2)))
    sql = f"SELECT {items} FROM {draw(st.sampled_from(sources))} t"
    sql += f" WHERE {where}" if where else ""
    return sql + (" GROUP BY ALL" if items.startswith("host, ") else "")


@st.composite
def questions(draw: st.DrawFn) -> Question:
    mode = draw(st.sampled_from(SETTINGS))
    # A follower names no side.
    sources = SIDES[:1] if mode in ("after", "news", "newest") else SIDES
    match draw(st.sampled_from(("select", "bare count", "extremes", "look", "two"))):
        case "bare count":
            return Question(f"SELECT count(*) AS c FROM {draw(st.sampled_from(sources))}", mode)
        case "extremes":
            items = draw(st.sampled_from(EXTREMES))
            return Question(f"SELECT {items} FROM {draw(st.sampled_from(sources))} t", mode)
        case "look":
            limit = draw(st.integers(0, 6))
            items = draw(st.sampled_from(COLUMNS[:3]))
            source = draw(st.sampled_from(sources))
            return Question(f"SELECT {items} FROM {source} LIMIT {limit}", mode, limit)
        case "two":
            one, other = (draw(selects(sources)) for _ in range(2))
            sql = f"SELECT (SELECT count(*) FROM ({one})) AS a, (SELECT count(*) FROM ({other})) AS b"
            return Question(sql, mode)
        case _:
            return Question(draw(selects(sources)), mode)


#: Of a side by its name, and of the table.
TWO = 'SELECT (SELECT count(*) FROM flows {}) AS a, (SELECT count(*) FROM "flows$cold") AS b, (SELECT count(*) FROM "flows$tail") AS c'
World: TypeAlias = tuple[Lake, pa.Table, dict[str, str]]


@pytest.fixture(scope="module")
def lake_of_rows() -> Iterator[World]:
    """A lake with rows on both sides of its seam, all of these, and where it ended once, below its watermark of now."""
    lake = Lake(PruningStore)
    for partition in (0, 1):
        write(lake, partition, 6)
    planned = lake.statements.plan(SESSION, PLACES, None, Deadline(60))
    past = planned.app_metadata.decode()
    position = _position(lake)
    write(lake, 0, 2)
    tier(lake)
    # The cut that ends below the watermark is read of the newer snapshot.
    lake.expire(FLOWS, 1, orphans=False)
    write(lake, 1, 3)
    lake.board.refresh(FLOWS)
    newest = _position(lake)
    write(lake, 1, 2)
    write(lake, 0, 1)
    lake.board.refresh(FLOWS)
    rows = lake.ask("SELECT * FROM flows")
    assert places(rows) == written(lake)
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(relations, "plan_read", _noted)
        yield lake, rows, {"cut": past, "news": position, "newest": newest}
    lake.stop_server()


def _position(lake: Lake) -> str:
    """Where a follower stands that has seen all rows of now."""
    follower = replace(SESSION, after="beginning")
    return lake.statements.plan(follower, PLACES, None, Deadline(60)).app_metadata.decode()


def _noted(*facts: Any, **more: Any) -> TableRead:
    read = plan_read(*facts, **more)
    EVENTS.update(
        (read.side, read.cold, read.columns.names is not None, read.any_rows is not None)
    )
    EVENTS["extremes"] += read.cold is ColdMode.COUNTED and bool(read.extremes)
    return read


@settings(max_examples=250, deadline=None)
@example(Question(TWO.format(""), "cold"))
@example(Question(TWO.format("WHERE kafka_partition = 1"), "live"))
@given(questions())
def test_rows_that_are_read_answer_as_all_rows(lake_of_rows: World, question: Question) -> None:
    lake, rows, moments = lake_of_rows
    request = {
        "cut": {"cut": moments["cut"]},
        "news": {"after": moments["news"]},
        "newest": {"after": moments["newest"]},
        "after": {"after": "beginning"},
        "shares": {"max_endpoints": 3},
    }.get(question.settings, {"freshness": question.settings})
    session = replace(SESSION, **request)  # type: ignore[arg-type]
    planned = lake.statements.plan(session, question.sql, None, Deadline(60))
    answers = []
    for ticket in planned.shares or (planned.ticket,):
        with closing(lake.statements.open(session, ticket, Deadline(60))) as stream:
            answers.append(pa.Table.from_batches(list(stream), stream.schema))
    answer = bag(pa.concat_tables(answers))
    expected = bag(_plain(question, rows))
    if question.limit is None:
        assert answer == expected
    else:
        assert answer <= expected
        assert answer.total() == min(question.limit, expected.total())


def _plain(question: Question, rows: pa.Table) -> pa.Table:
    """Ask DuckDB the same without its limit, over all rows of each side."""
    watermark = {0: 8, 1: 6}
    start = {"news": (6, 6), "newest": (8, 9)}.get(question.settings, (0, 0))
    end = 6 if question.settings == "cut" else 100
    offsets = rows.select(["kafka_partition", "kafka_offset"]).to_pylist()

    def where(*, tiered: bool | None) -> pa.Table:
        keeps = [
            start[partition] <= offset < end and tiered in (None, offset < watermark[partition])
            for partition, offset in (row.values() for row in offsets)
        ]
        return rows.filter(pa.array(keeps, pa.bool_()))

    meaning = {"cold": True, "tail": False}.get(question.settings)
    tables = {"flows": meaning, "flows$cold": True, "flows$tail": False}
    connection = duck()
    for name, tiered in tables.items():
        connection.register("rows", where(tiered=tiered))
        connection.execute(f'CREATE OR REPLACE TEMP TABLE "{name}" AS FROM rows')
        connection.unregister("rows")
    return connection.execute(question.sql.partition(" LIMIT ")[0]).to_arrow_table()
