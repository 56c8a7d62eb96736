"""What a look at rows asks of a tail: LIMIT without condition or order takes the rows that are there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.flows import PLACES, places, write, written
from tests.harness.lake import Lake


@pytest.fixture
def lake_in_memory() -> Iterator[Lake]:
    value = Lake()
    write(value, 0, 5)
    value.ask(PLACES)  # followed from here on
    yield value
    value.stop_server()


def test_a_look_has_the_follower_take_no_step(lake_in_memory: Lake) -> None:
    write(lake_in_memory, 0, 3)
    rows = places(lake_in_memory.ask(f"{PLACES} LIMIT 4"))
    assert rows.total() == 4
    assert rows <= written(lake_in_memory)
    [state] = lake_in_memory.tails.states()
    assert state.rows == 5


@pytest.mark.parametrize("sql", ["SELECT * FROM flows LIMIT 8", PLACES])
def test_what_is_not_there_is_waited_for_where_it_is_needed(
    lake_in_memory: Lake, sql: str
) -> None:
    write(lake_in_memory, 0, 3)
    assert places(lake_in_memory.ask(sql)) == written(lake_in_memory)
