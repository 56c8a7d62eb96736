"""Arrow data that lies: streams whose offsets, sizes, indices or counts do not fit their buffers.

A stream is written as it should be and altered in place, so that what arrives is laid out as a client would lay it out.
Each lie ends in the padding of its buffer, which Arrow's format fills to eight bytes: a checker must refuse it, and who
believes it reads zeros of the same message.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa

_LONG = "a text too long for a view to hold it"
_MOMENT = dt.datetime(2024, 2, 29, 12)

#: One row of every type that Arrow's format has.
ROWS: dict[str, pa.Array] = {
    "null": pa.nulls(1),
    "bool": pa.array([True]),
    "int8": pa.array([1], pa.int8()),
    "uint64": pa.array([1], pa.uint64()),
    "int64": pa.array([None], pa.int64()),
    "float16": pa.array([1.5], pa.float16()),
    "float64": pa.array([1.5]),
    "decimal32": pa.array([Decimal("1.50")], pa.decimal32(9, 2)),
    "decimal64": pa.array([Decimal("1.50")], pa.decimal64(18, 2)),
    "decimal128": pa.array([Decimal("1.50")], pa.decimal128(18, 2)),
    "decimal256": pa.array([Decimal("1.50")], pa.decimal256(76, 2)),
    "date32": pa.array([_MOMENT.date()], pa.date32()),
    "date64": pa.array([_MOMENT.date()], pa.date64()),
    "time32": pa.array([_MOMENT.time()], pa.time32("ms")),
    "time64": pa.array([_MOMENT.time()], pa.time64("ns")),
    "timestamp": pa.array([_MOMENT], pa.timestamp("ms")),
    "timestamp_tz": pa.array([_MOMENT], pa.timestamp("ns", "Europe/Zurich")),
    "timestamp_offset": pa.array([_MOMENT], pa.timestamp("us", "+02:00")),
    "duration": pa.array([dt.timedelta(seconds=1)]),
    "interval": pa.array([pa.MonthDayNano([1, 2, 3])]),
    "string": pa.array(["hello"]),
    "large_string": pa.array(["hello"], pa.large_string()),
    "string_view": pa.array([_LONG], pa.string_view()),
    "binary": pa.array([b"hello"]),
    "large_binary": pa.array([b"hello"], pa.large_binary()),
    "binary_view": pa.array([_LONG.encode()], pa.binary_view()),
    "fixed_size_binary": pa.array([b"hello"], pa.binary(5)),
    "list": pa.array([["hello", None]], pa.list_(pa.string())),
    "large_list": pa.array([["hello", None]], pa.large_list(pa.string())),
    "list_view": pa.array([["hello", None]], pa.list_view(pa.string())),
    "large_list_view": pa.array([["hello", None]], pa.large_list_view(pa.string())),
    "list_of_numbers": pa.array([[7]], pa.list_(pa.int32())),
    "large_list_of_numbers": pa.array([[7]], pa.large_list(pa.int32())),
    "list_view_of_numbers": pa.array([[7]], pa.list_view(pa.int32())),
    "large_list_view_of_numbers": pa.array([[7]], pa.large_list_view(pa.int32())),
    "fixed_size_list": pa.array([["hello", None]], pa.list_(pa.string(), 2)),
    "struct": pa.array([{"a": 1, "b": "hello"}]),
    "map": pa.array([[("k", "hello")]], pa.map_(pa.string(), pa.string())),
    "map_of_numbers": pa.array([[(7, 8)]], pa.map_(pa.int32(), pa.int32())),
    "sparse_union": pa.UnionArray.from_sparse(
        pa.array([1], pa.int8()), [pa.array([7]), pa.array(["hello"])]
    ),
    "dense_union": pa.UnionArray.from_dense(
        pa.array([1], pa.int8()),
        pa.array([0], pa.int32()),
        [pa.array([7], pa.int32()), pa.array(["hello"])],
    ),
    "dictionary": pa.array(["hello"]).dictionary_encode(),
    "dictionary_of_numbers": pa.array([7], pa.int32()).dictionary_encode(),
    "dictionary_in_list": pa.ListArray.from_arrays(
        [0, 1], pa.array([7], pa.int32()).dictionary_encode()
    ),
    "dictionary_in_dictionary": pa.DictionaryArray.from_arrays(
        pa.array([0], pa.int8()),
        pa.StructArray.from_arrays([pa.array(["hello"]).dictionary_encode()], ["a"]),
    ),
    "run_end_encoded": pa.RunEndEncodedArray.from_arrays(
        pa.array([1], pa.int32()), pa.array(["hello"])
    ),
    "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16], pa.binary(16))),
    "json": pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}"])),
}


@dataclass(frozen=True, slots=True)
class Lie:
    """``buffer`` of a row's buffers says ``says`` instead. ``of`` is a key of ``ROWS``."""

    of: str
    buffer: int
    form: str
    says: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.of}[{self.buffer}]={','.join(map(str, self.says))}"


