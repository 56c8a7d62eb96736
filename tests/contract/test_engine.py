"""The engine as the server uses it: statements over relations, parameters, descriptions."""

import datetime as dt
import decimal
import os
import uuid
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from planner.errors import (
    BadConfig,
    BadParameter,
    BadStatement,
    FederationError,
    SnapshotExpired,
    UnsupportedStatement,
)
from planner.ports import ArrowRelation, SqlRelation
from planner.schema import Column, TableSchema
from planner.statement.gate import check
from proxy.engine.engine import Engine
from proxy.engine.macros import When
from proxy.engine.relations import Relation
from tests.contract.engine import NOW, arrow, prepared, rows, table, value
from tests.fixtures.engine import Place

# --- parsing ---


@pytest.mark.parametrize(
    ("sql", "kind", "message"),
    [
        ("SELECT -1e999", BadStatement, "a number is too large for a DOUBLE; write 'inf'::DOUBLE for infinity."),
        ("SELEC 1", BadStatement, 'syntax error at or near "SELEC".'),
        ("SELECT ?, $a", UnsupportedStatement, "Mixing named and positional parameters is not supported yet."),
        ("", UnsupportedStatement, "the text holds no statement; send one query."),
        ("SELECT 1; SELECT 2;", UnsupportedStatement, "one statement is expected, the text holds 2; send them one by one."),
        ("SELECT 1; DELETE FROM t", UnsupportedStatement, "one query is expected, and PIVOT needs its values: PIVOT ... ON column IN (...)."),
        ("PIVOT t ON a USING sum(b)", UnsupportedStatement, "one query is expected, and PIVOT needs its values: PIVOT ... ON column IN (...)."),
        ("/* x */ insert into t values (1)", UnsupportedStatement, "INSERT statements are not supported; this server answers queries only."),
        ("-- a comment\nDROP TABLE t", UnsupportedStatement, "DROP statements are not supported; this server answers queries only."),
    ],
)  # fmt: skip
def test_what_is_not_one_query_is_refused(
    engine: Engine, sql: str, kind: type[FederationError], message: str
) -> None:
    with pytest.raises(kind) as refused:
        engine.parse(sql)
    assert type(refused.value) is kind
    assert str(refused.value) == message


def test_what_cannot_be_printed_faithfully_is_refused(engine: Engine) -> None:
    document = engine.parse("SELECT * FROM a NATURAL JOIN (b POSITIONAL JOIN c)")
    with pytest.raises(UnsupportedStatement, match="cannot be carried over faithfully"):
        engine.unparse(document)


def test_a_star_cannot_smuggle_text_past_the_gate(engine: Engine) -> None:
    name = "\"t.* FROM read_text('/etc/passwd'); SELECT x\""
    document = engine.parse(f"SELECT {name}.* FROM range(1) AS {name}")
    check(document)
    # Printed as it is by DuckDB, the name is text of the statement; the rewrite quotes it.
    with pytest.raises((UnsupportedStatement, BadStatement)):
        engine.unparse(document)
    assert rows(engine, f"SELECT {name}.* FROM range(1) AS {name}") == [{"range": 0}]


# --- relations ---

FLOWS = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "key": ["a", "b", None]})


def test_parts_are_read_together_and_a_table_may_be_named_twice(engine: Engine) -> None:
    flows = Relation(
        "lake.net.flows",
        FLOWS.schema,
        (
            ArrowRelation(FLOWS),
            SqlRelation("SELECT 'sql' AS key, 10 AS id"),
            ArrowRelation(FLOWS.slice(0, 1)),
        ),
    )
    assert value(engine, "SELECT count(*) FROM flows", [flows]) == 5
    assert value(engine, "SELECT count(*) FROM flows a JOIN flows b USING (id)", [flows]) == 7
    assert rows(engine, "SELECT key FROM flows WHERE id = 10", [flows]) == [{"key": "sql"}]
    sql = "WITH f AS (SELECT * FROM flows WHERE id > 1) SELECT count(*) FROM f, f AS g, flows"
    assert value(engine, sql, [flows]) == 3 * 3 * 5


