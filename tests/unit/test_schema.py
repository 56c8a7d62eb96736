import pickle
from dataclasses import replace

import pyarrow as pa
import pytest

from planner.errors import BadBinding, FederationError, TailGap, UnsupportedType
from planner.schema import Column, TableSchema, check_federated
from tests.harness.builders import FLOWS, schema


def test_the_arrow_schema_carries_field_ids_and_nullability() -> None:
    value = schema(Column(9, "host", pa.string(), required=True))
    assert value.names == ("kafka_partition", "kafka_offset", "kafka_timestamp", "host")
    assert value.payload == (value.columns[3],)
    assert value.has("host")
    assert not value.has("port")
    field = value.arrow.field("host")
    assert field.metadata == {b"PARQUET:field_id": b"9"}
    assert not field.nullable


GOOD = [
    pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(38, 5), pa.date32(),
    pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.string(), pa.binary(), pa.binary(16), pa.uuid(),
    pa.list_(pa.int32()), pa.map_(pa.string(), pa.float64()),
    pa.struct([pa.field("a", pa.list_(pa.date32()))]),
]  # fmt: skip


@pytest.mark.parametrize("kind", GOOD, ids=str)
def test_a_type_both_sides_hold_is_served(kind: pa.DataType) -> None:
    check_federated(FLOWS, schema(Column(4, "x", kind)))


BAD = {
    "time": pa.time64("us"),
    "timestamp_ns": pa.timestamp("ns"),
    "timestamptz_ns": pa.timestamp("ns", "UTC"),
    "large_string": pa.large_string(),
    "timestamp[us, tz=Europe/Berlin]": pa.timestamp("us", "Europe/Berlin"),
}
NESTINGS = {
    "alone": lambda kind: kind,
    "in a list": pa.list_,
    "in map values": lambda kind: pa.map_(pa.string(), kind),
    "in map keys": lambda kind: pa.map_(kind, pa.string()),
    "in a struct": lambda kind: pa.struct([pa.field("a", pa.int32()), pa.field("b", kind)]),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("nesting", NESTINGS)
def test_a_type_one_side_cannot_hold_is_refused_by_name(name: str, nesting: str) -> None:
    column = Column(4, "x", NESTINGS[nesting](BAD[name]))
    with pytest.raises(UnsupportedType) as caught:
        check_federated(FLOWS, schema(column))
    assert caught.value.facts == {"table": "lake.net.flows", "column": "x", "type": name}


def test_a_bound_table_needs_its_metadata_columns() -> None:
    with pytest.raises(BadBinding, match="has no column kafka_partition"):
        check_federated(FLOWS, TableSchema(0, (Column(1, "x", pa.int32()),)))
    with pytest.raises(BadBinding, match="column kafka_key is string, it must be binary"):
        check_federated(FLOWS, schema(Column(4, "kafka_key", pa.string())))


def test_a_widened_partition_column_is_served() -> None:
    """Iceberg lets anybody widen an int, and nobody narrow it."""

    def typed(name: str, kind: pa.DataType) -> TableSchema:
        columns = (replace(c, type=kind) if c.name == name else c for c in schema().columns)
        return TableSchema(0, tuple(columns))

    check_federated(FLOWS, typed("kafka_partition", pa.int64()))
    for name, kind in (("kafka_partition", pa.string()), ("kafka_offset", pa.int32())):
        with pytest.raises(BadBinding, match=f"column {name} is {kind}, it must be"):
            check_federated(FLOWS, typed(name, kind))


def test_errors_survive_the_way_from_an_executor() -> None:
    error = pickle.loads(pickle.dumps(TailGap("gone", partition=3)))
    assert isinstance(error, TailGap)
    assert isinstance(error, FederationError)
    assert (str(error), error.facts) == ("gone", {"partition": 3})


def test_equal_schemas_are_one_key_and_other_columns_of_an_id_another() -> None:
    columns = (Column(1, "load", pa.float64()), Column(2, "host", pa.string()))
    schema, same = TableSchema(3, columns), TableSchema(3, tuple(columns))
    # Iceberg gives back an old id when a change is undone.
    other = TableSchema(3, (columns[0], Column(2, "name", pa.string())))
    assert {schema: "first", other: "other"}[same] == "first"
    assert hash(schema) == hash(same)
