"""How long somebody still waits for a statement."""

from __future__ import annotations

import time
from dataclasses import dataclass

from planner.errors import DeadlineExceeded
from proxy.deadline import Cancellation


@dataclass(frozen=True, slots=True)
class StatementDeadline:
    """The call a statement is answered in. ``deadline`` is monotonic, ``limit_s`` what it was set from."""

    cancellation: Cancellation
    deadline: float
    limit_s: float

    @classmethod
    def of(cls, cancellation: Cancellation, limit_s: float) -> StatementDeadline:
        return cls(cancellation, time.monotonic() + limit_s, limit_s)

    @property
    def left_s(self) -> float:
        """Never 0: a limit of nothing would be none."""
        return max(0.001, self.deadline - time.monotonic())

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.deadline

    def check(self) -> None:
        """Raise when the statement was cancelled, or has run out of time waiting for its tail."""
        self.cancellation.check()
        if self.is_over:
            raise DeadlineExceeded(
                f"the statement waited longer than {self.limit_s:g} s for its tail; try again, or raise its "
                f"limit.",
                timeout_s=self.limit_s,
            )
