"""``system.tails``, ``catalogs`` and ``brokers`` over a real broker: what they say, and to whom."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from planner.names import TableName
from planner.schema import Column
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import SqlServer, serving, settings_of, sqlite_catalog
from thermocline.config.settings import Granted

pytestmark = pytest.mark.kafka

COLUMNS = [Column(1, "id", pa.int64())]
SOON_S = 30.0
USERS = {"ada": "a", "bob": "b", "eve": "e"}
GRANTS = {
    "some": Granted(users=("bob",), tables=("lake.shop.*",), rows="id < 3"),
    "all": Granted(users=("ada",), tables=("lake.*",)),
    "other": Granted(users=("eve",), tables=("elsewhere.*",)),
}


def records(count: int) -> list[bytes]:
    return [b'{"id": %d}' % number for number in range(count)]


def rows_of(server: SqlServer, name: TableName) -> list[dict[str, Any]]:
    sql = (
        f"SELECT * FROM system.tails WHERE table_name = '{name.name}' ORDER BY kafka_partition"
    )
    return server.ask(sql).to_pylist()


def until(read: Callable[[], Any], is_there: Callable[[Any], bool]) -> Any:
    """Read until it says so: a survey is a round behind."""
    until_s = time.monotonic() + SOON_S
    while not is_there(value := read()) and time.monotonic() < until_s:
        time.sleep(0.2)
    return value


def test_a_tail_is_what_the_seam_says_and_what_brokers_add(
    kafka: Kafka, server: SqlServer
) -> None:
    topic = kafka.topic(2, config={"retention.ms": str(7 * 86_400_000)})
    kafka.produce(topic, records(5), partition=0)
    kafka.produce(topic, records(3), partition=1)
    name = server.bind(topic, COLUMNS, max_tail_rows=100)
    assert server.ask(f"SELECT count(*) FROM {name}").to_pylist() == [{"count_star()": 8}]
    rows = until(
        lambda: rows_of(server, name),
        lambda rows: sum(row["tail_read_offsets"] or 0 for row in rows) == 8,
    )
    seam = server.ask(
        f'SELECT * FROM {name.catalog}.{name.schema}."{name.name}$seam" ORDER BY 4'
    )
    for row, of_seam in zip(rows, seam.to_pylist(), strict=True):
        for ours, theirs in {
            "kafka_partition": "kafka_partition",
            "topic": "topic",
            "watermark": "watermark",
            "log_end": "log_end",
            "lag": "tail_offsets",
            "snapshot_id": "snapshot_id",
            "tail_read_offsets": "tail_read_offsets",
            "accepted_gap_offsets": "accepted_gap_offsets",
        }.items():
            assert row[ours] == of_seam[theirs], ours
        assert (row["state"], row["advice"], row["error"]) == ("ok", None, None)
        assert (row["table_lag"], row["tail_rows"], row["max_tail_rows"]) == (8, 8, 100)
        assert row["headroom_s"] == pytest.approx(7 * 86_400, rel=0.01)
        assert 0 <= row["newest_age_s"] <= row["lag_s"] < 300
        assert row["oldest_at"] <= row["newest_at"] <= row["measured_at"]
    brokers = server.ask("SELECT cluster, state, cluster_id FROM system.brokers").to_pylist()
    assert brokers == [
        {"cluster": "", "state": "ok", "cluster_id": seam["cluster_id"][0].as_py()}
    ]
    catalogs = server.ask("SELECT name, state, tables > 0 AS some FROM system.catalogs")
    assert catalogs.to_pylist() == [{"name": "lake", "state": "ok", "some": True}]


def test_a_table_in_trouble_is_told_with_what_to_do(kafka: Kafka, server: SqlServer) -> None:
    topic = kafka.topic()
    kafka.produce(topic, records(5))
    name = server.bind(topic, COLUMNS)
    kafka.delete_records(topic, 0, 4)
    [row] = until(lambda: rows_of(server, name), lambda rows: rows[0]["state"] != "unread")
    assert (row["state"], row["error"], row["kafka_partition"]) == ("failing", "TailGap", None)
    assert row["error_text"].startswith(f"{name}: ")
    assert row["advice"] == "Statements on it fail (TailGap); do as the error's text says."


def test_a_tail_above_its_budget_is_full(kafka: Kafka, server: SqlServer) -> None:
    topic = kafka.topic()
    kafka.produce(topic, records(5))
    name = server.bind(topic, COLUMNS, max_tail_rows=4)
    [row] = until(lambda: rows_of(server, name), lambda rows: rows[0]["state"] != "unread")
    assert (row["state"], row["lag"], row["max_tail_rows"]) == ("full", 5, 4)


def test_grants_hide_tables_and_close_numbers(kafka: Kafka, tmp_path: Path) -> None:
    settings = settings_of({"lake": sqlite_catalog(tmp_path)}, kafka.settings, users=USERS)
    settings = settings.model_copy(update={"permissions": GRANTS})
    topic = kafka.topic()
    kafka.produce(topic, records(5))
    with serving(settings) as server:
        shop, net = (
            server.bind(topic, COLUMNS, name=TableName("lake", (namespace,), "sales"))
            for namespace in ("shop", "net")
        )

        def ask_as(user: str, sql: str) -> list[dict[str, Any]]:
            with server.cursor(username=user, password=USERS[user]) as cursor:
                cursor.execute(sql)
                rows: list[dict[str, Any]] = cursor.fetch_arrow_table().to_pylist()
                return rows

        tails = "SELECT * FROM system.tails ORDER BY table_schema"
        whole = until(
            lambda: ask_as("ada", tails), lambda rows: all(row["state"] == "ok" for row in rows)
        )
        assert [(row["table_schema"], row["lag"]) for row in whole] == [
            (net.schema, 5),
            (shop.schema, 5),
        ]
        [closed] = ask_as("bob", tails)
        values = {name: value for name, value in closed.items() if value is not None}
        assert values == {
            "table_catalog": "lake",
            "table_schema": "shop",
            "table_name": "sales",
            "state": "closed",
            "advice": "You see some of its rows only, so its numbers are closed; read the table itself.",
        }
        assert ask_as("eve", tails) == []
        catalogs = "SELECT name, tables FROM system.catalogs"
        assert ask_as("ada", catalogs) == [{"name": "lake", "tables": 2}]
        assert ask_as("bob", catalogs) == [{"name": "lake", "tables": 1}]
        assert ask_as("eve", catalogs) == []
        assert ask_as("eve", "SELECT * FROM system.brokers") == []
        assert [row["topics"] for row in ask_as("bob", "SELECT * FROM system.brokers")] == [1]
