"""DELETE, compaction and expiry in any order beside a tierer: the table answers, and with the right rows."""

from __future__ import annotations

import random

import pytest

from tests.fixtures.cold import IcebergCold
from tests.harness.builders import FLOWS
from tests.harness.cold_answers import offsets, watermark_of


def storm(cold: IcebergCold, seed: int, steps: int) -> None:
    """Let two in five steps be a publish, the others maintenance by another writer."""
    chance = random.Random(seed)
    cold.create()
    rows: list[int] = []
    following = 0
    for step in range(steps):
        match chance.choice(("tier", "tier", "delete", "compact", "expire")):
            case "tier":
                added = range(following, following + 3)
                following += 3
                rows += added
                cold.tier([(0, at, "a", at) for at in added], following, 0)
            case "delete" if rows:
                gone = rows.pop(chance.randrange(len(rows)))
                cold.delete(gone)
            case "compact" if rows:
                cold.compact()
            case "expire":
                metadata = cold.table().metadata
                retained = {metadata.current_snapshot_id} | {
                    ref.snapshot_id for ref in metadata.refs.values()
                }
                cold.expire(
                    *(
                        snapshot.snapshot_id
                        for snapshot in metadata.snapshots
                        if snapshot.snapshot_id not in retained
                    )
                )
        assert watermark_of(cold) == {0: following, 1: 0}, (seed, step)
    assert offsets(cold, cold.store.pin(FLOWS)) == sorted(rows), seed


def test_a_short_storm(iceberg: IcebergCold) -> None:
    # One in which an expiry hides a DELETE, twice.
    storm(iceberg, seed=55, steps=14)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(6))
def test_a_long_storm(iceberg: IcebergCold, seed: int) -> None:
    storm(iceberg, seed=seed, steps=300)
