import pyarrow as pa
import pytest

from planner.errors import BadConfig
from planner.type_text import parse_type, type_text

GOOD = {
    "long": pa.int64(),
    " Timestamptz ": pa.timestamp("us", "UTC"),
    "decimal(38, 5)": pa.decimal128(38, 5),
    "fixed[16]": pa.binary(16),
    "list<map<string,double>>": pa.list_(pa.map_(pa.string(), pa.float64())),
    "struct<a: int, b: list<date>>": pa.struct(
        [pa.field("a", pa.int32()), pa.field("b", pa.list_(pa.date32()))]
    ),
    "uuid": pa.uuid(),
    'struct<"$oid": string, user-agent:int,"a""b" : date, "x, y>": list<struct<@t:long>>>': pa.struct(
        [
            pa.field("$oid", pa.string()),
            pa.field("user-agent", pa.int32()),
            pa.field('a"b', pa.date32()),
            pa.field("x, y>", pa.list_(pa.struct([pa.field("@t", pa.int64())]))),
        ]
    ),
}


@pytest.mark.parametrize("text", GOOD)
def test_a_type_reads_as_iceberg_spells_it(text: str) -> None:
    assert parse_type(text).equals(GOOD[text])


@pytest.mark.parametrize("text", GOOD)
def test_a_type_is_written_as_it_is_read(text: str) -> None:
    assert parse_type(type_text(GOOD[text])).equals(GOOD[text])


def test_a_quote_that_is_not_closed_is_said() -> None:
    with pytest.raises(BadConfig, match="the quote at character 7 is not closed"):
        parse_type('struct<"a: int>')


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "a type name"),
        ("int8", "one of boolean, int"),
        ("long long", "the end"),
        ("decimal", r"'\('"),
        ("decimal(39,1)", "precision up to 38"),
        ("decimal(0,0)", "precision up to 38"),
        ("decimal(5,6)", "scale up to precision"),
        ("decimal(x,1)", "a number"),
        ("fixed(16)", r"'\['"),
        ("list<int", "'>'"),
        ("list<int)", "'>'"),
        ("map<int>", "','"),
        ("struct<a int>", "':'"),
        ("struct<a: int", "',' or '>'"),
        ("struct<a: int;", "',' or '>'"),
        ("struct<a: int)", "','"),
        ("list<" * 40 + "int", "fewer nested types"),
        ("struct<: int>", "a field name"),
        ("struct<a b: int>", "':'"),
    ],
)
def test_what_is_wrong_with_a_type_is_said(text: str, expected: str) -> None:
    with pytest.raises(BadConfig, match=f"is not a column type: expected .*{expected}"):
        parse_type(text)
