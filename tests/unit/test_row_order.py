"""Which partitions Spark's own order does not bring together, and what rows are sorted by then."""

from __future__ import annotations

import pyarrow as pa
import pytest

from planner.schema import FIELD_ID, Column, TableSchema
from planner.tiering.layout import PartitionTerm, RowKey, RowOrder, SortTerm, own_order


def field(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={FIELD_ID: str(number)})


SCHEMA = TableSchema(
    0,
    (
        Column(1, "id", pa.uuid()),
        Column(2, "ratio", pa.float64()),
        Column(3, "host", pa.string()),
        Column(4, "fixed", pa.binary(16)),
        Column(
            5,
            "inner",
            pa.struct(
                [field("name", pa.string(), 6), field("deep", pa.struct([field("id", pa.uuid(), 8)]), 7)]
            ),
        ),
        Column(9, "single", pa.float32()),
    ),
)  # fmt: skip
BY_ID = PartitionTerm("id_bucket", 1, "bucket[4]")
ID_KEY = RowKey(("id",), pa.uuid(), "bucket", 4)
BY_HOST = PartitionTerm("host", 3, "identity")
HOST_KEY = RowKey(("host",), pa.string(), "identity")


@pytest.mark.parametrize(
    ("term", "key"),
    [
        (BY_ID, ID_KEY),
        (PartitionTerm("ratio", 2, "identity"), RowKey(("ratio",), pa.float64(), "identity")),
        (PartitionTerm("s", 9, "identity"), RowKey(("single",), pa.float32(), "identity")),
        (
            PartitionTerm("inner.deep.id_bucket", 8, "bucket[2]"),
            RowKey(("inner", "deep", "id"), pa.uuid(), "bucket", 2),
        ),
    ],
)
def test_buckets_of_uuids_and_floats_are_told_apart_by_us(
    term: PartitionTerm, key: RowKey
) -> None:
    assert own_order(SCHEMA, (term,), ()) == RowOrder((key,), ())
    assert own_order(SCHEMA, (BY_HOST, term), ()) == RowOrder((HOST_KEY, key), ())


@pytest.mark.parametrize(
    ("source_id", "transform"),
    [
        (1, "identity"),
        (3, "identity"),
        (3, "bucket[4]"),
        (3, "truncate[2]"),
        (4, "bucket[4]"),
        (6, "bucket[4]"),
    ],
)
def test_all_else_spark_brings_together_as_iceberg_does(source_id: int, transform: str) -> None:
    assert own_order(SCHEMA, (PartitionTerm("p", source_id, transform),), ()) is None


def test_fields_that_are_void_are_no_matter() -> None:
    void = PartitionTerm("ratio", 2, "void")
    assert own_order(SCHEMA, (void,), ()) is None
    assert own_order(SCHEMA, (void, BY_ID), ()) == RowOrder((ID_KEY,), ())


@pytest.mark.parametrize(
    "term", [PartitionTerm("p", 3, "zorder[3]"), PartitionTerm("p", 99, "identity")]
)
def test_what_nobody_knows_is_left_to_iceberg(term: PartitionTerm) -> None:
    assert own_order(SCHEMA, (BY_ID, term), ()) is None
    sort = SortTerm(term.source_id, term.transform, descending=False, nulls_first=True)
    assert own_order(SCHEMA, (BY_ID,), (sort,)) is None


def test_the_tables_own_order_comes_within_partitions() -> None:
    sort = (
        SortTerm(3, "truncate[2]", descending=True, nulls_first=False),
        SortTerm(2, "identity", descending=False, nulls_first=True),
    )
    keys = (
        RowKey(("host",), pa.string(), "truncate", 2, descending=True, nulls_first=False),
        RowKey(("ratio",), pa.float64(), "identity"),
    )
    assert own_order(SCHEMA, (BY_ID,), sort) == RowOrder((ID_KEY,), keys)
    # The two zeros are equal to whoever looks for them in a file.
    assert own_order(SCHEMA, (BY_HOST,), sort) is None


def test_an_order_by_the_bucket_of_a_uuid_is_ours_too() -> None:
    sort = (SortTerm(1, "bucket[4]", descending=False, nulls_first=True),)
    assert own_order(SCHEMA, (), sort) == RowOrder((), (ID_KEY,))
