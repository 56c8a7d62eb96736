"""``thermocline covers`` as people run it, over a table that lost its history."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from planner.errors import BadParameter, ForeignCommit, WatermarkMissing
from planner.seam.boundary import RetentionBoundary
from planner.seam.watermark import Skip, format_watermark
from tests.fixtures.cold import START, IcebergCold
from tests.harness.builders import FLOWS, vector, watermark
from thermocline.cli import app

Run = Callable[..., Result]


@pytest.fixture
def run(iceberg: IcebergCold, tmp_path: Path) -> Run:
    return command_over(iceberg, tmp_path)


def command_over(
    iceberg: IcebergCold, tmp_path: Path, boundary: RetentionBoundary | None = None
) -> Run:
    """A table whose rows 0 and 2 are left of three, and nobody can prove what it covers."""
    skips = (Skip(1, 4, "no JSON"),)
    iceberg.create()
    iceberg.tier([(0, 0, "a", 1), (0, 1, "b", 2), (0, 2, "c", 3)], 3, 0)
    head = iceberg.table().metadata.current_snapshot_id
    mark = watermark(3, 0, prev_snapshot_id=head, skips=skips, boundary=boundary)
    iceberg.tier_text(format_watermark(mark))
    hidden = iceberg.delete(1)
    iceberg.compact()
    iceberg.expire(hidden)
    iceberg.lose_older_files()
    with pytest.raises(WatermarkMissing):
        iceberg.store.pin(FLOWS)
    config = tmp_path / "thermocline.toml"
    catalog = "\n".join(
        f"{key} = {json.dumps(value)}" for key, value in iceberg.properties["lake"].items()
    )
    config.write_text(f"[catalogs.lake]\n{catalog}\n")

    def command(*arguments: str, answer: str | None = None) -> Result:
        inputs = ["--config", str(config), "covers", str(FLOWS), *arguments]
        return CliRunner().invoke(app, inputs, input=answer)

    return command


def test_it_shows_what_the_table_has_and_asks(run: Run, iceberg: IcebergCold) -> None:
    done = run(answer="y\n")
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{FLOWS}: covers partition 0 below 3, partition 1 below 0\n"
    for line in (
        f"{FLOWS}: partition 0: 2 rows, offsets 0 to 2, 1 offsets between without a row",
        "  would be covered below 3: 0 offsets up to there have no row",
        f"{FLOWS}: partition 1: no rows",
        f"{FLOWS}: partition 1, offset 4: somebody gave this record up (no JSON), so no answer has it",
        "Is that what it covers? [y/N]: ",
    ):
        assert line in done.stderr
    mark = iceberg.store.pin(FLOWS).watermark
    assert mark is not None
    assert (mark.next, mark.skips) == (vector(3, 0), (Skip(1, 4, "no JSON"),))


def test_who_says_no_changes_nothing(run: Run, iceberg: IcebergCold) -> None:
    assert run(answer="n\n").exit_code != 0
    with pytest.raises(WatermarkMissing):
        iceberg.store.pin(FLOWS)


def test_a_program_names_every_partition(run: Run, iceberg: IcebergCold) -> None:
    for arguments, words in (
        (["--yes"], "--yes shows nobody what the table has"),
        (["--yes", "--next", "0=3"], "nothing was said of partitions 1"),
        (["--yes", "--next", "0=3", "--next", "1=x"], "is not PARTITION=OFFSET"),
        (["--json", "--next", "0=3", "--next", "1=0"], "say --yes too"),
        (["--yes", "--next", "0=4", "--next", "1=0"], "was never covered"),
    ):
        done = run(*arguments)
        assert isinstance(done.exception, BadParameter), done.output
        assert words in str(done.exception)
    done = run("--yes", "--next", "0=2", "--next", "1=0")
    assert isinstance(done.exception, ForeignCommit), done.output
    done = run("--yes", "--json", "--next", "0=3", "--next", "1=0")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert (document["next"], document["rows"]) == ({"0": 3, "1": 0}, 2)
    assert isinstance(run(answer="y\n").exception, BadParameter)  # it is known now


@pytest.mark.parametrize("column", ["kafka_timestamp", "another"])
def test_rows_that_are_older_than_the_boundary_of_the_tag_stay(
    iceberg: IcebergCold, tmp_path: Path, column: str
) -> None:
    """The table was rolled back to before it moved: the boundary goes back to the oldest row of the column, if that has any."""
    start_us = int(START.timestamp()) * 1_000_000
    field_id = 3 if column == "kafka_timestamp" else 99
    boundary = RetentionBoundary(field_id, start_us + 5_000_000)
    run = command_over(iceberg, tmp_path, boundary)
    done = run(answer="y\n")
    assert done.exit_code == 0, done.output
    mark = iceberg.store.pin(FLOWS).watermark
    assert mark is not None
    after = RetentionBoundary(3, start_us) if field_id == 3 else boundary
    assert mark.boundary == after
    line = f"{FLOWS}: rows before {after.text} aged out: no answer has such a record of Kafka"
    assert line in done.stderr
