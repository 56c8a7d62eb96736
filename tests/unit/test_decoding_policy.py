"""What a format gets without a line of its own, and what it can ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from connectors.decoding import policy
from connectors.decoding.fields import Field, payload_fields
from connectors.decoding.policy import Portion, Unfit
from connectors.decoding.registry import READERS, decoder_for
from connectors.decoding.writers import Writers
from planner.errors import UndecodableRecord
from planner.offsets import OffsetRange
from planner.ports import TopicSource
from planner.schema import METADATA_TYPES, Column, TableSchema
from planner.seam.binding import Binding
from planner.seam.formats import FORMATS
from planner.seam.watermark import Outcomes
from proxy.tail.pacing import Pacing
from proxy.tail.reader.readers import local_readers
from proxy.tail.reader.source import TailSource
from tests.doubles.log import MemoryLog, MemoryRecord

LEAD = tuple(
    Column(at, name, METADATA_TYPES[name])
    for at, name in enumerate(("kafka_partition", "kafka_offset", "kafka_timestamp"), 1)
)
SCHEMA = TableSchema(0, (*LEAD, Column(10, "text", pa.string())))


class Keys:
    """A format whose only field is the key and the value as text; a value of digits needs that id."""

    reads = frozenset({"kafka_key", "kafka_value"})

    def __init__(
        self, table: str, schema: TableSchema, binding: Binding, _: Writers | None
    ) -> None:
        self.fields: tuple[Field, ...] = payload_fields(table, schema, binding)

    def read(self, batch: pa.RecordBatch) -> Portion:
        keys, values = (batch.column(name).to_pylist() for name in sorted(self.reads))
        needs = frozenset(int(value) for value in values if value and value.isdigit())

        def exactly(at: int) -> tuple[Any, ...]:
            if values[at] == b"bad":
                raise Unfit(None, "it says so")
            return (f"{(keys[at] or b'none').decode()} {values[at].decode()}",)

        certain = [at for at, value in enumerate(values) if value == b"sure"]
        doubtful = [at for at, value in enumerate(values) if value not in (None, b"sure")]
        columns = [pa.array(["sure" for _ in certain], pa.string())]
        return Portion(certain, columns, doubtful, exactly, needs)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Read records as the tail does, with that format in the registry."""
    monkeypatch.setitem(READERS, "json", Keys)
    monkeypatch.setattr(policy, "PORTION_RECORDS", 2)

    def read(*values: bytes | None, schema: TableSchema = SCHEMA, **options: Any) -> Any:
        log = MemoryLog()
        log.create_topic("flows", 1)
        for value in values:
            log.append("flows", 0, MemoryRecord(value, key=b"k"))
        source = TailSource("t", schema, Binding("flows", **options), "flows", None)
        reader = local_readers(log, decoder_for, pacing=Pacing())(source)
        (decoded,) = reader.fetch([OffsetRange(0, 0, len(values))], 5)
        return decoded

    return read


def test_each_format_has_its_reader() -> None:
    assert READERS.keys() == FORMATS.keys()


def test_keys_are_fetched_for_a_format_that_reads_them(read: Callable[..., Any]) -> None:
    assert read(b"a", b"b").rows["text"].to_pylist() == ["k a", "k b"]


@pytest.mark.parametrize("column", ["kafka_key", "kafka_headers"])
def test_what_columns_hold_is_fetched_for_any_format(column: str) -> None:
    wide = TableSchema(0, (*SCHEMA.columns, Column(11, column, METADATA_TYPES[column])))
    for schema, is_read in ((SCHEMA, False), (wide, True)):
        source = TopicSource.of(decoder_for("t", schema, Binding("flows")), "flows")
        reads = {"kafka_key": source.with_key, "kafka_headers": source.with_headers}
        assert reads.pop(column) == is_read
        assert not any(reads.values())


def test_policies_tombstones_skips_and_order_are_no_formats(read: Callable[..., Any]) -> None:
    values = (b"a", b"sure", None, b"bad", b"sure", b"b", b"c")
    decoded = read(*values, on_error="skip", skips=((0, 5), (1, 0)))
    assert decoded.rows["text"].to_pylist() == ["k a", "sure", "sure", "k c"]
    assert decoded.rows["kafka_offset"].to_pylist() == [0, 1, 4, 6]
    assert decoded.outcomes == Outcomes(rows=4, skipped=2, tombstones=1)
    with pytest.raises(UndecodableRecord, match="offset 3 does not decode: it says so"):
        read(*values)


def test_a_batch_names_all_that_it_needs(read: Callable[..., Any]) -> None:
    """No row of any portion is to be used: the caller decodes the whole batch again."""
    assert read(b"a", b"7", b"8", b"7", b"b").needs == {7, 8}
    assert not read(b"a").needs
