"""``verify``, ``gap accept``, ``skip`` and ``accept`` as users run them: real Kafka, tierer, catalog and server."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest
from click.testing import CliRunner

from connectors.iceberg.maintenance_facts import MaintenanceReader
from planner.errors import (
    FederationError,
    ForeignCommit,
    ShapeMismatch,
    SnapshotExpired,
    TailGap,
    UndecodableRecord,
)
from planner.maintenance.steps import RowExpiry
from planner.names import TableName
from planner.schema import Column
from tests.fixtures.kafka import Kafka
from tests.fixtures.server import TieredServer
from tests.harness.events import EVENT, TYPES, events
from tests.harness.maintaining import Care
from thermocline.cli import app, exit_code

pytestmark = [pytest.mark.kafka, pytest.mark.spark]


@dataclass(frozen=True)
class Answer:
    """What a command printed, its exit code, and the error it would have said."""

    code: int
    out: str
    err: str
    error: FederationError | None

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Answer]


@pytest.fixture
def run(tiered_server: TieredServer, tmp_path: Path) -> Run:
    """Run a command with a configuration file: ``run("verify", table)``."""
    lines = []
    for name, properties in tiered_server.settings.catalogs.items():
        lines.append(f"[catalogs.{name}]")
        lines += [
            f"{json.dumps(key)} = {json.dumps(value)}" for key, value in properties.items()
        ]
    lines.append("[kafka]")
    lines += [
        f"{json.dumps(key)} = {json.dumps(value)}"
        for key, value in tiered_server.settings.kafka.items()
    ]
    config = tmp_path / "thermocline.toml"
    config.write_text("\n".join(lines))

    def command(*arguments: object, answer: str | None = None) -> Answer:
        inputs = ["--config", str(config), *map(str, arguments)]
        done = CliRunner().invoke(app, inputs, input=answer)
        error = done.exception if isinstance(done.exception, FederationError) else None
        if error is None and done.exception is not None:
            assert isinstance(done.exception, SystemExit), done.exception
        code = done.exit_code if error is None else exit_code(error)
        return Answer(code, done.stdout, done.stderr, error)

    return command


def test_every_type_tiered_by_spark_is_verified_value_by_value(
    kafka: Kafka, tiered_server: TieredServer, run: Run
) -> None:
    topic = kafka.topic()
    columns = [Column(0, name, kind) for name, (kind, _, _) in TYPES.items()]
    table = tiered_server.bind(topic, columns)
    records: list[Any] = [{}, dict.fromkeys(TYPES)]
    records += [{name: value} for name, (_, _, items) in TYPES.items() for value in items]
    kafka.produce(topic, [json.dumps(record).encode() for record in records])
    tiered_server.tier(table)
    verified = run("verify", table, "--json")
    [report] = verified.document
    assert report["findings"] == []
    assert report["compared_offsets"] == report["outcomes"]["rows"] == len(records)
    assert report["not_checked"] == []
    assert verified.code == 0


def test_what_is_wrong_is_found_and_what_others_changed_is_told_apart(
    kafka: Kafka, tiered_server: TieredServer, run: Run
) -> None:
    topic = kafka.topic(2)
    table = tiered_server.bind(topic, EVENT)
    for partition in range(2):
        kafka.produce(topic, events(0, 300), partition=partition)
    tiered_server.tier(table)
    spark = tiered_server.spark(table)
    spark.sql("DELETE FROM {t} WHERE kafka_partition = 0 AND kafka_offset BETWEEN 10 AND 14")
    spark.sql("UPDATE {t} SET name = 'theirs' WHERE kafka_partition = 1 AND kafka_offset = 7")
    spark.compact()
    sound = run("verify", table, "--json")
    [report] = sound.document
    assert (sound.code, report["findings"]) == (0, [])
    changes = report["changed_since_tiering"]
    assert sorted((c["deleted"], c["changed"], c["example"]) for c in changes) == [
        (0, 1, [1, 7]),
        (5, 0, [0, 10]),
    ]
    spark.sql("ALTER TABLE {t} UNSET TBLPROPERTIES ('thermocline.watermark')")
    moved = run("verify", table)
    assert moved.code == 1
    assert "mirror: the mirror property is missing" in moved.out
    assert "changed since tiering, by snapshot" in moved.out
    quick = run("verify", table, "--offsets-only", "--since", "1h", "--json")
    assert [f["kind"] for f in quick.document[0]["findings"]] == ["mirror"]


def rows(tiered_server: TieredServer, table: TableName) -> list[int]:
    tiered_server.refresh(table)
    answer = tiered_server.ask(f"SELECT id FROM {table} ORDER BY kafka_partition, kafka_offset")
    return [row["id"] for row in answer.to_pylist()]


def test_a_lost_range_is_given_up_and_tiering_goes_on(
    kafka: Kafka, tiered_server: TieredServer, run: Run
) -> None:
    topic = kafka.topic()
    table = tiered_server.bind(topic, EVENT)
    kafka.produce(topic, events(0, 10))
    kafka.delete_records(topic, 0, 4)
    with pytest.raises(TailGap, match=f"thermocline gap accept {table}`"):
        tiered_server.tier(table)
    output = run("verify", table)
    assert output.code == 1
    assert "offsets 0 to 3 were removed from the log before they were tiered" in output.out
    refused = run("gap", "accept", table, answer="n\n")
    assert refused.code == 1
    accepted = run("gap", "accept", table, answer="y\n")
    assert accepted.code == 0
    assert "gave up partition 0, offsets 0 to 3; the watermark is 4 now" in accepted.out
    assert rows(tiered_server, table) == list(range(4, 10))
    tiered_server.tier(table)
    assert rows(tiered_server, table) == list(range(4, 10))
    verified = run("verify", table)
    assert verified.code == 0, verified.out
    assert "gap accepted: partition 0, offsets 0 to 3 were lost" in verified.out
    seam = tiered_server.ask(
        f'SELECT * FROM {table.catalog}.{table.schema}."{table.name}$seam"'
    )
    assert seam["accepted_gap_offsets"].to_pylist() == [4]
    again = run("gap", "accept", table, "--yes")
    assert again.code == 2
    assert "there is no gap" in str(again.error)


def test_a_poisoned_record_is_given_up_by_readers_and_tierer_alike(
    kafka: Kafka, tiered_server: TieredServer, run: Run
) -> None:
    topic = kafka.topic()
    table = tiered_server.bind(topic, EVENT)
    kafka.produce(topic, [*events(0, 3), b"{poison", *events(4, 6)])
    with pytest.raises(UndecodableRecord, match="--partition 0 --offset 3`"):
        tiered_server.tier(table)
    sound = run("skip", table, "--partition", 0, "--offset", 2)
    assert sound.code == 2
    assert "say --force" in str(sound.error)
    skipped = run(
        "skip", table, "--partition", 0, "--offset", 3, "--reason", "a test", "--json"
    )
    assert (skipped.code, skipped.document["skipped"]) == (0, [{"partition": 0, "offset": 3}])
    assert rows(tiered_server, table) == [0, 1, 2, 4, 5]
    outcomes = tiered_server.tier(table).outcomes
    assert (outcomes.rows, outcomes.skipped) == (5, 1)
    assert rows(tiered_server, table) == [0, 1, 2, 4, 5]
    verified = run("verify", table)
    assert verified.code == 0, verified.out
    assert "record skipped: partition 0, offset 3: a test" in verified.out
    # A record that decodes, and that the tail holds already.
    kafka.produce(topic, events(6, 8))
    assert rows(tiered_server, table) == [0, 1, 2, 4, 5, 6, 7]
    assert run("skip", table, "--partition", 0, "--offset", 6, "--force").code == 0
    assert rows(tiered_server, table) == [0, 1, 2, 4, 5, 7]


def test_another_shape_is_accepted_on_purpose_and_tiering_goes_on(
    kafka: Kafka, tiered_server: TieredServer, run: Run
) -> None:
    topic = kafka.topic()
    table = tiered_server.bind(topic, EVENT)
    kafka.produce(topic, events(0, 3))
    tiered_server.tier(table)
    assert "there is nothing to accept" in str(run("shape", "accept", table, "--yes").error)
    tiered_server.spark(table).sql(
        "ALTER TABLE {t} SET TBLPROPERTIES ('thermocline.on_error' = 'skip')"
    )
    kafka.produce(topic, [b"{poison", *events(4, 6)])
    with pytest.raises(ShapeMismatch, match=f"`thermocline shape accept {table}`"):
        tiered_server.tier(table)
    assert rows(tiered_server, table) == [0, 1, 2, 4, 5]
    refused = run("shape", "accept", table, answer="n\n")
    assert refused.code == 1
    assert refused.err.splitlines()[:2] == [
        f"{table}: records from the watermark on are decoded otherwise than the rows below it:",
        "  thermocline.on_error: fail -> skip",
    ]
    with pytest.raises(ShapeMismatch):
        tiered_server.tier(table)
    accepted = run("shape", "accept", table, answer="y\n")
    assert accepted.code == 0
    outcomes = tiered_server.tier(table).outcomes
    assert (outcomes.rows, outcomes.skipped) == (2, 1)
    assert rows(tiered_server, table) == [0, 1, 2, 4, 5]
    verified = run("verify", table)
    assert verified.code == 0, verified.out
    assert "values at partition 0, offsets 0 to 2: they were tiered with another shape" in (
        verified.out
    )


def test_rows_of_another_writer_are_accepted(
    kafka: Kafka, tiered_server: TieredServer, run: Run
) -> None:
    topic = kafka.topic()
    table = tiered_server.bind(topic, EVENT)
    kafka.produce(topic, events(0, 3))
    tiered_server.tier(table)
    spark = tiered_server.spark(table)
    spark.sql("INSERT INTO {t} (id, name) VALUES (100, 'theirs')")
    with pytest.raises(ForeignCommit) as caught:
        tiered_server.tier(table)
    snapshot = caught.value.facts["snapshot_id"]
    refused = run("verify", table)
    assert refused.code == 1
    assert f"accept {table} --snapshot {snapshot}" in refused.out
    accepted = run("accept", table, "--snapshot", snapshot, "--yes")
    assert (accepted.code, accepted.out) == (
        0,
        f"{table}: accepted snapshot {snapshot} with 1 rows\n",
    )
    assert sorted(rows(tiered_server, table)) == [0, 1, 2, 100]
    kafka.produce(topic, events(3, 4))
    tiered_server.tier(table)
    verified = run("verify", table)
    assert verified.code == 0, verified.out
    assert f"foreign snapshot {snapshot} accepted" in verified.out
    # Rows the tail has too.
    kafka.produce(topic, events(4, 6))
    with tiered_server.catalog() as catalog:
        loaded = catalog.load_table((*table.namespace, table.name))
        row = {"kafka_partition": 0, "kafka_offset": 5, "id": 5}
        loaded.append(pa.Table.from_pylist([row], schema=loaded.schema().as_arrow()))
        head = loaded.current_snapshot()
        assert head is not None
        doubled = head.snapshot_id
    declined = run("accept", table, "--snapshot", doubled, "--yes")
    assert declined.code == 6
    assert "partition 0, offset 5, and the watermark is 4" in str(declined.error)


def test_a_data_file_that_is_lost_for_good_is_rolled_back_and_its_rows_come_from_the_log(
    kafka: Kafka, tiered_server: TieredServer, run: Run
) -> None:
    topic = kafka.topic()
    table = tiered_server.bind(topic, EVENT)
    spark = tiered_server.spark(table)
    kafka.produce(topic, events(0, 10))
    tiered_server.tier(table)
    older = spark.state().head
    kafka.produce(topic, events(10, 20))
    tiered_server.tier(table)
    kafka.produce(topic, events(20, 25))
    newest = spark.sql("SELECT file_path FROM {t}.files WHERE record_count > 0")
    before = spark.sql(f"SELECT file_path FROM {{t}}.files VERSION AS OF {older}")
    lost = {row[0] for row in newest} - {row[0] for row in before}
    for path in lost:
        Path(urlsplit(path).path).unlink()
    # Asked for a column that no footer or cache tells.
    with pytest.raises(adbc.OperationalError, match=f"{table}: .*is gone"):
        rows(tiered_server, table)
    unread = run("verify", table)
    assert isinstance(unread.error, SnapshotExpired)

    spark.call("rollback_to_snapshot", f"snapshot_id => {older}")
    assert rows(tiered_server, table) == list(range(25))
    [report] = run("verify", table, "--json").document
    # Of the watermark's copies, which the next publish sets right.
    assert [finding["kind"] for finding in report["findings"]] == ["tag", "mirror"]
    tiered_server.tier(table)
    assert rows(tiered_server, table) == list(range(25))
    verified = run("verify", table)
    assert (verified.code, verified.error) == (0, None), verified.out


def test_rows_leave_cold_and_tail_in_one_commit_and_do_not_come_back(
    kafka: Kafka, tiered_server: TieredServer, run: Run
) -> None:
    topic = kafka.topic()
    table = tiered_server.bind(
        topic, [Column(0, "id", pa.int32()), Column(0, "at", pa.timestamp("us"))]
    )
    now = dt.datetime.now(dt.UTC).replace(tzinfo=None)
    old = now - dt.timedelta(days=60)

    def produce(*records: tuple[int, dt.datetime | None]) -> None:
        values = [{"id": at, "at": None if time is None else str(time)} for at, time in records]
        kafka.produce(topic, [json.dumps(value).encode() for value in values])

    def ids(of: str) -> list[int]:
        answer = tiered_server.ask(f"SELECT id FROM {of} ORDER BY id")
        return [int(each) for each in answer["id"].to_pylist()]

    produce(*((at, old) for at in range(4)), (4, None), *((at, now) for at in range(5, 10)))
    tiered_server.tier(table)
    spark = tiered_server.spark(table)
    spark.sql(
        "ALTER TABLE {t} SET TBLPROPERTIES "
        "('thermocline.retention_days' = '30', 'thermocline.retention_column' = 'at')"
    )
    tiered_server.refresh(table)
    cut = tiered_server.ask(f"SELECT thermocline_cut() AS cut FROM {table} LIMIT 1")["cut"][0]
    produce((10, old), (11, now), (12, None))
    assert ids(str(table)) == [*range(13)]

    with contextlib.closing(MaintenanceReader(tiered_server.settings.catalogs)) as reader:
        care = Care(spark, reader)
        care.target.take(care.step(RowExpiry))
        assert RowExpiry not in map(type, care.steps())
    # A server goes by its pin, on both sides, and not by a clock.
    assert ids(str(table)) == [*range(13)]
    tiered_server.refresh(table)
    left = [*range(4, 10), 11, 12]
    assert ids(str(table)) == left
    produce((13, old), (14, now))
    assert ids(str(table)) == [*left, 14]
    outcomes = tiered_server.tier(table).outcomes
    assert (outcomes.rows, outcomes.expired) == (3, 2)
    tiered_server.refresh(table)
    assert ids(str(table)) == [*left, 14]

    verified = run("verify", table, "--json")
    [report] = verified.document
    assert (verified.code, report["findings"], report["changed_since_tiering"]) == (0, [], [])
    assert report["outcomes"] == {
        "rows": 9,
        "dead": 0,
        "skipped": 0,
        "tombstones": 0,
        "expired": 6,
        "superseded": 0,
        "deletes": 0,
    }
    # The past is read from its own snapshot, while that is there.
    then = f"{table} AT (VERSION => '{cut}')"
    assert ids(then) == [*range(10)]
    with pytest.raises(adbc.ProgrammingError, match="retention removed the rows of that time"):
        ids(f"{table} AT (TIMESTAMP => TIMESTAMP '{now - dt.timedelta(days=40)}')")
    spark.expire_to_one()
    tiered_server.refresh(table)
    with pytest.raises(adbc.ProgrammingError, match="or its retention removed rows"):
        ids(then)
    assert ids(str(table)) == [*left, 14]
