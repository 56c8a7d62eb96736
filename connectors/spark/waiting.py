"""How long a cut waits for records, where no server's deadline says it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from connectors.cuts import Cancellable

#: How long ``wait_for`` waits.
WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class _Never:
    def check(self) -> None:
        """Somebody waits."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A ``connectors.cuts.WaitingTime`` that begins now, and that nobody cancels."""

    limit_s: float = WAIT_S
    began_s: float = field(default_factory=time.monotonic)

    @property
    def left_s(self) -> float:
        return max(0.0, self.limit_s - (time.monotonic() - self.began_s))

    @property
    def is_over(self) -> bool:
        return self.left_s == 0

    @property
    def cancellation(self) -> Cancellable:
        return _Never()
