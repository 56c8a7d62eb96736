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
    storm = Storm(SEED, readers=4, statements=30)
    storm.run()
    assert storm.compared == 120
    assert storm.stale <= 12
    assert storm.published > 0
    assert storm.schemas > 0


@pytest.mark.soak
def test_eight_readers_ask_a_thousand_statements_each() -> None:
    storm = Storm(SEED, readers=8, statements=1_000)
    storm.run()
    assert storm.compared == 8_000
    assert storm.stale <= 400
    assert storm.published > 100
    assert storm.schemas > 20
