"""Stock engines over live tables: each reads what Flight reads at the same cut."""

from __future__ import annotations

import json
from typing import Any

import duckdb
import polars as pl
import pytest

from planner.names import TableName
from planner.schema import Column
from tests.fixtures.kafka import Kafka
from tests.fixtures.live import LiveServer
from tests.harness.events import TYPES
from tests.harness.live_rows import COLUMNS, produce
from tests.harness.oracle import same

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    # Its own planner is a package of its own; without it polars plans with pyiceberg, and says so.
    pytest.mark.filterwarnings("ignore::polars.exceptions.PerformanceWarning"),
]

#: The same text for Spark, DuckDB and Flight.
STATEMENTS = (
    "SELECT count(*) FROM {t}",
    "SELECT min(kafka_offset), max(kafka_offset), count(kafka_offset) FROM {t}",
    "SELECT min(n), max(n), min(host), max(host), min(day), max(day) FROM {t}",
    "SELECT min(price), max(price), sum(price) FROM {t}",
    "SELECT count(*) FROM {t} WHERE host IS NULL",
    "SELECT count(*) FROM {t} WHERE ratio IS NULL",
    "SELECT count(*) FROM {t} WHERE n > 990",
    "SELECT count(*), sum(n) FROM {t} WHERE host = 'host 3'",
    "SELECT host, count(*) FROM {t} GROUP BY host ORDER BY host NULLS LAST",
    "SELECT kafka_partition, count(*), min(kafka_offset), max(kafka_offset) FROM {t} "
    "GROUP BY kafka_partition ORDER BY kafka_partition",
    "SELECT n FROM {t} WHERE kafka_offset >= 3 AND kafka_offset < 6 ORDER BY n",
    "SELECT count(*) FROM {t} a JOIN {t} b ON a.kafka_partition = b.kafka_partition "
    "AND a.kafka_offset = b.kafka_offset",
    "SELECT count(*) FROM {t} WHERE day >= DATE '2026-01-05'",
    "SELECT n, host, price, day FROM {t} WHERE n < 5 ORDER BY n",
    "SELECT DISTINCT day FROM {t} ORDER BY day NULLS LAST",
)

ALL_STATEMENTS = (
    *STATEMENTS,
    "SELECT count(DISTINCT host) FROM {t}",
    "SELECT avg(n) FROM {t} WHERE kafka_partition = 1",
    "SELECT host, max(day) FROM {t} WHERE n BETWEEN 100 AND 450 GROUP BY host HAVING count(*) > 3 "
    "ORDER BY host NULLS LAST",
    "SELECT n FROM {t} WHERE host IN ('host 1', 'host 3') AND n < 30 ORDER BY n",
    "SELECT count(*) FROM {t} WHERE NOT (n > 100) OR host IS NULL",
    "SELECT count(*) FROM {t} WHERE price > 250.125",
    "SELECT count(*) FROM {t} WHERE host LIKE 'host 2%'",
    "SELECT n, kafka_offset FROM {t} ORDER BY n DESC LIMIT 7",
    "SELECT count(*) FROM {t} WHERE kafka_timestamp IS NULL",
    "SELECT sum(CASE WHEN ratio > 0 THEN 1 ELSE 0 END) FROM {t}",
    "SELECT day, count(*), sum(n) FROM {t} GROUP BY day ORDER BY day NULLS LAST",
    "SELECT count(*) FROM (SELECT DISTINCT kafka_partition, kafka_offset FROM {t}) x",
    "SELECT n, host FROM {t} WHERE kafka_partition = 0 AND kafka_offset = 2",
    "SELECT count(*) FROM {t} WHERE day = DATE '2026-01-03' AND host = 'host 2'",
    "SELECT max(u.n), count(*) FROM (SELECT n FROM {t} WHERE n < 10 UNION ALL SELECT n FROM {t} WHERE n > 500) u",
)

PUSH_DOWN = "spark.sql.iceberg.aggregate-push-down.enabled"


def check_engines(
    live: LiveServer,
    table: TableName,
    statements: tuple[str, ...] = STATEMENTS,
    of_duckdb: tuple[str, ...] = (),
    of_rows: tuple[str, ...] = (),
) -> None:
    """Ask all engines, and Flight, at the cut of one load; ``of_duckdb`` not of Spark, which takes its time.

    ``of_rows``: what Spark answers from statistics of files, and once more without them.
    """
    cut = live.cut(table)
    warehouse = f"lake@{cut}"
    at = f"{table} AT (VERSION => '{cut}')"
    spark = live.through_spark(table, warehouse)
    rows = live.ask(f"SELECT * FROM {at} ORDER BY kafka_partition, kafka_offset")
    read = live.arrow(table, warehouse)
    frame = live.polars(table, warehouse)
    polars = pl.SQLContext(t=frame)
    with (
        live.through_duckdb(table, warehouse) as duck,
        duckdb.connect() as plain,
        live.cursor() as flight,
    ):
        plain.register("t", read)
        for sql in statements + of_duckdb:
            alias = sql.replace("{t} a", f"(SELECT * FROM {at}) a").replace(
                "{t} b", f"(SELECT * FROM {at}) b"
            )
            flight.execute(alias.format(t=at))
            expected = flight.fetchall()
            assert duck(sql) == expected, sql
            # Over what pyiceberg read, which has no SQL.
            assert plain.execute(sql.format(t="t")).fetchall() == expected, sql
            assert polars.execute(sql.format(t="t")).collect().rows() == expected, sql
            if sql not in of_duckdb:
                assert spark(sql) == expected, sql
            if sql in of_rows:
                live.lake.session.conf.set(PUSH_DOWN, "false")
                assert spark(sql) == expected, sql
                live.lake.session.conf.unset(PUSH_DOWN)
    read = read.sort_by([("kafka_partition", "ascending"), ("kafka_offset", "ascending")])
    for ours, theirs in zip(rows.to_pylist(), read.to_pylist(), strict=True):
        assert all(same(ours[key], theirs[key]) for key in ours), (ours, theirs)
    few = frame.filter(pl.col("n") < 50, pl.col("host") == "host 1").select("n").collect()
    assert sorted(few["n"].to_list()) == sorted(
        row["n"] for row in rows.to_pylist() if row["n"] < 50 and row["host"] == "host 1"
    )


