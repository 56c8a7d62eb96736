"""The interface that fills a tail, in this process or in another."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Protocol

import pyarrow as pa

from planner.errors import SchemasNeeded
from planner.offsets import NO_EPOCHS, OffsetRange
from planner.ports import Decoded, all_ids
from planner.schema import TableSchema
from planner.seam.binding import Binding
from planner.seam.watermark import Outcomes
from proxy.tail.tail_ranges import extend

Pieces = Generator[Decoded, None, None]
Ranges = Sequence[OffsetRange]
#: By partition: offsets, or leader epochs.
ByPartition = Mapping[int, int]


@dataclass(frozen=True, slots=True)
class TailSource:
    """A topic to read, and the schema and binding to decode it with. ``topic_id`` as in ``planner.ports.TopicSource``."""

    table: str
    schema: TableSchema
    binding: Binding
    topic: str
    topic_id: str | None


@dataclass(frozen=True, slots=True)
class DecodedBatch:
    """Rows of every committed record of ``ranges``, and of no other, once ``confirm`` has returned.

    A partition's range begins where its previous one ended. ``confirm`` raises as ``Subscription.take``. Call it once,
    before taking the next step. ``epochs`` as in ``planner.ports.LogBatch``. ``peak_bytes`` is the most resident memory
    that a process of its own has had which decoded it.
    """

    decoded: Decoded
    ranges: tuple[OffsetRange, ...]
    confirm: Callable[[], None] = lambda: None
    epochs: Mapping[int, int] = field(default_factory=dict)
    peak_bytes: int = 0


class Subscription(Protocol):
    """Reads on along one topic. Not thread-safe. The caller closes it."""

    def take(self, timeout_s: float, ranges: Sequence[OffsetRange] = ()) -> DecodedBatch | None:
        """Return the next step, or None if nothing came within ``timeout_s``.

        For ``ranges`` it waits a moment longer: one large step costs waiting statements less than two.

        Raises:
            FederationError: as ``planner.ports.LogSubscription.take`` and ``Decoder.decode``. Only ``close`` may follow.
        """

    def close(self) -> None:
        """Stop reading."""


class TopicReader(Protocol):
    """Reads one topic. Thread-safe."""

    def follow(self, starts: ByPartition, epochs: ByPartition = NO_EPOCHS) -> Subscription:
        """Read on from an offset per partition; ``epochs`` as in ``planner.ports.Log.fetch``.

        Raises:
            FederationError: as ``planner.ports.Log.follow``; most come from the subscription's own calls.
        """

    def fetch(
        self, ranges: Ranges, timeout_s: float, epochs: ByPartition = NO_EPOCHS
    ) -> Pieces:
        """Yield every committed record of ``ranges`` once, decoded; as ``planner.ports.Log.fetch``.

        A normal end means that all were read. After an error, throw away what was yielded.
        """

    def learn(self, needed: SchemasNeeded) -> None:
        """Find the schemas for want of which ``take`` or ``fetch`` ended; it may be called again then.

        Raises:
            FederationError: as ``connectors.registry.decoders.Decoders.ask``.
        """

    def fetches_sooner(self, ranges: Ranges) -> bool:
        """Whether ``fetch`` needs not wait for what ``follow`` has to wait for: a process that is being started."""

    def check_history(self, offsets: ByPartition, epochs: ByPartition) -> None:
        """See ``planner.ports.Log.check_history``."""


TopicReaders = Callable[[TailSource], TopicReader]


def joined(several: Sequence[DecodedBatch]) -> DecodedBatch:
    """Join consecutive steps that are not confirmed yet. Takes at least one."""
    if len(several) == 1:
        return several[0]
    rows = pa.concat_batches([item.decoded.rows for item in several])
    outcomes = sum((item.decoded.outcomes for item in several), Outcomes())
    ranges: dict[int, OffsetRange] = {}
    epochs: dict[int, int] = {}
    for batch in several:
        extend(ranges, batch.ranges)
        epochs |= batch.epochs
    ids = reduce(all_ids, (item.decoded.writer_ids for item in several))
    decoded = Decoded(rows, outcomes, writer_ids=ids)
    return DecodedBatch(decoded, tuple(ranges.values()), epochs=epochs)
