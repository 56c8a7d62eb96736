"""The lake that rules of statements are tried on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.harness.flows import tier, write
from tests.harness.lake import Lake


@pytest.fixture
def lake_in_memory() -> Iterator[Lake]:
    """Five records in partition 0 of flows and one in partition 1; three of them are cold."""
    value = Lake()
    write(value, 0, 5)
    write(value, 1, 1)
    tier(value, 3)
    yield value
    value.stop_server()
