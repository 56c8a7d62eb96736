"""Where files counted their NaN, and have none, a filter is answered from their statistics; else never."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import DataFileStatistics

from connectors.iceberg.store import IcebergStore
from planner.names import TableName
from planner.ports import SqlRelation
from planner.reading.needs import StatementNeeds
from planner.reading.plan import ColumnRead
from planner.seam.cut import cold_cut
from proxy.engine.engine import Engine
from proxy.engine.relations import Relation, prelude
from proxy.query.executor import Statements
from proxy.session import Deadline
from tests.contract.engine import rows
from tests.doubles.log import MemoryLog
from tests.fixtures.engine import Place
from tests.harness.serving import SESSION, forget, serve

NAN = math.nan
SCHEMA = pa.schema(
    [("i", pa.int64()), ("d", pa.float64()), ("f", pa.float32()), ("s", pa.struct([("y", pa.float64())]))]
)  # fmt: skip
#: Fields of the table, as the catalog numbers them.
D, F, Y = 2, 3, 5
PLAIN = [(1, 1.0, 1.0, 1.0), (2, 2.0, -0.0, 2.0), (3, None, None, None)]
WITH_NAN = [(4, 3.0, 3.0, 3.0), (5, NAN, NAN, NAN)]
STATEMENTS = [
    *(f"SELECT i FROM t WHERE {column} > 5 ORDER BY i" for column in ("d", "f", "s.y")),
    *(f"SELECT i FROM t WHERE {column} = 'nan' ORDER BY i" for column in ("d", "f", "s.y")),
    *(f"SELECT i FROM t WHERE NOT ({column} <= 2) ORDER BY i" for column in ("d", "f", "s.y")),
    *(f"SELECT i FROM t ORDER BY {column} DESC NULLS LAST LIMIT 1" for column in ("d", "f", "s.y")),
    "SELECT max(d)::VARCHAR AS d, min(d)::VARCHAR AS e, max(f)::VARCHAR AS f, max(s.y)::VARCHAR AS y FROM t",
    "SELECT count(*) AS n FROM t a JOIN (SELECT 'nan'::DOUBLE AS d) b ON a.d = b.d",
]  # fmt: skip


def content(items: Sequence[tuple[Any, ...]]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"i": i, "d": d, "f": f, "s": {"y": y}} for i, d, f, y in items], SCHEMA
    )


@pytest.fixture
def nan_counts(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """What the next files count, by field; pyiceberg itself counts none."""
    counts: dict[int, int] = {}
    serialized = DataFileStatistics.to_serialized_dict

    def with_counts(statistics: DataFileStatistics) -> dict[str, Any]:
        return {**serialized(statistics), "nan_value_counts": dict(counts)}

    monkeypatch.setattr(DataFileStatistics, "to_serialized_dict", with_counts)
    return counts


@pytest.mark.parametrize(
    ("plain", "with_nan", "without_nan"),
    [
        ({}, None, ""),
        ({D: 0, F: 0, Y: 0}, None, "df"),
        ({D: 0}, None, "d"),
        ({}, {}, ""),
        ({D: 0, F: 0, Y: 0}, {D: 1, F: 1, Y: 1}, ""),
        ({D: 0, F: 0, Y: 0}, {}, ""),
        ({D: 0, F: 0}, {F: 1}, ""),
    ],
)
def test_statistics_answer_only_where_there_is_no_nan(
    place: Place,
    engine: Engine,
    nan_counts: dict[int, int],
    tmp_path: Path,
    plain: dict[int, int],
    with_nan: dict[int, int] | None,
    without_nan: str,
) -> None:
    folder = place.root / tmp_path.name
    folder.mkdir()
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/c.db",
        "warehouse": f"file://{folder}",
    }
    items = list(PLAIN)
    with closing(SqlCatalog("c", **properties)) as catalog:
        catalog.create_namespace("n")
        table = catalog.create_table("n.t", schema=SCHEMA)
        nan_counts.update(plain)
        table.append(content(PLAIN))
        if with_nan is not None:
            nan_counts.clear()
            nan_counts.update(with_nan)
            table.append(content(WITH_NAN))
            items += WITH_NAN
    with closing(IcebergStore({"c": properties})) as store:
        part = store.scan(cold_cut(store.pin(TableName("c", ("n",), "t"))).cold)
    assert isinstance(part, SqlRelation)
    assert part.without_nan == frozenset(without_nan)
    # One file has a zero in ``f``.
    assert part.without_zero == part.without_nan - {"f"}
    files = Relation("lake.n.t", SCHEMA, (part,))
    memory = Relation("lake.n.t", SCHEMA, (_values(items),))
    for sql in STATEMENTS:
        assert rows(engine, sql, [files]) == rows(engine, sql, [memory]), sql


def _values(items: Sequence[tuple[Any, ...]]) -> SqlRelation:
    def text(value: float | None, kind: str) -> str:
        return f"CAST({'NULL' if value is None else repr(str(value))} AS {kind})"

    listed = ", ".join(
        f"({i}, {text(d, 'DOUBLE')}, {text(f, 'FLOAT')}, {{'y': {text(y, 'DOUBLE')}}})"
        for i, d, f, y in items
    )
    return SqlRelation(f"SELECT * FROM (VALUES {listed}) v(i, d, f, s)")


#: Each over files of one value, whose bounds are equal, and NaN: neither ``d`` nor ``f`` is compared.
UNCOMPARING = [
    "SELECT count(*) AS n FROM t WHERE isnan(d)",
    "SELECT count(*) AS n, avg(d)::VARCHAR AS a FROM t WHERE NOT isnan(d)",
    "SELECT count(*) AS n, count(d) AS a, sum(f)::VARCHAR AS b FROM t WHERE isfinite(f) OR isinf(d)",
    "SELECT count(d) AS a, count(f) FILTER (isnan(f)) AS b, isnan(avg(d)) AS c, isnan(sum(f)) AS e FROM t",
    "SELECT i % 3 AS k, isnan(sum(d)) AS a FROM t WHERE NOT isnan(f) GROUP BY k ORDER BY k",
    "SELECT count(*) AS k FROM (SELECT isnan(d) AS n FROM t) WHERE n",
]


@pytest.mark.parametrize("sql", UNCOMPARING)
def test_what_is_not_compared_is_right_when_it_is_read_bare(
    engine: Engine, place: Place, tmp_path: Path, sql: str
) -> None:
    items = [(number, value, value, value) for number, value in enumerate([1.0, NAN] * 2_000)]
    path = place.root / f"{tmp_path.name}.parquet"
    pq.write_table(content(items), path, row_group_size=1_000)
    compared = StatementNeeds.of(engine.parse(sql), {}).compared
    assert compared is not None
    assert not compared & {"d", "f"}
    part = SqlRelation(f"SELECT * FROM read_parquet('{path}')")
    bare = Relation("lake.n.t", SCHEMA, (part,), reads=ColumnRead(uncompared=frozenset("df")))
    memory = Relation("lake.n.t", SCHEMA, (_values(items),))
    assert rows(engine, sql, [bare]) == rows(engine, sql, [memory])


def test_what_has_no_nan_is_read_bare(engine: Engine) -> None:
    bare, guarded = (
        Relation("lake.n.t", SCHEMA, (SqlRelation("SELECT 1", without_nan=names),))
        for names in (frozenset("df"), frozenset[str]())
    )
    with engine._connection.cursor() as cursor:
        assert '-(-"d")' in prelude(cursor, [guarded])
        assert "-(-" not in prelude(cursor, [bare])
        assert 'CASE WHEN "s"' in prelude(cursor, [bare])


#: Each finds every other row of a file where ``d`` and ``f`` have a zero there.
OF_A_ZERO = [
    "SELECT count(*) AS n FROM t WHERE d = 0",
    "SELECT count(*) AS n FROM t WHERE f IN ('1e-60')",
    "SELECT count(*) AS n FROM t WHERE d BETWEEN 0 AND 0",
    "SELECT count(*) AS n FROM t WHERE NOT (f < 0 OR f > 0)",
    "SELECT count(*) AS n FROM t WHERE list_contains([0.0::DOUBLE], d)",
    "SELECT count(*) AS n FROM t WHERE d = ANY([0.0])",
    "SELECT count(*) AS n FROM t WHERE d = 0.0::FLOAT",
    "SELECT count(*) AS n FROM t WHERE d = (SELECT 0.0)",
    "SELECT count(*) AS n FROM t WHERE d IN (SELECT 0.0::DOUBLE)",
    "SELECT count(*) AS n FROM t JOIN (VALUES (0.0::DOUBLE)) v(y) ON d = y",
    "SELECT count(*) AS n FROM (SELECT d AS y FROM t) WHERE y = 0",
]


@pytest.mark.parametrize("sql", OF_A_ZERO)
@pytest.mark.parametrize("zero", ["-0.0", "0.0"])
def test_a_zero_is_found_in_a_file_with_a_bloom_filter(
    engine: Engine, place: Place, tmp_path: Path, zero: str, sql: str
) -> None:
    """DuckDB writes such a filter for what has a dictionary, and leaves out row groups by it."""
    part = SqlRelation(
        f"SELECT * FROM read_parquet('{_with_zeros(engine, place, tmp_path, zero)}')",
        without_nan=frozenset("df"),
    )
    files = Relation(
        "lake.n.t",
        SCHEMA,
        (part,),
        reads=ColumnRead(equals_zero=StatementNeeds.of(engine.parse(sql), {}).equals_zero),
    )
    assert rows(engine, sql, [files]) == [{"n": 5_000}]


def test_without_the_guard_a_zero_with_another_sign_is_missing(
    engine: Engine, place: Place, tmp_path: Path
) -> None:
    """The reason for the guard; when DuckDB finds both zeros, it can go."""
    part = SqlRelation(
        f"SELECT * FROM read_parquet('{_with_zeros(engine, place, tmp_path, '-0.0')}')",
        without_nan=frozenset("df"),
    )
    assert rows(engine, OF_A_ZERO[0], [Relation("lake.n.t", SCHEMA, (part,))]) == [{"n": 0}]


def _with_zeros(engine: Engine, place: Place, tmp_path: Path, zero: str) -> Path:
    path = place.root / f"{tmp_path.name}.parquet"
    with engine._connection.cursor() as cursor:
        cursor.execute(
            f"COPY (SELECT n AS i, if(n % 2 = 0, {zero}::DOUBLE, 5.5) AS d, if(n % 2 = 0, {zero}::FLOAT, 5.5) AS f, "
            f"{{'y': 1::DOUBLE}} AS s FROM range(10_000) t(n)) TO '{path}' "
            "(FORMAT parquet, FIELD_IDS {i: 1, d: 2, f: 3, s: {__duckdb_field_id: 4, y: 5}})"
        )
    return path


def test_a_statement_of_a_zero_is_answered_from_a_file_that_duckdb_wrote(
    engine: Engine, place: Place, nan_counts: dict[int, int], tmp_path: Path
) -> None:
    """The whole way of a statement, over a table whose writer counted that there is no NaN."""
    folder = place.root / tmp_path.name
    folder.mkdir()
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/c.db",
        "warehouse": f"file://{folder}",
    }
    path = _with_zeros(engine, place, tmp_path, "-0.0")
    with closing(SqlCatalog("lake", **properties)) as catalog:
        catalog.create_namespace("n")
        table = catalog.create_table("n.t", schema=SCHEMA)
        nan_counts.update({D: 0, F: 0, Y: 0})
        table.append(
            content([(n, (-0.0, 5.5)[n % 2], (-0.0, 5.5)[n % 2], 1.0) for n in range(10_000)])
        )
        # As DuckDB writes the same rows: pyiceberg adds no files that have field ids.
        (file,) = table.inspect.files()["file_path"].to_pylist()
        path.rename(file.removeprefix("file://"))
    with closing(IcebergStore({"lake": properties})) as store:
        board, tails, statements = serve(store, MemoryLog(), runs_in=engine)
        try:
            counts = {
                condition: _count(
                    statements, f"SELECT count(*) FROM lake.n.t WHERE {condition}"
                )
                for condition in ("d = 0", "d > 1", "d = 5.5", "f = -0.0")
            }
        finally:
            forget(board, tails)
    assert set(counts.values()) == {5_000}, counts


def _count(statements: Statements, sql: str) -> int:
    planned = statements.plan(SESSION, sql, None, Deadline(60))
    with closing(statements.open(SESSION, planned.ticket, Deadline(60))) as answer:
        return int(pa.Table.from_batches(list(answer)).column(0)[0].as_py())
