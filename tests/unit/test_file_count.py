"""The claim about small files: a fiftieth of Kafka Connect's, on the demo's tables, with the shipped defaults."""

import pytest

from benchmarks.file_count import GOAL_FILES, HOUR_S, simulate
from planner.tiering.triggers import DEFAULT_TAIL_BYTES, DEFAULT_TAIL_ROWS
from thermocline.demo.feeds import FEEDS, DemoFeed

#: Late events are one in 400: these are certain to be met in the hours before, all days counted in each publish.
DRAWS = 1_000


@pytest.mark.parametrize("feed", FEEDS, ids=lambda feed: feed.topic)
def test_an_hour_of_one_table_leaves_few_files(feed: DemoFeed) -> None:
    hour = simulate(feed, 5_000, draws=DRAWS, seed=1, tier_rate=100_000)
    assert hour.files <= GOAL_FILES
    # What was published is what arrived, and a proxy had room for the rest.
    assert hour.rows == pytest.approx(5_000 * HOUR_S, rel=0.15)
    assert hour.longest_tail_rows < DEFAULT_TAIL_ROWS
    assert hour.longest_tail_bytes < DEFAULT_TAIL_BYTES
    # The days that late events may belong to, and today.
    assert len(hour.partitions) == 3


def test_an_hour_of_both_tables_leaves_few_files() -> None:
    hours = [simulate(feed, 2_500, draws=DRAWS, seed=1, tier_rate=100_000) for feed in FEEDS]
    assert sum(hour.files for hour in hours) <= GOAL_FILES
