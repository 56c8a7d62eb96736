"""How a topic is followed: when records gather, how many are added at once, what goes first. No threads, no clock.

Each step costs statements time. Fewer steps are better for statements of other tables; an early step is better for
the statement that waits for its records. So nothing gathers while a statement waits, a little gathers while
statements read the table now and then, and more where none has waited lately. A burst that none waits for is
added in pieces. Measurements: docs/decisions/0024-statements-come-first.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from planner.offsets import OffsetRange


@dataclass(frozen=True, slots=True)
class Pacing:
    """Every constant of the pace. A process has one; tests make their own."""

    #: Longest wait for a record before looking whether to stop.
    take_s: float = 0.5
    #: How long after the last statement others count as being served: the next is likely to come.
    serving_s: float = 1.0
    #: A step of this many rows met a backlog: the next need not gather.
    backlog_rows: int = 4_096

    # --- the reader: reads and decodes ahead of the follower ---

    #: Records that arrive within this time are decoded together, unless the follower waits for them.
    gather_s: float = 0.01
    #: The same as a share of the time since the follower last took a step: no statement is in a hurry then.
    idle_share: float = 0.2
    #: Longest wait for the rest of what a statement needs, once some of it is ready: one large step costs waiting
    #: statements less than two.
    demand_gather_s: float = 0.02
    #: How much may lie ready before the reader pauses.
    max_ready_rows: int = 65_536
    max_ready_bytes: int = 32 * 1024 * 1024

    # --- the follower: adds to the engine what the reader has ready ---

    #: Records that arrive within this time are added together, unless a statement waits for them.
    linger_s: float = 0.08
    #: The same where no statement has waited for the table within ``demand_s``: the next one adds more, once.
    idle_linger_s: float = 0.5
    #: Between two looks of a statement that waits: it says again what it needs, or was cancelled.
    check_s: float = 0.05
    #: What it needs is forgotten when it has not said so for this time.
    demand_s: float = 1.0
    #: While others are served, a burst is added in pieces of this many rows. After each comes a pause, this many times
    #: as long as adding the piece took.
    piece_rows: int = 4_096
    pause_ratio: float = 12.0
    #: Beyond this time it is no burst: a tail that falls behind for good helps no statement.
    burst_s: float = 60.0
    #: Pause after a failure, doubled with each failure up to the second value: retries then cost little.
    first_retry_s: float = 0.25
    longest_retry_s: float = 5.0

    def reader_gather_s(self, rows: int, since_take_s: float) -> float:
        """How long to let records gather after a step of ``rows``."""
        if rows >= self.backlog_rows:
            return 0.0
        return max(self.gather_s, self.idle_share * since_take_s)

    def is_full(self, rows: int, size: int) -> bool:
        """Whether the reader has enough ready, in rows and bytes."""
        return rows >= self.max_ready_rows or size >= self.max_ready_bytes

    def retry_s(self, failures: int) -> float:
        """Seconds to wait after ``failures`` in a row (at least one)."""
        # 2 ** 32 is beyond any longest pause; much larger powers overflow a float.
        return min(self.first_retry_s * 2.0 ** min(failures - 1, 32), self.longest_retry_s)


#: Where topics are read by a process of their own.
IN_OWN_PROCESS = Pacing()
#: Where the server reads them itself: decoding takes time from its own statements.
IN_PROCESS = Pacing(gather_s=0.08)


@dataclass(slots=True)
class Pace:
    """Decides the pace of one follower. ``now_s`` is of one monotonic clock.

    One thread calls the rest; any may call ``require``.
    """

    pacing: Pacing
    #: When a step last was less than a backlog.
    caught_up_at_s: float
    #: The ranges that the latest statement waits for, and when they are forgotten.
    demand: tuple[Sequence[OffsetRange], float] = ((), -math.inf)
    #: Pause that is due before more is added.
    pause_debt_s: float = 0.0

    def require(self, ranges: Sequence[OffsetRange], now_s: float) -> None:
        self.demand = (ranges, now_s + self.pacing.demand_s)

    def required(self, now_s: float) -> Sequence[OffsetRange]:
        ranges, until_s = self.demand
        return ranges if now_s <= until_s else ()

    def has_readers(self, now_s: float) -> bool:
        """Whether statements wait for this table now and then: new records are needed soon."""
        return now_s <= self.demand[1]

    def note_step(self, rows: int, now_s: float) -> None:
        """Note a step of ``rows``; 0 if nothing came."""
        if rows < self.pacing.backlog_rows:
            self.caught_up_at_s = now_s

    def yields(self, now_s: float, *, is_serving: bool) -> bool:
        """Whether statements of other tables come first."""
        is_burst = now_s - self.caught_up_at_s < self.pacing.burst_s
        return is_burst and is_serving and not self.has_readers(now_s)

    def note_piece(self, took_s: float, *, yielding: bool) -> None:
        self.pause_debt_s = self.pacing.pause_ratio * took_s if yielding else 0.0

    def linger_s(self, rows: int | None, now_s: float, *, is_needed: bool) -> float:
        """How long to let records gather after a step. With ``rows`` None nothing came, so nothing gathers.

        ``is_needed``: a statement waits for records that are not there yet.
        """
        if rows is None or rows >= self.pacing.backlog_rows or is_needed:
            return 0.0
        return self.pacing.linger_s if self.has_readers(now_s) else self.pacing.idle_linger_s
