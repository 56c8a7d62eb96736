"""Tierers as separate processes: two that meet before they commit, and one that is killed at each failpoint."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import psutil
import pytest

from connectors.jobs.round import tier_once
from connectors.registry.decoders import shipped_decoder
from connectors.spark.metadata import identifier
from planner.seam.watermark import Outcomes
from tests.fixtures.spark import BUDGET, BoundTable, SparkLake
from tests.harness.generated_log import expected_outcomes, expected_rows
from tests.harness.keyed_log import DEVICES, KEYED, KEYED_COLUMNS, KeyedRow

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]

REPOSITORY = Path(__file__).parents[2]
#: A Spark start beside everything else the machine runs.
HIT_TIMEOUT_S = 120.0


@dataclass
class Tierer:
    """A process group with its driver, JVM and Python workers."""

    process: subprocess.Popen[str]
    marker: Path

    def wait_until_hit(self) -> None:
        deadline = time.monotonic() + HIT_TIMEOUT_S
        while not self.marker.exists():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline, "the failpoint was never reached"
            time.sleep(0.02)

    def release(self) -> None:
        Path(f"{self.marker}.release").touch()

    def kill(self) -> None:
        """SIGKILL everything at once. pyspark's workers have a process group of their own."""
        family = [
            psutil.Process(self.process.pid),
            *psutil.Process(self.process.pid).children(recursive=True),
        ]
        names = " ".join(member.name() for member in family)
        assert "java" in names
        os.killpg(self.process.pid, signal.SIGKILL)
        for member in family:
            try:
                member.kill()
            except psutil.NoSuchProcess:
                continue
        _, alive = psutil.wait_procs(family, timeout=20)
        assert not alive
        self.process.communicate()

    def results(self) -> list[dict[str, Any]]:
        out, err = self.process.communicate(timeout=HIT_TIMEOUT_S)
        assert self.process.returncode == 0, err
        return [json.loads(line) for line in out.splitlines()]


Start = Callable[..., Tierer]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a tierer of a table with a failpoint."""
    started: list[Tierer] = []

    def run(table: BoundTable, failpoint: str, *ends: tuple[int, ...]) -> Tierer:
        marker = tmp_path / f"hit-{len(started)}"
        request = {"catalogs": table.catalogs, "table": str(table.name), "ends": ends}
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.tierer", json.dumps(request)],
            cwd=REPOSITORY,
            env=os.environ
            | {"THERMOCLINE_FAILPOINT": failpoint, "THERMOCLINE_FAILPOINT_FILE": str(marker)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(Tierer(process, marker))
        return started[-1]

    yield run
    for tierer in started:
        if tierer.process.poll() is None:
            tierer.kill()


# chaos/test_kills.py kills a driver that has just published.
@pytest.mark.soak
@pytest.mark.parametrize(
    ("failpoint", "landed"),
    [
        ("after_fetch", False),
        ("after_stage", False),
        ("before_publish", False),
        ("after_publish", True),
    ],
)
def test_a_kill_loses_nothing_and_doubles_nothing(
    flows: BoundTable, start: Start, failpoint: str, landed: bool
) -> None:
    flows.tier(100, 100)
    killed = start(flows, failpoint, (3_000, 2_000))
    killed.wait_until_hit()
    killed.kill()
    tiered = (3_000, 2_000) if landed else (100, 100)
    assert flows.rows() == expected_rows(*tiered)
    assert flows.watermark() == dict(enumerate(tiered))
    # What a dead tierer staged stays on its branch until the branch is stale.
    assert len(flows.branches()) == (0 if landed else 1)
    result = flows.tier(3_500, 2_000)
    assert result.watermark.next.as_dict() == {0: 3_500, 1: 2_000}
    assert flows.rows() == expected_rows(3_500, 2_000)


@pytest.mark.soak
def test_a_kill_between_the_commits_of_a_stage_loses_no_change(
    lake: SparkLake, start: Start
) -> None:
    devices = lake.create(0, 0, columns=KEYED_COLUMNS, binding=KEYED, key=("id",))

    def rows() -> list[KeyedRow]:
        columns = ("kafka_partition", "kafka_offset", "id", "state")
        read = devices.session.table(identifier(devices.name)).select(*columns).collect()
        return sorted((tuple(row) for row in read), key=itemgetter(2))

    def tier(*ends: int) -> None:
        log = DEVICES.to(*ends)
        target = devices.target(log, decoder=partial(shipped_decoder, str(devices.name)))
        tier_once(log, target, BUDGET)
        assert rows() == log.rows

    tier(100, 100)
    killed = start(devices, "after_deletes", (200, 200))
    killed.wait_until_hit()
    killed.kill()
    assert rows() == DEVICES.to(100, 100).rows
    assert devices.watermark() == {0: 100, 1: 100}
    assert len(devices.branches()) == 2
    tier(300, 300)


# chaos/test_rivals.py has two tierers that meet, test_spark_foreign.py one that lands while another commits.
@pytest.mark.soak
@pytest.mark.parametrize("failpoint", ["before_publish", "before_commit"])
def test_of_two_tierers_that_meet_one_commits_and_the_other_carries_on(
    flows: BoundTable, start: Start, failpoint: str
) -> None:
    rounds = ((3_000, 2_000), (3_500, 2_100))
    both = [start(flows, f"{failpoint}:barrier", *rounds) for _ in range(2)]
    for tierer in both:
        tierer.wait_until_hit()
    assert flows.watermark() == {0: 0, 1: 0}
    for tierer in both:
        tierer.release()
    results = [line for tierer in both for line in tierer.results()]
    assert results.count({"refused": "TieringConflict"}) >= 1
    published = [line["published"] for line in results if line.get("published")]
    assert sum((Outcomes(**counts) for counts in published), Outcomes()) == expected_outcomes(
        3_500, 2_100
    )
    assert flows.rows() == expected_rows(3_500, 2_100)
    assert flows.watermark() == {0: 3_500, 1: 2_100}
    assert flows.branches() == []
