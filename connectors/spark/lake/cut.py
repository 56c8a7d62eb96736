"""One cut of several tables in Spark: every action on a DataFrame of it reads that cut."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from connectors.iceberg.store import IcebergStore
from connectors.spark.lake.cold import cold_rows, within
from connectors.spark.lake.source import FORMAT, register_source
from connectors.spark.lake.sql import Side, SparkCut
from connectors.spark.lake.tail import TailKeeper
from connectors.spark.options import LakeSettings
from connectors.spark.types import floating_fields
from planner.names import KAFKA_OFFSET, KAFKA_PARTITION, KAFKA_TIMESTAMP, TableName
from planner.offsets import OffsetVector
from planner.seam.cut import TableCut
from planner.seam.time_travel import format_cut


class LakeCut(SparkCut):
    """Tables as they were at one moment. Thread-safe. Its tails are read from the log once, when first asked for."""

    def __init__(
        self,
        session: SparkSession,
        cuts: Mapping[TableName, TableCut],
        tails: TailKeeper,
        store: IcebergStore,
        settings: LakeSettings,
    ) -> None:
        super().__init__(session, tuple(cuts))
        self._cuts = dict(cuts)
        self._keeper = tails
        self._store = store
        self._settings = settings
        self._tails: dict[TableName, DataFrame] = {}

    @property
    def token(self) -> str:
        """The text of this cut, which every engine reads: ``thermocline_cut()`` of the same moment is equal."""
        return format_cut({(name, None): cut for name, cut in self._cuts.items()})

    def follow(self, name: str) -> DataFrame:
        """Return a stream of a table's rows that begins right behind this cut.

        Raises:
            UnknownTable: the cut is of other tables.
        """
        register_source(self._session, self._settings)
        return (
            self._session.readStream.format(FORMAT)
            .option("table", str(self._named(name)))
            .option("startingPosition", self.token)
            .load()
        )

    def narrowed(self, cuts: Mapping[TableName, TableCut]) -> LakeCut:
        """Return cuts that end before this one; what was read of the logs serves them, too."""
        other = LakeCut(self._session, cuts, self._keeper, self._store, self._settings)
        with self._lock:
            other._tails = {
                name: within(rows, cuts[name].new_hot) for name, rows in self._tails.items()
            }
        return other

    def _made(self, name: TableName, side: Side | None) -> DataFrame:
        cut = self._cuts[name]
        if side == "tail":
            return self._tail(cut)
        slice_ = cut.cold
        own = slice_.schema
        if slice_.snapshot_id is not None:
            own = self._store.own_schema(name, slice_)
        floating = floating_fields(slice_.schema)
        opaque = floating - self._store.comparable_floats(slice_) if floating else floating
        cold = cold_rows(self._session, cut, own, opaque)
        return cold if side == "cold" or not cut.new_hot else cold.union(self._tail(cut))

    def _tail(self, cut: TableCut) -> DataFrame:
        """Decode the tail unless that was done: what an action does must not depend on the log of its moment."""
        if cut.table not in self._tails:
            self._tails[cut.table] = self._keeper.decode(cut)
        return self._tails[cut.table]


def first_offsets(rows: DataFrame, time_us: int) -> OffsetVector:
    """Return the first offset of a row of that time or later (microseconds since 1970), per partition that has one."""
    firsts = (
        rows.where(F.col(KAFKA_TIMESTAMP) >= F.expr(f"timestamp_micros({time_us})"))
        .where(F.col(KAFKA_PARTITION).isNotNull() & F.col(KAFKA_OFFSET).isNotNull())
        .groupBy(KAFKA_PARTITION)
        .agg(F.min(KAFKA_OFFSET))
    )
    return OffsetVector.of((row[0], row[1]) for row in firsts.collect())
