"""A baseline: the union of the Iceberg table and the topic's tail in Spark's batch mode, read per statement.

Spark's own Kafka source cannot be had everywhere: some mirrors lack its token provider. So the hot side is read by
``mapInArrow`` with the reader and decoder the tierer uses, which are faster than it.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.baseline import current_cut, hot_ranges
from benchmarks.world import TABLE, TOPIC, World
from connectors.decoding.registry import decoder_for
from connectors.kafka.log import KafkaLog
from connectors.spark.columns import to_spark
from planner.offsets import OffsetRange
from planner.ports import TopicSource
from planner.seam.cut import TableCut

_TIMEOUT_S = 120.0


class SparkUnion:
    """Runs statements in ``session``, which has the world's catalog."""

    def __init__(self, world: World, session: SparkSession) -> None:
        self._world = world
        self._spark = session

    def timed(self, sql: str) -> tuple[float, pa.Table]:
        """Return seconds and the answer of ``sql`` over ``{table}``."""
        began = time.perf_counter()
        cut = current_cut(self._world)
        cold = self._spark.table(f"{TABLE.catalog}.{TABLE.schema}.{TABLE.name}")
        hot = (
            self._spark.createDataFrame(
                [(item.partition, item.start, item.stop) for item in hot_ranges(cut)],
                "part int, start long, stop long",
            )
            .repartition(len(hot_ranges(cut)))
            .mapInArrow(functools.partial(_read, self._world.kafka, cut), cold.schema)
        )
        cold.unionByName(hot).createOrReplaceTempView("everything")
        text = sql.format(table="everything").replace('"', "`")
        answer = self._spark.sql(text.replace("TIMESTAMPTZ", "TIMESTAMP")).toArrow()
        return time.perf_counter() - began, answer


def _read(
    kafka: dict[str, str], cut: TableCut, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    assert cut.binding is not None
    decoder = decoder_for(str(cut.table), cut.cold.schema, cut.binding)
    with KafkaLog(kafka) as log:
        for batch in batches:
            ranges = [OffsetRange(*row.values()) for row in batch.to_pylist()]
            for raw in log.fetch(TopicSource(TOPIC), ranges, timeout_s=_TIMEOUT_S):
                yield to_spark(decoder.decode(raw).rows)
