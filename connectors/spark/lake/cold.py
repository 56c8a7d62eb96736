"""Cold rows of a cut as Iceberg's own Spark reader gives them: pinned snapshot, columns of the cut, rows below its end."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from connectors.spark.errors import translated
from connectors.spark.metadata import identifier
from connectors.spark.types import projected, struct_type
from planner.errors import FederationError, SnapshotExpired
from planner.names import KAFKA_OFFSET, KAFKA_PARTITION, Side
from planner.offsets import OffsetRange
from planner.reading.plan import ColdMode, plan_rows
from planner.schema import TableSchema
from planner.seam.cut import TableCut

#: More alternatives than this take longer to plan than joining a table of them.
MAX_CONDITIONS = 100
_NO_SNAPSHOT = "Cannot find snapshot with ID"


def cold_rows(
    session: SparkSession,
    cut: TableCut,
    own: TableSchema,
    opaque: Collection[int] = (),
) -> DataFrame:
    """Name the cold rows of a cut; ``own`` is the schema its snapshot was written with.

    Conditions on the floating fields ``opaque`` are kept from statistics and dictionaries of files. These leave NaN out, so
    Iceberg's reader leaves files out that have it, while to Spark it is the largest number; and they tell -0.0 from 0.0,
    which are equal to Spark.

    Raises:
        SnapshotExpired: Spark's catalog does not have the snapshot.
        FederationError: as Spark's catalog refuses.
    """
    schema = struct_type(cut.cold.schema)
    read = plan_rows(Side.COLD, cut)
    if cut.cold.snapshot_id is None or not read.scans_cold:
        return session.createDataFrame([], schema)
    rows = _snapshot(session, cut).select(*projected(cut.cold.schema, own, opaque))
    return rows if read.cold is ColdMode.WHOLE else within(rows, read.cold_ranges)


def within(rows: DataFrame, ranges: Sequence[OffsetRange]) -> DataFrame:
    """Return the rows whose records lie in ``ranges``, one a partition."""
    if len(ranges) <= MAX_CONDITIONS:
        return rows.where(in_ranges(ranges))
    bounds = rows.sparkSession.createDataFrame(
        [(each.partition, each.start, each.stop) for each in ranges],
        "part int, start bigint, stop bigint",
    )
    partition, offset = rows[KAFKA_PARTITION], rows[KAFKA_OFFSET]
    condition = (
        (partition == bounds["part"]) & (offset >= bounds["start"]) & (offset < bounds["stop"])
    )
    # The outermost bounds as constants: statistics of files are compared with those.
    first, stop = min(each.start for each in ranges), max(each.stop for each in ranges)
    outermost = rows.where(f"{KAFKA_OFFSET} >= {first} AND {KAFKA_OFFSET} < {stop}")
    return outermost.join(F.broadcast(bounds), condition, "left_semi")


def in_ranges(ranges: Sequence[OffsetRange]) -> Column:
    alternatives = " OR ".join(
        f"({KAFKA_PARTITION} = {each.partition} AND {KAFKA_OFFSET} >= {each.start} "
        f"AND {KAFKA_OFFSET} < {each.stop})"
        for each in ranges
    )
    return F.expr(alternatives or "false")


def _snapshot(session: SparkSession, cut: TableCut) -> DataFrame:
    name = identifier(cut.table)
    try:
        try:
            return _version(session, name, cut.cold.snapshot_id)
        except PySparkException as error:
            if _NO_SNAPSHOT not in str(error):
                raise
            # A catalog of a user's session keeps tables for half a minute, older than our pin.
            session.catalog.refreshTable(name)
            return _version(session, name, cut.cold.snapshot_id)
    except PySparkException as error:
        raise _refused(cut, error) from error


def _version(session: SparkSession, name: str, snapshot_id: int | None) -> DataFrame:
    rows = session.read.option("versionAsOf", str(snapshot_id)).table(name)
    # On Spark Connect nothing is looked up before it is asked for.
    _ = rows.schema
    return rows


def _refused(cut: TableCut, error: PySparkException) -> FederationError:
    facts = {"table": str(cut.table), "snapshot_id": cut.cold.snapshot_id}
    if _NO_SNAPSHOT in str(error):
        return SnapshotExpired(
            f"{cut.table}: Spark's catalog {cut.table.catalog} does not have snapshot {cut.cold.snapshot_id}: it has expired, "
            f"or that catalog is another one. Take a new cut; compare spark.sql.catalog.{cut.table.catalog}.* with the "
            f"settings.",
            **facts,
        )
    return translated(cut.table, error)
