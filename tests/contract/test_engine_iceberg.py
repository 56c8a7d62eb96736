"""Files through the lock: Iceberg tables read as they are, whatever their statistics say."""

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from planner.errors import BadConfig, ColdStoreUnavailable, SnapshotExpired
from planner.ports import ArrowRelation, SqlRelation
from planner.statement.references import references
from planner.statement.rewrite import rewrite
from proxy.engine.engine import Engine
from proxy.engine.macros import When
from proxy.engine.relations import Relation, nested, prelude
from tests.fixtures.engine import Place

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
NAN = float("nan")
FILES = tuple(
    pa.table(
        {
            "i": pa.array(range(start, start + 4), pa.int64()),
            "d": pa.array([NAN, 1.0 + start, -0.0, None], pa.float64()),
            "f": pa.array([-0.0, None, NAN, 2.0 + start], pa.float32()),
            "s": pa.array(
                [{"y": NAN}, {"y": 1.0}, None, {"y": None}], pa.struct([("y", pa.float64())])
            ),
            "l": pa.array([[NAN], [1.0], [], None], pa.list_(pa.float64())),
            "t": ["a", "é" * 40, "", None],
        }
    )
    for start in (0, 100, 200)
)
ROWS = pa.concat_tables(FILES)

Create = Callable[[Path], Table]


@pytest.fixture(scope="module")
def create() -> Create:
    def made(folder: Path) -> Table:
        folder.mkdir(parents=True)
        catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/c.db", warehouse=f"file://{folder}")
        catalog.create_namespace("n")
        table = catalog.create_table("n.t", schema=ROWS.schema)
        for content in FILES:
            table.append(content)
        return table

    return made


def scan(table: Table) -> Relation:
    location = table.metadata_location.removeprefix("file://")
    return Relation(
        "lake.n.t", ROWS.schema, (SqlRelation(f"SELECT * FROM iceberg_scan('{location}')"),)
    )


MEMORY = Relation("lake.n.t", ROWS.schema, (ArrowRelation(ROWS),))


def answer(engine: Engine, sql: str, relation: Relation) -> str:
    document = engine.parse(sql)
    document = rewrite(document, dict.fromkeys(references(document), relation.name))
    with engine.run(document, [relation], when=When(NOW)) as result:
        # As text: NaN is not equal to itself.
        return repr(pa.Table.from_batches(list(result), result.schema).to_pylist())


@pytest.fixture(scope="module")
def files(place: Place, create: Create) -> Relation:
    return scan(create(place.root / "main"))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM t ORDER BY i",
        *(
            f"SELECT i FROM t WHERE {condition} ORDER BY i"
            for column in ("d", "f", "s.y", "l[1]")
            for condition in (
                f"{column} > 500",
                f"{column} = 'nan'",
                f"NOT ({column} <= 500)",
                f"{column} BETWEEN 500 AND 'nan'",
                f"{column} <> 1",
                f"{column} < 1.5",
                f"{column} IN (1, 'nan')",
                f"{column} IS NULL",
                f"{column} = (SELECT max({column}) FROM t)",
            )
        ),
        *(f"SELECT i, {column} FROM t ORDER BY {column} DESC NULLS LAST, i LIMIT 2" for column in "df"),
        "SELECT i FROM t ORDER BY s.y DESC NULLS LAST, i LIMIT 2",
        "SELECT max(d), min(d), max(f), min(f), max(s.y), count(d) FROM t",
        "SELECT count(*) FROM t a JOIN t b ON a.d = b.d AND a.f = b.f WHERE b.i > 100",
        "SELECT i FROM t WHERE t > 'z' ORDER BY i",
        "SELECT i FROM t WHERE t = repeat('é', 40) ORDER BY i",
    ],
)  # fmt: skip
def test_files_answer_as_the_same_rows_in_memory(
    engine: Engine, files: Relation, sql: str
) -> None:
    assert answer(engine, sql, files) == answer(engine, sql, MEMORY)


def test_filters_still_skip_files(duck: duckdb.DuckDBPyConnection, files: Relation) -> None:
    with duck.cursor() as cursor:
        sql = 'SELECT count(*) FROM "lake.n.t" AS t WHERE i >= $1'
        explained = f"EXPLAIN ANALYZE {prelude(cursor, [files])}{nested(sql)}"
        plan = cursor.execute(explained, [200]).fetchall()[0][1]
    assert "Total Files Read: 1" in plan


def test_a_file_outside_the_roots_is_named_as_a_matter_of_configuration(
    engine: Engine, create: Create, tmp_path: Path
) -> None:
    with pytest.raises(BadConfig) as outside:
        answer(engine, "SELECT * FROM t", scan(create(tmp_path / "elsewhere")))
    assert str(outside.value) == (
        "a file of the table lies outside the storage roots of this server; add its root, and restart."
    )


def test_metadata_that_is_gone_expires_the_snapshot(place: Place, create: Create) -> None:
    table = create(place.root / "metadata-gone")
    relation = scan(table)
    Path(table.metadata_location.removeprefix("file://")).unlink()
    with pytest.raises(SnapshotExpired):
        answer(place.engine, "SELECT * FROM t", relation)


@pytest.mark.parametrize("what", ["*.parquet", "snap-*.avro"])
def test_a_file_of_the_snapshot_that_is_gone_expires_it(
    place: Place, create: Create, what: str
) -> None:
    folder = place.root / f"gone-{what.strip('*.-')}"
    table = create(folder)
    for file in folder.rglob(what):
        file.unlink()
    with pytest.raises(SnapshotExpired):
        answer(place.engine, "SELECT * FROM t", scan(table))


def test_a_damaged_file_is_a_failure_of_the_store(place: Place, create: Create) -> None:
    table = create(place.root / "damaged")
    for file in (place.root / "damaged").rglob("*.parquet"):
        file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(ColdStoreUnavailable) as damaged:
        answer(place.engine, "SELECT * FROM t", scan(table))
    assert str(place.root) not in str(damaged.value)
    assert place.engine.healthy()


def test_the_extension_reads_all_manifests_of_a_snapshot_in_a_statement(
    place: Place, create: Create
) -> None:
    table = create(place.root / "tried")
    location = table.metadata_location.removeprefix("file://")
    first, *_, last = (snapshot.snapshot_id for snapshot in table.metadata.snapshots)
    for snapshot_id in (first, last):
        place.engine.try_manifests(location, snapshot_id)
    table = create(place.root / "untried")
    manifest = next((place.root / "untried").rglob("*-m0.avro"))
    manifest.unlink()
    snapshot = table.current_snapshot()
    assert snapshot is not None
    with pytest.raises(SnapshotExpired):
        place.engine.try_manifests(table.metadata_location, snapshot.snapshot_id)
    assert place.engine.healthy()
