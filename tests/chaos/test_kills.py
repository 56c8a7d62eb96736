"""The ledger after kills. Seeds: ``THERMOCLINE_SEED``; how many in a soak: ``THERMOCLINE_KILLS``."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.kills import Victim, schedule, victims
from tests.chaos.lakes import Lake, faulty, postgresql_lake, rest_lake
from tests.chaos.run import LOCAL, PARTITIONS, WITH_EXECUTOR, run, run_kills
from tests.fixtures.kafka import Kafka
from tests.fixtures.object_store import ObjectStore
from tests.fixtures.postgresql import PostgreSQL
from tests.fixtures.rest_catalog import RestCatalog
from tests.harness.catalog_gateway import CatalogGateway
from tests.harness.store_gateway import StoreGateway

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
#: A soak goes on in runs of so many, each with a broker, a table and a seed of its own.
RUN_KILLS = 30
#: Of it the driver dies when it has published, and the broker while a commit is about to be sent.
SEED = int(os.environ.get("THERMOCLINE_SEED", "143"))


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


#: Of whom `make test` kills one each. A JVM alone: ``integration/test_tier_command.py``.
IN_SHORT: tuple[Victim, ...] = ("driver", "worker", "broker", "catalog")


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "among",
    [IN_SHORT, pytest.param(victims(executors=False), marks=pytest.mark.soak)],
    ids=["in short", "all"],
)
def test_a_kill_of_every_victim_loses_nothing_and_doubles_nothing(
    tmp_path: Path, among: tuple[Victim, ...]
) -> None:
    """Each victim once; thousands die in the soak."""
    outcome = run(tmp_path, seed=SEED, count=len(among), among=among)
    print(outcome)
    outcome.write(tmp_path / "chaos.json")
    assert outcome.wrong == []
    assert outcome.ledger["acknowledged"] > 0
    assert outcome.ledger["aborted"] > 0
    assert set(outcome.counts) == set(among)


@pytest.fixture
def gateway(object_store: ObjectStore) -> Iterator[StoreGateway]:
    with StoreGateway(object_store.port) as started:
        started.choose_fault = faulty(random.Random(SEED))
        yield started


@pytest.fixture
def commits(rest_catalog: RestCatalog) -> Iterator[CatalogGateway]:
    with CatalogGateway(rest_catalog.port) as started:
        yield started


@pytest.mark.timeout(600)
def test_outages_of_postgresql_rest_and_s3_lose_nothing_and_double_nothing(
    kafka: Kafka,
    postgresql: PostgreSQL,
    rest_catalog: RestCatalog,
    object_store: ObjectStore,
    gateway: StoreGateway,
    commits: CatalogGateway,
    tmp_path: Path,
) -> None:
    """One tierer with a table in each catalog; requests fail, commits are made and not told, a catalog and the store go."""
    lake = postgresql_lake(postgresql, object_store, gateway, tmp_path)
    lake += rest_lake(rest_catalog, gateway, commits)
    topic = kafka.topic(PARTITIONS)
    kills = [
        replace(kill, wait_s=0.2, outage_s=0.5)
        for kill in schedule(SEED, 2, ("catalog", "store"))
    ]
    outcome = run_kills(tmp_path, kafka.settings, lake, kills, seed=SEED, topic=topic)
    print(outcome)
    assert outcome.wrong == []
    assert outcome.ledger["acknowledged"] > 0
    assert set(outcome.counts) == {"catalog", "store"}
    kafka.delete_topic(topic)


@pytest.mark.soak
def test_many_kills_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    _soak(tmp_path, int(os.environ.get("THERMOCLINE_KILLS", "1000")), lambda _: None)


@pytest.mark.soak
def test_many_kills_over_postgresql_and_s3(
    postgresql: PostgreSQL, object_store: ObjectStore, gateway: StoreGateway, tmp_path: Path
) -> None:
    kills = int(os.environ.get("THERMOCLINE_KILLS", "1000")) // 4
    _soak(
        tmp_path,
        kills,
        lambda folder: postgresql_lake(postgresql, object_store, gateway, folder),
        "postgresql-",
    )


@pytest.mark.soak
def test_many_kills_over_rest_and_s3(
    rest_catalog: RestCatalog, gateway: StoreGateway, commits: CatalogGateway, tmp_path: Path
) -> None:
    kills = int(os.environ.get("THERMOCLINE_KILLS", "1000")) // 4
    _soak(tmp_path, kills, lambda _: rest_lake(rest_catalog, gateway, commits), "rest-")


def _soak(
    base: Path, kills: int, lake_of: Callable[[Path], Lake | None], prefix: str = ""
) -> None:
    seed = int(os.environ.get("THERMOCLINE_SEED", str(int(time.time()))))
    for number, first in enumerate(range(0, kills, RUN_KILLS)):
        folder = base / str(number)
        folder.mkdir()
        outcome = run(
            folder,
            seed=seed + number,
            count=min(RUN_KILLS, kills - first),
            master=WITH_EXECUTOR if number % 2 else LOCAL,
            lake=lake_of(folder),
        )
        print(outcome)
        outcome.write(RESULTS / "chaos" / f"seed-{prefix}{seed + number}.json")
        assert outcome.wrong == [], f"{prefix}seed {seed + number}"
        # Nobody will look at a run that was right.
        shutil.rmtree(folder)
