"""What the federated path is held against: plain DuckDB over the same rows, and a bare consumer."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, TopicPartition

from benchmarks.world import TOPIC, DataFile, World
from connectors import duckdb_extensions as extensions
from connectors.decoding.registry import decoder_for
from connectors.iceberg.relations import scan_sql
from connectors.kafka.log import KafkaLog
from planner.offsets import OffsetRange
from planner.ports import TopicSource
from planner.seam.cut import TableCut, plan_cut

_BATCH_MESSAGES = 10_000
_TIMEOUT_S = 60.0


class BareConsumer:
    """A consumer with the tuning of reference measurements and nothing on top; connected and reused."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        self._consumer = Consumer(
            {
                **kafka,
                "group.id": "benchmark",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": "read_committed",
                "check.crcs": True,
                "fetch.wait.max.ms": 5,
                "fetch.queue.backoff.ms": 10,
                "queued.min.messages": 1_000_000,
                "queued.max.messages.kbytes": 65_536,
                "max.partition.fetch.bytes": 8_388_608,
            }
        )

    def fetch(self, ranges: Sequence[OffsetRange]) -> float:
        """Consume the ranges from ``assign`` to their ends, values touched; return the seconds.

        Ranges must hold a record at every offset, as those of the benchmarks do.
        """
        expected = sum(map(len, ranges))
        began = time.perf_counter()
        self._consumer.assign(
            [TopicPartition(TOPIC, span.partition, span.start) for span in ranges]
        )
        received = 0
        deadline = began + _TIMEOUT_S + expected / 50_000
        while received < expected:
            first = self._consumer.poll(0.2)
            if first is None:
                if time.perf_counter() > deadline:
                    raise RuntimeError(f"{received} of {expected} records arrived")
                continue
            for message in (first, *self._consumer.consume(_BATCH_MESSAGES, 0)):
                error = message.error()
                if error is None:
                    received += message.value() is not None
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise RuntimeError(str(error))
        took_s = time.perf_counter() - began
        self._consumer.unassign()
        return took_s

    def close(self) -> None:
        self._consumer.close()


class PlainDuckDB:
    """The rows of one cut as a view ``everything``: the snapshot's Parquet files and a native table ``hot``.

    ``over_iceberg`` is the same view with ``iceberg_scan`` in place of the list of files. Without files there is
    ``hot`` alone.
    """

    def __init__(self, world: World, files: Sequence[DataFile]) -> None:
        self.cut = current_cut(world)
        self._connection = duckdb.connect()
        self._files = files
        names = ", ".join(f'"{name}"' for name in self.cut.cold.schema.names)
        extensions.load(self._connection, extensions.LOCAL)
        hot = hot_rows(world, self.cut)
        self._connection.register("arriving", hot)
        self._connection.execute("CREATE TABLE hot AS SELECT * FROM arriving")
        self._connection.unregister("arriving")
        if not files:
            return
        paths = ", ".join(f"'{file.path}'" for file in files)
        for view, cold in (
            ("everything", f"SELECT {names} FROM read_parquet([{paths}])"),
            ("over_iceberg", scan_sql(self.cut.cold)),
        ):
            self._connection.execute(
                f"CREATE VIEW {view} AS {cold} UNION ALL SELECT {names} FROM hot"
            )

    def timed(self, sql: str) -> tuple[float, pa.Table]:
        began = time.perf_counter()
        answer = self._connection.execute(sql).to_arrow_table()
        return time.perf_counter() - began, answer

    def hot_alone(self, hot_file: Path) -> list[str]:
        """Return what makes ``hot`` in another process; ``hot_file`` gets its rows."""
        self._connection.execute(f"COPY hot TO '{hot_file}' (FORMAT parquet)")
        return [f"CREATE TABLE hot AS SELECT * FROM read_parquet('{hot_file}')"]

    def set_up(self, hot_file: Path) -> list[str]:
        """Return what makes ``everything`` in another process; ``hot_file`` gets the hot rows."""
        names = ", ".join(f'"{name}"' for name in self.cut.cold.schema.names)
        paths = ", ".join(f"'{file.path}'" for file in self._files)
        return [
            *self.hot_alone(hot_file),
            f"CREATE VIEW everything AS SELECT {names} FROM read_parquet([{paths}]) UNION ALL SELECT {names} FROM hot",
        ]

    def close(self) -> None:
        self._connection.close()


class ReadEachTime:
    """DuckDB over the snapshot's Parquet files, with the hot rows read from Kafka and decoded per statement."""

    def __init__(self, world: World, files: Sequence[DataFile]) -> None:
        self._world = world
        self._log = KafkaLog(world.kafka)
        self._connection = duckdb.connect()
        self._paths = ", ".join(f"'{file.path}'" for file in files)

    def timed(self, sql: str) -> tuple[float, pa.Table]:
        """Return seconds and the answer of ``sql`` over ``{table}``."""
        began = time.perf_counter()
        cut = current_cut(self._world)
        hot = decoded(self._log, cut)
        names = ", ".join(f'"{name}"' for name in hot.schema.names)
        self._connection.register("hot", hot)
        self._connection.execute(
            f"CREATE OR REPLACE TEMP VIEW everything AS SELECT {names} FROM read_parquet([{self._paths}]) "
            f"UNION ALL SELECT {names} FROM hot"
        )
        answer = self._connection.execute(sql.format(table="everything")).to_arrow_table()
        return time.perf_counter() - began, answer

    def close(self) -> None:
        self._connection.close()
        self._log.close()


def current_cut(world: World) -> TableCut:
    return plan_cut(world.pin(), world.bounds())


def hot_ranges(cut: TableCut) -> tuple[OffsetRange, ...]:
    return cut.hot.ranges if cut.hot is not None else ()


def hot_rows(world: World, cut: TableCut) -> pa.Table:
    """Fetch and decode the tail of a cut."""
    with KafkaLog(world.kafka) as log:
        return decoded(log, cut)


def decoded(log: KafkaLog, cut: TableCut) -> pa.Table:
    """Fetch and decode the tail of a cut over ``log``."""
    if cut.binding is None:
        raise ValueError(f"{cut.table} is not bound")
    decoder = decoder_for(str(cut.table), cut.cold.schema, cut.binding)
    ranges = hot_ranges(cut)
    batches = [
        decoder.decode(batch).rows
        for batch in (
            log.fetch(TopicSource(TOPIC), ranges, timeout_s=_TIMEOUT_S) if ranges else ()
        )
    ]
    return pa.Table.from_batches(batches, cut.cold.schema.arrow)
