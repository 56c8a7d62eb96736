"""What others keep in our catalogs: views, tables of theirs, and entries that lead nowhere. None of it stops anything."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.view.metadata import ViewVersion
from sqlalchemy import create_engine, text

from connectors.iceberg.store import IcebergStore
from planner.names import TableName
from planner.schema import Column
from tests.fixtures.catalog_on_s3 import CatalogOnS3
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import SqlServer, settings_of
from tests.harness.doctor_site import UNLOCKED, DoctorSite
from thermocline.bound_tables import BoundTables
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


def test_views_tables_of_others_and_broken_entries_stop_nothing(
    catalog_on_s3: CatalogOnS3, kafka: Kafka, tmp_path: Path
) -> None:
    properties, root = catalog_on_s3.properties, catalog_on_s3.root
    namespace = catalog_on_s3.namespace
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
    site = DoctorSite(tmp_path / "doctor.toml")
    site.write(properties, kafka.settings, f'{UNLOCKED}storage_roots = ["{root}"]\n')
    of_tables = {
        name.removeprefix("table "): state
        for name, (state, _, _) in site.findings(failed=True).items()
        if f".{namespace}." in name
    }
    assert of_tables[f"lake.{namespace}.broken"] == "fail"
    assert not any(VIEW in name for name in of_tables)
