"""What the producers know: every acknowledged record with a hash of what it says.

The ledger never asks the log or the table; SQL answers are held against it. 16 bytes a record, so hours fit.
"""

from __future__ import annotations

import bisect
import hashlib
import json
import threading
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from thermocline.demo.feeds import DemoFeed

Kind = Literal["good", "bad", "tombstone", "aborted"]

#: Acknowledgements may come this much later than an answer that has the rows already.
SETTLE_S = 5.0


@dataclass(frozen=True, slots=True)
class SentRecord:
    """A record the broker acknowledged, with the hash of its value."""

    kind: Kind
    partition: int
    offset: int
    digest: int


class Ledger:
    """One topic's records, by partition in the order of offsets. Thread-safe."""

    def __init__(self) -> None:
        self.counts: Counter[Kind] = Counter()
        self._offsets: dict[int, array[int]] = defaultdict(lambda: array("q"))
        self._digests: dict[int, array[int]] = defaultdict(lambda: array("Q"))
        self._lock = threading.Lock()

    @property
    def rows(self) -> int:
        return self.counts["good"] + self.counts["bad"]

    def add(self, records: Iterable[SentRecord]) -> None:
        """Note what committed readers see from now on, or, aborted, never."""
        with self._lock:
            for record in records:
                self.counts[record.kind] += 1
                if record.kind in ("good", "bad"):
                    offsets = self._offsets[record.partition]
                    # Two producers acknowledge almost in order: the place is near the end.
                    at = bisect.bisect_right(offsets, record.offset)
                    offsets.insert(at, record.offset)
                    self._digests[record.partition].insert(at, record.digest)

    def rows_below(self, ends: Mapping[int, int]) -> int:
        """Count rows below an end offset (exclusive) of each partition."""
        with self._lock:
            return sum(bisect.bisect_left(self._offsets[p], end) for p, end in ends.items())

    def differences(self, answer: Iterable[tuple[int, int, int]]) -> list[tuple[int, int, str]]:
        """Compare an answer's (partition, offset, digest) rows with all records; say what is wrong where."""
        expected = {
            (partition, offset): digest
            for partition, offsets in self._offsets.items()
            for offset, digest in zip(offsets, self._digests[partition], strict=True)
        }
        positions = set[tuple[int, int]]()
        wrong: list[tuple[int, int, str]] = []
        for partition, offset, digest in answer:
            position = (partition, offset)
            if position not in expected:
                wrong.append((*position, "surplus"))
            elif position in positions:
                wrong.append((*position, "doubled"))
            elif expected[position] != digest:
                wrong.append((*position, "changed"))
            positions.add(position)
        wrong += [(*position, "missing") for position in expected.keys() - positions]
        return sorted(wrong)


def digest_row(feed: DemoFeed, row: Mapping[str, Any], *, is_later_exact: bool) -> int:
    """Hash a row as its event was. A wrong value in the later column is a changed row.

    With ``is_later_exact`` the event's hash has the later field where the event had it; else NULL is right there.
    """
    if row["kafka_error"] is not None:
        return digest_bytes(row["kafka_value"])
    event = {name: row[name] for name in feed.columns}
    event["ts"] = round(row["ts"].timestamp() * 1000)
    later = row.get(feed.later)
    if later not in (None, feed.later_of(event)):
        return -1
    if is_later_exact and later is not None:
        event[feed.later] = later
    return digest_event(event)


def digest_event(event: Mapping[str, object]) -> int:
    """Hash an event by its values: the same for the dict that was sent and the row that came back."""
    return digest_bytes(json.dumps(event, sort_keys=True, separators=(",", ":")).encode())


def digest_bytes(value: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(value, digest_size=8).digest(), "big")
