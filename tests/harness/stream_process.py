"""A program with two streams over one table, to be killed: ``python -m tests.harness.stream_process``.

One writes files, the other an Iceberg table. Its standard input has one line of JSON: catalogs, clusters, table, sink (the name of that table),
folder, master, and whether it ends when it has read all.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql.streaming.readwriter import DataStreamWriter

from connectors import jars
from connectors.spark.lake.source import source_class
from connectors.spark.options import LakeSettings
from connectors.spark.session import SparkSettings, start_session


def main() -> None:
    task = json.loads(sys.stdin.readline())
    settings = SparkSettings(
        master=task["master"],
        driver_memory="512m",
        conf={
            "spark.sql.shuffle.partitions": "2",
            # Of a cluster's executors, each with a machine of 640 MB.
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.driver.host": "127.0.0.1",
        },
    )
    session = start_session(settings, task["catalogs"], jars.resolve("iceberg"))
    session.dataSource.register(source_class(LakeSettings(task["catalogs"], task["clusters"])))

    def writer(name: str, form: str) -> DataStreamWriter:
        rows: Any = (
            session.readStream.format("thermocline")
            .option("table", task["table"])
            .option("maxOffsetsPerTrigger", "40")
            .load()
        )
        written: DataStreamWriter = (
            rows.writeStream.format(form)
            .outputMode("append")
            .option("checkpointLocation", f"{task['folder']}/{name}")
            .trigger(processingTime="0 seconds")
        )
        return written

    queries = (
        writer("checkpoint", "parquet").option("path", task["folder"] + "/rows").start(),
        writer("checkpoint-iceberg", "iceberg").toTable(task["sink"]),
    )
    if task["ends"]:
        for query in queries:
            query.processAllAvailable()
            query.stop()
        session.stop()
    else:
        session.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()
