"""With followers on and everything going on underneath, each answer is the ledger's at its cut (T28 too)."""

from __future__ import annotations

import os

import pytest

from tests.properties.storm import Storm

SEED = int(os.environ.get("THERMOCLINE_STORM_SEED", "1"))


@pytest.mark.timeout(300)
def test_every_answer_under_a_storm_is_the_ledgers_at_its_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Small enough for segments to be packed.
    monkeypatch.setattr("proxy.tail.generations.SEGMENT_ROWS", 8)
    storm = Storm(SEED, readers=4, statements=16)
    storm.run()
    assert storm.compared == 64
    assert storm.stale <= 6
    assert storm.published > 0
    assert storm.schemas > 0


@pytest.mark.soak
@pytest.mark.parametrize("storm_number", range(8))
def test_eight_readers_ask_a_thousand_statements_each(storm_number: int) -> None:
    """In eight storms: the cold side in memory is copied for each statement, so a long storm takes the square."""
    storm = Storm(SEED + storm_number, readers=8, statements=125)
    storm.run()
    assert storm.compared == 1_000
    assert storm.stale <= 50
    assert storm.published > 20
    assert storm.schemas > 4
