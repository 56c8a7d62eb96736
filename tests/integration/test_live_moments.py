"""The past of a live table, and which statements of Spark are one cut."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import Any

import pytest

from proxy.rest.catalog import LiveCatalog
from tests.fixtures.kafka import Kafka
from tests.fixtures.live import LiveServer
from tests.harness.live_rows import COLUMNS, produce, refused

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]


def test_the_past_stays_what_was_committed(kafka: Kafka, live: LiveServer) -> None:
    topic = kafka.topic(2)
    table = live.bind(topic, COLUMNS)
    produce(kafka, topic, 0, 100)
    live.tier(table)
    live.refresh(table)
    produce(kafka, topic, 100, 150)
    spark = live.through_spark(table)
    assert spark("SELECT count(*) FROM {t}") == [(150,)]
    later = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    assert spark(f"SELECT count(*) FROM {{t}} TIMESTAMP AS OF '{later:%Y-%m-%d %H:%M:%S}'") == [
        (100,)
    ]
    assert spark("SELECT count(*) FROM {t} VERSION AS OF 'cold'") == [(100,)]
    assert spark("SELECT count(*) FROM {t}.snapshots")[0][0] >= 3
    assert spark("SELECT sum(record_count) FROM {t}.files") == [(150,)]
    opened = live.pyiceberg()
    loaded = opened.load_table((*table.namespace, table.name))
    past = loaded.snapshot_as_of_timestamp(int(later.timestamp() * 1000))
    assert past is not None
    assert loaded.scan(snapshot_id=past.snapshot_id).to_arrow().num_rows == 100
    opened.close()
    # The same by a warehouse, which every engine can name.
    count = "SELECT count(*) FROM {t}"
    assert live.through_spark(table, "lake@cold")(count) == [(100,)]
    with live.through_duckdb(table, "lake@cold") as duck:
        assert duck(count) == [(100,)]
    assert live.arrow(table, "lake@cold").num_rows == 100
    assert live.arrow(table, f"lake@max_staleness 1h; wait_for {topic}/0:74").num_rows == 150
    # A cut whose snapshot is expired is refused with where to read it.
    cut = live.cut(table)
    produce(kafka, topic, 150, 160)
    live.tier(table)
    live.spark(table).expire_to_one()
    live.refresh(table)
    spark = live.through_spark(table, f"lake@{cut}")
    assert "read the cut over Flight SQL" in refused(lambda: spark("SELECT * FROM {t}"))
    rows = live.ask(f"SELECT count(*) AS n FROM {table} AT (VERSION => '{cut}')")
    assert rows["n"].to_pylist() == [150]


def test_what_is_one_cut_and_what_may_be_two(
    kafka: Kafka, live: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each load more records arrive, so two loads are two cuts."""
    topic = kafka.topic(2)
    table, other_table = live.bind(topic, COLUMNS), live.bind(topic, COLUMNS)
    produce(kafka, topic, 0, 10)
    catalog = live.spark_catalog()
    name = f"{catalog}.{table.schema}.{table.name}"
    other_name = f"{catalog}.{other_table.schema}.{other_table.name}"
    session, numbers = live.lake.session, itertools.count(100, 2)
    load = LiveCatalog.load

    def after_more(catalog: LiveCatalog, *arguments: Any, **options: Any) -> Any:
        at = next(numbers)
        produce(kafka, topic, at, at + 2)
        return load(catalog, *arguments, **options)

    def count(sql: str) -> int:
        rows: int = session.sql(f"SELECT count(*) FROM {sql}").collect()[0][0]
        return rows

    def unmatched(one: str, other: str) -> int:
        """How many rows of either are not in the other: 0 where both are read at one cut."""
        return count(
            f"{one} a FULL OUTER JOIN {other} b ON a.n = b.n WHERE a.n IS NULL OR b.n IS NULL"
        )

    frame = session.table(name)
    assert frame.count() == 10
    monkeypatch.setattr(LiveCatalog, "load", after_more)
    # One statement, however often it names the table.
    assert unmatched(name, name) == 0
    assert count(f"{name} WHERE n NOT IN (SELECT n FROM {name})") == 0
    session.sql(f"CREATE TEMP VIEW later AS SELECT * FROM {name}")
    assert unmatched("later", "later") == 0
    assert unmatched("later", name) == 0
    # Two DataFrames, of which one was made earlier, in one statement.
    frame.createOrReplaceTempView("earlier")
    assert unmatched("earlier", name) == 0
    # Two tables, of the same topic, in one statement.
    assert unmatched(name, other_name) > 0
    # Two statements, or two actions of one DataFrame.
    assert count(name) < count(name)
    assert count("later") < count("later")
    assert frame.count() < frame.count()
    # What is cached stays, until it is not any more.
    cached = session.table(name).cache()
    session.sql(f"CACHE TABLE kept AS SELECT * FROM {name}")
    before = cached.count(), count("kept")
    assert (cached.count(), count("kept")) == before
    cached.unpersist()
    session.sql("UNCACHE TABLE kept")
    # A cut of its own name.
    (row,) = live.ask(
        f"SELECT thermocline_cut() AS cut, (SELECT count(*) FROM {table}) + (SELECT count(*) FROM {other_table}) AS n"
    ).to_pylist()
    catalog = live.spark_catalog(f"lake@{row['cut']}")
    at_cut = f"{catalog}.{table.schema}.{table.name}"
    other_at_cut = f"{catalog}.{other_table.schema}.{other_table.name}"
    assert unmatched(at_cut, other_at_cut) == 0
    rows = session.table(at_cut).count()
    assert [session.table(at_cut).count(), count(at_cut)] == [rows, rows]
    assert count(name) > rows
