"""Tails of a log that loses records to an unclean election, and grows past them again with others."""

from __future__ import annotations

import pytest

from planner.errors import LogTruncated
from tests.harness.tails import FOLLOWED, NOT_FOLLOWED, TailHarness, tail_harness

START = (0, 0)


def written(harness: TailHarness, *, epochs: tuple[int, ...] = START) -> list[int]:
    return [row[2] for row in harness.read(harness.cut(0, 0, epochs=epochs))]


def replace_from(harness: TailHarness, offset: int, *values: int) -> None:
    """Lose what partition 0 has from there on, and write something else."""
    harness.log.truncate("flows", 0, offset)
    harness.write(0, *values)


@pytest.mark.parametrize("following", [FOLLOWED, NOT_FOLLOWED], ids=["followed", "fetched"])
@pytest.mark.parametrize("count", [1, 3, 5], ids=["shorter", "as long", "longer"])
def test_rows_of_two_logs_are_never_in_one_answer(count: int, following: object) -> None:
    with tail_harness(following=following) as harness:
        harness.write(0, 0, 1, 2, 3, 4)
        assert written(harness) == [0, 1, 2, 3, 4]
        new = [100 + number for number in range(count)]
        replace_from(harness, 2, *new)
        assert written(harness) == [0, 1, *new]
        harness.write(0, 7)
        assert written(harness) == [0, 1, *new, 7]


def test_a_follower_that_read_records_before_they_were_lost_drops_them() -> None:
    with tail_harness() as harness:
        harness.write(0, 0)
        written(harness)
        harness.write(0, 1, 2, 3)
        harness.followers.step()
        # No statement has seen their end: only the records' own epochs tell.
        replace_from(harness, 2, 100, 101, 102)
        harness.followers.step()
        assert written(harness) == [0, 1, 100, 101, 102]


def test_a_leader_of_a_partition_that_nothing_was_read_of_proves_nothing() -> None:
    with tail_harness() as harness:
        harness.write(0, 0, 1)
        harness.write(1, 5)
        cut = harness.cut(0, epochs=(0,))  # partition 1 is newer than the watermark
        first = [span for span in cut.new_hot if span.partition == 0]
        with harness.tails.read(cut, lambda: None, only=first) as tail:
            assert [row[2] for row in harness.rows(tail)] == [0, 1]
        harness.log.elect("flows", 1)
        assert [row[2] for row in harness.read(harness.cut(0, epochs=(0,)))] == [0, 1, 5]


def test_a_new_leader_that_has_all_records_costs_one_question() -> None:
    with tail_harness() as harness:
        harness.write(0, 0, 1, 2)
        assert written(harness) == [0, 1, 2]
        harness.log.elect("flows", 0)
        assert [written(harness) for _ in range(3)] == [[0, 1, 2]] * 3
        assert (harness.checked, harness.decoded) == (1, 3)


def test_records_that_are_lost_below_the_watermark_are_named() -> None:
    with tail_harness() as harness:
        harness.write(0, 0, 1, 2, 3, 4)
        cut = harness.cut(4, 0, epochs=START)
        assert [row[2] for row in harness.read(cut)] == [4]
        replace_from(harness, 2, 100, 101, 102, 103)
        for _ in range(3):
            with pytest.raises(LogTruncated, match="lost records below offset 4"):
                harness.read(harness.cut(4, 0, epochs=START))
        # What is tiered from then on is of the new log.
        assert [row[2] for row in harness.read(harness.cut(4, 0, epochs=(1, 0)))] == [102, 103]


def test_a_watermark_without_epochs_is_read_as_it_is() -> None:
    with tail_harness() as harness:
        harness.write(0, 0, 1, 2, 3, 4)
        replace_from(harness, 2, 100, 101, 102)
        assert [row[2] for row in harness.read(harness.cut(4, 0))] == [102]
