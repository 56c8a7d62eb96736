"""Conditions on each type's border values over live tables, asked of each engine: the table of docs/engines.md."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.types import UUIDType

from planner.column_statistics import uuid_properties
from planner.names import TableName
from planner.schema import Column
from tests.fixtures.kafka import Kafka
from tests.fixtures.live import LiveServer
from tests.harness.type_borders import (
    BORDERS,
    ENGINES,
    LOSSES,
    Borders,
    Comparison,
    Operator,
    conditions,
    record,
)
from thermocline.doctor.findings import Finding
from thermocline.doctor.tables import tables

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::polars.exceptions.PerformanceWarning"),
]

#: Scans in one statement of Spark, which plans them faster than as many statements.
_AT_ONCE = 12
#: Offsets of one Kafka partition; a row's place is a number of both.
_PLACES = 1_000
PLACE = f"kafka_partition * {_PLACES} + kafka_offset AS place"

#: What a condition found: places of rows, lowest first; or the engine's error.
Answer = list[int] | Exception
Row = Mapping[str, Any]


class Filled:
    """A bound table whose tail and committed part have the same rows, in files of several ranges of values each."""

    def __init__(
        self, kafka: Kafka, live: LiveServer, columns: Sequence[Column], by: Sequence[str] = ()
    ) -> None:
        self._kafka, self._live = kafka, live
        self._topic = kafka.topic(5)
        self.rows: dict[int, Row] = {}
        self._ends = [0] * 5
        self.name = live.bind(self._topic, columns, partition_by=by)

    def fill(self, rows: Sequence[Row]) -> None:
        """The rows; each half; each second of them, often enough for a dictionary; and the others."""
        half = len(rows) // 2
        groups = (rows, rows[:half], rows[half:], [*rows[::2]] * 4, rows[1::2])
        for is_tail in (False, True):
            for partition, group in enumerate(groups):
                self._kafka.produce(
                    self._topic, [record(**row) for row in group], partition=partition
                )
                for row in group:
                    self.rows[partition * _PLACES + self._ends[partition]] = row
                    self._ends[partition] += 1
                if is_tail:
                    self._live.document(self.name)  # a live file of its own
            if not is_tail:
                self._live.tier(self.name)
                self._live.refresh(self.name)

    def expected(self, one: Comparison) -> list[int]:
        return sorted(at for at, row in self.rows.items() if one.matches(one.of(row)))


def _answers(
    live: LiveServer, table: TableName, comparisons: Sequence[Comparison]
) -> dict[str, list[Answer]]:
    """Ask every engine, and Flight SQL, at one cut."""
    cut = live.cut(table)
    warehouse = f"lake@{cut}"
    answers: dict[str, list[Answer]] = {"Spark": _of_spark(live, table, warehouse, comparisons)}
    with live.through_duckdb(table, warehouse) as duck:
        answers["DuckDB"] = [
            _answer(lambda a: [at for (at,) in duck(_select("{t}", a.of_duckdb()))], a)
            for a in comparisons
        ]
    with contextlib.closing(live.pyiceberg(warehouse)) as catalog:
        loaded = catalog.load_table((*table.namespace, table.name))
    frame, places = pl.scan_iceberg(loaded), ("kafka_partition", "kafka_offset")
    answers["pyiceberg"] = [
        _answer(
            lambda a: _places(loaded.scan(a.of_pyiceberg(), selected_fields=places).to_arrow()),
            a,
        )
        for a in comparisons
    ]
    answers["Polars"] = [
        _answer(
            lambda a: _places(frame.filter(a.of_polars()).select(places).collect().to_arrow()),
            a,
        )
        for a in comparisons
    ]
    answers["Flight SQL"] = _of_flight(live, table, cut, comparisons)
    return answers


def _of_flight(
    live: LiveServer, table: TableName, cut: str, comparisons: Sequence[Comparison]
) -> list[Answer]:
    at = f"{table} AT (VERSION => '{cut}')"
    with live.cursor() as flight:

        def ask(one: Comparison) -> list[int]:
            flight.execute(_select(at, one.of_duckdb()))
            return [place for (place,) in flight.fetchall()]

        return [_answer(ask, one) for one in comparisons]


def _of_spark(
    live: LiveServer, table: TableName, warehouse: str, comparisons: Sequence[Comparison]
) -> list[Answer]:
    spark = live.through_spark(table, warehouse)
    answers: list[Answer] = []
    for start in range(0, len(comparisons), _AT_ONCE):
        some = comparisons[start : start + _AT_ONCE]
        rows = spark(
            " UNION ALL ".join(
                f"SELECT {number} AS number, {PLACE} FROM {{t}} WHERE {one.of_spark()}"
                for number, one in enumerate(some)
            )
        )
        answers += [
            sorted(place for of, place in rows if of == number) for number in range(len(some))
        ]
    return answers


def _select(table: str, condition: str) -> str:
    return f"SELECT {PLACE} FROM {table} WHERE {condition}"


def _answer(run: Callable[[Comparison], list[int]], one: Comparison) -> Answer:
    try:
        return sorted(run(one))
    except Exception as error:
        return error


def _places(rows: pa.Table) -> list[int]:
    pairs = zip(rows["kafka_partition"], rows["kafka_offset"], strict=True)
    return [partition.as_py() * _PLACES + offset.as_py() for partition, offset in pairs]


def _check(
    live: LiveServer, filled: Filled, comparisons: Sequence[Comparison], by: str = ""
) -> set[str]:
    """Compare every answer that no loss is known of; return ``engine note`` of the losses that were met."""
    met: set[str] = set()
    unknown = []
    for engine, answers in _answers(live, filled.name, comparisons).items():
        for one, answer in zip(comparisons, answers, strict=True):
            notes = [loss.note for loss in LOSSES if loss.concerns(engine, one, by)]
            if answer != filled.expected(one):
                met.update(f"{engine} {note}" for note in notes)
                if not notes:
                    unknown.append((engine, str(one), answer, filled.expected(one)))
    assert not unknown, (by, *map(str, unknown))
    return met


def test_engines_find_the_border_values_of_every_type(kafka: Kafka, live: LiveServer) -> None:
    names = {borders: f"c{number}" for number, borders in enumerate(BORDERS)}
    columns = [Column(0, name, borders.kind) for borders, name in names.items()]
    table = Filled(kafka, live, columns)
    count = max(len(borders.values) for borders in BORDERS) + 1
    table.fill(
        [
            {name: borders.value(number) for borders, name in names.items()}
            for number in range(count)
        ]
    )
    pairs: tuple[tuple[Operator, int], ...] = (("=", 1), (">=", -1))
    comparisons = [
        Comparison(borders, name, operator, (borders.values[number],))
        for borders, name in names.items()
        for operator, number in pairs
    ]
    _check(live, table, comparisons)


_CASES = [
    pytest.param(borders, by, id=f"{borders.name} by {by or 'nothing'}")
    for borders in BORDERS
    for by in ("", "v", *borders.partitions)
    if (borders.name, by) != ("fixed(2)", "v")  # refused by ``create``
]


@pytest.mark.soak
@pytest.mark.parametrize(("borders", "by"), _CASES)
def test_engines_find_what_the_page_says(
    kafka: Kafka, live: LiveServer, borders: Borders, by: str
) -> None:
    """Each loss is still there, too: else the page is to be changed."""
    table = Filled(kafka, live, [Column(0, "v", borders.kind)], (by,) if by else ())
    table.fill([{"v": value} for value in (*borders.values, None)])
    comparisons = conditions(borders)
    expected = {
        f"{engine} {loss.note}"
        for engine in ENGINES
        for loss in LOSSES
        if any(loss.concerns(engine, one, by) for one in comparisons)
    }
    assert _check(live, table, comparisons, by) == expected


@pytest.mark.parametrize(
    ("borders", "by"),
    [
        case
        if case.id == "uuid by v"
        else pytest.param(*case.values, id=case.id, marks=pytest.mark.soak)
        for case in _CASES
    ],
)
def test_flight_finds_all_through_the_extension(
    kafka: Kafka, live: LiveServer, monkeypatch: pytest.MonkeyPatch, borders: Borders, by: str
) -> None:
    """As it reads tables with delete files, and many files at once."""
    table = Filled(kafka, live, [Column(0, "v", borders.kind)], (by,) if by else ())
    table.fill([{"v": value} for value in (*borders.values, None)])
    monkeypatch.setattr("connectors.iceberg.scan.planner.MAX_LISTED_FILES", 0)
    comparisons = conditions(borders)
    answers = _of_flight(live, table.name, live.cut(table.name), comparisons)
    assert answers == [table.expected(one) for one in comparisons]


def test_uuids_are_found_once_the_lines_of_doctor_were_typed(
    kafka: Kafka, live: LiveServer
) -> None:
    """Of a table that was made before ``create`` left out their statistics; also in a struct, renamed and added later."""
    uuids = next(borders for borders in BORDERS if borders.name == "uuid")
    point = pa.struct([pa.field("u", pa.uuid()), pa.field("ids", pa.list_(pa.uuid()))])
    table = Filled(kafka, live, [Column(0, "u", pa.uuid()), Column(0, "point", point)])
    spark = live.spark(table.name)
    old = uuid_properties(live.lake.store.pin(table.name).schema.arrow)
    pairs = ", ".join(f"'{name}' = 'true'" for name in old)
    spark.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ({pairs})")
    spark.sql("ALTER TABLE {t} RENAME COLUMN u TO id")
    with live.catalog() as catalog:  # Spark's SQL has no such type
        loaded = catalog.load_table((*table.name.namespace, table.name.name))
        loaded.update_schema().add_column("late", UUIDType()).commit()
    live.refresh(table.name)
    table.fill(
        [
            {"id": each, "point": {"u": each, "ids": [each]}, "late": each}
            for each in uuids.values
        ]
    )
    names = ("id", "point.u", "late")
    comparisons = [
        Comparison(uuids, name, "=", (value,)) for name in names for value in uuids.values
    ]

    def missed() -> set[str]:
        answers = _answers(live, table.name, comparisons)
        right = [table.expected(one) for one in comparisons]
        assert answers["Flight SQL"] == answers["DuckDB"] == right
        return {
            one.name
            for one, answer, rows in zip(comparisons, answers["Spark"], right, strict=True)
            if answer != rows
        }

    def of_uuids() -> list[Finding]:
        findings = tables(live.settings, [table.name])
        return [finding for finding in findings if finding.check == f"uuids of {table.name}"]

    assert missed() == {"id", "point.u"}  # tasks give a uuid none that no property names
    [finding] = of_uuids()
    assert finding.state == "warn"
    assert finding.what.startswith("files have statistics of id, late, point.u, which Spark")
    for statement in re.findall("`([^`]+)`", finding.fix):
        spark.session.sql(statement)
    live.refresh(table.name)
    assert of_uuids() == []
    assert missed() == set()
