"""Our list of files against DuckDB's own Iceberg scan and against the rows themselves, on random tables."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from connectors.iceberg.store import IcebergStore
from planner.errors import BadStatement
from planner.names import TableName
from planner.ports import ArrowRelation, SqlRelation
from planner.reading.filters import EVERYTHING
from planner.seam.cut import ColdSlice, cold_cut
from planner.statement.conditions import conjuncts
from planner.statement.references import references
from planner.statement.rewrite import rewrite
from proxy.engine.engine import Engine
from proxy.engine.macros import When
from proxy.engine.relations import Relation
from proxy.query.relations import StatementContext, scan_filter
from tests.fixtures.engine import Place
from tests.harness.cold_tables import RandomTable, arrow, folder_of, statement

NOW = dt.datetime(2026, 4, 1, tzinfo=dt.UTC)
ZONES = ("UTC", "America/New_York", "Pacific/Apia")


class Comparison:
    """One table, read in three ways."""

    def __init__(self, engine: Engine, store: IcebergStore, made: RandomTable) -> None:
        self.engine, self.store, self.made = engine, store, made
        name = TableName("c", ("n",), made.table.name()[-1])
        self.cold: ColdSlice = cold_cut(store.pin(name)).cold
        self.rows = ArrowRelation(arrow(made.rows, made.table).cast(self.cold.schema.arrow))
        self.files = len(list(made.table.scan().plan_files()))
        self.outcomes: Counter[str] = Counter()

    def check(self, sql: str, zone: str) -> None:
        document = self.engine.parse(sql)
        (reference,) = references(document)
        asking = StatementContext(document, [], When(NOW, zone))
        rows = scan_filter(
            self.engine, asking, conjuncts(document)[reference], self.cold.schema
        )
        ours = self.store.scan(self.cold, rows)
        self.outcomes[self._outcome(ours, is_queried=rows != EVERYTHING)] += 1
        theirs = SqlRelation(self.store.extension_sql(self.cold))
        truth, text, extension = (
            self._answer(sql, part, zone) for part in (self.rows, ours, theirs)
        )
        reply = f"{sql}\nzone {zone}\nwanted {rows}\n" + "\n".join(self.made.steps)
        if truth.startswith("["):
            assert text == truth, reply
            assert extension == truth, reply
        else:
            # A cast that fails on some row: files left out may spare it.
            assert text.startswith(("[", truth)), reply

    def _outcome(self, part: SqlRelation | ArrowRelation, *, is_queried: bool) -> str:
        if isinstance(part, ArrowRelation):
            return "nothing left"
        if "iceberg_scan" in part.sql:
            return "extension"
        left = part.sql.count(".parquet'")
        return (
            "some left"
            if left < self.files
            else "all left, asked"
            if is_queried
            else "all left"
        )

    def _answer(self, sql: str, part: SqlRelation | ArrowRelation, zone: str) -> str:
        document = self.engine.parse(sql)
        relation = Relation("rows", self.cold.schema, (part,))
        document = rewrite(document, dict.fromkeys(references(document), "rows"))
        try:
            with self.engine.run(document, [relation], when=When(NOW, zone)) as result:
                table = pa.Table.from_batches(list(result), result.schema)
        except BadStatement as error:
            return str(type(error))
        return str(sorted(table.to_pylist(), key=str))


def run(place: Place, folder: Path, seed: int, tables: int, statements: int) -> Counter[str]:
    folder.mkdir(parents=True)
    catalog = load_catalog("c", **folder_of(folder))
    catalog.create_namespace("n")
    store = IcebergStore({"c": folder_of(folder)})
    outcomes: Counter[str] = Counter()
    try:
        for number in range(tables):
            chosen = random.Random(seed * 1_000_003 + number)
            made = RandomTable.create(chosen, catalog, f"t{number}")
            request = Comparison(place.engine, store, made)
            for _ in range(statements):
                request.check(statement(chosen, made.columns), chosen.choice(ZONES))
            outcomes += request.outcomes
    finally:
        store.close()
        catalog.close()
    return outcomes


def test_our_list_answers_as_the_rows_do(place: Place) -> None:
    outcomes = run(place, place.root / "seeded", seed=1, tables=6, statements=16)
    total = sum(outcomes.values())
    assert outcomes["some left"] + outcomes["nothing left"] > total // 3, outcomes
    assert outcomes["extension"] < total // 4, outcomes


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 22))
def test_our_list_answers_as_the_rows_do_for_long(place: Place, seed: int) -> None:
    run(place, place.root / f"soak{seed}", seed=seed, tables=30, statements=100)
