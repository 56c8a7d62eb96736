"""A generation under a new schema begins with what another one of its table has, where Kafka would give the same rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from planner.errors import DeadlineExceeded, LogTruncated, LogUnavailable
from planner.evolution.conversions import Conversion, Heritage
from planner.offsets import OffsetRange
from planner.schema import TableSchema
from planner.seam.binding import Binding
from planner.seam.cut import HotSlice
from planner.seam.watermark import Watermark
from planner.sql_text import identifier
from planner.type_text import sql_type
from proxy.tail.fetching import Fetch
from proxy.tail.followed_table import FollowedTable, epochs_below, is_too_much, older
from proxy.tail.generations import Generation
from proxy.tail.segment import Segment, SegmentState
from proxy.tail.tail_segments import Loan

#: Takes a table and its binding, a schema of before and one of now.
Heritages = Callable[[str, Binding, TableSchema, TableSchema], Heritage | None]

#: Wait so long for a thread that adds to the last segment: a step takes less, a large fetch more.
_PATIENCE_S = 1.0

_EXPRESSIONS: Mapping[Conversion, str] = {
    "same": "{0}",
    "cast": "CAST({0} AS {1})",
    "null": "CAST(NULL AS {1})",
}


def inherit(
    entry: FollowedTable, hot: HotSlice, watermark: Watermark, fetch: Fetch, of: Heritages
) -> None:
    """Begin a generation with the segments of its ancestor, unless another statement has; it may be a part of them.

    Raises:
        FederationError: as ``Tails.read``. The generation has what came before.
    """
    heir = entry.generation
    if not heir.writing.acquire(timeout=entry.limits.fetch_timeout_s):
        return
    try:
        ancestor, entry.ancestor = entry.ancestor, None
        if ancestor is None or heir.stops():
            return
        own, before = entry.source, ancestor.source.schema
        heritage = of(own.table, own.binding, before, own.schema)
        if heritage is not None:
            work = _Inheritance(heir, heritage, hot, watermark, fetch)
            work.begin(ancestor.generation.lend(_PATIENCE_S))
    except LogTruncated:
        heir.clear()
    except (LogUnavailable, DeadlineExceeded):
        pass  # the rest is fetched, or followed, as that of any tail
    finally:
        heir.writing.release()


@dataclass(slots=True)
class _Inheritance:
    """Fills ``heir``, which is empty, from the watermark on."""

    heir: Generation
    heritage: Heritage
    hot: HotSlice
    watermark: Watermark
    fetch: Fetch
    _fetched: list[OffsetRange] = field(default_factory=list)

    def begin(self, loan: Loan) -> None:
        """Add what was lent, and between it what must be fetched again; give back the rest."""
        heir, floor = self.heir, self.watermark.offset
        left = deque(loan.segments)
        try:
            is_whole = all(start <= floor(at) for at, start in loan.starts.items())
            if not is_whole or not self.heritage.carries(loan.rowless_ids):
                return
            heir.begin(((at, floor(at)) for at in loan.starts), self.watermark.epochs)
            ends = dict(loan.starts)
            while left:
                segment = left[0]
                # Records without rows may lie before the first one.
                segment.ranges = {
                    at: OffsetRange(at, min(ends[at], item.start), item.stop)
                    for at, item in segment.ranges.items()
                }
                ends |= {at: item.stop for at, item in segment.ranges.items()}
                missing = heir.missing(segment.ranges.values())
                if missing and self._carries(segment):
                    heir.borrow(self._converted(segment), loan.epochs)
                    left.popleft()
                    continue
                if missing and not self._fetch(missing):
                    return
                _give_back(left.popleft())
            heir.extend_to(loan.stops, loan.epochs)
        finally:
            for segment in left:
                _give_back(segment)

    def _carries(self, segment: Segment) -> bool:
        return not segment.is_trimmed and self.heritage.carries(segment.writer_ids)

    def _converted(self, segment: Segment) -> Segment:
        """Return a segment that is read as one of ``heir``."""
        steps, state = self.heritage.conversions, segment.state
        if state is SegmentState.PACKED and "cast" in steps.values():
            # It is packed anew: a cast hides from the engine which blocks it may skip.
            state = SegmentState.FULL
        before = segment.expressions or {}
        expressions = {
            name: _EXPRESSIONS[steps[name]].format(
                before.get(name) or identifier(name), sql_type(field.type)
            )
            for name, field in zip(self.heir.schema.names, self.heir.schema, strict=True)
        }
        return replace(segment, state=state, expressions=expressions)

    def _fetch(self, ranges: Sequence[OffsetRange]) -> bool:
        """Add ranges from where ``heir`` ends; False: with those before they are too much, and all that is left is followed."""
        self._fetched += ranges
        if is_too_much(self._fetched):
            return False
        below = older(epochs_below(ranges, self.heir, self.watermark), self.hot)
        self.fetch.into(self.heir, tuple(ranges), below, self.hot.epochs.as_dict())
        return True


def _give_back(segment: Segment) -> None:
    if segment.owner is not None:
        segment.owner.give_back()
