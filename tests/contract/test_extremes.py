"""``min`` and ``max`` of tables of Iceberg: by statistics where these tell, the same answers as plain DuckDB's over all rows."""

from __future__ import annotations

import random
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.types import LongType

from connectors.iceberg.store import IcebergStore
from planner.errors import SnapshotExpired
from proxy.query.executor import Statements
from proxy.session import Deadline
from tests.doubles.log import MemoryLog
from tests.fixtures.engine import Place
from tests.harness.asking import duck
from tests.harness.cold_tables import RandomTable, arrow, folder_of
from tests.harness.serving import SESSION, forget, serve


@contextmanager
def served(place: Place, folder: Path) -> Iterator[Statements]:
    with closing(IcebergStore({"lake": folder_of(folder)})) as store:
        board, tails, statements = serve(store, MemoryLog(), runs_in=place.engine)
        try:
            yield statements
        finally:
            forget(board, tails)


def answer(statements: Statements, sql: str) -> pa.Table:
    planned = statements.plan(SESSION, sql, None, Deadline(60))
    with closing(statements.open(SESSION, planned.ticket, Deadline(60))) as stream:
        return pa.Table.from_batches(list(stream), stream.schema)


def is_read(statements: Statements, sql: str) -> bool:
    """Whether a statement opens files, as EXPLAIN says."""
    (row,) = answer(statements, f"EXPLAIN {sql}").to_pylist()
    by_statistics = row["why"] == "min and max by statistics of files: no file is read"
    assert not by_statistics or row["files_to_read"] == 0
    return not by_statistics


def plain_text(rows: pa.Table) -> str:
    """NaN equals itself here; which of two zeros comes first is chance."""
    return re.sub(r"-(0\.0\b)", r"\1", str(rows.to_pylist()))


ITEMS = (
    "min({0}) AS a, max({0}) AS b",
    "count(*) AS n, max({0}) AS b",
    "min({0})::VARCHAR AS a, count(*) AS n, max({1}) AS b, min(id) AS i",
)


def compare(place: Place, folder: Path, seed: int, tables: int) -> Counter[str]:
    """Ask random tables, partitioned, evolved and with rows deleted; return by type how many answers read no file."""
    folder.mkdir(parents=True)
    outcomes: Counter[str] = Counter()
    with closing(load_catalog("lake", **folder_of(folder))) as catalog:
        catalog.create_namespace("n")
        chosen = random.Random(seed)
        made = [RandomTable.create(chosen, catalog, f"t{number}") for number in range(tables)]
    plain = duck()
    with served(place, folder) as statements:
        for table in made:
            rows = arrow(table.rows, table.table)
            for name, kind in table.columns:
                items = chosen.choice(ITEMS).format(name, chosen.choice(table.columns)[0])
                ours = f"SELECT {items} FROM lake.n.{table.table.name()[-1]}"
                plain.register("every_row", rows)
                expected = plain.execute(f"SELECT {items} FROM every_row").to_arrow_table()
                plain.unregister("every_row")
                reply = "\n".join((ours, *table.steps))
                assert plain_text(answer(statements, ours)) == plain_text(expected), reply
                outcomes[kind if is_read(statements, ours) else f"{kind} by statistics"] += 1
    return outcomes


def test_random_tables_answer_as_their_rows_do(place: Place) -> None:
    outcomes = compare(place, place.root / "extremes", seed=1, tables=6)
    answered = {kind.split()[0] for kind in outcomes if " " in kind}
    assert answered >= {"i", "l", "n", "day", "ts", "tz"}, outcomes
    # pyiceberg counts no NaN.
    assert not answered & {"f", "d", "s", "b", "x", "u", "t"}, outcomes


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2, 12))
def test_random_tables_answer_as_their_rows_do_for_long(place: Place, seed: int) -> None:
    compare(place, place.root / f"extremes{seed}", seed, tables=40)


SCHEMA = pa.schema([("i", pa.int64()), ("s", pa.string())])


def rows(*values: int | None) -> pa.Table:
    texts = [None if value is None else f"{'x' * 20}{value}" for value in values]
    return pa.table({"i": pa.array(values, pa.int64()), "s": pa.array(texts, pa.string())})


@pytest.fixture
def table(place: Place, tmp_path: Path) -> Iterator[Table]:
    folder = place.root / tmp_path.name
    folder.mkdir()
    with closing(SqlCatalog("lake", **folder_of(folder))) as catalog:
        catalog.create_namespace("n")
        yield catalog.create_table("n.t", schema=SCHEMA)


EXTREMES = "SELECT min(i) AS a, max(i) AS b, count(*) AS n FROM lake.n.t"


def test_no_file_is_opened_for_it(place: Place, table: Table) -> None:
    table.append(rows(3, None, 9))
    table.append(rows(None))
    table.append(rows(-4))
    folder = Path(table.location().removeprefix("file://"))
    with served(place, folder.parents[1]) as statements:
        shutil.rmtree(folder / "data")
        assert answer(statements, EXTREMES).to_pylist() == [{"a": -4, "b": 9, "n": 5}]
        # Bounds of texts are shortened, so these are read.
        with pytest.raises(SnapshotExpired):
            answer(statements, "SELECT max(s) FROM lake.n.t")


def change(table: Table, how: str) -> list[dict[str, Any]]:
    """Make statistics not tell, and return the answer."""
    match how:
        case "a file without statistics":
            table.transaction().set_properties(
                {"write.metadata.metrics.default": "none"}
            ).commit_transaction()
            table.append(rows(50))
            return [{"a": 1, "b": 50, "n": 3}]
        case "a file of before the column":
            with table.update_schema() as update:
                update.delete_column("i")
            with table.update_schema() as update:
                update.add_column("i", LongType())
            table.append(rows(7).select(["s", "i"]))
            return [{"a": 7, "b": 7, "n": 3}]
        case _:
            raise AssertionError(how)


@pytest.mark.parametrize("how", ["a file without statistics", "a file of before the column"])
def test_where_a_file_does_not_tell_all_are_read(place: Place, table: Table, how: str) -> None:
    table.append(rows(1, 2))
    expected = change(table, how)
    folder = Path(table.location().removeprefix("file://")).parents[1]
    with served(place, folder) as statements:
        assert answer(statements, EXTREMES).to_pylist() == expected
        assert is_read(statements, EXTREMES)


@pytest.mark.parametrize("count", [0, 1])
def test_of_a_table_without_rows_or_with_one(place: Place, table: Table, count: int) -> None:
    table.append(rows(*[5] * count))
    folder = Path(table.location().removeprefix("file://")).parents[1]
    value = 5 if count else None
    with served(place, folder) as statements:
        assert answer(statements, EXTREMES).to_pylist() == [
            {"a": value, "b": value, "n": count}
        ]
