"""Stages the changes of a keyed table: the rows of their keys deleted on one branch, the newest changes appended on another.

Each branch has one commit. Of two commits on one branch a foreign expiry hides the first, and what it changed can no longer be
looked up. With a branch for each, the DELETE never sees the new rows either.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from connectors import failpoints
from connectors.spark.metadata import identifier, quoted
from connectors.spark.publish.splits import SplitReader, map_in_arrow
from connectors.spark.publish.stage import append_rows, deletes_branch_of, task_indexes
from planner.names import KAFKA_OFFSET, KAFKA_OP, KAFKA_PARTITION, TableName
from planner.seam.binding import decoded_schema
from planner.tiering.keyed import two_partitions
from planner.tiering.plan import TieringPlan
from planner.tiering.write_plan import WritePlan

#: So many keys go to every executor, some hundred MB; of more, both sides are shuffled by key.
_MAX_BROADCAST_KEYS = 2_000_000

#: The changes and the table in a DELETE. A column of the changes that is named as the table would be taken for it.
_CHANGE, _ROW = "tc:change", "tc:row"

#: What the DELETE says where the row it meets is of another partition than the change: partition and offset, other partition.
_TWO_PARTITIONS = re.compile(r"thermocline-two-partitions (\d+) (\d+) (\d+)")


@dataclass(frozen=True)
class Fold:
    """The newest change of each key of a run, as ``decoded_schema`` has it: ``rows`` of them are ``u``, ``deletes`` are ``d``."""

    changes: DataFrame
    keys: tuple[str, ...]
    rows: int
    deletes: int


@contextlib.contextmanager
def folded(
    session: SparkSession, table: TableName, plan: TieringPlan, reader: SplitReader
) -> Iterator[Fold]:
    """Read the splits and fold their changes: of one key the greatest offset decides.

    The fold is on the executors' disks until the end. It is not made again where one is lost: a compacted log may then lack
    changes that the other branch was staged by.

    Raises:
        KeyInTwoPartitions: a key has changes in two partitions.
        As the executors.
    """
    assert plan.binding.upsert is not None  # noqa: S101 - it is a keyed table's
    keys = tuple(column.name for column in plan.binding.upsert.columns(plan.pin.schema))
    schema = _struct_type(session, table, plan)
    read = map_in_arrow(task_indexes(session, reader), reader, schema)
    offset, partition = F.col(KAFKA_OFFSET), F.col(KAFKA_PARTITION)
    newest = F.struct(
        F.max_by(F.struct(*map(_named, schema.fieldNames())), offset).alias("change"),
        F.min(partition).alias("least"),
        F.max(partition).alias("greatest"),
    )
    # No column of a table has this name.
    groups = read.groupBy(*map(_named, keys)).agg(newest.alias(KAFKA_OP)).select(KAFKA_OP)
    groups = groups.localCheckpoint(storageLevel=StorageLevel.DISK_ONLY)
    try:
        change = F.col(KAFKA_OP)["change"]
        least, greatest = F.col(KAFKA_OP)["least"], F.col(KAFKA_OP)["greatest"]
        other = F.when(least == change[KAFKA_PARTITION], greatest).otherwise(least)
        at = F.struct(change[KAFKA_PARTITION], change[KAFKA_OFFSET], other)
        counts = groups.agg(
            F.count_if(change[KAFKA_OP] == "u"),
            F.count_if(change[KAFKA_OP] == "d"),
            F.max(F.when(least != greatest, at)),
        )
        [(rows, deletes, apart)] = counts.collect()
        if apart is not None:
            raise two_partitions(str(table), *apart)
        yield Fold(groups.select(f"{KAFKA_OP}.change.*"), keys, rows, deletes)
    finally:
        _forget(groups)


def stage_deletes(session: SparkSession, table: TableName, run: str, fold: Fold) -> None:
    """Commit the deletes of the rows that ``fold`` replaces to the branch of ``run``, which exists.

    Raises:
        KeyInTwoPartitions: the row that a change replaces is of another partition.
    """
    if fold.rows + fold.deletes:
        _delete(session, table, run, fold)
    failpoints.reach("after_deletes")


def stage_rows(table: TableName, run: str, fold: Fold, writing: WritePlan) -> None:
    """Commit the rows of ``fold`` to the branch of ``run``, which exists."""
    if fold.rows:
        rows = fold.changes.where(F.col(KAFKA_OP) == "u").drop(KAFKA_OP)
        append_rows(rows.coalesce(writing.layout.tasks), table, run, writing)


def _delete(session: SparkSession, table: TableName, run: str, fold: Fold) -> None:
    view = "tc_keys_" + run.replace("-", "_")
    names = (*fold.keys, KAFKA_PARTITION, KAFKA_OFFSET)
    fold.changes.select(*map(_named, names)).createOrReplaceTempView(view)
    k, t = map(quoted, ((_CHANGE,), (_ROW,)))
    same_key = " AND ".join(f"{k}.{name} = {t}.{name}" for name in map(_quoted, fold.keys))
    said = ", ' ', ".join(
        (f"{k}.{KAFKA_PARTITION}", f"{k}.{KAFKA_OFFSET}", f"{t}.{KAFKA_PARTITION}")
    )
    apart = f"CAST(raise_error(concat('thermocline-two-partitions ', {said})) AS BOOLEAN)"
    few = fold.rows + fold.deletes <= _MAX_BROADCAST_KEYS
    hint = f"/*+ BROADCAST({k}) */" if few else ""
    try:
        session.sql(
            f"DELETE FROM {identifier(table, deletes_branch_of(run))} AS {t} WHERE EXISTS (SELECT {hint} 1 FROM {view} AS {k} "  # noqa: S608 - names are quoted
            f"WHERE {same_key} AND ({k}.{KAFKA_PARTITION} = {t}.{KAFKA_PARTITION} OR {apart}))"
        )
    except (Py4JError, PySparkException) as error:
        match = _TWO_PARTITIONS.search(str(error))
        if match is None:
            raise
        partition, offset, other = map(int, match.groups())
        raise two_partitions(str(table), partition, offset, other) from error
    finally:
        session.catalog.dropTempView(view)


def _struct_type(session: SparkSession, table: TableName, plan: TieringPlan) -> StructType:
    """Return what a task hands over, in Spark's types of the table's columns."""
    types = {field.name: field.dataType for field in session.table(identifier(table)).schema}
    return StructType(
        [
            StructField(field.name, types.get(field.name, StringType()), field.nullable)
            for field in decoded_schema(plan.pin.schema, plan.binding)
        ]
    )


def _named(name: str) -> Column:
    return F.col(_quoted(name))


def _quoted(name: str) -> str:
    return quoted((name,))


def _forget(groups: DataFrame) -> None:
    """Free the executors' disks now: else they are once Java has collected the frame."""
    with contextlib.suppress(Py4JError):
        plan: Any = groups._jdf.queryExecution().logical()
        plan.rdd().unpersist(False)
