"""``verify`` of several tables, of which some cannot be read."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from connectors.verification.run import Silent
from planner.errors import ColdStoreUnavailable, FederationError
from planner.names import TableName
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import SqlServer
from tests.harness.events import EVENT
from thermocline.cli import app, exit_code
from thermocline.commands import verify

pytestmark = pytest.mark.kafka


def configured(server: SqlServer, folder: Path) -> Path:
    tables = {
        **{f"catalogs.{name}": each for name, each in server.settings.catalogs.items()},
        "kafka": server.settings.kafka,
    }
    lines = [
        line
        for name, options in tables.items()
        for line in (
            f"[{name}]",
            *(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in options.items()),
        )
    ]
    config = folder / "thermocline.toml"
    config.write_text("\n".join(lines))
    return config


def without_manifest_list(server: SqlServer, table: TableName) -> None:
    with server.catalog() as catalog:
        snapshot = catalog.load_table((*table.namespace, table.name)).current_snapshot()
    assert snapshot is not None
    Path(snapshot.manifest_list.removeprefix("file://")).unlink()


def test_the_tables_after_one_that_cannot_be_read_are_verified(
    server: SqlServer, kafka: Kafka, tmp_path: Path
) -> None:
    lost, sound, gone = (server.bind(kafka.topic(), EVENT) for _ in range(3))
    for table in (lost, gone):
        without_manifest_list(server, table)
    config = str(configured(server, tmp_path))
    done = CliRunner().invoke(
        app, ["--config", config, "verify", "--json", str(lost), str(sound), str(gone)]
    )
    assert [report["table"] for report in json.loads(done.stdout)] == [str(sound)]
    # The first one ends the command; the command line says it, as any error.
    assert isinstance(done.exception, FederationError)
    assert str(lost) in done.exception.message
    assert f"thermocline: {gone}: " in done.stderr


def test_the_tables_after_one_at_which_the_process_dies_are_verified(
    server: SqlServer, kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (server.bind(kafka.topic(), EVENT) for _ in range(2))
    config = str(configured(server, tmp_path))
    others = set(multiprocessing.active_children())
    catalog = sqlite3.connect(
        server.settings.catalogs["lake"]["uri"].removeprefix("sqlite:///")
    )

    @contextlib.contextmanager
    def killing(title: str) -> Iterator[Silent]:
        if title == str(first):
            [reader] = set(multiprocessing.active_children()) - others
            assert reader.pid is not None
            os.kill(reader.pid, signal.SIGKILL)
        yield Silent()
        catalog.rollback()

    monkeypatch.setattr(verify, "progress_bar", killing)
    with contextlib.closing(catalog):
        # Until then the process waits for the first table's metadata.
        catalog.execute("BEGIN EXCLUSIVE")
        done = CliRunner().invoke(
            app, ["--config", config, "verify", "--json", str(first), str(second)]
        )
    [report] = json.loads(done.stdout)
    assert (report["table"], report["clean"]) == (str(second), True)
    assert isinstance(done.exception, ColdStoreUnavailable)
    assert exit_code(done.exception) == 3
    assert done.exception.message == (
        f"{first}: the process that verifies tables ended with signal 9 and has no result; verify one table at a time, with "
        f"more memory if the system ended the process."
    )
