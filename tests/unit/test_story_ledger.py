"""The ledger of the stories excuses only what it was given as compacted, and only above the watermark."""

from __future__ import annotations

import pyarrow as pa

from planner.schema import Column
from planner.seam.binding import Binding
from tests.doubles.log import MemoryRecord
from tests.harness.ledger import Ledger


def ledger() -> Ledger:
    """Four records of one partition, of which the cleaner took 1 and 2, and a marker at 4."""
    result = Ledger(Binding("events"), [Column(0, "n", pa.int32())], 1)
    record = MemoryRecord(b'{"n": 1}', b"key", None, 0)
    result.commit({(0, offset): record for offset in range(4)})
    result.compacted_away([(0, 1), (0, 2)])
    result.stable_ends[0] = 5
    return result


def test_a_compacted_record_is_due_only_where_an_answer_had_it() -> None:
    story = ledger()
    assert story.places() == [(0, 0), (0, 3)]
    story.observe([(0, 0), (0, 2), (0, 7)])  # 3 is missing, 7 was never sent
    assert story.places() == [(0, 0), (0, 2), (0, 3)]
    story.observe([(0, 0)])
    assert story.places() == [(0, 0), (0, 3)]


def test_no_compacted_record_is_cold() -> None:
    story = ledger()
    story.observe([(0, 1), (0, 2)])
    assert story.tier().rows == 2
    assert story.places() == story.cold_places() == [(0, 0), (0, 3)]


def test_a_marker_that_was_last_when_it_was_tiered_stays_cold() -> None:
    story = ledger()
    story.tier()
    story.commit({(0, 5): MemoryRecord(b'{"n": 1}', b"key", None, 0)})
    story.stable_ends[0] = 6
    assert story.places() == [(0, 0), (0, 3), (0, 5)]
