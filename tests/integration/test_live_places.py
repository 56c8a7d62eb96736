"""Where live files lie."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

from planner.errors import BadConfig
from tests.fixtures.kafka import Kafka
from tests.fixtures.live_rest import Rest, live_settings
from tests.fixtures.object_store import ObjectStore
from tests.fixtures.server import serving, settings_of
from tests.harness.events import EVENT, events
from tests.harness.store_gateway import Fault, StoreGateway, StoreRequest
from thermocline.config.settings import IcebergRest

pytestmark = pytest.mark.kafka


def test_a_place_that_cannot_be_written_is_named(kafka: Kafka, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings = live_settings(kafka, tmp_path, live_location=str(tmp_path / "file" / "live"))
    with serving(settings) as server:
        topic = kafka.topic()
        kafka.produce(topic, events(0, 3))
        table = server.bind(topic, EVENT)
        answer = Rest(server).ask(Rest(server).table(table))
        assert answer.error == (422, "BadConfig")
        assert "iceberg_rest.live_location cannot be written" in answer.body["error"]["message"]


@pytest.mark.parametrize("inside", ["warehouse", "warehouse/live"])
def test_live_files_never_lie_where_tables_do(
    kafka: Kafka, tmp_path: Path, inside: str
) -> None:
    settings = live_settings(kafka, tmp_path, live_location=str(tmp_path / inside))
    with pytest.raises(BadConfig, match="lies inside a place of tables"), serving(settings):
        pass


def test_live_files_lie_in_the_store_of_their_catalog_and_nothing_else_is_written_there(
    kafka: Kafka, object_store: ObjectStore, tmp_path: Path
) -> None:
    with StoreGateway(object_store.port) as store:
        properties = object_store.catalog(tmp_path) | {"s3.endpoint": store.endpoint}
        own = {key: value for key, value in properties.items() if key.startswith("s3.")}
        settings = settings_of({"lake": properties}, kafka.settings)
        settings = settings.model_copy(
            update={"iceberg_rest": IcebergRest(port=0, credentials={"lake": own})}
        )
        with serving(settings) as server:
            topic = kafka.topic(2)
            kafka.produce(topic, events(0, 10))
            table = server.bind(topic, EVENT)
            store.choose_fault = judge
            host, port = Rest(server).address
            with contextlib.closing(
                load_catalog("live", type="rest", uri=f"http://{host}:{port}", warehouse="lake")
            ) as live:
                loaded = live.load_table((*table.namespace, table.name))
                assert loaded.metadata_location.startswith(f"{properties['warehouse']}-live/")
                assert loaded.scan().to_arrow().num_rows == 10
                kafka.produce(topic, events(10, 15), partition=1)
                assert live.load_table((*table.namespace, table.name)).scan().count() == 15


def judge(request: StoreRequest) -> Fault | None:
    """Rights as a server needs them: to read, and to write live files."""
    is_allowed = request.method in ("GET", "HEAD") or "-live/" in request.path
    return None if is_allowed else Fault.DENIED