@pytest.mark.parametrize(
    ("partition_by", "version", "of_spark"),
    [
        pytest.param(("bucket(4, n)", "day"), 3, STATEMENTS[::2], id="bucket and day"),
        pytest.param(
            ("day(kafka_timestamp)",), 2, ALL_STATEMENTS, id="day", marks=pytest.mark.soak
        ),
        pytest.param((), 2, ALL_STATEMENTS, id="unpartitioned", marks=pytest.mark.soak),
        pytest.param(
            ("truncate(3, host)",), 3, ALL_STATEMENTS, id="truncate", marks=pytest.mark.soak
        ),
    ],
)
def test_engines_read_what_flight_reads_while_rows_are_tiered(
    kafka: Kafka,
    live: LiveServer,
    partition_by: tuple[str, ...],
    version: int,
    of_spark: tuple[str, ...],
) -> None:
    """Tables are made with version 2; one of version 3 has deletion vectors and row ids in the end."""
    topic = kafka.topic(2)
    table = live.bind(topic, COLUMNS, partition_by=partition_by)
    produce(kafka, topic, 0, 300)
    if not partition_by:
        check_engines(live, table)  # a tail and no cold file
    produce(kafka, topic, 300, 400)
    live.tier(table)
    produce(kafka, topic, 400, 500)
    live.refresh(table)
    check_engines(
        live, table, STATEMENTS[:5], of_rows=STATEMENTS[:3]
    )  # both sides; all statements are asked in the end
    live.spark(table).sql("ALTER TABLE {t} RENAME COLUMN ratio TO quota")
    live.spark(table).sql("ALTER TABLE {t} ADD COLUMN added string")
    live.spark(table).sql("ALTER TABLE {t} ALTER COLUMN n TYPE bigint")
    live.spark(table).sql("DELETE FROM {t} WHERE n = 11")
    live.spark(table).sql("ALTER TABLE {t} RENAME COLUMN quota TO ratio")
    live.spark(table).compact()
    spark = live.through_spark(table)
    count_ids = "SELECT count(*), count(_row_id), count(DISTINCT _row_id) FROM {t}"
    if version == 3:
        live.spark(table).sql(
            "ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"
        )
        live.refresh(table)
        # Rows of before it was of version 3 have ids in the answer, too.
        assert spark(count_ids) == [(499, 499, 499)]
        live.spark(table).sql("DELETE FROM {t} WHERE n = 13")
    live.refresh(table)
    produce(kafka, topic, 500, 600)
    others = tuple(sql for sql in ALL_STATEMENTS if sql not in of_spark)
    check_engines(live, table, of_spark, others)
    if version == 3:
        assert spark(count_ids) == [(598, 598, 598)]
        live.tier(table)  # the next commit gives out ids that live rows had
        live.refresh(table)
        produce(kafka, topic, 600, 610)
        assert spark(count_ids) == [(608, 608, 608)]


def test_every_type_is_the_same_in_a_live_file(kafka: Kafka, live: LiveServer) -> None:
    topic = kafka.topic()
    table = live.bind(topic, [Column(0, name, kind) for name, (kind, _, _) in TYPES.items()])
    records = [{}, dict.fromkeys(TYPES)]
    records += [{name: value} for name, (_, _, items) in TYPES.items() for value in items]
    kafka.produce(topic, [json.dumps(record).encode() for record in records])

    def by_offset(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return sorted(rows, key=lambda row: row["kafka_offset"])

    spark = live.through_spark(table)
    names = [name for name in TYPES if name not in ("local", "instant", "day")]
    listed = ", ".join(f"`{name}`" for name in ("kafka_offset", *names))
    before = spark(f"SELECT {listed} FROM {{t}} ORDER BY kafka_offset")
    first = by_offset(live.arrow(table).to_pylist())
    assert len(first) == len(records)
    live.tier(table)
    live.refresh(table)
    tiered = by_offset(live.arrow(table).to_pylist())
    for one, other in zip(first, tiered, strict=True):
        different = {
            key: (one[key], other[key]) for key in one if not same(one[key], other[key])
        }
        assert not different
    after = spark(f"SELECT {listed} FROM {{t}} ORDER BY kafka_offset")
    assert all(
        same(list(map(str, a)), list(map(str, b))) for a, b in zip(before, after, strict=True)
    )


def test_an_empty_table_is_read_by_all(live: LiveServer, kafka: Kafka) -> None:
    table = live.bind(kafka.topic(2), COLUMNS)
    assert live.through_spark(table)("SELECT count(*), max(n) FROM {t}") == [(0, None)]
    with live.through_duckdb(table) as duck:
        assert duck("SELECT count(*), max(n) FROM {t}") == [(0, None)]
    assert live.arrow(table).num_rows == 0
    assert live.polars(table).select(pl.len()).collect().item() == 0
