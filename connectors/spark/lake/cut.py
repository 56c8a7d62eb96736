"""One cut of several tables in Spark: every action on a DataFrame of it reads that cut."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from connectors.spark.lake.cold import cold_rows, within
from connectors.spark.lake.source import FORMAT
from connectors.spark.lake.sql import CutSql
from connectors.spark.lake.tail import TailKeeper
from connectors.spark.types import floating_fields
from planner.names import KAFKA_OFFSET, KAFKA_PARTITION, KAFKA_TIMESTAMP, TableName
from planner.offsets import OffsetVector
from planner.schema import TableSchema
from planner.seam.cut import ColdSlice, TableCut
from planner.seam.time_travel import format_cut

Side = Literal["cold", "tail"]


class LakeCut:
    """Tables as they were at one moment. Thread-safe. Its tails are read from the log once, when first asked for."""

    def __init__(
        self,
        session: SparkSession,
        cuts: Mapping[TableName, TableCut],
        tails: TailKeeper,
        own_schema: Callable[[TableName, ColdSlice], TableSchema],
        comparable: Callable[[ColdSlice], frozenset[int]],
        register: Callable[[], None],
    ) -> None:
        """``own_schema`` is what a slice's snapshot was written with, ``comparable`` names its floating fields that
        files' statistics may be asked about; ``register`` registers the source with Spark.
        """
        self._comparable = comparable
        self._register = register
        self._session = session
        self._cuts = dict(cuts)
        self._keeper = tails
        self._own_schema = own_schema
        self._lock = threading.Lock()
        self._tails: dict[TableName, DataFrame] = {}
        self._frames: dict[tuple[TableName, Side | None], DataFrame] = {}
        self._sql = CutSql(session, tuple(cuts), lambda name: self._frame(name, None))

    @property
    def token(self) -> str:
        """The text of this cut, which every engine reads: ``thermocline_cut()`` of the same moment is equal."""
        return format_cut({(name, None): cut for name, cut in self._cuts.items()})

    @property
    def tables(self) -> tuple[TableName, ...]:
        return tuple(self._cuts)

    def table(self, name: str, side: Side | None = None) -> DataFrame:
        """Return a table's rows, or those of one side of the seam. The same name gives the same DataFrame.

        Raises:
            UnknownTable: the cut is of other tables.
            FederationError: as Spark's catalog, the log or the decoder refuse.
        """
        return self._frame(self._sql.table(name), side)

    def views(self) -> Mapping[str, TableName]:
        """Make a temporary view of each table; return their names. Those of another cut go.

        A table is called by its full name in backticks (`lake.net.flows`), by namespace and name (net_flows), and by its
        name alone where no other of the cut has it.

        Raises:
            BadParameter: the session has a view of such a name that is not ours.
        """
        return self._sql.views()

    def sql(self, text: str) -> DataFrame:
        """Run a query of Spark's own SQL, in which the tables of this cut have their full names.

        Raises:
            UnsupportedStatement: it is no query; it names another table of the cut's catalogs or a view of another cut, or
                might; or the session is one of Spark Connect, which looks names up only when the rows are asked for.
        """
        return self._sql.query(text)

    def follow(self, name: str) -> DataFrame:
        """Return a stream of a table's rows that begins right behind this cut.

        Raises:
            UnknownTable: the cut is of other tables.
        """
        self._register()
        return (
            self._session.readStream.format(FORMAT)
            .option("table", str(self._sql.table(name)))
            .option("startingPosition", self.token)
            .load()
        )

    def narrowed(self, cuts: Mapping[TableName, TableCut]) -> LakeCut:
        """Return cuts that end before this one; what was read of the logs serves them, too."""
        other = LakeCut(
            self._session,
            cuts,
            self._keeper,
            self._own_schema,
            self._comparable,
            self._register,
        )
        with self._lock:
            other._tails = {
                name: within(rows, cuts[name].new_hot) for name, rows in self._tails.items()
            }
        return other

    def _frame(self, name: TableName, side: Side | None) -> DataFrame:
        with self._lock:
            frame = self._frames.get((name, side))
            if frame is None:
                frame = self._frames[name, side] = self._made(name, side)
            return frame

    def _made(self, name: TableName, side: Side | None) -> DataFrame:
        cut = self._cuts[name]
        if side == "tail":
            return self._tail(cut)
        own = (
            cut.cold.schema
            if cut.cold.snapshot_id is None
            else self._own_schema(name, cut.cold)
        )
        floating = floating_fields(cut.cold.schema)
        opaque = floating - self._comparable(cut.cold) if floating else floating
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
