"""The central test of keyed tables: at every split of a log into cold, tail and beyond, the answer is what a dictionary says.

The cut, what is read of it and its SQL are the product's. Cold is the dictionary at the watermark, and the tail all changes
from a floor at or below it up to the log's end, so it has records below and above those of the cut.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from planner.errors import CutExpired
from planner.names import Side
from planner.offsets import OffsetRange, OffsetVector
from planner.ports import SqlRelation
from planner.reading.filters import EVERYTHING, Condition, ScanFilter
from planner.reading.needs import StatementNeeds
from planner.reading.plan import ColdMode, ColumnRead, plan_read
from planner.seam.cut import LogBounds, PartitionBounds, TableCut
from planner.seam.time_travel import cut_until
from planner.statement.references import ResolvedTable
from proxy.engine.relations import AccessFilter, Changes, Relation, prelude
from proxy.tail.segment import bounded
from tests.harness.builders import FLOWS, pin, watermark
from tests.harness.keyed import (
    BINDING,
    CHANGES,
    SCHEMA,
    UPSERT,
    Entry,
    Partition,
    changes,
    newest,
    partition_of,
    superseded,
    table_of,
)

PARTITIONS = 2
NAME = "devices"
#: What a caller may see: some rows, one column masked.
GRANT = AccessFilter((("id", "id"), ("status", "upper(status)")), "status <> 'secret'")


def where(column: str, operator: str, value: pa.Scalar) -> ScanFilter:
    return ((Condition(column, operator, (value,)),),)  # type: ignore[arg-type]


#: Statements over the table, the columns they name, and the filter that files and ranges are chosen by.
STATEMENTS: Sequence[tuple[str, Sequence[str] | None, ScanFilter]] = (
    ("SELECT * FROM {}", None, EVERYTHING),
    ("SELECT n FROM {} WHERE status = 'open'", ("n", "status"), EVERYTHING),
    ("SELECT id FROM {} WHERE status <> 'open' OR status IS NULL", ("id", "status"), EVERYTHING),
    (
        "SELECT id, n FROM {} WHERE kafka_offset < 3",
        ("id", "n", "kafka_offset"),
        where("kafka_offset", "<", pa.scalar(3, pa.int64())),
    ),
    (
        "SELECT n FROM {} WHERE kafka_offset >= 2",
        ("n", "kafka_offset"),
        where("kafka_offset", ">=", pa.scalar(2, pa.int64())),
    ),
    (
        "SELECT n FROM {} WHERE kafka_partition = 1",
        ("n", "kafka_partition"),
        where("kafka_partition", "=", pa.scalar(1, pa.int32())),
    ),
    (
        "SELECT status FROM {} WHERE id = 1 AND region = 'eu'",
        ("status", "id", "region"),
        where("id", "=", pa.scalar(1, pa.int64())),
    ),
    ("SELECT count(*), sum(n), min(kafka_timestamp) FROM {}", ("n", "kafka_timestamp"), EVERYTHING),
    ("SELECT status, count(*) FROM {} GROUP BY ALL", ("status",), EVERYTHING),
    ("SELECT a.n FROM {} AS a JOIN {} AS b USING (id, region)", ("n", "id", "region"), EVERYTHING),
)  # fmt: skip

KEYS = st.tuples(st.integers(0, 2), st.sampled_from(["eu", "us-east"]))
ENTRIES = st.one_of(
    st.builds(
        Entry,
        KEYS,
        st.sampled_from(["u", "u", "d"]),
        st.sampled_from(["open", "done", "secret", None]),
        st.integers(0, 9),
        # Clocks of producers run backwards, and many records have one time.
        st.integers(0, 3),
    ),
    st.just(Entry()),
    st.just(Entry(is_hole=True)),
)


def entry(op: str, key: int, status: str | None = None, n: int = 0) -> Entry:
    return Entry((key, "eu"), op, status, n, timestamp_us=3 - n % 4)


#: Of partition 0: a row, its update, its delete, and the key again, around another key and a record that does not decode;
#: of partition 1: a row that is deleted, and a key that is deleted before it was ever there.
STORY = [
    [
        entry("u", 0, "open", 1),
        entry("u", 2, "open", 2),
        entry("u", 0, "done", 3),
        Entry(),
        entry("d", 0),
        entry("u", 0, "open", 4),
    ],
    [entry("u", 1, "secret", 5), entry("d", 1), entry("d", 3)],
]


@st.composite
def logs(draw: st.DrawFn, most: int) -> list[list[Entry]]:
    """Draw a log whose keys are in one partition each, as long as most tries at all splits of it take."""
    log: list[list[Entry]] = [[] for _ in range(PARTITIONS)]
    for entry in draw(st.lists(ENTRIES, min_size=most, max_size=2 * most)):
        at = draw(st.integers(0, PARTITIONS - 1))
        if entry.key is not None:
            at = partition_of(entry.key, PARTITIONS)
        if len(log[at]) < most:
            log[at].append(entry)
    return log


def vectors(log: Sequence[Partition]) -> Iterator[OffsetVector]:
    """Every vector of offsets in a log."""
    stops = (range(len(entries) + 1) for entries in log)
    return (OffsetVector.of(enumerate(each)) for each in itertools.product(*stops))


def bounds_of(log: Sequence[Partition]) -> LogBounds:
    measured = (PartitionBounds(at, 0, len(entries)) for at, entries in enumerate(log))
    return LogBounds("cluster-1", "devices", "topic-1", tuple(measured))


def cut_at(log: Sequence[Partition], mark: OffsetVector, end: OffsetVector) -> TableCut:
    """Cut the table at an end, from a snapshot with this watermark."""
    keyed = pin()
    keyed = replace(
        keyed,
        schema=SCHEMA,
        binding=BINDING,
        watermark=watermark(topic="devices", next=mark, key=UPSERT.key, shape=BINDING.shape),
    )
    return cut_until(keyed, end, bounds_of(log))


def hold(database: duckdb.DuckDBPyConnection, name: str, rows: pa.Table) -> None:
    """Make a table of these rows."""
    database.register("rows", rows)
    database.execute(f"CREATE OR REPLACE TABLE {name} AS FROM rows")
    database.unregister("rows")


def hold_tail(
    database: duckdb.DuckDBPyConnection, log: Sequence[Partition], floor: OffsetVector
) -> None:
    """Make tables of the changes of a log from a floor on, and of which supersedes which."""
    end = OffsetVector.of((at, len(entries)) for at, entries in enumerate(log))
    hold(database, "tail", pa.Table.from_pylist(list(changes(log, floor, end)), CHANGES))
    hold(database, "superseded", superseded(log, floor, end))


def relation_of(
    cut: TableCut,
    *,
    names: Sequence[str] | None = None,
    rows: ScanFilter = EVERYTHING,
    grant: AccessFilter | None = None,
    side: Side = Side.BOTH,
) -> Relation:
    """Return what a statement reads of the table."""
    needs = StatementNeeds(columns=None if names is None else frozenset(names))
    table = ResolvedTable(FLOWS, side)
    read = plan_read(needs, table, cut, is_open=grant is None, rows=rows)
    sources: tuple[SqlRelation, ...] = ()
    if read.cold is ColdMode.WHOLE:
        columns = "*" if read.cold_names is None else ", ".join(read.cold_names)
        sources = (SqlRelation(f"SELECT {columns} FROM cold"),)
    newer = None
    if read.key:
        changed = bounded("tail", read.tail_names or CHANGES.names, read.tail)
        later = f"SELECT * FROM superseded WHERE {_below(read.tail)}"
        newer = Changes(
            NAME, (changed,), (SqlRelation(later),), read.key, ColumnRead(read.cold_names)
        )
    return Relation(NAME, SCHEMA, sources, grant, read.columns, newer)


def _below(ranges: Sequence[OffsetRange]) -> str:
    """What holds of changes that another one of these ranges follows."""
    stops = " ".join(f"WHEN {item.partition} THEN {item.stop}" for item in ranges)
    return f"next < (CASE kafka_partition {stops} END)"


def answer(
    database: duckdb.DuckDBPyConnection, relation: Relation, sql: str
) -> Counter[tuple[object, ...]]:
    return Counter(
        database.execute(prelude(database, [relation]) + sql.format(NAME, NAME)).fetchall()
    )


def expected(
    database: duckdb.DuckDBPyConnection, truth: str, sql: str, grant: AccessFilter | None
) -> Counter[tuple[object, ...]]:
    if grant is not None:
        columns = ", ".join(f"{value} AS {name}" for name, value in grant.columns)
        truth = f"(SELECT {columns} FROM {truth} WHERE {grant.rows})"
    return Counter(database.execute(sql.format(truth, truth)).fetchall())


def check_every_split(log: Sequence[Partition]) -> None:
    database = duckdb.connect(config={"threads": 1})
    rotating = itertools.cycle(STATEMENTS[1:])
    floors = itertools.cycle((lambda mark: mark, lambda _: OffsetVector()))
    truths = {}
    for number, end in enumerate(vectors(log)):
        hold(database, f"truth{number}", table_of(newest(log, end)))
        truths[end] = f"truth{number}"
    for mark in vectors(log):
        hold(database, "cold", table_of(newest(log, mark)))
        hold_tail(database, log, next(floors)(mark))
        for end in vectors(log):
            if any(stop < (mark.get(at) or 0) for at, stop in end):
                with pytest.raises(CutExpired, match="the table is keyed"):
                    cut_at(log, mark, end)
                continue
            cut = cut_at(log, mark, end)
            for (sql, names, rows), grant in (
                (STATEMENTS[0], None),
                (STATEMENTS[0], GRANT),
                (next(rotating), None),
            ):
                relation = relation_of(cut, names=names, rows=rows, grant=grant)
                assert answer(database, relation, sql) == expected(
                    database, truths[end], sql, grant
                ), (sql, mark, end, grant)


@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)
@example(STORY)
@given(logs(3))
def test_every_split_answers_what_the_dictionary_says(log: list[list[Entry]]) -> None:
    check_every_split(log)


@pytest.mark.soak
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(logs(4))
def test_every_split_of_more_logs(log: list[list[Entry]]) -> None:
    check_every_split(log)
