"""Maintenance that is killed at any point: run again, it is finished, and nothing is lost."""

from __future__ import annotations

import contextlib
import json
import os
import time
from functools import partial
from pathlib import Path
from typing import get_args

import psutil
import pytest

from connectors.decoding.registry import decoder_for
from connectors.failpoints import MaintenancePoint
from connectors.jobs.round import tier_once
from tests.fixtures.spark import BUDGET, BoundTable, SparkLake
from tests.harness.forked_commands import run, start
from tests.harness.generated_log import GeneratedLog, expected_rows

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(3600)]

TIMEOUT_S = 900.0
#: Where rows age out, as below.
ROWS = "before_expired_rows"
#: That of the renewed watermark is the tierer's own.
POINTS = (*(each for each in get_args(MaintenancePoint) if each != ROWS), "before_commit")


def configuration(lake: SparkLake, folder: Path) -> str:
    catalog = "\n".join(
        f"{key} = {json.dumps(value)}" for key, value in lake.catalogs["lake"].items()
    )
    file = folder / "thermocline.toml"
    file.write_text(f'[catalogs.lake]\n{catalog}\n[tier]\nmaster = "local[2]"\n')
    return str(file)


def orphan_of(table: BoundTable) -> Path:
    folder = Path(str(table.java().location()).removeprefix("file:").replace("///", "/"))
    orphan = folder / "data" / "left-by-a-task.parquet"
    orphan.write_bytes(b"orphan")
    then = time.time() - 4 * 86_400
    os.utime(orphan, (then, then))
    return orphan


@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_point_and_run_again(lake: SparkLake, tmp_path: Path, point: str) -> None:
    properties = {
        "thermocline.maintain.pin_grace_s": "1",
        "history.expire.max-snapshot-age-ms": "1",
    }
    table = lake.create(0, 0, properties=properties)
    for end in range(100, 600, 100):
        table.tier(end, end)
    orphan = orphan_of(table)
    time.sleep(2)  # the first snapshots are older than the grace
    config = configuration(lake, tmp_path)
    arguments = ("--config", config, "maintain", "--once", str(table.name))
    kill_at(point, arguments, tmp_path)
    assert table.rows() == expected_rows(500, 500)
    assert table.watermark() == {0: 500, 1: 500}
    code, out, err = run(arguments, tmp_path, TIMEOUT_S)
    assert code == 0, err
    assert not orphan.exists(), out
    assert len(table.sql("SELECT * FROM {t}.files")) == 1
    code, out, err = run((*arguments[:-2], "--dry-run", arguments[-1]), tmp_path, TIMEOUT_S)
    assert (code, out.splitlines()[1:]) == (0, ["  nothing is due"]), out + err
    assert table.rows() == expected_rows(500, 500)
    table.tier(600, 600)
    assert table.rows() == expected_rows(600, 600)
    assert table.watermark() == {0: 600, 1: 600}


@pytest.mark.parametrize("point", [ROWS, "before_commit"])
def test_killed_while_rows_age_out_and_run_again(
    lake: SparkLake, tmp_path: Path, point: str
) -> None:
    """Each file has old rows and others, so their deletion is staged on a branch first."""
    table = lake.create(0, 0, properties={"thermocline.retention_days": "30"})
    for end in (100, 200):
        tier_late(table, end)
    table.sql("UPDATE {t} SET kafka_timestamp = current_timestamp() WHERE kafka_offset % 2 = 0")
    before = table.watermark()
    arguments = (
        "--config",
        configuration(lake, tmp_path),
        "maintain",
        "--once",
        str(table.name),
    )
    kill_at(point, arguments, tmp_path)
    assert table.rows() == expected_rows(200, 200)
    assert len(table.branches()) == 1
    code, _, err = run(arguments, tmp_path, TIMEOUT_S)
    assert code == 0, err
    young = [row for row in expected_rows(200, 200) if row[1] % 2 == 0]
    assert table.rows() == young
    assert table.watermark() == before
    code, out, err = run((*arguments[:-2], "--dry-run", arguments[-1]), tmp_path, TIMEOUT_S)
    assert (code, out.splitlines()[1:]) == (0, ["  nothing is due"]), out + err
    # All records of the log are too old.
    tier_late(table, 300)
    assert table.rows() == young
    assert table.watermark() == {0: 300, 1: 300}


def tier_late(table: BoundTable, end: int) -> None:
    """As ``BoundTable.tier``, with the decoder of tail and tierer."""
    log, decoder = GeneratedLog((end, end)), partial(decoder_for, str(table.name))
    tier_once(log, table.target(log, decoder=decoder), BUDGET)


def kill_at(point: str, arguments: tuple[str, ...], tmp_path: Path) -> None:
    """Run a command until it reaches a point, and kill it there with all that it started."""
    marker = tmp_path / "hit"
    failpoint = {"THERMOCLINE_FAILPOINT": point, "THERMOCLINE_FAILPOINT_FILE": str(marker)}
    log = tmp_path / "log"
    process = start(arguments, tmp_path, log, os.environ | failpoint)
    deadline = time.monotonic() + TIMEOUT_S
    while not marker.exists():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.1)
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait(60)
    for member in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
