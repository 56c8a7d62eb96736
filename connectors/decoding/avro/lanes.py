"""The bytes of a batch for the fast path: positions in them, one for each record, and what can be read at all of them at once.

Nothing here looks beyond its buffer, also of bytes that are no records: positions behind a record's end are found out by its end, and
loads are clipped.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
Bools = NDArray[np.bool_]

#: In front of the buffer and behind it, so that 16 bytes can be loaded at each position, and those before it.
_PAD = 64

_STOPS = np.uint64(0x8080808080808080)
_SEVENS = np.uint64(0x7F7F7F7F7F7F7F7F)
_ONE = np.uint64(1)
#: From seven bits in each byte to one number, in three steps: bits that stay, bits that move, how far they move.
_STEPS = tuple(
    (np.uint64(stay), np.uint64(move), np.uint64(shift))
    for stay, move, shift in (
        (0x007F007F007F007F, 0x7F007F007F007F00, 1),
        (0x00003FFF00003FFF, 0x3FFF00003FFF0000, 2),
        (0x000000000FFFFFFF, 0x0FFFFFFF00000000, 4),
    )
)


class Batch:
    """The bytes of some records, in one padded buffer. ``is_bad`` marks records that the exact path has to read.

    ``starts`` and ``ends`` are of each record; null ones are empty.
    """

    def __init__(self, column: pa.Array) -> None:
        """Copy the values of a binary array."""
        _, offsets_buffer, values = column.buffers()
        stored = np.frombuffer(offsets_buffer, np.int32)
        stored = stored[column.offset : column.offset + len(column) + 1]
        offsets: Ints = stored.astype(np.int64)
        size = int(offsets[-1] - offsets[0])
        self.data = np.zeros(size + 2 * _PAD, np.uint8)
        if size:
            self.data[_PAD : _PAD + size] = np.frombuffer(values, np.uint8)[
                offsets[0] : offsets[-1]
            ]
        self._buffer = pa.py_buffer(self.data)
        offsets += _PAD - offsets[0]
        self.starts, self.ends = offsets[:-1], offsets[1:]
        self.is_bad: Bools = np.zeros(len(column), np.bool_)
        #: The last position that is loaded from.
        self._last = size + _PAD + _PAD // 2
        self._words = self._at_each(np.dtype("<u8"))
        self._halves = self._at_each(np.dtype("<u4"))

    def _at_each(self, kind: np.dtype[Any]) -> NDArray[Any]:
        """Return what is loaded as ``kind`` at each byte of the buffer."""
        count = len(self.data) - kind.itemsize + 1
        return np.ndarray((count,), kind, self.data, strides=(1,))

    def raw(self, row: int) -> bytes:
        return self.data[self.starts[row] : self.ends[row]].tobytes()

    def octets(self, at: Ints) -> NDArray[np.uint8]:
        return self.data.take(at, mode="clip")

    def words(self, at: Ints) -> Words:
        return cast("Words", self._words[np.minimum(at, self._last)])

    def halves(self, at: Ints) -> NDArray[np.uint32]:
        return cast("NDArray[np.uint32]", self._halves[np.minimum(at, self._last)])

    def fixed(self, at: Ints, size: int) -> NDArray[np.uint8]:
        """Return ``size`` bytes at each position, a row each."""
        last = len(self.data) - size
        if last < 0:
            return np.zeros((len(at), size), np.uint8)
        loaded = self._at_each(np.dtype(f"V{size}"))[np.minimum(at, last)]
        return loaded.view(np.uint8).reshape(len(at), size)

    def spans(self, starts: Ints, ends: Ints) -> pa.Array:
        """Return the bytes between ascending positions, as a binary array."""
        if not len(starts):
            return pa.array([], pa.binary())
        offsets = np.empty(2 * len(starts), np.int32)
        offsets[0::2] = starts
        offsets[1::2] = ends
        both = pa.Array.from_buffers(
            pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), self._buffer]
        )
        return both.take(pa.array(np.arange(0, len(offsets), 2, dtype=np.int32)))


class Lane:
    """Where some records stand: ``at`` for each of ``rows``, which ascend. ``ends`` are of the records."""

    __slots__ = ("at", "batch", "ends", "rows")

    def __init__(self, batch: Batch, rows: Ints, at: Ints, ends: Ints) -> None:
        self.batch = batch
        self.rows = rows
        self.at = at
        self.ends = ends

    def __len__(self) -> int:
        return len(self.at)

    def only(self, indices: Ints) -> Lane:
        """Return a lane of some of the records; ``back`` brings its positions here."""
        return Lane(self.batch, self.rows[indices], self.at[indices], self.ends[indices])

    def back(self, indices: Ints, lane: Lane) -> None:
        self.at[indices] = lane.at

    def doubt(self, is_doubtful: Bools, present: Bools | None = None) -> None:
        """Leave records to the exact path; of those that are not present nothing was read."""
        if present is not None:
            is_doubtful = is_doubtful & present
        if is_doubtful.any():
            self.batch.is_bad[self.rows[is_doubtful]] = True

    def move(self, sizes: Any, present: Bools | None) -> None:
        if present is not None:
            sizes = sizes * present
        self.at = self.at + sizes

    def varints(self, present: Bools | None) -> Words:
        """Read a varint of each, not yet zigzag. Those of more than 64 bits are doubtful."""
        first = self.batch.octets(self.at)
        if not (first & 0x80).any():
            self.move(1, present)
            return first.astype(np.uint64)
        words = self.batch.words(self.at)
        stops = ~words & _STOPS
        long = np.flatnonzero(stops == 0)
        # All bits below the lowest stop bit.
        below = (stops & (~stops + _ONE)) - _ONE
        sizes = ((np.bitwise_count(below) + np.uint8(1)) >> np.uint8(3)).astype(np.int64)
        words &= below & _SEVENS
        for stay, move, shift in _STEPS:
            words = (words & stay) | ((words & move) >> shift)
        if len(long):
            self._lengthen(words, sizes, long, present)
        self.move(sizes, present)
        return words

    def _lengthen(self, words: Words, sizes: Ints, long: Ints, present: Bools | None) -> None:
        """Read on where eight bytes are not the whole of a varint: ids and nanoseconds of 64 bits have one or two more."""
        ninth, tenth = (
            self.batch.octets(self.at[long] + behind).astype(np.uint64) for behind in (8, 9)
        )
        has_tenth = ninth > 0x7F
        tenth *= has_tenth
        is_odd = np.zeros(len(self), np.bool_)
        is_odd[long] = tenth > 1
        self.doubt(is_odd, present)
        words[long] |= (ninth & 0x7F) << 56 | tenth << 63
        sizes[long] += 1 + has_tenth

    def longs(self, present: Bools | None) -> Ints:
        return zigzag(self.varints(present))

    def lengths(self, present: Bools | None) -> Ints:
        """Read lengths or counts; those beyond the record's end are doubtful, and 0."""
        numbers = self.longs(present)
        if present is not None:
            numbers = numbers * present
        is_beyond = (numbers < 0) | (numbers > self.ends - self.at)
        if is_beyond.any():
            self.doubt(is_beyond)
            numbers[is_beyond] = 0
        return numbers

    def bytes(self, present: Bools | None) -> tuple[Ints, Ints]:
        """Return where the bytes of each begin and end, within the record."""
        sizes = self.lengths(present)
        starts = np.minimum(self.at, self.ends)
        self.at = self.at + sizes
        return starts, np.minimum(self.at, self.ends)


def zigzag(words: Words) -> Ints:
    return ((words >> _ONE) ^ (~(words & _ONE) + _ONE)).view(np.int64)
