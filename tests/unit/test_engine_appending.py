"""Appending to segments by kept statements."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

from planner.errors import FederationError
from proxy.engine.segments import _MAX_APPENDERS, Appender, Segments

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("key", pa.uuid()),
        pa.field("tags", pa.map_(pa.string(), pa.list_(pa.decimal128(20, 3)))),
    ]
)


def rows(*ids: int) -> pa.RecordBatch:
    columns = [
        pa.array(ids, pa.int64()),
        pa.array(ids, pa.int64()).cast(SCHEMA.field("at").type),
        pa.ExtensionArray.from_storage(
            pa.uuid(), pa.array([at.to_bytes(16) for at in ids], pa.binary(16))
        ),
        pa.array(
            [None if at % 2 else [(str(at), [at])] for at in ids], SCHEMA.field("tags").type
        ),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


@pytest.fixture
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 2}) as connected:
        connected.execute("SET GLOBAL TimeZone = 'UTC'")
        yield connected


@pytest.fixture
def segments(connection: duckdb.DuckDBPyConnection) -> Iterator[Segments]:
    value = Segments(connection)
    yield value
    value.close()


def add(segments: Segments, name: str, *batches: pa.RecordBatch) -> None:
    with segments.appending(name, SCHEMA) as append:
        for batch in batches:
            append(batch)


def interrupted(segments: Segments, name: str, batch: pa.RecordBatch) -> None:
    with segments.appending(name, SCHEMA) as append:
        append(batch)
        raise KeyboardInterrupt


def ids(connection: duckdb.DuckDBPyConnection, name: str) -> list[int]:
    items = connection.execute(f"SELECT id FROM {name} ORDER BY id").fetchall()
    return [value for (value,) in items]


def test_what_is_appended_again_and_again_is_what_was_given(
    connection: duckdb.DuckDBPyConnection, segments: Segments
) -> None:
    name = segments.create(SCHEMA)
    add(segments, name, rows(1, 2), rows())
    add(segments, name, rows(3), rows(4, 5))
    result = connection.execute(f"FROM {name} ORDER BY id").to_arrow_table().to_pylist()
    # DuckDB gives a UUID as text.
    assert result == [
        {**row, "key": str(row["key"])} for row in rows(1, 2, 3, 4, 5).to_pylist()
    ]


def test_a_batch_of_many_rows_arrives_whole(
    connection: duckdb.DuckDBPyConnection, segments: Segments
) -> None:
    name = segments.create(SCHEMA)
    add(segments, name, rows(*range(40_000)))
    query = f"SELECT count(*), sum(id) FROM {name}"
    assert connection.execute(query).fetchall() == [(40_000, sum(range(40_000)))]


def test_nothing_is_seen_before_the_end_and_nothing_after_a_failure(
    connection: duckdb.DuckDBPyConnection, segments: Segments
) -> None:
    name = segments.create(SCHEMA)
    add(segments, name, rows(1))
    with segments.appending(name, SCHEMA) as append:
        append(rows(2))
        assert ids(connection, name) == [1]
    with pytest.raises(KeyboardInterrupt):
        interrupted(segments, name, rows(3))
    add(segments, name, rows(4))
    assert ids(connection, name) == [1, 2, 4]


def test_tables_that_come_and_go_meanwhile_change_nothing(
    connection: duckdb.DuckDBPyConnection, segments: Segments
) -> None:
    name = segments.create(SCHEMA)
    for at in range(4):
        add(segments, name, rows(2 * at))
        other = segments.create(SCHEMA)
        if at % 2:
            # Not by way of ``segments``: a plan that is out of date must still be right.
            connection.execute(f"DROP TABLE {other}")
        else:
            segments.drop(other)
        add(segments, name, rows(2 * at + 1))
    assert ids(connection, name) == list(range(8))


def test_rows_of_another_schema_are_refused(
    connection: duckdb.DuckDBPyConnection, segments: Segments
) -> None:
    name = segments.create(SCHEMA)
    other = rows(1).set_column(0, "id", pa.array([1.0]))
    with pytest.raises(pa.ArrowInvalid), segments.appending(name, SCHEMA) as append:
        append(other)
    assert ids(connection, name) == []


def test_a_table_that_is_gone_is_an_error_and_more_tables_than_are_kept_are_none(
    connection: duckdb.DuckDBPyConnection, segments: Segments
) -> None:
    names = [segments.create(SCHEMA) for _ in range(_MAX_APPENDERS + 2)]
    for at in range(2):
        for name in names:
            add(segments, name, rows(at))
    assert all(ids(connection, name) == [0, 1] for name in names)
    segments.drop(names[0])
    with pytest.raises(FederationError):
        add(segments, names[0], rows(2))


def test_memory_of_a_dropped_segment_is_free_at_once(segments: Segments) -> None:
    saved = segments.create(SCHEMA)
    add(segments, saved, rows(1))
    before = segments.memory_bytes()
    name = segments.create(SCHEMA)
    add(segments, name, rows(*range(100_000)))
    assert segments.memory_bytes() > before + 1_000_000
    segments.drop(name)
    assert segments.memory_bytes() <= before + 1_000_000


def test_a_uuid_inside_a_struct_is_appended() -> None:
    """Of which pyarrow makes no empty array."""
    key, kind = uuid.UUID(int=2**127), pa.struct([pa.field("u", pa.uuid())])
    schema = pa.schema([("point", kind)])
    ids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([key.bytes], pa.binary(16)))
    inner = pa.StructArray.from_arrays([ids], fields=list(kind))
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE own (point STRUCT(u UUID))")
        appender = Appender(connection, "own", schema, 0)
        for layout in (0, 1):
            appender.begin(layout)
            appender.append(pa.RecordBatch.from_arrays([inner], schema=schema))
            appender.commit()
        assert connection.execute("SELECT * FROM own").fetchall() == [({"u": key},)] * 2
        appender.close()
