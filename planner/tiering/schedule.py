"""Decides which tables to tier next and how long a failed one waits; estimates the rest of a backfill."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Protocol

from planner.names import TableName

FIRST_BACKOFF_S = 2.0
MAX_BACKOFF_S = 300.0
#: Of what passes by itself: a broker, a catalog or a store that does not answer.
MAX_OUTAGE_BACKOFF_S = 30.0


class Urgent(Protocol):
    """Why a table is worked on now."""

    @property
    def urgency(self) -> tuple[float, ...]:
        """Sorts reasons: the greatest first."""


def choose(
    due: Mapping[TableName, Urgent], running: Set[TableName], *, at_once: int
) -> tuple[TableName, ...]:
    """Return the tables to start now, most urgent first: none that runs, and at most ``at_once`` in all."""
    waiting = sorted(
        (name for name in due if name not in running),
        # By name among equals, so that the same facts give the same order.
        key=lambda name: (*(-each for each in due[name].urgency), name),
    )
    return tuple(waiting[: max(0, at_once - len(running))])


def backoff_s(failures: int, jitter: float, *, passes: bool = False) -> float:
    """Seconds a table waits after ``failures`` in a row; ``jitter`` from 0 to 1 spreads the upper half.

    ``passes``: the failure may be over any moment, by itself.
    """
    most = MAX_OUTAGE_BACKOFF_S if passes else MAX_BACKOFF_S
    longest = min(most, FIRST_BACKOFF_S * 2.0 ** min(failures - 1, 30))
    return longest * (0.5 + 0.5 * jitter)


@dataclass(frozen=True, slots=True)
class Backfill:
    """Progress of a table that is more than one publish behind. ``done`` and ``left`` are offsets."""

    done: int
    left: int
    elapsed_s: float

    @property
    def fraction(self) -> float:
        """From 0 to 1."""
        return self.done / (self.done + self.left) if self.done + self.left else 1.0

    @property
    def eta_s(self) -> float | None:
        """Seconds until the log's end, at the pace so far, arriving records included; None before the first publish."""
        if self.done <= 0 or self.elapsed_s <= 0:
            return None
        return self.left * self.elapsed_s / self.done
