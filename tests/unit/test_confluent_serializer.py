"""What confluent's own serializer writes, as a producer calls it, and what is read of it. Its registry is the client's own double."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from connectors.decoding.writers import Writers
from planner.errors import UndecodableRecord
from planner.schema import Column
from planner.seam.watermark import Outcomes
from tests.harness.avro_decoder import PATHS, avro_decoder, raw_batch
from tests.harness.builders import schema

CONTEXT = SerializationContext("orders", MessageField.VALUE)
COPIES = 20


@pytest.fixture
def client() -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient.new_client({"url": "mock://orders"}) as mock:
        yield mock


class Producer:
    """Writes values of one schema, and reads them as column ``value`` or as that of a field."""

    def __init__(self, client: SchemaRegistryClient, text: Any, column: Column) -> None:
        self._text = json.dumps(text)
        self._serializer = AvroSerializer(client, self._text)
        self._column = column

    def bytes_of(self, value: Any) -> bytes | None:
        written: bytes | None = self._serializer(value, CONTEXT)
        return written

    def read(self, value: Any, fast_from: int | None) -> list[Any]:
        """Return the distinct values of a batch of copies."""
        raw = self.bytes_of(value)
        writers = Writers()
        if raw is not None:
            writers.add(int.from_bytes(raw[1:5]), self._text)
        decoder = avro_decoder(schema(self._column), writers, fast_from=fast_from)
        decoded = decoder.decode(raw_batch(*[raw] * COPIES))
        values: list[Any] = decoded.rows.column(self._column.name).to_pylist()
        assert decoded.outcomes == (
            Outcomes(tombstones=COPIES) if raw is None else Outcomes(rows=COPIES)
        )
        assert values == values[:1] * len(values)
        return values[:1]


def of_record(client: SchemaRegistryClient, kind: Any, column: pa.DataType) -> Producer:
    text = {"type": "record", "name": "Order", "fields": [{"name": "a", "type": kind}]}
    return Producer(client, text, Column(10, "a", column))


@pytest.mark.parametrize("fast_from", PATHS)
def test_bytes_at_the_top_have_no_length(
    client: SchemaRegistryClient, fast_from: int | None
) -> None:
    producer = Producer(client, "bytes", Column(10, "value", pa.binary()))
    raw = producer.bytes_of(b"\4abc")
    assert raw is not None
    assert raw[5:] == b"\4abc"
    assert producer.read(b"\4abc", fast_from) == [b"\4abc"]
    assert producer.read(b"", fast_from) == [b""]


@pytest.mark.parametrize("fast_from", PATHS)
def test_a_record_without_fields_is_a_frame_and_a_row(
    client: SchemaRegistryClient, fast_from: int | None
) -> None:
    text = {"type": "record", "name": "Order", "fields": []}
    producer = Producer(client, text, Column(10, "a", pa.int32()))
    assert len(producer.bytes_of({}) or b"") == 5
    assert producer.read({}, fast_from) == [None]


@pytest.mark.parametrize("fast_from", PATHS)
@pytest.mark.parametrize("text", ["int", ["null", "int"]], ids=["int", "with null"])
def test_none_is_a_tombstone_also_where_the_schema_has_a_null(
    text: Any, client: SchemaRegistryClient, fast_from: int | None
) -> None:
    producer = Producer(client, text, Column(10, "value", pa.int32()))
    assert producer.bytes_of(None) is None
    assert producer.read(None, fast_from) == []


@pytest.mark.parametrize("fast_from", PATHS)
def test_an_int_beyond_32_bits_is_written_and_refused(
    client: SchemaRegistryClient, fast_from: int | None
) -> None:
    producer = of_record(client, "int", pa.int32())
    assert producer.read({"a": 2**31 - 1}, fast_from) == [2**31 - 1]
    with pytest.raises(UndecodableRecord, match="the writer's int is beyond 32 bits"):
        producer.read({"a": 2**32}, fast_from)


DATE = {"type": "int", "logicalType": "date"}
MOMENT = {"type": "long", "logicalType": "timestamp-micros"}
NOON = dt.datetime(2026, 11, 28, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize("fast_from", PATHS)
def test_the_branch_that_was_written_is_the_member_that_is_set(
    client: SchemaRegistryClient, fast_from: int | None
) -> None:
    """The serializer takes the first branch that takes the value: a moment's date."""
    members = [("int", pa.date32()), ("long", pa.timestamp("us", "UTC"))]
    producer = of_record(client, [DATE, MOMENT], pa.struct(members))
    assert producer.read({"a": NOON}, fast_from) == [{"int": NOON.date(), "long": None}]
    first = {"type": "record", "name": "n.One", "fields": [{"name": "x", "type": "int"}]}
    second = {**first, "name": "n.Two"}
    point = pa.struct([("x", pa.int32())])
    producer = of_record(client, [first, second], pa.struct([("One", point), ("Two", point)]))
    assert producer.read({"a": ("n.Two", {"x": 1})}, fast_from) == [
        {"One": None, "Two": {"x": 1}}
    ]


@pytest.mark.parametrize("fast_from", PATHS)
def test_text_that_is_no_uuid_is_a_bad_value_of_its_record(
    client: SchemaRegistryClient, fast_from: int | None
) -> None:
    text = {"type": "string", "logicalType": "uuid"}
    producer = of_record(client, text, pa.uuid())
    own = uuid.UUID("6F9619FF-8B86-D011-B42D-00CF4FC964FF")
    assert producer.read({"a": own}, fast_from) == [own]
    assert producer.read({"a": str(own).upper()}, fast_from) == [own]
    with pytest.raises(UndecodableRecord, match="field a"):
        producer.read({"a": "no uuid"}, fast_from)


@pytest.mark.parametrize("fast_from", PATHS)
def test_a_decimal_has_the_writers_scale(
    client: SchemaRegistryClient, fast_from: int | None
) -> None:
    money = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    producer = of_record(client, money, pa.decimal128(9, 2))
    assert producer.read({"a": decimal.Decimal(5)}, fast_from) == [decimal.Decimal("5.00")]
