"""Where logs ended when this process looked: no later look may find less, under the same leader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from planner.errors import FederationError, LogUnavailable
from planner.seam.cut import LogBounds


@dataclass(frozen=True, slots=True)
class LastEnds:
    """The greatest end of each partition of one topic id, exclusive, with the leader epoch that told it."""

    topic_id: str
    ends: Mapping[int, tuple[int, int | None]]

    def refuted_by(self, bounds: LogBounds) -> FederationError | None:
        """Return the error of an end below one seen earlier: a stale replica's answer (docs/internals/seam.md, T28).

        None where there is none, or the topic is another one. Under a newer leader the log is what it is: whether it lost
        what was read of it is asked where that is used (``planner.ports.Log.check_history``).
        """
        if self.topic_id != bounds.topic_id:
            return None
        for each in bounds.partitions:
            end, epoch = self.ends.get(each.partition, (0, None))
            if each.log_end >= end or _is_newer(each.leader_epoch, epoch):
                continue
            return LogUnavailable(
                f"{bounds.topic}/{each.partition}: a broker says the log ends at offset {each.log_end}, but it ended at "
                f"{end} before; its answer is out of date. Retry when the partition's replicas are in sync.",
                topic=bounds.topic,
                partition=each.partition,
                log_end=each.log_end,
                seen_log_end=end,
            )
        return None

    def merged(self, bounds: LogBounds) -> LastEnds:
        """Return the greater ends, or a newer leader's; those of ``bounds`` alone where it is of another topic id."""
        ends = dict(self.ends) if self.topic_id == bounds.topic_id else {}
        for each in bounds.partitions:
            end, epoch = ends.get(each.partition, (0, None))
            if each.log_end >= end or _is_newer(each.leader_epoch, epoch):
                ends[each.partition] = (each.log_end, each.leader_epoch)
        return LastEnds(bounds.topic_id, ends)


def _is_newer(epoch: int | None, earlier: int | None) -> bool:
    return epoch is not None and earlier is not None and epoch > earlier
