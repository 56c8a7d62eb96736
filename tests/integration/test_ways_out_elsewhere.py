"""A gap, a column and rows of another writer over PostgreSQL and over REST, on S3: given up, read and accepted there too."""

from __future__ import annotations

import json
from pathlib import Path

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.types import StringType

from planner.errors import ForeignCommit
from planner.names import TableName
from planner.schema import Column
from tests.fixtures.catalog_on_s3 import CatalogOnS3
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import SqlServer, settings_of
from thermocline.cli import app
from thermocline.serve.assembly import running_server

pytestmark = pytest.mark.kafka


def test_what_a_person_decides_is_committed_to_that_catalog(
    catalog_on_s3: CatalogOnS3, kafka: Kafka, tmp_path: Path
) -> None:
    properties, root = catalog_on_s3.properties, catalog_on_s3.root
    config = tmp_path / "thermocline.toml"
    lake = "".join(f'"{key}" = {json.dumps(value)}\n' for key, value in properties.items())
    config.write_text(
        f'[catalogs.lake]\n{lake}[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\n'
        f'[server]\nstorage_roots = ["{root}"]\n'
    )
    topic, name = kafka.topic(), TableName("lake", (catalog_on_s3.namespace,), "flows")
    settings = settings_of({"lake": properties}, kafka.settings, storage_roots=(root,))
    with running_server(settings) as running:
        server = SqlServer(running, settings)
        table = server.bind(topic, [Column(0, "id", pa.int64())], name=name)
        sql = f"SELECT * EXCLUDE (kafka_timestamp) FROM {table} ORDER BY id"
        kafka.produce(topic, [b'{"id": %d}' % number for number in range(5)])
        kafka.delete_records(topic, 0, 4)

        with pytest.raises(adbc.Error, match="gap accept"):
            server.ask(sql)
        output = command(config, "gap", "accept", table, "--yes")
        assert "gave up partition 0, offsets 0 to 3; the watermark is 4 now" in output
        row = {"kafka_partition": 0, "kafka_offset": 4, "id": 4}
        server.refresh(table)
        assert server.ask(sql).to_pylist() == [row]

        with server.catalog() as catalog:
            loaded = catalog.load_table((*table.namespace, table.name))
            with loaded.update_schema() as change:
                change.add_column("note", StringType())
            kafka.produce(topic, [b'{"id": 5, "note": "new"}'])
            theirs = {
                "kafka_partition": None,
                "kafka_offset": None,
                "id": 100,
                "note": "theirs",
            }
            schema = loaded.refresh().schema().as_arrow()
            loaded.append(pa.Table.from_pylist([theirs], schema=schema))
            head = loaded.current_snapshot()
            assert head is not None
        with pytest.raises(
            ForeignCommit, match=f"accept {table} --snapshot {head.snapshot_id}"
        ):
            server.refresh(table)
        output = command(config, "accept", table, "--snapshot", head.snapshot_id, "--yes")
        assert output == f"{table}: accepted snapshot {head.snapshot_id} with 1 rows\n"
        server.refresh(table)
        new = {"kafka_partition": 0, "kafka_offset": 5, "id": 5, "note": "new"}
        assert server.ask(sql).to_pylist() == [{**row, "note": None}, new, theirs]

        output = command(config, "verify", table)
        assert "gap accepted: partition 0, offsets 0 to 3 were lost" in output
        assert f"foreign snapshot {head.snapshot_id} accepted" in output


def command(config: Path, *arguments: object) -> str:
    done = CliRunner().invoke(app, ["--config", str(config), *map(str, arguments)])
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout
