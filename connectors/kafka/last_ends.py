"""Where logs ended when this process looked: no later look may find less."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from planner.cut import LogBounds
from planner.errors import FederationError, LogTruncated, LogUnavailable


@dataclass(frozen=True, slots=True)
class LastEnds:
    """The greatest end of each partition of one topic id, exclusive, with the leader epoch that told it."""

    topic_id: str
    ends: Mapping[int, tuple[int, int | None]]

    def refuted_by(self, bounds: LogBounds) -> FederationError | None:
        """Return what an end below one seen earlier means; None where there is none, or the topic is another one.

        It is a stale replica's answer, or the log lost records (docs/internals/seam.md, T28).
        """
        if self.topic_id != bounds.topic_id:
            return None
        for part in bounds.partitions:
            end, epoch = self.ends.get(part.partition, (0, None))
            if part.log_end >= end:
                continue
            where = f"{bounds.topic}/{part.partition}"
            facts: dict[str, object] = {
                "topic": bounds.topic,
                "partition": part.partition,
                "log_end": part.log_end,
                "seen_log_end": end,
            }
            if (
                part.leader_epoch is not None
                and epoch is not None
                and part.leader_epoch > epoch
            ):
                return LogTruncated(
                    f"{where}: the log ends at offset {part.log_end} under a newer leader, but ended at {end} "
                    f"before; records that were readable are lost (an unclean leader election).",
                    **facts,
                )
            return LogUnavailable(
                f"{where}: a broker says the log ends at offset {part.log_end}, but it ended at {end} before; "
                f"its answer is out of date. Retry when the partition's replicas are in sync.",
                **facts,
            )
        return None

    def merged(self, bounds: LogBounds) -> LastEnds:
        """Return the greater ends; those of ``bounds`` alone where it is of another topic id."""
        ends = dict(self.ends) if self.topic_id == bounds.topic_id else {}
        for part in bounds.partitions:
            if part.log_end >= ends.get(part.partition, (0, None))[0]:
                ends[part.partition] = (part.log_end, part.leader_epoch)
        return LastEnds(bounds.topic_id, ends)
