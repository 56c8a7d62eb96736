"""What others keep in our catalogs: views, tables of theirs, and entries that lead nowhere. None of it stops anything."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.catalog import load_catalog
from pyiceberg.view.metadata import ViewVersion
from sqlalchemy import create_engine, text

from connectors.iceberg.store import IcebergStore
from planner.names import TableName
from planner.schema import Column
from tests.fixtures.kafka import Kafka
from tests.fixtures.object_store import ObjectStore
from tests.fixtures.postgresql import PostgreSQL
from tests.fixtures.rest_catalog import RestCatalog
from tests.fixtures.server import SqlServer, settings_of
from thermocline.commands.doctor import command as doctor
from thermocline.commands.tier import BoundTables
from thermocline.serve.assembly import running_server

pytestmark = pytest.mark.kafka

VIEW = "summary"
ROWS = pa.table({"id": pa.array(range(10), pa.int64())})


def make_view(properties: dict[str, str], namespace: str) -> None:
    """As Spark or Trino would."""
    if properties["type"] == "rest":
        representation = {"type": "sql", "sql": "SELECT 1 AS id", "dialect": "spark"}
        version = ViewVersion.model_validate(
            {
                "version-id": 1,
                "schema-id": 0,
                "timestamp-ms": 1_764_000_000_000,
                "summary": {},
                "representations": [representation],
                "default-namespace": [namespace],
            }
        )
        with closing(load_catalog("lake", **properties)) as catalog:
            catalog.create_view((namespace, VIEW), ROWS.schema, version)
        return
    # What Iceberg's Java client writes to a database with the layout V1.
    engine = create_engine(properties["uri"])
    with engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, iceberg_type)"
                " VALUES ('lake', :namespace, :view, 's3://nowhere/view.json', 'VIEW')"
            ),
            {"namespace": namespace, "view": VIEW},
        )
    engine.dispose()


@pytest.mark.parametrize("kind", ["postgresql", "rest"])
def test_views_tables_of_others_and_broken_entries_stop_nothing(
    kind: str,
    request: pytest.FixtureRequest,
    kafka: Kafka,
    object_store: ObjectStore,
    tmp_path: Path,
) -> None:
    if kind == "postgresql":
        database: PostgreSQL = request.getfixturevalue("postgresql")
        properties, namespace = database.catalog(tmp_path) | object_store.warehouse(), "net"
        root = properties["warehouse"]
    else:
        rest: RestCatalog = request.getfixturevalue("rest_catalog")
        properties, namespace, root = rest.catalog(), rest.namespace(), rest.root
    with closing(load_catalog("lake", **properties)) as catalog:
        catalog.create_namespace(namespace)
        catalog.create_table((namespace, "theirs"), ROWS.schema).append(ROWS)
        broken = catalog.create_table((namespace, "broken"), ROWS.schema)
        broken.io.delete(broken.metadata_location)
    make_view(properties, namespace)
    topic = kafka.topic(1)
    kafka.produce(topic, [b'{"id": 7}'])
    settings = settings_of({"lake": properties}, kafka.settings, storage_roots=(root,))
    with running_server(settings) as running:
        server = SqlServer(running, settings)
        ours = server.bind(
            topic, [Column(0, "id", pa.int64())], name=TableName("lake", (namespace,), "ours")
        )
        listed = server.ask(
            "SELECT table_name FROM information_schema.tables "
            f"WHERE table_schema = '{namespace}' AND table_name NOT LIKE '%$%' ORDER BY 1"
        )
        assert listed.column(0).to_pylist() == ["broken", "ours", "theirs"]
        joined = f"SELECT sum(t.id) AS s FROM {namespace}.theirs t, {ours} o"
        assert server.ask(joined).to_pylist() == [{"s": 45}]
        for name, reason in ((VIEW, "there is no table"), ("broken", "broken: ")):
            with pytest.raises(adbc.Error, match=reason):
                server.ask(f"SELECT * FROM {namespace}.{name}")
    with closing(IcebergStore(settings.catalogs)) as store:
        assert [name for name in BoundTables(store)() if name.namespace == (namespace,)] == [
            ours
        ]
    findings = _doctor(tmp_path, properties, kafka, root)
    of_tables = {
        name.removeprefix("table "): state
        for name, state in findings.items()
        if f".{namespace}." in name
    }
    assert of_tables[f"lake.{namespace}.broken"] == "fail"
    assert not any(VIEW in name for name in of_tables)


def _doctor(
    folder: Path, properties: dict[str, str], kafka: Kafka, root: str
) -> dict[str, str]:
    """State by check."""
    config = folder / "doctor.toml"
    lake = "".join(f'"{key}" = {json.dumps(value)}\n' for key, value in properties.items())
    config.write_text(
        f'[catalogs.lake]\n{lake}[kafka]\n"bootstrap.servers" = "{kafka.bootstrap}"\n'
        f'[server]\nlandlock = "off"\nstorage_roots = ["{root}"]\n'
    )
    result = CliRunner().invoke(doctor, ["--json"], obj=str(config))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    return {item["check"]: item["state"] for item in json.loads(result.stdout)["findings"]}
