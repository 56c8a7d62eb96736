"""Structs in memory to Arrow columns, over memory of the tests' own."""

from __future__ import annotations

import ctypes
import random

import pyarrow as pa
import pytest

from connectors.kafka.gathering import Messages, gathered


class Struct(ctypes.Structure):
    """``rd_kafka_message_t`` as rdkafka.h declares it."""

    _fields_ = (
        ("err", ctypes.c_int),
        ("rkt", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_void_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_void_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


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


def test_every_field_of_structs_that_lie_anywhere_is_read() -> None:
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
    held = Messages(addresses(structs))
    assert held.errors().to_pylist() == [struct.err for struct in structs]
    assert held.partitions().to_pylist() == [struct.partition for struct in structs]
    assert held.offsets().to_pylist() == [struct.offset for struct in structs]
    assert held.values().to_pylist() == [b"value" if s.payload else None for s in structs]
    assert held.keys().to_pylist() == [b"key" if s.key else None for s in structs]
    for column in (held.errors(), held.offsets(), held.values(), held.keys()):
        column.validate(full=True)


def test_undefined_padding_beside_a_partition_is_not_read() -> None:
    struct = Struct(partition=7)
    ctypes.memset(ctypes.addressof(struct) + Struct.partition.offset + 4, 0xFF, 4)
    held = Messages(addresses([struct]))
    assert held.partitions().to_pylist() == [7]


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


def test_what_was_gathered_does_not_change_with_the_memory() -> None:
    memory, starts, lengths = pointing(b"before", [(0, 6)])
    found = gathered(starts, lengths)
    assert isinstance(memory, ctypes.Array)
    ctypes.memset(ctypes.addressof(memory), 0, 6)
    assert found.to_pylist() == [b"before"]


def test_a_batch_is_cut_where_its_bytes_end() -> None:
    lengths = [10, 20, 30, 40]
    structs = [Struct(len=length, key_len=1) for length in lengths]
    held = Messages(addresses(structs))
    assert held.within(104) == 4
    assert held.within(103) == 3
    assert held.within(32) == 2
    assert held.within(1) == 1
