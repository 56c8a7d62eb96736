"""What a source needs of catalogs and brokers while it plans, opened once in its process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from connectors.bounds_cache import BoundsCache
from connectors.cuts import WaitFor, current_cuts
from connectors.iceberg.pin_cache import PinCache
from connectors.iceberg.store import IcebergStore
from connectors.kafka.clusters import KafkaClusters
from connectors.registry.registries import SchemaRegistries
from connectors.registry.shipping import SchemaShipping
from connectors.spark.lake.tasks import cold_errors, engine
from connectors.spark.options import LakeSettings
from planner.errors import not_for_keyed
from planner.names import KAFKA_OFFSET, KAFKA_PARTITION, KAFKA_TIMESTAMP, TableName
from planner.offsets import OffsetVector
from planner.ports import SqlRelation, TopicSource
from planner.reading.filters import Condition
from planner.seam.cut import TableCut
from planner.seam.freshness import parse_wait_for

#: Catalogs are asked so often whether there is a newer snapshot.
_REFRESH_S = 5.0
_TIMEOUT_S = 600.0


def refuse_keyed(cut: TableCut) -> None:
    """Raise NotForKeyedTables for a table whose sides are not simply one below the other."""
    if cut.binding is not None and cut.binding.upsert is not None:
        way = "read it through a server: tc.connect(spark, server=…), or the option server"
        raise not_for_keyed(cut.table, "a cut that Spark reads by itself", way)


@dataclass(frozen=True)
class OpenedLake:
    """Not pickled. ``close`` ends its threads and connections."""

    settings: LakeSettings
    store: IcebergStore
    log: KafkaClusters
    pins: PinCache
    bounds: BoundsCache
    registries: SchemaRegistries
    schemas: SchemaShipping

    @classmethod
    def of(cls, settings: LakeSettings) -> OpenedLake:
        store = IcebergStore(settings.catalogs, roots=settings.roots)
        log = KafkaClusters(settings.clusters)
        pins = PinCache(store, refresh_s=_REFRESH_S, idle_s=float("inf"))
        registries = SchemaRegistries(settings.registries)
        schemas = SchemaShipping(registries.of)
        return cls(settings, store, log, pins, BoundsCache(log), registries, schemas)

    def cut(self, table: TableName, wait_for: str | None = None) -> TableCut:
        """Cut a table as it is, once it has the records of ``wait_for``; raises as ``connectors.cuts.current_cuts``."""
        ends = {} if wait_for is None else parse_wait_for(wait_for)
        cuts, _ = current_cuts(self.pins, self.bounds, [table], wait=WaitFor(ends))
        return cuts[table]

    def first_cold(self, cut: TableCut, since_us: int) -> OffsetVector:
        """Return the first offset of a cold row of that time or later, per partition that has one.

        Raises:
            SnapshotExpired, ColdStoreUnavailable: a file is gone, or cannot be read now.
        """
        if cut.cold.snapshot_id is None:
            return OffsetVector()
        names = {KAFKA_PARTITION, KAFKA_OFFSET, KAFKA_TIMESTAMP}
        since = pa.scalar(since_us, pa.timestamp("us", tz="UTC"))
        rows = ((Condition(KAFKA_TIMESTAMP, ">=", (since,)),),)
        relation = self.store.scan(cut.cold, rows, names)
        if not isinstance(relation, SqlRelation):
            return OffsetVector()
        sql = (
            f"SELECT {KAFKA_PARTITION}, min({KAFKA_OFFSET}) FROM ({relation.sql}) "  # noqa: S608 - our SQL
            f"WHERE {KAFKA_PARTITION} IS NOT NULL AND {KAFKA_OFFSET} IS NOT NULL "
            f"AND {KAFKA_TIMESTAMP} >= make_timestamptz({since_us}) GROUP BY 1"
        )
        with cold_errors(str(cut.table)), engine(self.settings.secrets).cursor() as cursor:
            return OffsetVector.of(cursor.execute(sql).fetchall())

    def first_hot(self, cut: TableCut, since_us: int, but: Sequence[int]) -> OffsetVector:
        """Return the first offset of a record of the tail of that time or later, per partition that has one.

        Partitions of ``but`` are left out. Reads the tail, and decodes none of it.

        Raises:
            FederationError: as ``planner.ports.Log.fetch``.
        """
        ranges = [span for span in cut.new_hot if span.partition not in but]
        if cut.hot is None or not ranges:
            return OffsetVector()
        firsts: dict[int, int] = {}
        source = TopicSource(cut.hot.topic, cut.hot.topic_id)
        for batch in self.log.fetch(source, ranges, timeout_s=_TIMEOUT_S):
            columns = [batch.column(name) for name in (KAFKA_PARTITION, KAFKA_OFFSET)]
            columns.append(batch.column(KAFKA_TIMESTAMP).cast("int64"))
            rows = zip(*(column.to_pylist() for column in columns), strict=True)
            for partition, offset, time_us in rows:
                if time_us is not None and time_us >= since_us:
                    firsts.setdefault(partition, offset)
        return OffsetVector.of(firsts.items())

    def close(self) -> None:
        self.registries.close()
        self.pins.stop()
        self.log.close()
        self.store.close()
