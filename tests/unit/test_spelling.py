"""A name that a record or a catalog can have is read back by each option, in the spelling that messages have."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType, TimestamptzType

from connectors.decoding.json.renames import read_renames, rename_option
from connectors.iceberg.partition_terms import partition_spec, sort_order
from connectors.spark.table_lookup import find_tables
from planner.errors import BadConfig
from planner.names import TableName
from planner.permissions import TablePattern
from planner.sql_text import identifier, read_path, spell, split_name
from planner.statement.references import references, resolve
from planner.type_text import parse_type, type_text
from tests.harness.serving import engine

#: Any text a JSON key or an identifier can be, and many of marks that options have.
NAMES = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8),
    st.text('"".:=, ()<>[]a\'`\\$-@/', min_size=1, max_size=8),
)
TABLE = TableName("lake", ("net",), "flows")
#: A level of a namespace: those with a dot are two (docs/limits.md).
LEVELS = NAMES.filter(lambda name: all(name.split(".")))


@given(LEVELS, st.lists(LEVELS, min_size=1, max_size=3), NAMES)
def test_a_table(catalog: str, namespace: list[str], name: str) -> None:
    catalog = catalog.replace(".", "_")
    levels = tuple(level for each in namespace for level in each.split("."))
    table = TableName(catalog, levels, name)
    quoted = ".".join(map(identifier, (catalog, *namespace, name)))
    assert TableName.parse(str(table)) == TableName.parse(quoted) == table
    assert TableName.parse(".".join(map(identifier, (catalog, table.schema, name)))) == table
    if "*" not in quoted:  # docs/limits.md
        assert TablePattern.parse(quoted).covers(table)
    assert find_tables([table, TABLE], [str(table), quoted]) == [table]
    without_catalog = ".".join(map(identifier, (*namespace, name)))
    for text, default in ((quoted, "lake"), (without_catalog, catalog)):
        (reference,) = references(engine().parse(f"SELECT * FROM {text}"))
        assert resolve(reference, default, "net", [table, TABLE]).table == table


@given(NAMES, NAMES)
def test_a_field(name: str, inside: str) -> None:
    for path in ((name,), (name, inside)):
        text = spell(path)
        assert read_path(text) == path
        assert split_name(f"{text}:struct<a: int>", ":") == (path, "struct<a: int>")
        assert split_name(f"{text}=ms", "=") == (path, "ms")
    assert read_renames([f"{identifier(name)}={identifier(inside)}"]) == {name: inside}
    assert rename_option(name, inside).startswith("--rename ")


@given(NAMES, NAMES)
def test_a_member_of_a_type(name: str, other: str) -> None:
    kind = pa.struct([pa.field(name, pa.int32()), pa.field("b", pa.list_(pa.string()))])
    kind = pa.map_(pa.string(), pa.struct([pa.field(other, kind)]))
    assert parse_type(type_text(kind)).equals(kind)
    assert parse_type(f"struct<{identifier(name)}: long>")[0].name == name


@given(NAMES, NAMES)
def test_a_column_of_a_term(name: str, inside: str) -> None:
    schema = Schema(
        NestedField(1, name, TimestamptzType()),
        NestedField(2, f"{name}x", StructType(NestedField(3, inside, LongType()))),
        NestedField(4, f"{name}y", StringType()),
    )
    at, member, text = identifier(name), spell((f"{name}x", inside)), identifier(f"{name}y")
    terms = [f"day({at})", f"bucket(8, {at})", f" truncate( 3 ,{text} )", text]
    assert [field.source_id for field in partition_spec(TABLE, schema, terms).fields] == [
        1,
        1,
        4,
        4,
    ]
    order = sort_order(TABLE, schema, [f"{at} desc", f"{text} nulls last", f"hour({at}) asc"])
    assert [field.source_id for field in order.fields] == [1, 4, 1]
    if '"' in member:
        assert sort_order(TABLE, schema, [f"{member} desc"]).fields[0].source_id == 3


@pytest.mark.parametrize(
    ("term", "source"),
    [
        ("day(@timestamp)", 1),
        ("@timestamp", 1),
        ("id.orig_h", 2),
        ('"id.orig_h"', 2),
        ("http.user-agent", 4),
        ('http."user-agent"', 4),
        ("truncate(3, http.user-agent)", 4),
        ("😀", 5),
        ("a/b", 6),
    ],
)
def test_what_cannot_be_mistaken_needs_no_quotes(term: str, source: int) -> None:
    assert partition_spec(TABLE, SCHEMA, [term]).fields[0].source_id == source


SCHEMA = Schema(
    NestedField(1, "@timestamp", TimestamptzType()),
    NestedField(2, "id.orig_h", StringType()),
    NestedField(3, "http", StructType(NestedField(4, "user-agent", StringType()))),
    NestedField(5, "😀", StringType()),
    NestedField(6, "a/b", StringType()),
    NestedField(7, "a b", StringType()),
)


@pytest.mark.parametrize(
    ("term", "message"),
    [
        ("a b", "'a b' is not a partition or sort term"),
        ('"http.user-agent"', "which the table does not have"),
        ('day("@timestamp', "is not a partition or sort term"),
        ('"a b"x', "a dot is expected behind the quoted name, at character 5"),
        ("day(@timestamp", "is not a partition or sort term"),
        ('day("a b")', "cannot be used on string"),
    ],
)
def test_what_is_wrong_with_a_term_is_said(term: str, message: str) -> None:
    with pytest.raises(BadConfig, match=message):
        partition_spec(TABLE, SCHEMA, [term])
