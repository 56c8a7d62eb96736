"""What a cold store answers for one pin."""

from __future__ import annotations

import pytest

from planner.errors import (
    FederationError,
)
from planner.seam.cut import Pin
from tests.fixtures.cold import ColdHarness, cold_slice
from tests.harness.builders import FLOWS

BASE = [(0, 0, "a", 1), (0, 1, "b", 2), (0, 2, "c", 3)]


def offsets(cold: ColdHarness, pin: Pin) -> list[int]:
    return sorted(cold.read(cold_slice(pin))["kafka_offset"].to_pylist())


def watermark_of(cold: ColdHarness) -> dict[int, int]:
    pin = cold.store.pin(FLOWS)
    assert pin.watermark is not None
    return pin.watermark.next.as_dict()


def refused(cold: ColdHarness, kind: type[FederationError], *words: str) -> None:
    with pytest.raises(kind) as caught:
        cold.store.pin(FLOWS)
    assert "lake.net.flows" in caught.value.message
    for word in words:
        assert word in caught.value.message
    assert "/" not in caught.value.message.replace("flows/", "")
