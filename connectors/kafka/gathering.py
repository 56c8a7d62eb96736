"""From librdkafka's message structs to Arrow columns, without a Python object per field.

The structs lie wherever the client allocated them, so a column is *taken* from memory: an Arrow array over the
addresses between the lowest and the highest struct, read at the words that belong to a field and nowhere else.
Everything is copied; nothing returned here points into the client's memory.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

# rd_kafka_message_t (rdkafka.h), in 64-bit words: err, rkt, partition, payload, len, key, key_len, offset, _private.
_ERROR, _PARTITION, _PAYLOAD, _LENGTH, _KEY, _KEY_LENGTH, _OFFSET = 0, 2, 3, 4, 5, 6, 7
_WORD_BYTES = 8
_STRUCT_BYTES = 9 * _WORD_BYTES
_LOW_HALF = 0xFFFFFFFF
#: Bytes between two payloads that are copied along with them, which saves a copy of their own. Less than any
#: page: every byte in between then lies on a page that one of the two is on too, so it can be read.
_GAP_BYTES = 4_095


class Messages:
    """The structs at ``addresses`` (int64), which must stay until the columns were taken."""

    def __init__(self, addresses: pa.Array) -> None:
        """``addresses`` must not be empty."""
        self.addresses = addresses
        ends = pc.min_max(addresses)
        lowest, highest = ends["min"].as_py(), ends["max"].as_py()
        span = highest - lowest + _STRUCT_BYTES
        self._words = _memory(pa.int64(), lowest, span // _WORD_BYTES)
        # malloc aligns what holds pointers.
        self._first_words = pc.shift_right(pc.subtract(addresses, lowest), 3)

    def errors(self) -> pa.Array:
        """``rd_kafka_resp_err_t`` as int32: 0 for a record."""
        return self._halves(_ERROR)

    def partitions(self) -> pa.Array:
        return self._halves(_PARTITION)

    def offsets(self) -> pa.Array:
        return self._field(_OFFSET)

    def values(self) -> pa.Array:
        return gathered(self._field(_PAYLOAD), self._field(_LENGTH))

    def keys(self) -> pa.Array:
        return gathered(self._field(_KEY), self._field(_KEY_LENGTH))

    def within(self, size: int) -> int:
        """Return how many from the first on have keys and values of ``size`` bytes together; at least one."""
        sizes = pc.add(self._field(_LENGTH), self._field(_KEY_LENGTH))
        if pc.sum(sizes).as_py() <= size:
            return len(sizes)
        fitting: int = pc.sum(pc.less_equal(pc.cumulative_sum(sizes), size)).as_py()
        return max(1, fitting)

    def _field(self, word: int) -> pa.Array:
        return self._words.take(pc.add(self._first_words, word))

    def _halves(self, word: int) -> pa.Array:
        """The 32-bit field in the lower half of a word; what the padding above it holds is undefined."""
        low = pc.bit_wise_and(self._field(word), _LOW_HALF)
        return low.cast(pa.uint32()).view(pa.int32())


def gathered(starts: pa.Array, lengths: pa.Array) -> pa.Array:
    """Copy the bytes at addresses ``starts`` to one binary array; a start of 0 is null.

    All of them together must be smaller than 1 GiB.
    """
    present = pc.not_equal(starts, 0)
    count = pc.sum(present).as_py() or 0
    if count == 0:
        return pa.nulls(len(starts), pa.binary())
    if count == len(starts):
        return _joined(starts, lengths)
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
    is_new = pc.or_(pc.less(gaps, 0), pc.greater(gaps, _GAP_BYTES))
    firsts = [0, *(at + 1 for at in pc.indices_nonzero(is_new).to_pylist())]
    lasts = [*(at - 1 for at in firsts[1:]), count - 1]
    begins = [starts[at].as_py() for at in firsts]
    sizes = [stops[at].as_py() - begin for at, begin in zip(lasts, begins, strict=True)]
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
