"""From librdkafka's message structs to Arrow columns, without a Python object per field.

The structs lie wherever the client allocated them, so a column is *taken* from memory: an Arrow array over the
addresses between the lowest and the highest struct, read at the words that belong to a field and nowhere else.
Everything is copied; nothing returned here points into the client's memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

#: What one call may take at most.
MAX_MESSAGES = 16_384
_WORD_BYTES = 8
_HALF_BYTES = 4
_NO_ERROR = pa.repeat(pa.scalar(0, pa.int32()), MAX_MESSAGES)
#: Bytes between two payloads that are copied along with them, which saves a copy of their own. Less than any
#: page: every byte in between then lies on a page that one of the two is on too, so it can be read.
_GAP_BYTES = 4_095
_GAP = pa.scalar(_GAP_BYTES, pa.uint64())


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


class FewMessages:
    """As ``Messages``, one by one: a microsecond each, where columns of any length take 300."""

    def __init__(self, addresses: Sequence[int]) -> None:
        self.addresses = addresses
        self._structs = list(map(Struct.from_address, addresses))

    def events(self) -> list[tuple[int, int, int]]:
        return [
            (message.err, message.partition, message.offset)
            for message in self._structs
            if message.err
        ]

    def records(self) -> FewMessages:
        return FewMessages(
            [
                at
                for at, message in zip(self.addresses, self._structs, strict=True)
                if not message.err
            ]
        )

    def partitions(self) -> pa.Array:
        return pa.array([message.partition for message in self._structs], pa.int32())

    def offsets(self) -> pa.Array:
        return pa.array([message.offset for message in self._structs], pa.int64())

    def values(self) -> pa.Array:
        return _copied([(message.payload, message.len) for message in self._structs])

    def keys(self) -> pa.Array:
        return _copied([(message.key, message.key_len) for message in self._structs])

    def within(self, size: int) -> int:
        total = 0
        for at, message in enumerate(self._structs):
            total += message.len + message.key_len
            if total > size:
                return max(1, at)
        return len(self._structs)


def _copied(pieces: Sequence[tuple[int | None, int]]) -> pa.Array:
    copy = ctypes.string_at
    return pa.array(
        [None if start is None else copy(start, length) for start, length in pieces],
        pa.binary(),
    )


class Messages:
    """The structs at ``addresses`` (int64), which must stay until the columns were taken."""

    def __init__(self, addresses: pa.Array) -> None:
        """``addresses`` must not be empty."""
        self.addresses = addresses
        ends = pc.min_max(addresses)
        lowest, highest = ends["min"].as_py(), ends["max"].as_py()
        span = highest - lowest + ctypes.sizeof(Struct)
        self._words = _memory(pa.int64(), lowest, span // _WORD_BYTES)
        self._halves = _memory(pa.int32(), lowest, span // _HALF_BYTES)
        # malloc aligns what holds pointers.
        ahead = pc.subtract(addresses, lowest)
        self._first_words = pc.shift_right(ahead, 3)
        self._first_halves = pc.shift_right(ahead, 2)
        self._errors = self._half(Struct.err)

    def events(self) -> list[tuple[int, int, int]]:
        """``rd_kafka_resp_err_t``, partition and offset of what is no record."""
        if self._errors.equals(_NO_ERROR.slice(0, len(self._errors))):
            return []
        at = pc.indices_nonzero(self._errors)
        columns = (self._errors, self.partitions(), self.offsets())
        return list(zip(*(column.take(at).to_pylist() for column in columns), strict=True))

    def records(self) -> Messages | FewMessages:
        """The others."""
        addresses = self.addresses.filter(pc.equal(self._errors, 0))
        return Messages(addresses) if len(addresses) else FewMessages(())

    def partitions(self) -> pa.Array:
        return self._half(Struct.partition)

    def offsets(self) -> pa.Array:
        return self._word(Struct.offset)

    def values(self) -> pa.Array:
        return gathered(self._word(Struct.payload), self._word(Struct.len))

    def keys(self) -> pa.Array:
        return gathered(self._word(Struct.key), self._word(Struct.key_len))

    def within(self, size: int) -> int:
        """Return how many from the first on have keys and values of ``size`` bytes together; at least one."""
        sizes = pc.add(self._word(Struct.len), self._word(Struct.key_len))
        if pc.sum(sizes).as_py() <= size:
            return len(sizes)
        fitting: int = pc.sum(pc.less_equal(pc.cumulative_sum(sizes), size)).as_py()
        return max(1, fitting)

    def _word(self, field: Any) -> pa.Array:
        return self._words.slice(field.offset // _WORD_BYTES).take(self._first_words)

    def _half(self, field: Any) -> pa.Array:
        """A 32-bit field; what the padding above it holds is undefined."""
        return self._halves.slice(field.offset // _HALF_BYTES).take(self._first_halves)


def gathered(starts: pa.Array, lengths: pa.Array) -> pa.Array:
    """Copy the bytes at addresses ``starts`` to one binary array; a start of 0 is null.

    All of them together must be smaller than 1 GiB.
    """
    ends = pc.min_max(starts)
    if ends["min"].as_py():
        return _joined(starts, lengths)
    if not ends["max"].as_py():
        return pa.nulls(len(starts), pa.binary())
    present = pc.not_equal(starts, 0)
    dense = _joined(starts.filter(present), lengths.filter(present))
    rank = pc.subtract(pc.cumulative_sum(present.cast(pa.int64())), 1)
    return dense.take(pc.if_else(present, rank, None))


def _joined(starts: pa.Array, lengths: pa.Array) -> pa.Array:
    """As ``gathered``, none null.

    Records of one response lie behind one another, so few stretches of memory hold all of them. Those are
    joined, and seen as an array of value, gap, value, gap: Arrow then takes every second element.
    """
    count = len(starts)
    stops = pc.add(starts, lengths)
    gaps = pc.subtract(starts.slice(1), stops.slice(0, count - 1))
    # A gap below 0 is a large one without its sign.
    is_new = pc.greater(gaps.view(pa.uint64()), _GAP)
    breaks = pc.indices_nonzero(is_new)
    begins = [starts[0].as_py(), *starts.slice(1).take(breaks).to_pylist()]
    sizes = [
        stop - begin
        for begin, stop in zip(
            begins, [*stops.take(breaks).to_pylist(), stops[-1].as_py()], strict=True
        )
    ]
    stretches = [
        _memory(pa.uint8(), begin, size) for begin, size in zip(begins, sizes, strict=True)
    ]
    if len(stretches) == 1:
        moved: pa.Array | int = begins[0]
        data = stretches[0]
    else:
        data = pa.concat_arrays(stretches)
        ahead, by = 0, []
        for begin, size in zip(begins, sizes, strict=True):
            by.append(begin - ahead)
            ahead += size
        stretch = pa.concat_arrays(
            [pa.array([0], pa.int64()), pc.cumulative_sum(is_new.cast(pa.int64()))]
        )
        moved = pa.array(by, pa.int64()).take(stretch)
    return _every_second(pc.subtract(starts, moved), pc.subtract(stops, moved), data)


def _every_second(starts: pa.Array, stops: pa.Array, data: pa.Array) -> pa.Array:
    """Copy the elements ``starts`` to ``stops`` of ``data``, which ascend and do not overlap."""
    # Two 32-bit offsets to a word, the lower half first in memory: start, stop, start, stop.
    pairs = pc.bit_wise_or(starts, pc.shift_left(stops, 32))
    count = 2 * len(starts) - 1
    both = pa.Array.from_buffers(
        pa.binary(), count, [None, pairs.buffers()[1], data.buffers()[1]]
    )
    return both.take(pa.arange(0, count, 2))


def _memory(kind: pa.DataType, address: int, length: int) -> pa.Array:
    size = length * kind.bit_width // 8
    return pa.Array.from_buffers(kind, length, [None, pa.foreign_buffer(address, size)])
