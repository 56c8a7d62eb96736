"""A program with a stream over one table, to be killed: ``python -m tests.harness.stream_process``.

Its standard input has one line of JSON: catalogs, clusters, table, folder, and whether it ends when it has read all.
"""

from __future__ import annotations

import json
import sys

from connectors import jars
from connectors.spark.lake_settings import LakeSettings
from connectors.spark.session import SparkSettings, start_session
from connectors.spark.source import source_class


def main() -> None:
    task = json.loads(sys.stdin.readline())
    settings = SparkSettings(
        master="local[2]", driver_memory="512m", conf={"spark.sql.shuffle.partitions": "2"}
    )
    session = start_session(settings, task["catalogs"], jars.resolve("iceberg"))
    session.dataSource.register(source_class(LakeSettings(task["catalogs"], task["clusters"])))
    query = (
        session.readStream.format("thermocline")
        .option("table", task["table"])
        .option("maxOffsetsPerTrigger", "40")
        .load()
        .writeStream.format("parquet")
        .option("path", task["folder"] + "/rows")
        .option("checkpointLocation", task["folder"] + "/checkpoint")
        .trigger(processingTime="0 seconds")
        .start()
    )
    if task["ends"]:
        query.processAllAvailable()
        query.stop()
        session.stop()
    else:
        query.awaitTermination()


if __name__ == "__main__":
    main()