def _text(of: str, form: str) -> Iterator[Lie]:
    """Texts of more bytes than the five there are, and fewer than the eight that five are filled to."""
    for last in (6, 7, 8):
        yield Lie(of, 1, form, (0, last))


#: The first bytes of a view's text, as a view repeats them.
_PREFIX = int.from_bytes(_LONG.encode()[:4], "little")

LIES: tuple[Lie, ...] = (
    *_text("string", "<2i"),
    *_text("binary", "<2i"),
    *_text("large_string", "<2q"),
    *_text("large_binary", "<2q"),
    Lie("string", 2, "<5B", (255,) * 5),
    Lie("string_view", 1, "<4i", (40, _PREFIX, 0, 0)),
    Lie("binary_view", 1, "<4i", (40, _PREFIX, 0, 0)),
    Lie("binary_view", 1, "<4i", (20, _PREFIX, 0, 20)),
    Lie("binary_view", 1, "<4i", (20, _PREFIX + 1, 0, 0)),
    Lie("list", 3, "<3i", (0, 6, 6)),
    Lie("list_of_numbers", 1, "<2i", (0, 2)),
    Lie("large_list_of_numbers", 1, "<2q", (0, 2)),
    Lie("list_view_of_numbers", 1, "<i", (1,)),
    Lie("list_view_of_numbers", 2, "<i", (2,)),
    Lie("large_list_view_of_numbers", 1, "<q", (1,)),
    Lie("large_list_view_of_numbers", 2, "<q", (2,)),
    Lie("fixed_size_list", 2, "<3i", (0, 6, 6)),
    Lie("struct", 4, "<2i", (0, 6)),
    Lie("map_of_numbers", 1, "<2i", (0, 2)),
    Lie("map", 7, "<2i", (0, 6)),
    Lie("dense_union", 2, "<i", (1,)),
    Lie("dictionary_of_numbers", 1, "<i", (1,)),
    Lie("dictionary_in_list", 3, "<i", (1,)),
    Lie("dictionary_in_dictionary", 1, "<b", (1,)),
    Lie("run_end_encoded", 4, "<2i", (0, 6)),
    Lie("json", 1, "<2i", (0, 3)),
    Lie("decimal32", 1, "<i", (2**31 - 1,)),
    Lie("decimal128", 1, "<2q", (0, 2**62)),
    Lie("time32", 1, "<i", (-1,)),
    Lie("time64", 1, "<q", (2**62,)),
    Lie("date64", 1, "<q", (1,)),
)


def stream(batch: pa.RecordBatch, options: pa.ipc.IpcWriteOptions | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def row(of: str) -> pa.RecordBatch:
    return pa.record_batch([ROWS[of]], names=["1"])


def lying_stream(lie: Lie) -> bytes:
    content = bytearray(stream(row(lie.of)))
    memory = pa.py_buffer(content)
    with pa.ipc.open_stream(memory) as reader:
        array = reader.read_next_batch().column(0)
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    # Read in place: where a buffer is in memory, there it is in the stream.
    start = array.buffers()[lie.buffer].address - memory.address
    assert 0 <= start < len(content), lie
    struct.pack_into(lie.form, content, start, *lie.says)
    return bytes(content)


def lying(lie: Lie) -> pa.RecordBatch:
    """The row with its lie; only its schema may be looked at."""
    with pa.ipc.open_stream(lying_stream(lie)) as reader:
        return reader.read_next_batch()
