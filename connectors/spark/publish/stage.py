"""Writes a plan's rows to a branch of their own: the tasks by themselves, or Iceberg's Spark writer (decision 32).

The branch keeps the files from every ``expire_snapshots`` until they are published. It is created first
and written to by name (``<table>.branch_<name>``), so that the rows can never land on the main branch, as they
would under ``spark.wap.branch`` in a table whose ``write.wap.enabled`` was just removed.

Sorts rows by what Iceberg's writer tells partitions apart by, where Spark does not (``planner.tiering.layout``). The
transforms are Iceberg's own functions, which every catalog of its has in Spark.
"""

from __future__ import annotations

import itertools
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from py4j.protocol import Py4JError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from connectors.iceberg.create import NAME_MAPPING
from connectors.iceberg.types import parsed_schema
from connectors.spark.errors import java_classes
from connectors.spark.metadata import TableState, identifier, load_table, quoted, read_state
from connectors.spark.publish.append_files import append_files, remove_files
from connectors.spark.publish.parquet_files import ParquetFile
from connectors.spark.publish.splits import SplitReader, SplitWriter, TaskReports, map_in_arrow
from connectors.table_facts import with_units
from planner.errors import SnapshotExpired, TieringConflict
from planner.names import TableName
from planner.seam.binding import parse_binding
from planner.seam.snapshots import NEVER_EXPIRES_MS, STAGE_BRANCH_PREFIX
from planner.tiering.layout import RowKey, RowOrder
from planner.tiering.plan import TieringPlan
from planner.tiering.write_plan import WritePlan

#: Summary key of a staged snapshot: which run wrote it.
RUN_KEY = "thermocline.run"

#: No round lasts a day: an older stage branch belongs to a tierer that died.
STALE_STAGE_S = 86_400.0

#: Ends the name of a branch of deletes.
_DELETES = "_d"

_COMMIT_FAILED = "org.apache.iceberg.exceptions.CommitFailedException"
_REF_ATTEMPTS = 10
_REF_BACKOFF_S = 0.1
_T = TypeVar("_T")


def new_run() -> str:
    """Name a run. The name has its time, so a dead tierer's branch is recognised as stale."""
    # A random node: version 1 would otherwise put this machine's network address into the table.
    return str(uuid.uuid1(node=uuid.uuid4().int >> 80 | 1 << 40))


def started_s(run: str) -> float:
    """The time of a run's name, in seconds since 1970."""
    # UUID time counts 100 ns since 1582-10-15 (RFC 9562, section 5.1).
    return (uuid.UUID(run).time - 0x01B21DD213814000) / 1e7


def branch_of(run: str) -> str:
    """The branch of the rows of a run."""
    return STAGE_BRANCH_PREFIX + run


def deletes_branch_of(run: str) -> str:
    """The branch of what the rows of a keyed table's run replace: one commit each, or expiry would hide the first."""
    return branch_of(run) + _DELETES


def branches_of(run: str) -> tuple[str, str]:
    return branch_of(run), deletes_branch_of(run)


def create_branches(
    session: SparkSession,
    table: TableName,
    names: Sequence[str],
    head: Callable[[TableState], int],
) -> TableState:
    """Create branches on the snapshot that ``head`` returns, in one commit; return the state they were created on.

    Raises:
        As ``head``: nothing was written.
    """

    def created(loaded: Any) -> tuple[Any, TableState]:
        state = read_state(session, loaded.operations().current())
        update, snapshot_id = loaded.manageSnapshots(), head(state)
        for name in names:
            update.createBranch(name, snapshot_id)
            # A table's default age for references would count from the head, which may be old.
            update.setMaxRefAgeMs(name, NEVER_EXPIRES_MS)
        return update, state

    return _committed(session, table, created)


def remove_branches(session: SparkSession, table: TableName, names: tuple[str, ...]) -> None:
    """Remove those of the branches that exist, in one commit."""

    def removed(loaded: Any) -> tuple[Any, None]:
        present = [name for name in names if name in loaded.refs()]
        update: Any = loaded.manageSnapshots() if present else None
        for name in present:
            update.removeBranch(name)
        return update, None

    _committed(session, table, removed)


def _committed(
    session: SparkSession, table: TableName, change: Callable[[Any], tuple[Any, _T]]
) -> _T:
    """Commit what ``change`` makes of the loaded table, if anything; again where another commit was first."""
    for attempt in itertools.count(1):
        update, result = change(load_table(session, table))
        try:
            if update is not None:
                update.commit()
        except Py4JError as error:
            if _COMMIT_FAILED not in java_classes(error) or attempt >= _REF_ATTEMPTS:
                raise
            time.sleep(_REF_BACKOFF_S)
        else:
            return result
    raise AssertionError


def stale_branches(state: TableState, before_s: float) -> tuple[str, ...]:
    """Return the branches of runs that started before a time, in seconds since 1970."""
    staged = (name for name in sorted(state.refs) if name.startswith(STAGE_BRANCH_PREFIX))
    return tuple(name for name in staged if _is_of_before(name, before_s))


def _is_of_before(branch: str, before_s: float) -> bool:
    try:
        run = branch.removeprefix(STAGE_BRANCH_PREFIX).removesuffix(_DELETES)
        return started_s(run) < before_s
    except ValueError:
        return False  # not one of ours, in spite of its prefix


