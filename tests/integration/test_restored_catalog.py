"""Catalog and store restored to an earlier state, as docs/production.md has them backed up: answers stay whole while Kafka
has the records since, and say so when it has not."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import adbc_driver_flightsql.dbapi as adbc
import pytest

from planner.names import TableName
from tests.fixtures.commands import CliSite, cli_site_at
from tests.fixtures.kafka import Kafka
from tests.fixtures.object_store import ObjectStore
from tests.fixtures.postgresql import PostgreSQL
from tests.fixtures.server import SqlServer, settings_of
from tests.harness.store_gateway import Fault, StoreGateway
from thermocline.serve.assembly import running_server

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(300)]

FLOWS = TableName("lake", ("net",), "flows")
ROWS = f"SELECT id FROM {FLOWS} ORDER BY 1"
COLD = 'SELECT id FROM net."flows$cold" ORDER BY 1'
TAIL = 'SELECT id FROM net."flows$tail" ORDER BY 1'


@pytest.fixture
def gateway(object_store: ObjectStore) -> Iterator[StoreGateway]:
    """The server's way to the store."""
    with StoreGateway(object_store.port) as started:
        yield started


@dataclass(frozen=True)
class Backup:
    """Of a database first, then of its bucket."""

    postgresql: PostgreSQL
    uri: str
    bucket: Path
    folder: Path

    def make(self) -> None:
        self._program("pg_dump", "--clean", "--if-exists", "--file", str(self.folder / "sql"))
        shutil.copytree(self.bucket, self.folder / "bucket")

    def restore(self) -> None:
        shutil.rmtree(self.bucket)
        shutil.copytree(self.folder / "bucket", self.bucket)
        self._program("psql", "--set", "ON_ERROR_STOP=1", "--file", str(self.folder / "sql"))

    def _program(self, name: str, *arguments: str) -> None:
        program = str(self.postgresql.programs / name)
        done = subprocess.run(
            [program, "--dbname", self.uri, *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_catalog_and_store_of_an_earlier_time_lose_nothing_that_the_log_has(
    postgresql: PostgreSQL,
    object_store: ObjectStore,
    gateway: StoreGateway,
    kafka: Kafka,
    tmp_path: Path,
) -> None:
    properties = postgresql.catalog(tmp_path) | object_store.warehouse()
    root, topic = properties["warehouse"], kafka.topic()
    site = cli_site_at(tmp_path, properties, root, kafka.settings)
    (tmp_path / "backup").mkdir()
    backup = Backup(
        postgresql,
        properties["uri"].replace("+psycopg2", ""),
        object_store.folder / root.split("/")[2],
        tmp_path / "backup",
    )
    write(kafka, topic, range(10))
    run(site, "create", str(FLOWS), "--topic", topic, "--infer")
    run(site, "tier", "--once", str(FLOWS))
    backup.make()
    served = {"lake": properties | {"s3.endpoint": gateway.endpoint}}
    settings = settings_of(served, kafka.settings, storage_roots=(root,))
    with running_server(settings) as running:
        server = SqlServer(running, settings)
        write(kafka, topic, range(10, 15))
        run(site, "tier", "--once", str(FLOWS))
        server.refresh(FLOWS)
        assert ids(server, COLD) == list(range(15))

        backup.restore()
        server.refresh(FLOWS)
        assert ids(server, COLD) == list(range(10))
        write(kafka, topic, range(15, 16))
        assert ids(server, ROWS) == list(range(16))
        # Meanwhile the store may be gone: what Kafka has is answered.
        gateway.choose_fault = lambda _: Fault.BUSY
        assert ids(server, TAIL) == list(range(10, 16))
        gateway.choose_fault = lambda _: None
        run(site, "tier", "--once", str(FLOWS))
        server.refresh(FLOWS)
        assert ids(server, COLD) == ids(server, ROWS) == list(range(16))
        run(site, "verify", str(FLOWS))

        # What was tiered since the backup is in the log no more.
        backup.restore()
        kafka.delete_records(topic, 0, 12)
        server.refresh(FLOWS)
        with pytest.raises(adbc.Error, match=r"gap accept") as caught:
            server.ask(ROWS)
        assert re.search(r"the log starts at 12|10 .* 12", str(caught.value)), caught.value
        assert ids(server, COLD) == list(range(10))


def write(kafka: Kafka, topic: str, numbers: Iterable[int]) -> None:
    kafka.produce(topic, [b'{"id": %d}' % number for number in numbers])


def ids(server: SqlServer, sql: str) -> list[int]:
    result: list[int] = server.ask(sql).column(0).to_pylist()
    return result


def run(site: CliSite, *arguments: str) -> None:
    code, out, err = site.run(*arguments)
    assert code == 0, out + err
