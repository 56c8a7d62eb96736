"""Iceberg REST catalogs, which know their warehouse by name: the whole loop, and one that keeps no tags."""

from __future__ import annotations

import contextlib
import http.client
from pathlib import Path

import pyarrow as pa
import pytest

from connectors.iceberg.create import NewTable, create_table
from planner.errors import BadConfig
from planner.names import TableName
from planner.schema import Column
from planner.seam.binding import Binding
from tests.fixtures.kafka import Kafka
from tests.fixtures.rest_catalog import RestCatalog
from tests.fixtures.server import SqlServer, settings_of
from tests.fixtures.spark import first_watermark
from tests.harness.whole_loop import check_whole_loop
from thermocline.config.settings import IcebergRest
from thermocline.serve.assembly import RunningServer, running_server


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.soak  # tests/docs walks the quickstart over the same parts
def test_a_topic_is_tiered_and_read_on_both_sides_of_the_seam(
    rest_catalog: RestCatalog, kafka: Kafka, tmp_path: Path
) -> None:
    name = TableName("lake", (rest_catalog.namespace(),), "flows")
    check_whole_loop(
        rest_catalog.catalog(), kafka, tmp_path, name=name, storage_roots=(rest_catalog.root,)
    )


def test_a_catalog_without_tags_serves_tables_and_refuses_to_bind_one(
    nessie: RestCatalog,
) -> None:
    settings = settings_of({"lake": nessie.catalog()}, {}, storage_roots=(nessie.root,))
    namespace = nessie.namespace()
    with running_server(settings) as running:
        server = SqlServer(running, settings)
        rows = pa.table({"id": pa.array(range(10), pa.int64())})
        plain = server.create_plain(rows, name=TableName("lake", (namespace,), "plain"))
        answer = server.ask(f"SELECT sum(id) AS s FROM {plain}")
        assert answer.to_pylist() == [{"s": 45}]
        name = TableName("lake", (namespace,), "flows")
        columns, binding = [Column(0, "id", pa.int64())], Binding("flows")
        first = first_watermark(0, binding=binding)
        with pytest.raises(BadConfig) as caught:
            create_table(settings.catalogs, NewTable(name, columns, binding), first)
        assert caught.value.message == (
            f"{name}: catalog lake keeps no tags and branches of tables, as Nessie does not, and tiering needs both; "
            f"the table was dropped again. Choose another catalog."
        )
        with server.catalog() as catalog:
            assert catalog.list_tables((namespace,)) == [(namespace, "plain")]
            # What docs/limits.md says of it: a tag is taken and not kept, and of snapshots the newest alone is.
            table = catalog.load_table((namespace, "plain"))
            table.append(rows)
            [head] = table.snapshots()
            table.manage_snapshots().create_tag(head.snapshot_id, "tag").commit()
            loaded = catalog.load_table((namespace, "plain"))
            assert loaded.snapshots() == [head]
            assert loaded.refs().keys() == {"main"}


def test_what_is_pinned_is_answered_while_a_catalog_is_gone_and_it_is_taken_up_again(
    rest_catalog: RestCatalog,
) -> None:
    settings = settings_of(
        {"lake": rest_catalog.catalog()}, {}, storage_roots=(rest_catalog.root,)
    )
    name = TableName("lake", (rest_catalog.namespace(),), "plain")
    with running_server(settings) as running:
        server = SqlServer(running, settings)
        server.create_plain(pa.table({"id": pa.array(range(10), pa.int64())}), name=name)
        sql = f"SELECT sum(id) AS s FROM {name}"
        assert server.ask(sql).to_pylist() == [{"s": 45}]
        rest_catalog.kill()
        try:
            server.refresh(name)
            assert server.ask(sql).to_pylist() == [{"s": 45}]
        finally:
            rest_catalog.start()
        server.refresh(name)
        assert server.ask(sql).to_pylist() == [{"s": 45}]


def test_a_live_table_of_a_catalog_that_is_gone_is_to_be_loaded_later(
    rest_catalog: RestCatalog,
) -> None:
    """What is pinned is answered: the seam is where the pin has it, and its tail is as new as ever."""
    settings = settings_of(
        {"lake": rest_catalog.catalog()}, {}, storage_roots=(rest_catalog.root,)
    )
    settings = settings.model_copy(update={"iceberg_rest": IcebergRest(port=0)})
    name = TableName("lake", (rest_catalog.namespace(),), "plain")

    def status(running: RunningServer) -> tuple[int, str | None]:
        path = f"/v1/lake/namespaces/{name.schema}/tables/{name.name}"
        connection = http.client.HTTPConnection("127.0.0.1", running.rest_port, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            return answer.status, answer.getheader("retry-after")

    with running_server(settings) as running:
        SqlServer(running, settings).create_plain(pa.table({"id": [1]}), name=name)
        assert status(running) == (200, None)
        rest_catalog.kill()
        try:
            running.pins.refresh(name)
            assert status(running) == (200, None)
            with running_server(settings) as another:
                assert status(another) == (503, "2")
        finally:
            rest_catalog.start()