def staged_snapshot(table: TableName, state: TableState, run: str) -> int:
    """Return the id of the snapshot that ``run`` staged.

    Raises:
        SnapshotExpired: the branch was removed. Nothing was published; plan again.
    """
    snapshot_id = state.refs.get(branch_of(run))
    snapshot = None if snapshot_id is None else state.history.snapshots.get(snapshot_id)
    if snapshot is None or snapshot.summary.get(RUN_KEY) != run:
        raise SnapshotExpired(
            f"{table}: the branch {branch_of(run)} with the staged rows is gone; stage them again.",
            table=str(table),
            run=run,
        )
    return snapshot.snapshot_id


def check_same_table(plan: TieringPlan, state: TableState) -> int:
    """Return the table's head; refuse when it is not the table any more that the rows were decoded for.

    Raises:
        TieringConflict: plan again.
    """
    if state.table_uuid != plan.pin.table_uuid or state.head is None:
        raise TieringConflict(
            f"{plan.pin.table}: the table was dropped and created again since this tiering was planned; plan "
            f"again.",
            table=str(plan.pin.table),
        )
    if state.schema_id != plan.pin.schema.schema_id or not _decodes_alike(plan, state):
        # The rows were decoded without the new column or name. Published, they would stay NULL there although their
        # records have a value.
        raise schema_changed(plan)
    return state.head


def _decodes_alike(plan: TieringPlan, state: TableState) -> bool:
    """Whether the names that records may use are still those of the plan: the schema id does not tell."""
    table = plan.pin.table
    schema = parsed_schema(table, state.schema, state.properties.get(NAME_MAPPING))
    binding = parse_binding(table, state.properties)
    if binding is not None:
        schema = with_units(schema, binding)
    return schema.fingerprint == plan.pin.schema.fingerprint


def schema_changed(plan: TieringPlan) -> TieringConflict:
    return TieringConflict(
        f"{plan.pin.table}: the table's schema changed since this tiering was planned; plan again.",
        table=str(plan.pin.table),
    )


def write_by_tasks(session: SparkSession, loaded: Any, writer: SplitWriter) -> None:
    """Have the tasks write files, and commit those of the tasks that ended well: one report for each task.

    Where one needs schemas that it was not given there is no commit, and no file.
    """
    run = writer.reader.run

    def written() -> list[ParquetFile]:
        reports: TaskReports = writer.reader.reports.value
        return [file for key in sorted(reports) if key[0] == run for file in reports[key].files]

    indexes = task_indexes(session, writer.reader)
    try:
        map_in_arrow(indexes, writer, indexes.schema).collect()
    except BaseException:
        # Tasks that a failed one took along; Spark's own files are removed likewise.
        remove_files(loaded, written())
        raise
    if any(report.needs for report in writer.reader.reports.value.values()):
        remove_files(loaded, written())
        return
    append_files(session, loaded, written(), branch=branch_of(run), summary={RUN_KEY: run})


def write_by_spark(
    session: SparkSession, table: TableName, reader: SplitReader, writing: WritePlan
) -> None:
    """Have Iceberg's Spark writer write the rows and commit them."""
    schema = session.table(identifier(table)).schema
    rows = map_in_arrow(task_indexes(session, reader), reader, schema)
    append_rows(rows, table, reader.run, writing)


def append_rows(rows: DataFrame, table: TableName, run: str, writing: WritePlan) -> None:
    """Have Iceberg's Spark writer commit ``rows`` to the branch of ``run``."""
    layout = writing.layout
    if layout.order is not None:
        rows = in_order(rows, table, layout.order, shuffle=layout.distribution == "hash")
    (
        rows.writeTo(identifier(table, branch_of(run)))
        .options(**writing.spark_options)
        .option(f"snapshot-property.{RUN_KEY}", run)
        .append()
    )


def task_indexes(session: SparkSession, reader: SplitReader) -> DataFrame:
    """One row and one Spark partition per task."""
    count = len(reader.tasks)
    return session.range(0, count, 1, count)


#: Iceberg's functions for transforms that have another name.
_FUNCTIONS = {name: f"{name}s" for name in ("year", "month", "day", "hour")}


def in_order(rows: DataFrame, table: TableName, order: RowOrder, *, shuffle: bool) -> DataFrame:
    """Return ``rows`` sorted within each of Spark's partitions, which have all rows of a table's partition after a shuffle."""
    keys = [_value(key, table) for key in order.partition]
    if shuffle:
        rows = rows.repartition(*keys)
    return rows.sortWithinPartitions(*keys, *(_directed(key, table) for key in order.sort))


def _value(key: RowKey, table: TableName) -> Column:
    """What is the same for two rows only if they are of one partition."""
    return _own(key).cast("string") if key.is_plain_float else _transformed(key, table)


def _directed(key: RowKey, table: TableName) -> Column:
    direction = "desc" if key.descending else "asc"
    nulls = "first" if key.nulls_first else "last"
    column: Column = getattr(_transformed(key, table), f"{direction}_nulls_{nulls}")()
    return column


def _transformed(key: RowKey, table: TableName) -> Column:
    if key.transform == "identity":
        return _own(key)
    value = _own(key)
    if key.is_uuid_bucket:
        # Its hash is that of its bytes (Iceberg spec, "32-bit Hash Requirements").
        value = F.unhex(F.replace(value, F.lit("-")))
    arguments = () if key.number is None else (F.lit(key.number),)
    name = quoted((table.catalog, "system", _FUNCTIONS.get(key.transform, key.transform)))
    return F.call_function(name, *arguments, value)


def _own(key: RowKey) -> Column:
    return F.col(quoted(key.path))
