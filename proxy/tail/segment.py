"""One native table of a tail, what it stands for, and the rows a statement reads of several."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType

import pyarrow as pa

from planner.names import KAFKA_OFFSET, KAFKA_PARTITION
from planner.offsets import OffsetRange
from planner.ports import SqlRelation

#: A statement's cut is a few batches old at most when its follower is far ahead of it.
_STEPS = 32


@dataclass(eq=False)
class Segment:
    """One native table. ``ranges`` is what it stands for; ``size`` are bytes as Arrow held them."""

    name: str
    ranges: dict[int, OffsetRange] = field(default_factory=dict)
    rows: int = 0
    size: int = 0
    #: After each of the last batches: how many rows were ever added, and what they stood for.
    steps: deque[tuple[int, dict[int, OffsetRange]]] = field(
        default_factory=lambda: deque(maxlen=_STEPS)
    )
    leases: int = 0
    is_full: bool = False
    #: A transaction adds rows to it.
    is_written: bool = False
    #: Below these offsets of partitions rows are to be deleted, and may still be there.
    doomed: dict[int, int] = field(default_factory=dict)
    #: Rows were deleted once.
    is_shortened: bool = False
    is_dropped: bool = False
    #: In memory, compressed; it is full.
    is_packed: bool = False
    on_disk: bool = False

    @property
    def is_trimmed(self) -> bool:
        """Whether there may be rows that the ranges do not stand for any more."""
        return bool(self.doomed)


class LeasedTail:
    """The rows of one cut's tail, as relations. Close it when the statement is over."""

    def __init__(self, relations: tuple[SqlRelation, ...], release: Callable[[], None]) -> None:
        self.relations = relations
        self._release = release

    def close(self) -> None:
        self._release()

    def __enter__(self) -> LeasedTail:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def ends(batch: pa.RecordBatch) -> dict[int, int]:
    """First offset behind the rows of each partition."""
    places = pa.table(
        [batch.column(KAFKA_PARTITION), batch.column(KAFKA_OFFSET)], ["partition", "offset"]
    )
    ends = places.group_by("partition", use_threads=False).aggregate([("offset", "max")])
    rows = zip(
        *(column.to_pylist() for column in ends.select(["partition", "offset_max"]).columns),
        strict=True,
    )
    return {partition: offset + 1 for partition, offset in rows}
