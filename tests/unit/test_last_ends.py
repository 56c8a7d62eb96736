"""An end below one seen earlier: a stale answer, a newer leader's log, or another topic."""

from __future__ import annotations

import pytest

from connectors.kafka.last_ends import LastEnds
from planner.errors import FederationError, LogUnavailable
from planner.seam.cut import LogBounds, PartitionBounds


def bounds(end: int, epoch: int | None, *, topic_id: str = "a") -> LogBounds:
    return LogBounds("c", "t", topic_id, (PartitionBounds(0, 0, end, epoch, None),))


@pytest.mark.parametrize(
    ("end", "epoch", "expected"),
    [
        (8, 1, None),
        (9, 2, None),
        (7, 1, LogUnavailable),
        (7, 2, None),
        (7, None, LogUnavailable),
    ],
)
def test_a_lower_end_is_stale_unless_a_newer_leader_tells_it(
    end: int, epoch: int | None, expected: type[FederationError] | None
) -> None:
    refuted = LastEnds("a", {0: (8, 1)}).refuted_by(bounds(end, epoch))
    assert type(refuted) is (expected or type(None))
    assert refuted is None or "ended at 8 before" in refuted.message


def test_another_topic_of_the_name_refutes_nothing_and_begins_anew() -> None:
    last = LastEnds("a", {0: (8, 1), 1: (3, 1)})
    again = bounds(2, 1, topic_id="b")
    assert last.refuted_by(again) is None
    assert last.merged(again) == LastEnds("b", {0: (2, 1)})


def test_the_greater_end_stays() -> None:
    last = LastEnds("a", {0: (8, 1), 1: (3, 1)})
    assert last.merged(bounds(7, 1)) == last


def test_a_newer_leader_tells_where_its_log_ends() -> None:
    last = LastEnds("a", {0: (8, 1), 1: (3, 1)})
    assert last.merged(bounds(7, 2)).ends == {0: (7, 2), 1: (3, 1)}
    assert last.merged(bounds(9, 2)).ends == {0: (9, 2), 1: (3, 1)}
