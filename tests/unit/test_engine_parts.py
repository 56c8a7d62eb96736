"""The engine's parts that need no engine: messages, batches, types."""

import datetime as dt
import decimal
import uuid

import duckdb
import pyarrow as pa
import pytest

from planner import errors
from planner.errors import BadConfig, BadParameter, UnsupportedType
from planner.sql_text import identifier
from planner.statement import allowed
from planner.type_text import sql_type
from proxy.engine import macros
from proxy.engine.describe import arrow_type, bound
from proxy.engine.engine import _root
from proxy.engine.errors import readable, translate
from proxy.engine.relations import AccessFilter, Relation, _restricted
from proxy.engine.result import rows_per_batch
from tests.harness.sql import parse

# --- errors ---

TRANSLATED = [
    ('Parser Error: syntax error at or near "x"\n\nLINE 1: x', errors.BadStatement, 'syntax error at or near "x".'),
    ("Binder Error: no such column", errors.BadStatement, "no such column."),
    ("Catalog Error: no such function!", errors.BadStatement, "no such function!"),
    ("Conversion Error: Could not convert string 'a' to INT32", errors.BadStatement, "Could not convert string 'a' to INT32."),
    ("Invalid Input Error: boom /var/lib/x.db now", errors.BadStatement, "boom <path> now."),
    ("Invalid Input Error: No magic bytes found at end of file '/w/x.parquet'", errors.ColdStoreUnavailable, "a file of the table is damaged."),
    ('Invalid Input Error: Failed to read file "/w/x.parquet": Unsupported compression codec "LZ4". Supported options are x', errors.UnsupportedFile, "a Parquet file of the table is compressed with a codec that is not read (Hadoop's LZ4, or LZO); set write.parquet.compression-codec to zstd and rewrite the data files."),
    ("Out of Range Error: overflow", errors.BadStatement, "overflow."),
    ("Not implemented Error: that", errors.UnsupportedStatement, "that."),
    ('Permission Error: Cannot access file "/a/b/c" - file system operations are disabled', errors.BadConfig, "a file of the table lies outside the storage roots of this server; add its root, and restart."),
    ("Permission Error: writing to /a/b is not allowed", errors.UnsupportedStatement, "writing to <path> is not allowed."),
    ('IO Error: No files found that match the pattern "/w/x"', errors.SnapshotExpired, "a file of the pinned snapshot is gone; run the statement again."),
    ("Invalid Input Error: thermocline refused: repeat would build too much\n\nLINE", errors.UnsupportedStatement, "repeat would build too much."),
    ("INTERRUPT Error: Interrupted!", errors.Cancelled, "Interrupted!"),
    ("Out of Memory Error: could not allocate block (/data/spill)", errors.LimitExceeded, "the statement needs more memory than the engine may use; narrow it, or raise memory_limit."),
    ('IO Error: Cannot open file "/w/x.parquet": No such file or directory', errors.SnapshotExpired, "a file of the pinned snapshot is gone; run the statement again."),
    ("HTTP Error: HTTP GET error on 's3://b/k' (HTTP 404)", errors.SnapshotExpired, "a file of the pinned snapshot is gone; run the statement again."),
    ("IO Error: Could not read from /w/x.parquet", errors.ColdStoreUnavailable, "a file of the table could not be read; try again."),
    ("HTTP Error: HTTP 503 on s3://b/k", errors.ColdStoreUnavailable, "a file of the table could not be read: the object store has too much to do; try again."),
    ("INTERNAL Error: Vector::Reference at /src/x.cpp", errors.InternalError, "the engine failed; the server's log has the details."),
    ("INTERNAL Error: Pivot aggregate mismatch: 2 unique names, 1 aggregates", errors.UnsupportedStatement, "a PIVOT of more than 20 columns takes each aggregate once; leave out the one that is repeated."),
    ("FATAL Error: database has been invalidated", errors.InternalError, "the engine failed; the server's log has the details."),
    ("something else /a/b", errors.InternalError, "the engine failed; the server's log has the details."),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind", "message"), TRANSLATED)
@pytest.mark.parametrize("raised", [duckdb.Error, OSError, pa.ArrowInvalid])
def test_duckdbs_words_become_our_errors_without_paths(
    text: str, kind: type[Exception], message: str, raised: type[Exception]
) -> None:
    result = translate(raised(text))
    assert type(result) is kind
    assert str(result) == message


def test_our_own_errors_pass_through() -> None:
    own = BadParameter("no")
    assert translate(own) is own


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a/b is 1/2", "a/b is 1/2."),
        ("see s3://bucket/key/x.parquet here", "see <path> here."),
        ("see file:///w/a/b.avro, line 2", "see <path>, line 2."),
        ("at '/w/with-dash/x_1.parquet'", "at '<path>'."),
        ("x" * 600, "x" * 500 + "."),
        ("first\nsecond", "first."),
    ],
)
def test_messages_are_one_line_without_paths(text: str, expected: str) -> None:
    assert readable(text) == expected