def test_arrow_rows_come_in_order_and_are_read_once_however_often_they_are_named(
    engine: Engine,
) -> None:
    """A stream that is read a second time would be an error, and chunks of one may come in any order."""
    whole = pa.table({"id": range(600_000), "x": [float("nan")] * 600_000})
    content = pa.Table.from_batches(whole.to_batches(3_000))
    assert table(engine, "SELECT id FROM t", [arrow("t", content)])["id"] == content["id"]
    sql = """
    WITH RECURSIVE up(id) AS (
      SELECT min(id) FROM t WHERE x > 1 UNION ALL SELECT t.id FROM up JOIN t ON t.id = up.id + 1 AND t.id < $1
    )
    SELECT count(*) AS n, (SELECT max(id) FROM t) AS most, list((SELECT t.id FROM t WHERE t.id = up.id * 2)) AS twice FROM up
    """
    expected = [{"n": 4, "most": 599_999, "twice": [0, 2, 4, 6]}]
    assert rows(engine, sql, [arrow("t", content)], [4]) == expected


def test_a_relation_without_parts_is_empty_and_typed(engine: Engine) -> None:
    empty = Relation("lake.net.flows", FLOWS.schema)
    result = table(engine, "SELECT * FROM flows", [empty])
    assert result.num_rows == 0
    assert result.schema.types == [pa.int64(), pa.string()]


