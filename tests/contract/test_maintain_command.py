"""``thermocline maintain --dry-run`` as people run it: what is due, why and for how much, without Spark."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from connectors.iceberg.maintenance_facts import MaintenanceReader
from connectors.table_care import with_care
from connectors.table_standings import TableStatus
from planner.errors import BadBinding
from planner.names import TableName
from tests.fixtures.cold import IcebergCold
from tests.harness.builders import FLOWS
from thermocline.cli import app

Run = Callable[..., Result]


@pytest.fixture
def run(iceberg: IcebergCold, tmp_path: Path) -> Run:
    """Five publishes of a row each."""
    iceberg.create()
    for offset in range(5):
        iceberg.tier([(0, offset, "a", offset)], offset + 1, 0)
    config = tmp_path / "thermocline.toml"
    catalog = "\n".join(
        f"{key} = {json.dumps(value)}" for key, value in iceberg.properties["lake"].items()
    )
    config.write_text(f"[catalogs.lake]\n{catalog}\n")

    def command(*arguments: str) -> Result:
        inputs = ["--config", str(config), "maintain", *arguments]
        return CliRunner().invoke(app, inputs)

    return command


def test_it_says_what_is_due_and_why(run: Run, iceberg: IcebergCold) -> None:
    done = run("--dry-run")
    assert done.exit_code == 0, done.output
    size = sum(iceberg.table().inspect.files()["file_size_in_bytes"].to_pylist()) / 1024
    assert done.stdout.splitlines() == [
        f"{FLOWS}: 5 files of {size:.1f} KiB, 0 delete files, 5 manifests, 6 snapshots",
        f"  compact files: 5 small files (score 1.0; reads {size:.1f} KiB)",
        "  remove orphans: not looked for within a day (score 1.0)",
    ]


def test_a_table_that_is_off_says_so(run: Run, iceberg: IcebergCold) -> None:
    iceberg.set_properties(**{"maintain.mode": "off"})
    # Readers pass over it.
    assert iceberg.store.pin(FLOWS).watermark is not None
    done = run("--dry-run", str(FLOWS))
    assert done.stdout.splitlines()[1:] == [
        "  not done: everything: thermocline.maintain.mode = off",
        "  nothing is due",
    ]


def test_a_wrong_property_is_told_and_is_the_exit_code(run: Run, iceberg: IcebergCold) -> None:
    iceberg.set_properties(**{"maintain.pin_grace_s": "0"})
    done = run("--dry-run", str(FLOWS))
    what = (
        "property thermocline.maintain.pin_grace_s is '0'; it must be a whole number above 0."
    )
    # As the command's own error it is told once.
    assert done.stderr == ""
    assert isinstance(done.exception, BadBinding)
    assert done.exception.message == f"{FLOWS}: {what}"


def test_a_table_without_a_topic_is_refused_where_it_is_named(
    run: Run, iceberg: IcebergCold
) -> None:
    plain = TableName("lake", ("net",), "plain")
    iceberg.create_plain(plain, None)
    assert "plain" not in run("--dry-run").output
    gone = TableName("lake", ("net",), "gone")
    done = run("--dry-run", str(plain), str(gone), str(FLOWS))
    assert isinstance(done.exception, BadBinding)
    assert done.exception.message == (
        f"{plain}: the table is not bound to a topic; bind one with `thermocline create`."
    )
    # The others are told all the same.
    assert done.stderr.startswith(f"{gone}: UnknownTable: ")
    assert f"{FLOWS}: 5 files" in done.stdout


def test_once_over_tables_with_nothing_to_do_starts_no_spark(
    run: Run, iceberg: IcebergCold, monkeypatch: pytest.MonkeyPatch
) -> None:
    iceberg.set_properties(**{"maintain.mode": "off"})
    # A session could not start.
    monkeypatch.setitem(sys.modules, "thermocline.spark_session", None)
    done = run("--once")
    assert done.exit_code == 0, done.output
    assert done.output == ""


def test_status_has_how_well_a_table_is_looked_after(run: Run, iceberg: IcebergCold) -> None:
    assert run("--dry-run").exit_code == 0
    status = TableStatus(str(FLOWS), "flows", 1, 0, ())
    gone = replace(status, error="it is gone.", error_class="UnknownTable")
    now_ms = iceberg.table().metadata.last_updated_ms + 1_000
    with closing(MaintenanceReader(iceberg.properties)) as reader:
        [first, second] = with_care([status, gone], reader, now_ms)
        assert first.care is not None
        assert (first.care.backlog_files, first.care.snapshots) == (5, 6)
        assert (first.care.compacted_ratio, first.care.last_run_s) == (0.0, None)
        assert second == gone
        iceberg.set_properties(**{"maintain.pin_grace_s": "0"})
        [refused] = with_care([status], reader, now_ms)
    assert (refused.error_class, refused.care) == ("BadBinding", None)


def test_deletes_and_their_rows_are_counted_by_file(run: Run, iceberg: IcebergCold) -> None:
    iceberg.delete(2)
    reader = MaintenanceReader(iceberg.properties)
    facts = reader.read(FLOWS)
    reader.close()
    assert facts is not None
    # pyiceberg rewrites the file, and here it had that row alone.
    assert [file.rows for file in facts.files.files] == [1, 1, 1, 1]
    assert facts.needs_watermark
    assert facts.head == iceberg.table().metadata.current_snapshot_id
