r"""A job on Spark: an answer at one exact moment, and then what comes after it (docs/spark.md).

    spark-submit --packages org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0 \
      --conf spark.sql.catalog.lake=org.apache.iceberg.spark.SparkCatalog ... \\
      spark_job.py lake.net.flows /data/events

Run again, it goes on where it stopped: the folder has the checkpoint.
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import thermocline.spark as tc


def main(table: str, folder: str) -> None:
    spark = SparkSession.builder.appName("events").getOrCreate()
    with tc.connect(spark) as lake:
        cut = lake.at(table)
        rows, new_rows = tc.follow(cut, table)
        # Every action on ``rows`` is the same cut, whatever arrives or is tiered meanwhile.
        rows.groupBy("kafka_partition").agg(F.count("*"), F.max("kafka_timestamp")).show()
        print(f"{rows.count()} rows at cut {cut.token}")
        query = (
            new_rows.writeStream.format("parquet")
            .option("path", f"{folder}/rows")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