def test_a_table_schema_gives_names_and_types(engine: Engine) -> None:
    columns = (Column(1, "id", pa.int32()), Column(2, "at", pa.timestamp("us", "UTC")))
    relation = Relation(
        "lake.net.t",
        TableSchema(0, columns),
        (SqlRelation("SELECT TIMESTAMP '2026-01-01' AS at, 5::BIGINT AS id"),),
    )
    result = table(engine, "SELECT * FROM t", [relation])
    assert result.schema.types == [pa.int32(), pa.timestamp("us", "UTC")]
    assert result.to_pylist() == [{"id": 5, "at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)}]


def test_names_may_be_any_text(engine: Engine) -> None:
    names = ["a b", 'q"uote', "ünï", "select", "Case", "x.y", "'", "0"]
    content = pa.table({name: [number] for number, name in enumerate(names)})
    relation = Relation('lake.net.we"ird', content.schema, (ArrowRelation(content),))
    assert rows(engine, 'SELECT * FROM "we""ird"', [relation]) == content.to_pylist()
    sql = 'SELECT "we""ird"."q""uote" FROM "we""ird" WHERE "ünï" = 2'
    assert rows(engine, sql, [relation]) == [{'q"uote': 1}]


def test_internal_tables_cannot_be_seen_by_other_statements(engine: Engine) -> None:
    document = prepared(engine, "SELECT * FROM flows", [arrow("flows", FLOWS)])
    result = engine.run(document, [arrow("flows", FLOWS)], when=When(NOW))
    with pytest.raises(BadStatement):
        engine.run(engine.parse("SELECT * FROM temp.main.rows_0_0"), (), when=When(NOW))
    with pytest.raises(BadStatement):
        engine.run(engine.parse('SELECT * FROM "lake.net.flows"'), (), when=When(NOW))
    assert sum(batch.num_rows for batch in result) == 3


def used_bytes(engine: Engine, tag: str = "%") -> int:
    sql = f"SELECT coalesce(sum(memory_usage_bytes), 0)::BIGINT AS n FROM duckdb_memory() WHERE tag LIKE '{tag}'"
    with engine.run(engine.parse(sql), (), when=When(NOW)) as result:
        return int(next(iter(result)).column("n")[0].as_py())


def test_closing_a_statement_frees_its_rows(engine: Engine) -> None:
    before = used_bytes(engine)
    content = pa.table({"t": [str(number) * 20 for number in range(300_000)]})
    document = prepared(engine, "SELECT * FROM big", [arrow("big", content)])
    result = engine.run(document, [arrow("big", content)], when=When(NOW))
    value = used_bytes(engine)
    result.close()
    assert value > before + (1 << 20)
    assert used_bytes(engine) < before + (1 << 20)


def test_a_footer_is_decoded_once_and_counts_as_memory(place: Place) -> None:
    engine = place.engine
    paths = [place.root / f"{number}.parquet" for number in range(3)]
    files = ", ".join(f"'{path}'" for path in paths)
    relation = Relation(
        "lake.net.t",
        pa.schema({"x": pa.int64()}),
        (SqlRelation(f"SELECT x FROM read_parquet([{files}])"),),
    )

    def answer() -> int:
        return int(value(engine, "SELECT sum(x)::BIGINT FROM t WHERE x >= 0", [relation]))

    def write(*values: int) -> None:
        for path, number in zip(paths, values, strict=True):
            pq.write_table(pa.table({"x": [number] * 1_000 * number}), path)
            # Long ago: of a file that was written a moment ago the engine keeps nothing.
            os.utime(path, (number, number))

    write(1, 2, 3)
    before = used_bytes(engine, "OBJECT_CACHE")
    assert answer() == 14_000
    after = used_bytes(engine, "OBJECT_CACHE")
    assert after > before + 3 * 1_000  # without, it keeps 30 bytes of each
    assert answer() == 14_000
    assert used_bytes(engine, "OBJECT_CACHE") == after
    write(4, 5, 6)  # which no Iceberg writer does
    assert answer() == 77_000


def test_footers_give_way_to_a_statement_that_needs_their_memory(place: Place) -> None:
    folder, spill = place.root / "wide", place.spill / "wide"
    folder.mkdir()
    spill.mkdir()
    first = folder / "0.parquet"
    pq.write_table(pa.table({f"c{n}": [n] for n in range(500)}), first)
    os.utime(first, (1, 1))
    paths = [folder / f"{number}.parquet" for number in range(300)]
    for path in paths[1:]:
        os.link(first, path)
    files = ", ".join(f"'{path}'" for path in paths)
    relation = Relation(
        "lake.net.t",
        pa.schema({"c7": pa.int64()}),
        (SqlRelation(f"SELECT c7 FROM read_parquet([{files}])"),),
    )
    engine = Engine(
        storage_roots=[str(place.root)],
        spill_dir=spill,
        memory_limit_bytes=100 << 20,
        threads=2,
    )
    try:
        assert value(engine, "SELECT sum(c7)::BIGINT FROM t", [relation]) == 2_100
        before = used_bytes(engine, "OBJECT_CACHE")
        assert before > 30 << 20
        sql = "SELECT count(*) FROM (SELECT i % 1000000 AS k, sum(i) FROM range(3000000) t(i) GROUP BY k)"
        assert value(engine, sql) == 1_000_000
        assert used_bytes(engine, "OBJECT_CACHE") < before
        assert value(engine, "SELECT sum(c7)::BIGINT FROM t", [relation]) == 2_100
    finally:
        engine.close()


NAN = float("nan")
TYPED = pa.table(
    {
        "b": pa.array([True, False, None]),
        "i": pa.array([1, -(2**31), None], pa.int32()),
        "l": pa.array([2**63 - 1, -(2**63), None], pa.int64()),
        "f": pa.array([NAN, -0.0, None], pa.float32()),
        "d": pa.array([NAN, float("-inf"), None], pa.float64()),
        "n": pa.array([decimal.Decimal("1.50"), decimal.Decimal("-0.01"), None], pa.decimal128(9, 2)),
        "w": pa.array([decimal.Decimal(10**37), decimal.Decimal(0), None], pa.decimal128(38, 0)),
        "date": pa.array([dt.date(1, 1, 1), dt.date(9999, 12, 31), None]),
        "ts": pa.array([dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999_999), None]),
        "tz": pa.array([NOW, dt.datetime(1, 1, 1, tzinfo=dt.UTC), None], pa.timestamp("us", "UTC")),
        "s": ["", "é\U0001f600", None],
        "bin": pa.array([b"", b"\x00\xff", None]),
        "fix": pa.array([b"abcd", b"\x00\x00\x00\xff", None], pa.binary(4)),
        "u": pa.array([b"\xff" * 16, b"\x00" * 16, None], pa.uuid()),
        "list": pa.array([[1, None], [], None], pa.list_(pa.int32())),
        "map": pa.array([[("a", 1), ("b", None)], [], None], pa.map_(pa.string(), pa.int32())),
        "struct": pa.array(
            [{"x": 1, "y": [{"z": NAN}]}, {"x": None, "y": []}, None],
            pa.struct([("x", pa.int64()), ("y", pa.list_(pa.struct([("z", pa.float64())])))]),
        ),
    }
)  # fmt: skip


def test_every_type_leaves_as_it_came(engine: Engine) -> None:
    result = table(engine, "SELECT * FROM typed", [arrow("typed", TYPED)])
    changed = {
        name: result.schema.field(name).type
        for name in TYPED.column_names
        if result.schema.field(name).type != TYPED.schema.field(name).type
    }
    assert changed == {"fix": pa.binary(), "u": pa.string()}
    expected = TYPED.to_pylist()
    for row in expected:
        row["u"] = None if row["u"] is None else str(row["u"])
    assert repr(result.to_pylist()) == repr(expected)


@pytest.mark.parametrize("name", [name for name in TYPED.column_names if name != "map"])
def test_filters_on_every_type_find_the_rows(engine: Engine, name: str) -> None:
    relation = arrow("typed", TYPED)
    for pick in ("min", "max"):
        sql = (
            f'SELECT count(*) FROM typed WHERE "{name}" = (SELECT {pick}("{name}") FROM typed)'
        )
        assert value(engine, sql, [relation]) == 1
    both = f'SELECT count(*) FROM typed a JOIN typed b ON a."{name}" = b."{name}"'
    assert value(engine, both, [relation]) == 2


def test_nan_is_the_largest_number_in_memory_too(engine: Engine) -> None:
    relation = arrow("typed", TYPED)
    assert value(engine, "SELECT count(*) FROM typed WHERE d > 5", [relation]) == 1
    assert (
        value(engine, "SELECT count(*) FROM typed WHERE u = ?", [relation], [uuid.UUID(int=0)])
        == 1
    )


# --- parameters ---


def test_values_are_bound_and_pushed_into_relations(engine: Engine) -> None:
    flows = arrow("flows", FLOWS)
    assert rows(engine, "SELECT id FROM flows WHERE id = ? OR key = ?", [flows], [1, "b"]) == [
        {"id": 1},
        {"id": 2},
    ]
    sql = "SELECT id FROM flows WHERE id > $low ORDER BY id LIMIT $n"
    assert rows(engine, sql, [flows], [1, pa.scalar(1, pa.int32())]) == [{"id": 2}]
    assert value(engine, "SELECT typeof(?)", (), [pa.scalar(1, pa.int8())]) == "BIGINT"


def test_a_missing_value_is_an_error(engine: Engine) -> None:
    with pytest.raises(BadParameter):
        rows(engine, "SELECT ?")


# --- descriptions ---

UTC_MS = pa.timestamp("ms", "UTC")
DESCRIBED = [
    ("SELECT 1 AS x", [("x", pa.int32())], []),
    ("SELECT id, tz FROM t WHERE id = ?", [("id", pa.int64()), ("tz", pa.timestamp("us", "UTC"))], [pa.int64()]),
    ("SELECT id FROM t WHERE i IN (?, ?) AND s LIKE ?", [("id", pa.int64())], [pa.int64(), pa.int64(), pa.string()]),
    ("SELECT id FROM t WHERE tz BETWEEN ? AND ? AND ts > ?", [("id", pa.int64())], [UTC_MS, UTC_MS, pa.timestamp("ms")]),
    ("SELECT id FROM t WHERE day = ? AND tm = ? AND b = ?", [("id", pa.int64())], [pa.date32(), pa.time32("ms"), pa.bool_()]),
    ("SELECT id FROM t WHERE n >= ? AND d < ? AND u = ? AND bin = ?", [("id", pa.int64())], [pa.decimal128(38, 2), pa.float64(), pa.string(), pa.binary()]),
    ("SELECT id FROM t LIMIT ? OFFSET ?", [("id", pa.int64())], [pa.int64(), pa.int64()]),
    ("SELECT id + ? AS x, ? || s AS y, upper(?) AS z FROM t", [("x", pa.int64()), ("y", pa.string()), ("z", pa.string())], [pa.int64(), pa.string(), pa.string()]),
    ("SELECT i + ? AS x FROM t", [("x", pa.float64())], [pa.float64()]),
    ("SELECT $a AS a, $b::DATE AS b, id = $a AS c FROM t", [("a", pa.int64()), ("b", pa.date32()), ("c", pa.bool_())], [pa.int64(), pa.date32()]),
    ("SELECT date_trunc(?, tz) AS x FROM t", [("x", pa.timestamp("us", "UTC"))], [pa.string()]),
    ("SELECT now() - ?::INTERVAL AS x, current_date AS d", [("x", pa.timestamp("us", "UTC")), ("d", pa.date32())], [pa.string()]),
    ("SELECT id FROM t WHERE id = (SELECT max(id) FROM t WHERE s = ?)", [("id", pa.int64())], [pa.string()]),
    ("SELECT i + ? - ? AS x FROM t WHERE ? = ?", [("x", pa.float64())], [pa.float64(), pa.float64(), pa.string(), pa.string()]),
    ("DESCRIBE t", [("column_name", pa.string()), ("column_type", pa.string()), ("null", pa.string()), ("key", pa.string()), ("default", pa.string()), ("extra", pa.string())], []),
]  # fmt: skip
T_SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "i": pa.int32(),
        "s": pa.string(),
        "tz": pa.timestamp("us", "UTC"),
        "ts": pa.timestamp("us"),
        "day": pa.date32(),
        "tm": pa.time64("us"),
        "b": pa.bool_(),
        "n": pa.decimal128(9, 2),
        "d": pa.float64(),
        "u": pa.uuid(),
        "bin": pa.binary(),
    }
)


