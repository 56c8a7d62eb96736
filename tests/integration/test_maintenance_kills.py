"""Maintenance that is killed at any point: run again, it is finished, and nothing is lost."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import get_args

import psutil
import pytest

from connectors.failpoints import MaintenancePoint
from tests.fixtures.spark import BoundTable, SparkLake
from tests.harness.forked_commands import run, start
from tests.harness.generated_log import expected_rows

pytestmark = [pytest.mark.spark, pytest.mark.soak, pytest.mark.timeout(900)]

TIMEOUT_S = 300.0
#: That of the renewed watermark is the tierer's own.
POINTS = (*get_args(MaintenancePoint), "before_commit")


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
    orphan, marker = orphan_of(table), tmp_path / "hit"
    time.sleep(2)  # the first snapshots are older than the grace
    config = configuration(lake, tmp_path)
    arguments = ("--config", config, "maintain", "--once", str(table.name))
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
