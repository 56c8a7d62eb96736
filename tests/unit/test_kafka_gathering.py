"""Structs in memory to Arrow columns, over memory of the tests' own."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable

import pyarrow as pa
import pytest

from connectors.kafka.consuming import FEW, timestamps
from connectors.kafka.fetch import stretches
from connectors.kafka.gathering import FewMessages, Messages, Struct, gathered
from planner.names import KAFKA_OFFSET
from planner.schema import RAW_SCHEMA, TIMESTAMPTZ

#: Both ways to read structs.
WAYS = [Messages, lambda held: FewMessages(held.to_pylist())]
each_way = pytest.mark.parametrize("read", WAYS, ids=["columns", "one by one"])
Read = Callable[[pa.Array], Messages | FewMessages]


def addresses(structs: list[Struct]) -> pa.Array:
    return pa.array([ctypes.addressof(struct) for struct in structs], pa.int64())


def pointing(
    data: bytes, at: list[tuple[int, int] | None]
) -> tuple[object, pa.Array, pa.Array]:
    """Memory with ``data``, and addresses and lengths of pieces (start, length) of it; None is a null pointer."""
    memory = ctypes.create_string_buffer(data, max(1, len(data)))
    begin = ctypes.addressof(memory)
    starts = [0 if piece is None else begin + piece[0] for piece in at]
    lengths = [0 if piece is None else piece[1] for piece in at]
    return memory, pa.array(starts, pa.int64()), pa.array(lengths, pa.int64())


@each_way
def test_every_field_of_structs_that_lie_anywhere_is_read(read: Read) -> None:
    value, key = ctypes.create_string_buffer(b"value"), ctypes.create_string_buffer(b"key")
    structs = [
        Struct(
            err=-191 if at % 7 == 3 else 0,
            partition=-1 if at == 5 else at % 3,
            payload=None if at % 5 == 0 else ctypes.addressof(value),
            len=0 if at % 5 == 0 else 5,
            key=ctypes.addressof(key) if at % 2 else None,
            key_len=3 if at % 2 else 0,
            offset=2**62 - at,
        )
        for at in range(100)
    ]
    random.Random(1).shuffle(structs)
    held = read(addresses(structs))
    assert held.events() == [(s.err, s.partition, s.offset) for s in structs if s.err]
    assert held.records().offsets().to_pylist() == [s.offset for s in structs if not s.err]
    assert held.partitions().to_pylist() == [struct.partition for struct in structs]
    assert held.offsets().to_pylist() == [struct.offset for struct in structs]
    assert held.values().to_pylist() == [b"value" if s.payload else None for s in structs]
    assert held.keys().to_pylist() == [b"key" if s.key else None for s in structs]
    for column in (held.partitions(), held.offsets(), held.values(), held.keys()):
        column.validate(full=True)


@each_way
def test_undefined_padding_beside_a_field_is_not_read(read: Read) -> None:
    struct = Struct(partition=7)
    ctypes.memset(ctypes.addressof(struct) + Struct.err.offset + 4, 0xFF, 4)
    ctypes.memset(ctypes.addressof(struct) + Struct.partition.offset + 4, 0xFF, 4)
    held = read(addresses([struct]))
    assert held.partitions().to_pylist() == [7]
    assert held.events() == []


@each_way
def test_events_alone_leave_no_record(read: Read) -> None:
    structs = [Struct(err=-191, partition=at, offset=at) for at in range(3)]
    held = read(addresses(structs))
    assert held.events() == [(-191, at, at) for at in range(3)]
    assert not len(held.records().addresses)


@pytest.mark.parametrize(
    "pieces",
    [
        [(0, 3), (3, 3), (6, 4)],
        [(0, 3), (5, 0), (5, 2), (9, 1)],
        [(8, 2), (0, 3), (4, 1)],
        [(4, 2), (4, 2), (3, 5)],
        [None, (0, 2), None, None, (2, 2), None],
        [(0, 0), (0, 0)],
        [None],
        [(9, 1)],
    ],
    ids=["touching", "gaps", "unordered", "overlapping", "nulls", "empty", "null", "one"],
)
def test_pieces_of_memory_become_values(pieces: list[tuple[int, int] | None]) -> None:
    data = b"0123456789"
    _memory, starts, lengths = pointing(data, pieces)
    found = gathered(starts, lengths)
    found.validate(full=True)
    assert found.to_pylist() == [p and data[p[0] : p[0] + p[1]] for p in pieces]


def test_values_of_many_buffers_far_apart_keep_their_order() -> None:
    chance = random.Random(2)
    buffers = [chance.randbytes(chance.choice((1, 100, 5_000, 300_000))) for _ in range(40)]
    held = [pointing(data, [(0, len(data) // 2), (len(data) // 2, 1)]) for data in buffers]
    found = gathered(
        pa.concat_arrays([starts for _, starts, _ in held]),
        pa.concat_arrays([lengths for _, _, lengths in held]),
    )
    found.validate(full=True)
    assert found.to_pylist() == [
        piece
        for data in buffers
        for piece in (data[: len(data) // 2], data[len(data) // 2 :][:1])
    ]


def test_what_was_read_one_by_one_does_not_change_with_the_memory() -> None:
    value = ctypes.create_string_buffer(b"before")
    struct = Struct(payload=ctypes.addressof(value), len=6, offset=1)
    held = FewMessages([ctypes.addressof(struct)])
    values, offsets = held.values(), held.offsets()
    ctypes.memset(ctypes.addressof(value), 0, 6)
    struct.offset = 2
    assert (values.to_pylist(), offsets.to_pylist()) == ([b"before"], [1])


def test_what_was_gathered_does_not_change_with_the_memory() -> None:
    memory, starts, lengths = pointing(b"before", [(0, 6)])
    found = gathered(starts, lengths)
    assert isinstance(memory, ctypes.Array)
    ctypes.memset(ctypes.addressof(memory), 0, 6)
    assert found.to_pylist() == [b"before"]


@each_way
def test_a_batch_is_cut_where_its_bytes_end(read: Read) -> None:
    lengths = [10, 20, 30, 40]
    structs = [Struct(len=length, key_len=1) for length in lengths]
    held = read(addresses(structs))
    assert held.within(104) == 4
    assert held.within(103) == 3
    assert held.within(32) == 2
    assert held.within(1) == 1


@pytest.mark.parametrize("ahead", [0, FEW])
def test_times_that_are_none_or_beyond_microseconds_are_null(ahead: int) -> None:
    most = (2**63 - 1) // 1000
    times = [*([7] * ahead), 0, -1, -(2**63), most, most + 1, 2**63 - 1, 1_767_225_600_123]
    found = timestamps(times)
    assert found.type == TIMESTAMPTZ
    micros = [0, None, None, 1000 * most, None, None, 1_767_225_600_123_000]
    assert found.cast(pa.int64()).to_pylist() == [7_000] * ahead + micros


@pytest.mark.parametrize("times", [1, FEW])
def test_records_of_partitions_are_told_apart_in_the_order_they_arrived(times: int) -> None:
    partitions = [2] * times + [0] + [1] * 2 * times + [2]
    offsets = list(range(len(partitions)))
    columns = [pa.nulls(len(partitions), field.type) for field in RAW_SCHEMA]
    columns[0], columns[1] = pa.array(partitions, pa.int32()), pa.array(offsets, pa.int64())
    records = pa.RecordBatch.from_arrays(columns, schema=RAW_SCHEMA)
    found = list(stretches(records))
    assert [(at.partition, at.count, at.last) for at in found] == [
        (2, times, times - 1),
        (0, 1, times),
        (1, 2 * times, 3 * times),
        (2, 1, 3 * times + 1),
    ]
    for stretch in found:
        for stop in (stretch.last - 1, stretch.last, stretch.last + 1):
            below = stretch.below(stop).column(KAFKA_OFFSET).to_pylist()
            begin = stretch.last + 1 - stretch.count
            assert below == list(range(begin, min(stop, stretch.last + 1)))
    assert list(stretches(records.slice(0, 0))) == []
