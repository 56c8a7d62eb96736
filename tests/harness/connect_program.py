"""A program of Spark Connect: ``python -m tests.harness.connect_program``.

Its standard input has one line of JSON: catalogs, clusters, table, its topic, another table, a Thermocline server and a folder. It starts a server of Spark Connect in a JVM of
its own, as ``remote("local")`` does, and writes what each step answered or was refused, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from unittest import mock

from confluent_kafka import Producer
from pyspark.sql import SparkSession
from pyspark.sql.connect.client.core import DefaultChannelBuilder
from pyspark.sql.connect.dataframe import DataFrame

import thermocline.spark as tc
from connectors import jars
from connectors.spark.lake.lake import Lake
from connectors.spark.lake.source import register_source
from connectors.spark.options import LakeSettings
from connectors.spark.session import SparkSettings, session_conf
from planner.errors import FederationError
from tests.harness.ports import lasting_port
from tests.harness.spark_rows import record, rows_of


def main() -> None:
    task = json.loads(sys.stdin.readline())
    folder, answers = Path(task["folder"]), dict[str, Any]()
    session = connected(task["catalogs"])
    settings = LakeSettings(task["catalogs"], task["clusters"])

    def step(name: str, ask: Callable[[], Any]) -> None:
        try:
            answer = ask()
            if isinstance(answer, DataFrame):
                # Nothing was looked up yet.
                answer = answer.count()
            answers[name] = answer
        except Exception as error:
            ours = error if isinstance(error, FederationError) else tc.error_of(error)
            answers[name] = f"{type(ours or error).__name__}: {ours or error}"

    name = task["table"]
    short = name.rpartition(".")[2]
    with Lake(session, settings) as lake, Lake(session, settings, tail_local_bytes=0) as far:
        cut = lake.at(name)
        answers["token"] = cut.token
        step("rows", lambda: places(cut.table(name)))
        step("rows by executors", lambda: places(far.at(cut=cut.token).table(name)))
        step("side", lambda: cut.table(name, side="tail").count())
        step("views", lambda: sorted(cut.views()))
        step(
            "view", lambda: session.sql(f"SELECT count(*) AS n FROM {short}").collect()[0]["n"]
        )
        step("full view", lambda: session.table(f"`{name}`").count())
        step("sql", lambda: cut.sql(f"SELECT * FROM {name}"))
        step("unknown table", lambda: lake.at(f"{name}x"))
        step("malformed cut", lambda: lake.at(name, cut="c:x"))
        step("follow", lambda: delivered(cut.follow(name), folder / "follow"))
        # Another cut's views take the place of these.
        step("other views", lambda: sorted(lake.at(task["other"]).views()))
        step("a view that is gone", lambda: session.table(short).count())
    register_source(session, settings)

    def load(**options: str) -> DataFrame:
        reader = session.read.format("thermocline").options(**options)
        return cast("DataFrame", reader.load())

    step("source", lambda: places(load(table=name)))
    step("filter", lambda: load(table=name, filter="id > 120").count())
    step("option", lambda: load(tabel=name).count())
    step(
        "create", lambda: session.sql("CREATE TABLE kept USING thermocline OPTIONS (table 'x')")
    )
    stream = session.readStream.format("thermocline").option("table", name).load()
    step("stream", lambda: delivered(stream, folder / "stream"))
    served = tc.connect(session, server=task["server"])
    step("server", lambda: places(served.table(name)))
    step("query", lambda: served.query(f"SELECT count(*) AS n FROM {name}").collect()[0]["n"])
    step("refused by the server", lambda: served.query("SELEC 1"))
    step("loads", lambda: twice(task, load(table=name)))
    step("loads at a cut", lambda: twice(task, load(table=name, cut=cut.token)))
    step("loads of a server", lambda: twice(task, served.table(name)))
    step("queries of a server", lambda: twice(task, served.query(f"FROM {name}")))
    session.stop()
    sys.stdout.write(json.dumps(answers) + "\n")


def connected(catalogs: dict[str, dict[str, str]]) -> SparkSession:
    settings = SparkSettings(
        master="local[2]", driver_memory="512m", conf={"spark.sql.shuffle.partitions": "2"}
    )
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    # remote("local") knows one port, which another run on this machine may have.
    port = lasting_port()
    mock.patch.object(DefaultChannelBuilder, "default_port", staticmethod(lambda: port)).start()
    builder = SparkSession.builder.config("spark.connect.grpc.binding.port", str(port))
    for key, value in session_conf(settings, catalogs, jars.resolve("iceberg")).items():
        if key != "spark.master":
            builder = builder.config(key, value)
    session: SparkSession = builder.remote(settings.master).getOrCreate()
    return session


def twice(task: dict[str, Any], frame: Any) -> list[int]:
    """Count the rows of a DataFrame before and after a record came; and those of both in one statement."""
    first = frame.count()
    producer = Producer(task["clusters"][""])
    producer.produce(task["topic"], record(9_999))
    producer.flush()
    return [first, frame.count(), frame.union(frame).count() // 2]


def places(frame: Any) -> list[list[Any]]:
    names = ("kafka_partition", "kafka_offset", "id", "host")
    return [list(row.values()) for row in rows_of(frame, *names)]


def delivered(stream: Any, folder: Path) -> int:
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    count: int = (
        stream.sparkSession.read.schema(stream.schema).parquet(str(folder / "rows")).count()
    )
    return count


if __name__ == "__main__":
    main()
