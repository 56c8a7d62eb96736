"""EXPLAIN through the stock driver and as a command: what is told is what is read."""

from __future__ import annotations

import json
from typing import Any

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest

from planner.explain import EXPLAIN_SCHEMA
from planner.schema import Column
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import SqlServer, TieredServer
from thermocline.cli import main

pytestmark = pytest.mark.kafka

EVENT = [Column(1, "id", pa.int64()), Column(2, "name", pa.string())]


def events(start: int, stop: int) -> list[bytes]:
    return [json.dumps({"id": n, "name": f"row {n}"}).encode() for n in range(start, stop)]


def test_the_tail_and_a_plain_table_are_told(kafka: Kafka, server: SqlServer) -> None:
    topic = kafka.topic(2)
    table = server.bind(topic, EVENT)
    kafka.produce(topic, events(0, 7), partition=1)
    plain = server.create_plain(pa.table({"id": [1, 2, 3]}))
    answer = server.ask(f"EXPLAIN SELECT * FROM {table} JOIN {plain} USING (id)")
    assert answer.schema == EXPLAIN_SCHEMA
    cold, tail, other = answer.to_pylist()
    assert (cold["side"], cold["records"], cold["files"]) == ("cold", 0, 0)
    assert cold["why"] == "nothing is tiered yet: no offset is below the watermark"
    assert (tail["side"], tail["topic"], tail["offsets"]) == ("tail", topic, 7)
    assert tail["ranges"] == [{"partition": 1, "log_start": 0, "start": 0, "stop": 7}]
    assert (other["table"], other["side"], other["records"]) == (str(plain), "cold", 3)
    assert 0 <= other["metadata_age_s"] < 600


def test_what_the_gate_refuses_is_refused_and_nothing_is_executed(
    kafka: Kafka, server: SqlServer
) -> None:
    table = server.bind(kafka.topic(), EVENT)
    for sql, said in {
        "EXPLAIN SELECT * FROM read_csv('/etc/passwd')": "function read_csv is not supported",
        f"EXPLAIN DELETE FROM {table}": "DELETE statements are not supported",
        f"EXPLAIN ANALYZE SELECT * FROM {table}": "EXPLAIN takes no options here",
        "EXPLAIN SELECT nope FROM nowhere": "there is no table nowhere",
        f"EXPLAIN SELECT nope FROM {table}": "nope",
        "EXPLAIN": "the text holds no statement",
    }.items():
        with pytest.raises(adbc.ProgrammingError, match=said):
            server.ask(sql)
    # Overflows when it runs.
    assert server.ask(f"EXPLAIN SELECT 9223372036854775807 + id FROM {table}").num_rows == 2
    assert server.ask("EXPLAIN SELECT 1").num_rows == 0


@pytest.mark.spark
def test_both_sides_are_told_and_pruned_files_are_counted(
    kafka: Kafka, tiered_server: TieredServer, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = kafka.topic()
    table = tiered_server.bind(topic, EVENT)
    for start in (0, 100):
        kafka.produce(topic, events(start, start + 100))
        tiered_server.tier(table)
    kafka.produce(topic, events(200, 250))
    tiered_server.refresh(table)

    def reply(sql: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = tiered_server.ask(f"EXPLAIN {sql}").to_pylist()
        return rows

    cold, tail = reply(f"SELECT * FROM {table}")
    assert (cold["records"], cold["files"], cold["files_to_read"]) == (200, 2, 2)
    assert cold["bytes"] > 0
    assert (tail["offsets"], tail["ranges"][0]["start"]) == (50, 200)
    assert reply(f"SELECT * FROM {table} WHERE id = 7")[0]["files_to_read"] == 1
    assert reply(f"SELECT * FROM {table} WHERE id > 1000")[0]["why"] == (
        "skipped: no file can hold a row the statement asks for"
    )
    [count, _] = reply(f"SELECT count(*) FROM {table}")
    assert (count["files_to_read"], count["why"]) == (
        0,
        "counted from the list of manifests: no file is read",
    )
    main(["explain", f"SELECT * FROM {table} WHERE id = 7;", "--server", tiered_server.uri])
    out = capfd.readouterr().out.splitlines()
    assert out[0].startswith(f"{table}  ▓▓▓")
    assert out[0].endswith("░")
    assert out[1] == "  cold  offsets below the watermark are in Iceberg"
    assert "holds 200 records, in 2 files of" in out[2]
    assert out[2].endswith(", 1 to read")
    assert out[3] == "  tail  offsets from the watermark to the log's end are in Kafka only"
    assert out[4].strip() == f"topic {topic}: 50 offsets of 1 partition"
    main(["explain", f"FROM {table}", "--json", "--server", tiered_server.uri])
    assert json.loads(capfd.readouterr().out)[1]["ranges"] == [
        {"partition": 0, "log_start": 0, "start": 200, "stop": 250}
    ]