@pytest.mark.parametrize(("sql", "columns", "kinds"), DESCRIBED)
def test_a_statement_is_described_without_reading_anything(
    engine: Engine, sql: str, columns: list[tuple[str, pa.DataType]], kinds: list[pa.DataType]
) -> None:
    gone = Relation(
        "lake.net.t", T_SCHEMA, (SqlRelation("SELECT * FROM read_parquet('/gone')"),)
    )
    schema, types = engine.describe(prepared(engine, sql, [gone]), [gone])
    assert list(zip(schema.names, schema.types, strict=True)) == columns
    assert list(types) == kinds


def test_what_is_described_is_what_runs(engine: Engine) -> None:
    relation = Relation("lake.net.t", T_SCHEMA)
    for sql, _, items in DESCRIBED:
        document = prepared(engine, sql, [relation])
        schema, _ = engine.describe(document, [relation])
        values = [example(kind) for kind in items]
        if "date_trunc" in sql or "INTERVAL" in sql:
            values = ["1 day" if "INTERVAL" in sql else "day"]
        with engine.run(document, [relation], values, when=When(NOW)) as result:
            assert result.schema == schema


def example(kind: pa.DataType) -> pa.Scalar:
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        return pa.scalar(0, pa.int64() if kind.bit_width == 64 else pa.int32()).cast(kind)
    if pa.types.is_string(kind):
        return pa.scalar("00000000-0000-0000-0000-000000000000")
    return pa.scalar(b"x") if pa.types.is_binary(kind) else pa.scalar(1).cast(kind)