# --- batches ---


def test_few_rows_are_asked_for_where_their_size_is_unknown() -> None:
    assert rows_per_batch(["bigint"] * 8) == (2 << 20) // 64
    assert rows_per_batch(["boolean"]) == 65_536
    assert rows_per_batch(["bigint", "varchar"]) == 4_096
    assert rows_per_batch(["struct"]) == 4_096
    assert rows_per_batch([]) == 65_536


# --- types and names ---


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.int32(), "INTEGER"),
        (pa.uuid(), "UUID"),
        (pa.binary(16), "BLOB"),
        (pa.decimal128(38, 4), "DECIMAL(38, 4)"),
        (pa.timestamp("us"), "TIMESTAMP"),
        (pa.timestamp("us", "UTC"), "TIMESTAMPTZ"),
        (pa.timestamp("ns"), "TIMESTAMP_NS"),
        (pa.list_(pa.list_(pa.float64())), "DOUBLE[][]"),
        (pa.map_(pa.string(), pa.date32()), "MAP(VARCHAR, DATE)"),
        (
            pa.struct([("a b", pa.bool_()), ('q"', pa.uuid())]),
            'STRUCT("a b" BOOLEAN, "q""" UUID)',
        ),
    ],
)
def test_every_column_type_has_an_engine_type(kind: pa.DataType, expected: str) -> None:
    assert sql_type(kind) == expected


@pytest.mark.parametrize("kind", [pa.struct([]), pa.null(), pa.month_day_nano_interval()])
def test_a_type_the_engine_lacks_is_named(kind: pa.DataType) -> None:
    with pytest.raises(UnsupportedType, match="cannot be queried"):
        sql_type(kind)


def test_identifiers_are_quoted() -> None:
    assert identifier('a "b"') == '"a ""b"""'


@pytest.mark.parametrize(
    ("root", "expected"),
    [
        ("/srv/warehouse", "/srv/warehouse/"),
        ("/srv/warehouse//", "/srv/warehouse/"),
        ("file:///srv/warehouse", "/srv/warehouse/"),
        ("s3://bucket/warehouse", "s3://bucket/warehouse/"),
    ],
)
def test_storage_roots_end_in_one_slash(root: str, expected: str) -> None:
    assert _root(root) == expected


@pytest.mark.parametrize(
    "root", ["/", "//", "file:///", "/etc", "/tmp/", "relative", "", "/srv/../etc", "/srv/x/.."]
)
def test_a_root_that_would_open_the_machine_is_refused(root: str) -> None:
    with pytest.raises(BadConfig):
        _root(root)


# --- parameters ---


def test_values_of_any_unit_are_bound() -> None:
    document = parse("SELECT " + ", ".join("?" * 12))
    utc = dt.UTC
    by_name = bound(
        document,
        [
            pa.scalar(5, pa.int8()),
            1 << 70,
            True,
            None,
            pa.scalar(None, pa.int64()),
            pa.scalar(dt.datetime(2026, 1, 1), pa.timestamp("ms")),
            pa.scalar(1_500, pa.timestamp("ns", "UTC")),
            pa.scalar(dt.time(1, 2, 3), pa.time32("ms")),
            pa.scalar(decimal.Decimal("1.50")),
            pa.scalar(b"x", pa.binary(1)),
            pa.scalar(b"\0" * 15 + b"\1", pa.uuid()),
            pa.scalar("text", pa.large_string()),
        ],
    )
    assert list(by_name) == [str(number) for number in range(1, 13)]
    values = list(by_name.values())
    assert repr(values[0]) == repr(duckdb.Value(5, duckdb.sqltypes.BIGINT))
    assert values[1:] == [
        1 << 70,
        True,
        None,
        None,
        dt.datetime(2026, 1, 1),
        dt.datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=utc),
        dt.time(1, 2, 3),
        decimal.Decimal("1.50"),
        b"x",
        uuid.UUID(int=1),
        "text",
    ]


