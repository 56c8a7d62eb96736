"""What the producers know: every acknowledged record with a hash of what it says.

The ledger never asks the log or the table; SQL answers are held against it. 16 bytes a record, so hours fit.
"""

from __future__ import annotations

import bisect
import hashlib
import json
import threading
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["good", "bad", "tombstone"]
Position = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Difference:
    """One position where answer and ledger disagree. ``what`` is missing, surplus, doubled or changed."""

    what: str
    partition: int
    offset: int


@dataclass(slots=True)
class _Partition:
    """Offsets in order, and the hash of each."""

    offsets: array[int] = field(default_factory=lambda: array("q"))
    digests: array[int] = field(default_factory=lambda: array("Q"))

    def add(self, offset: int, digest: int) -> None:
        # Two producers acknowledge almost in order: the place is near the end.
        at = bisect.bisect_right(self.offsets, offset)
        self.offsets.insert(at, offset)
        self.digests.insert(at, digest)


@dataclass
class Ledger:
    """One topic's records. Positions are (partition, offset). Thread-safe."""

    tombstones: int = 0
    bad: int = 0
    aborted: int = 0
    _partitions: dict[int, _Partition] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def rows(self) -> int:
        """How many rows an answer over everything must have."""
        with self._lock:
            return sum(len(part.offsets) for part in self._partitions.values())

    def acknowledged(self, partition: int, offset: int, kind: Kind, digest: int) -> None:
        """Note a record that committed readers see from now on."""
        with self._lock:
            if kind == "tombstone":
                self.tombstones += 1
                return
            self.bad += kind == "bad"
            self._partitions.setdefault(partition, _Partition()).add(offset, digest)

    def abort(self, count: int) -> None:
        with self._lock:
            self.aborted += count

    def rows_below(self, ends: Mapping[int, int]) -> int:
        """Count acknowledged rows below an end offset (exclusive) of each partition."""
        with self._lock:
            return sum(
                bisect.bisect_left(self._partitions[partition].offsets, end)
                for partition, end in ends.items()
                if partition in self._partitions
            )

    def differences(self, answer: Iterable[tuple[int, int, int]]) -> list[Difference]:
        """Compare an answer's (partition, offset, digest) rows with all that was acknowledged."""
        with self._lock:
            expected: dict[Position, int] = {
                (partition, offset): digest
                for partition, part in self._partitions.items()
                for offset, digest in zip(part.offsets, part.digests, strict=True)
            }
        counted: Counter[Position] = Counter()
        result: list[Difference] = []
        for partition, offset, digest in answer:
            position = (partition, offset)
            counted[position] += 1
            if position not in expected:
                result.append(Difference("surplus", *position))
            elif counted[position] > 1:
                result.append(Difference("doubled", *position))
            elif expected[position] != digest:
                result.append(Difference("changed", *position))
        result.extend(
            Difference("missing", *position) for position in expected if not counted[position]
        )
        return sorted(result, key=lambda item: (item.partition, item.offset))


def digest_event(event: Mapping[str, object]) -> int:
    """Hash an event by its values: the same for the dict that was sent and the row that came back."""
    return digest_bytes(json.dumps(event, sort_keys=True, separators=(",", ":")).encode())


def digest_bytes(value: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(value, digest_size=8).digest(), "big")