def test_a_statement_that_does_not_bind_is_not_described(engine: Engine) -> None:
    with pytest.raises(BadStatement, match='Referenced column "nope" was not found'):
        engine.describe(engine.parse("SELECT nope"), ())


# --- the lock, and errors ---


@pytest.mark.parametrize("root", ["/", "/etc", "relative"])
def test_a_system_directory_is_no_storage_root(tmp_path: Any, root: str) -> None:
    with pytest.raises(BadConfig):
        Engine(storage_roots=[root], spill_dir=tmp_path)


def test_messages_name_the_users_table_and_no_path(place: Place) -> None:
    flows = arrow("flows", FLOWS)
    with pytest.raises(BadStatement) as unbound:
        rows(place.engine, "SELECT flows.nope FROM flows", [flows])
    assert str(unbound.value) == 'Table "flows" does not have a column named "nope".'
    gone = Relation(
        "lake.net.flows",
        FLOWS.schema,
        (SqlRelation(f"SELECT * FROM read_parquet('{place.root}/gone.parquet')"),),
    )
    with pytest.raises(SnapshotExpired) as expired:
        rows(place.engine, "SELECT * FROM flows", [gone])
    assert str(place.root) not in str(expired.value)


def test_an_engine_is_healthy_until_it_is_closed(tmp_path: Any) -> None:
    engine = Engine(storage_roots=[], spill_dir=tmp_path)
    assert engine.healthy()
    engine.close()
    assert not engine.healthy()