def test_named_parameters_are_bound_by_name() -> None:
    assert bound(parse("SELECT $b, $a"), ["one", "two"]) == {"b": "one", "a": "two"}


@pytest.mark.parametrize("values", [[], ["a", "b"]])
def test_a_wrong_number_of_values_is_refused(values: list[str]) -> None:
    with pytest.raises(BadParameter) as wrong:
        bound(parse("SELECT ?"), values)
    assert (
        str(wrong.value) == f"the statement has 1 parameters, {len(values)} values were given."
    )


def test_a_value_outside_the_engines_range_is_refused() -> None:
    with pytest.raises(BadParameter, match="parameter 1 has a value outside"):
        bound(parse("SELECT ?"), [pa.scalar(1 << 60, pa.timestamp("s"))])


def test_clients_are_told_types_they_can_send() -> None:
    reply = {
        name: arrow_type({"id": name, "type_info": {"width": 10, "scale": 2}})
        for name in (
            "TINYINT",
            "HUGEINT",
            "FLOAT",
            "DECIMAL",
            "TIMESTAMP",
            "TIME",
            "UUID",
            "LIST",
        )
    }
    assert reply == {
        "TINYINT": pa.int64(),
        "HUGEINT": pa.decimal128(38, 0),
        "FLOAT": pa.float64(),
        "DECIMAL": pa.decimal128(38, 2),
        "TIMESTAMP": pa.timestamp("ms"),
        "TIME": pa.time32("ms"),
        "UUID": pa.string(),
        "LIST": pa.string(),
    }


# --- macros ---


def test_every_bounded_function_has_its_macro() -> None:
    defined = {text.removeprefix("CREATE MACRO ").split("(")[0] for text in macros.STATEMENTS}
    assert defined >= allowed.BOUNDED
    clock = {name for name in defined if name not in allowed.BOUNDED and "like" not in name}
    assert clock - {"current_setting"} <= allowed.SCALARS


#: Made by the parser, spelled differently by DuckDB's own list, or our own.
UNLISTED = frozenset(
    (
        "!",
        "->",
        "alias",
        "current_time",
        "current_timestamp",
        "date_bin",
        "fill",
        "like_escape",
        "thermocline_cut",
        "formatreadabledecimalsize",
        "formatreadablesize",
        "localtime",
        "localtimestamp",
        "unnest",
    )
)


def test_every_allowed_function_exists() -> None:
    rows = duckdb.connect().execute("SELECT function_name FROM duckdb_functions()").fetchall()
    existing = {row[0] for row in rows}
    assert (allowed.FUNCTIONS | allowed.WINDOWS) - existing - UNLISTED == set()


def test_a_message_that_quotes_half_a_character_is_one_all_the_same() -> None:
    said = "Conversion Error: Could not convert string 'ü' to INT32".encode()
    torn = UnicodeDecodeError("utf-8", said.replace(b"\xbc", b""), 43, 44, "invalid")
    result = translate(torn)
    assert type(result) is errors.BadStatement
    assert str(result) == "Could not convert string '\ufffd' to INT32."


@pytest.mark.parametrize("kind", [duckdb.ConversionException, duckdb.InvalidInputException])
def test_so_is_one_of_which_python_keeps_the_class_alone(kind: type[duckdb.Error]) -> None:
    """As 3.11.2 does: the server would call it a failure of its own."""
    result = translate(kind())
    assert type(result) is errors.BadStatement
    assert str(result) == (
        "a value cannot be converted as the statement says; the engine's message quotes part of a character."
    )


def test_the_barrier_of_a_row_filter_has_no_columns_name() -> None:
    for name in ("__tc:never", "__TC:NEVER"):
        reply = _restricted("SELECT 1", AccessFilter(((name, "1"),), "true"))
        assert reply.count('"__tc:never\'"') >= 2


def test_a_relation_has_the_columns_and_fields_that_are_shown() -> None:
    place = pa.struct([("x", pa.int64())])
    schema = pa.schema([("id", pa.int64()), ("place", place), ("bench", place)])
    whole = Relation("t", schema)
    assert whole.columns == ("id", "place", "bench")
    assert whole.nested == {"place", "bench"}
    visible = AccessFilter((("id", '"id"'), ("place", '"place"')))
    part = Relation("t", schema, access_filter=visible)
    assert part.columns == ("id", "place")
    assert part.nested == {"place"}
