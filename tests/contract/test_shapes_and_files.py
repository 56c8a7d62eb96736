"""A statement of a known shape reads the files that its own constants need, of partitions and of bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from connectors.iceberg.store import IcebergStore
from planner.permissions import Grant, GrantList, TablePattern
from planner.reading.filters import ScanFilter
from proxy.query.executor import Statements
from proxy.session import Deadline, Session
from tests.doubles.log import MemoryLog
from tests.fixtures.engine import Place
from tests.harness.serving import SESSION, forget, serve

COLUMNS = Schema(
    NestedField(1, "n", LongType()),
    NestedField(2, "host", StringType()),
    NestedField(3, "day", StringType()),
)
SPEC = PartitionSpec(PartitionField(2, 1_000, IdentityTransform(), "host"))
#: One file for each host and day.
DAYS = [
    pa.table(
        {
            "n": [10 * host + day for host in range(1, 5)],
            "host": [f"h{host}" for host in range(1, 5)],
            "day": [f"2026-01-0{day}"] * 4,
        }
    )
    for day in range(1, 4)
]


@pytest.fixture(scope="module")
def store(place: Place) -> Iterator[IcebergStore]:
    folder = place.root / "shapes"
    folder.mkdir()
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/c.db",
        "warehouse": f"file://{folder}",
    }
    catalog = SqlCatalog("lake", **properties)
    catalog.create_namespace("net")
    table = catalog.create_table("net.hosts", schema=COLUMNS, partition_spec=SPEC)
    for rows in DAYS:
        table.append(rows)
    catalog.close()
    result = IcebergStore({"lake": properties})
    yield result
    result.close()


@pytest.fixture
def scans(store: IcebergStore, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many files each scan of the test was to read."""
    counts: list[int] = []
    scan = IcebergStore.scan

    def noted(
        self: IcebergStore, cold: Any, expected: ScanFilter, *rest: Any, **more: Any
    ) -> Any:
        counts.append(self.count_files(cold, expected) or 0)
        return scan(self, cold, expected, *rest, **more)

    monkeypatch.setattr(IcebergStore, "scan", noted)
    return counts


@pytest.fixture
def expected() -> Iterator[Callable[[str], list[dict[str, Any]]]]:
    """What plain DuckDB answers over the rows of all files, as ``rows``."""
    with duckdb.connect() as plain:
        plain.register("rows", pa.concat_tables(DAYS))
        yield lambda sql: plain.execute(sql).to_arrow_table().to_pylist()


def answer(statements: Statements, session: Session, sql: str) -> list[dict[str, Any]]:
    planned = statements.plan(session, sql, None, Deadline(60))
    stream = statements.open(session, planned.ticket, Deadline(60))
    try:
        return pa.Table.from_batches(stream, stream.schema).to_pylist()
    finally:
        stream.close()


@pytest.mark.parametrize(
    ("where", "values", "files"),
    [
        ("host = '{}'", ("h1", "h2", "h3", "h4", "h5"), [3, 3, 3, 3, 0]),
        ("host IN ('{}', 'h4')", ("h1", "h3", "h9"), [6, 6, 3]),
        ("n = {}", (11, 12, 42, 70), [1, 1, 1, 0]),
        ("n BETWEEN {} AND 22", (21, 13, 23), [2, 3, 0]),
        ("host > '{}' AND n < 100", ("h1", "h3"), [9, 3]),
        ("host = '{0}' AND day = '2026-01-02'", ("h1", "h3"), [1, 1]),
    ],
)
def test_each_reads_the_files_of_its_own_constants(
    place: Place,
    store: IcebergStore,
    scans: list[int],
    expected: Callable[[str], list[dict[str, Any]]],
    where: str,
    values: tuple[Any, ...],
    files: list[int],
) -> None:
    board, tails, statements = serve(store, MemoryLog(), runs_in=place.engine)
    try:
        for value, count in zip(values, files, strict=True):
            sql = f"SELECT n, host, day FROM {{}} WHERE {where.format(value)} ORDER BY n"
            del scans[:]
            rows = answer(statements, SESSION, sql.format("hosts"))
            assert rows == expected(sql.format("rows"))
            assert scans == [count]
            (explained,) = answer(statements, SESSION, f"EXPLAIN {sql.format('hosts')}")
            assert explained["files_to_read"] == count
    finally:
        forget(board, tails)


def test_a_condition_on_a_mask_of_one_user_leaves_out_no_file_of_another(
    place: Place,
    store: IcebergStore,
    scans: list[int],
    expected: Callable[[str], list[dict[str, Any]]],
) -> None:
    board, tails, statements = serve(store, MemoryLog(), runs_in=place.engine)
    tables = (TablePattern.parse("lake.net.*"),)
    mask = statements.access.expression("replace(host, 'h', 'g')")
    statements.access.policy = GrantList(
        (
            Grant("every", tables, frozenset({"ada"})),
            Grant("part", tables, frozenset({"bob"}), masks=(("host", mask),)),
        )
    )
    sql = "SELECT n, host, day FROM {} WHERE host = '{}' ORDER BY n"
    masked = "(SELECT n, replace(host, 'h', 'g') AS host, day FROM rows)"
    try:
        for host in ("h1", "g1", "h2", "g2"):
            for user, relation, count in (("ada", "rows", 3), ("bob", masked, 12)):
                del scans[:]
                rows = answer(
                    statements, replace(SESSION, user=user), sql.format("hosts", host)
                )
                assert rows == expected(sql.format(relation, host))
                assert scans == [count if user == "bob" or host[0] == "h" else 0]
    finally:
        forget(board, tails)
