"""SQL by which ``verify`` reads UUIDs inside other values as their bytes."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from thermocline.cold_rows import in_bytes

UUID = "'00112233-4455-6677-8899-aabbccddeeff'::UUID"
OCTETS = bytes.fromhex("00112233445566778899aabbccddeeff")


@pytest.mark.parametrize(
    ("value", "kind", "row"),
    [
        (f"[{{'a': {UUID}}}]", pa.list_(pa.struct({"a": pa.uuid()})), [{"a": OCTETS}]),
        (
            f"[map {{'k': [{{'it''s': {UUID}}}]}}]",
            pa.list_(pa.map_(pa.string(), pa.list_(pa.struct({"it's": pa.uuid()})))),
            [{"k": [{"it's": OCTETS}]}],
        ),
    ],
)
@pytest.mark.parametrize("other", ["{'a': 'of a column'}", "'A'"])
def test_a_column_with_the_name_of_the_element_is_not_read_in_its_place(
    value: str, kind: pa.DataType, row: object, other: str
) -> None:
    sql = f"SELECT {in_bytes('v', kind)} FROM (SELECT {value} AS v, {other} AS e)"
    with duckdb.connect() as connection:
        assert connection.execute(sql).fetchall() == [(row,)]
