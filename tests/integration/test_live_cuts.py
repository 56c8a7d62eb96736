"""A load over the REST catalog is a cut: of one table, of a whole job, as new as it has to be."""

from __future__ import annotations

import contextlib
import datetime as dt
import time
from dataclasses import replace
from urllib.parse import urlencode

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import StaticTable

from connectors.iceberg.create import NewTable, create_table
from connectors.iceberg.store import IcebergStore
from planner.errors import BadConfig
from planner.names import TableName
from planner.offsets import OffsetVector
from planner.seam.binding import LIVE_CUT, Binding
from planner.seam.watermark import Watermark, format_watermark
from tests.fixtures.kafka import Kafka
from tests.fixtures.live_rest import Rest
from tests.harness.events import EVENT, events
from tests.harness.published import publish

pytestmark = pytest.mark.kafka


def test_a_load_is_the_table_up_to_the_last_record(
    rest: Rest, kafka: Kafka, live_flows: TableName
) -> None:
    assert rest.rows(live_flows).num_rows == 10
    kafka.produce(str(rest.topic(live_flows)), events(10, 13), partition=1)
    answer = rest.ask(rest.table(live_flows))
    metadata = answer.body["metadata"]
    (snapshot,) = (
        s for s in metadata["snapshots"] if s["snapshot-id"] == metadata["current-snapshot-id"]
    )
    parent = metadata["refs"]["cold"]["snapshot-id"]
    (below,) = (s for s in metadata["snapshots"] if s["snapshot-id"] == parent)
    assert snapshot["parent-snapshot-id"] == parent
    assert snapshot["timestamp-ms"] == below["timestamp-ms"] + 1
    assert metadata["snapshot-log"][-1]["snapshot-id"] == parent
    assert metadata["properties"]["gc.enabled"] == "false"
    ours = {key for key in metadata["properties"] if key.startswith("thermocline.")}
    assert ours == {LIVE_CUT}
    assert rest.rows(live_flows).num_rows == 13
    with rest.server.catalog() as catalog:
        committed = catalog.load_table((*live_flows.namespace, live_flows.name)).metadata
    assert committed.current_snapshot_id == parent  # nothing was committed


def test_a_job_reads_all_its_tables_at_one_cut(
    rest: Rest, kafka: Kafka, live_flows: TableName
) -> None:
    other_topic = kafka.topic()
    kafka.produce(other_topic, events(0, 5))
    other = rest.server.bind(other_topic, EVENT)
    left_out = rest.server.bind(kafka.topic(), EVENT)
    (row,) = rest.server.ask(
        f"SELECT thermocline_cut() AS cut, (SELECT count(*) FROM {live_flows}) + (SELECT count(*) FROM {other}) AS n"
    ).to_pylist()
    assert row["n"] == 15
    kafka.produce(other_topic, events(5, 9))
    kafka.produce(rest.topic(live_flows), events(10, 20))
    warehouse = f"lake@{row['cut']}"
    assert rest.ask(f"/v1/config?{urlencode({'warehouse': warehouse})}").status == 200
    assert rest.rows(live_flows, warehouse).num_rows == 10
    assert rest.rows(other, warehouse).num_rows == 5
    assert rest.rows(other).num_rows == 9
    absent = rest.ask(rest.table(left_out, warehouse))
    assert absent.error == (404, "NoSuchTableException")
    assert "a cut of all tables" in absent.body["error"]["message"]


def test_a_header_says_how_new_a_load_must_be(
    rest: Rest, kafka: Kafka, live_flows: TableName
) -> None:
    assert rest.rows(live_flows, thermocline_freshness="cold").num_rows == 0
    assert rest.rows(live_flows).num_rows == 10
    topic = rest.topic(live_flows)
    kafka.produce(topic, events(10, 20))
    assert rest.rows(live_flows, thermocline_freshness="max_staleness 1h").num_rows == 10
    assert rest.rows(live_flows, thermocline_wait_for=f"{topic}/0:19").num_rows == 20
    wrong = rest.ask(rest.table(live_flows), thermocline_freshness="soon")
    assert wrong.error == (400, "BadRequestException")


def test_plain_tables_pass_through(rest: Rest) -> None:
    table = rest.server.create_plain(pa.table({"id": [1, 2, 3]}))
    answer = rest.ask(rest.table(table))
    assert answer.body["metadata"]["properties"]["gc.enabled"] == "false"
    with rest.server.catalog() as catalog:
        own = catalog.load_table((*table.namespace, table.name)).metadata_location
    assert answer.body["metadata-location"] == own
    host, port = rest.address
    with contextlib.closing(
        load_catalog("live", type="rest", uri=f"http://{host}:{port}", warehouse="lake")
    ) as live:
        read = live.load_table((*table.namespace, table.name)).scan().to_arrow()
    assert read["id"].to_pylist() == [1, 2, 3]


def test_a_condition_on_the_newest_rows_reads_no_cold_file(
    rest: Rest, kafka: Kafka, live_flows: TableName
) -> None:
    now_ms = time.time_ns() // 1_000_000
    topic = rest.topic(live_flows)
    with rest.server.catalog() as catalog:
        committed = catalog.load_table((*live_flows.namespace, live_flows.name))
        arrow = committed.schema().as_arrow()
        mark = rest.server.running.pins.get(live_flows).watermark
        assert mark is not None
        old = {"kafka_timestamp": dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "kafka_partition": 0}
        rows = [{**old, "kafka_offset": n, "id": n, "name": f"row {n}"} for n in range(10)]
        ends = replace(
            mark,
            next=OffsetVector.of([(0, 10), (1, 0)]),
            prev_snapshot_id=committed.metadata.current_snapshot_id,
        )
        publish(committed, pa.Table.from_pylist(rows, arrow), format_watermark(ends))
    rest.server.refresh(live_flows)
    kafka.produce(topic, events(10, 20), timestamp_ms=now_ms)
    answer = rest.ask(rest.table(live_flows))
    table = StaticTable.from_metadata(answer.body["metadata-location"])
    assert table.scan().to_arrow().num_rows == 20
    since = dt.datetime.fromtimestamp(now_ms / 1000 - 60, dt.UTC).isoformat()
    new = table.scan(row_filter=f"kafka_timestamp >= '{since}'")
    assert [task.file.record_count for task in new.plan_files()] == [10]
    assert new.to_arrow()["id"].to_pylist() == list(range(10, 20))


def test_a_catalog_of_live_tables_is_no_source_of_ours(rest: Rest, kafka: Kafka) -> None:
    host, port = rest.address
    live = {
        "pond": {"type": "rest", "uri": f"http://{host}:{port}", "warehouse": "lake"},
    }
    table = TableName("pond", ("net",), "anything")
    with (
        contextlib.closing(IcebergStore(live)) as store,
        pytest.raises(BadConfig, match="point at the catalog they come"),
    ):
        store.pin(table)
    mark = Watermark("c", "t", "i", OffsetVector.of([(0, 0)]), shape="s", run="r")
    with pytest.raises(BadConfig, match="point at the catalog they come"):
        create_table(live, NewTable(table, EVENT, Binding("t")), mark)
