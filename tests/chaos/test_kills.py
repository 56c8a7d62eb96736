"""The ledger after kills. Seeds: ``THERMOCLINE_SEED``; how many in a soak: ``THERMOCLINE_KILLS``."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from tests.chaos.kills import schedule, victims
from tests.chaos.run import LOCAL, WITH_EXECUTOR, run

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
#: A soak goes on in runs of so many, each with a broker, a table and a seed of its own.
RUN_KILLS = 30


def test_a_schedule_follows_from_its_seed_and_meets_every_victim() -> None:
    everybody = victims(executors=True)
    assert schedule(7, 40, everybody) == schedule(7, 40, everybody)
    assert schedule(7, 40, everybody) != schedule(8, 40, everybody)
    assert {kill.victim for kill in schedule(7, 6, everybody)} == set(everybody)
    assert {kill.victim for kill in schedule(7, 60, victims(executors=False))} == {
        *everybody
    } - {"executor"}
    points = {
        victim: {kill.point for kill in schedule(7, 200, everybody) if kill.victim == victim}
        for victim in everybody
    }
    assert {victim: len(items) for victim, items in points.items()} == {
        "driver": 6,
        "jvm": 6,
        "executor": 2,
        "worker": 2,
        "broker": 6,
        "catalog": 6,
    }


@pytest.mark.timeout(1800)
def test_a_kill_of_every_victim_loses_nothing_and_doubles_nothing(tmp_path: Path) -> None:
    """Each victim once; thousands die in the soak."""
    seed = int(os.environ.get("THERMOCLINE_SEED", "2"))
    outcome = run(tmp_path, seed=seed, count=5)
    print(outcome)
    outcome.write(tmp_path / "chaos.json")
    assert outcome.wrong == []
    assert outcome.ledger["acknowledged"] > 0
    assert outcome.ledger["aborted"] > 0
    assert set(outcome.counts) == set(victims(executors=False))


@pytest.mark.soak
def test_many_kills_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    kills = int(os.environ.get("THERMOCLINE_KILLS", "1000"))
    seed = int(os.environ.get("THERMOCLINE_SEED", str(int(time.time()))))
    for number, first in enumerate(range(0, kills, RUN_KILLS)):
        folder = tmp_path / str(number)
        folder.mkdir()
        outcome = run(
            folder,
            seed=seed + number,
            count=min(RUN_KILLS, kills - first),
            master=WITH_EXECUTOR if number % 2 else LOCAL,
        )
        print(outcome)
        outcome.write(RESULTS / "chaos" / f"seed-{seed + number}.json")
        assert outcome.wrong == [], f"seed {seed + number}"
        # Nobody will look at a run that was right.
        shutil.rmtree(folder)
