"""``planner.ports.TieringTarget`` on Spark and Iceberg's Java side."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from pyarrow.fs import FileSystem
from pyspark.sql import SparkSession

from connectors import failpoints
from connectors.spark.errors import java_errors
from connectors.spark.metadata import load_table, read_state, survey
from connectors.spark.publish.publish import Publisher
from connectors.spark.publish.stage import Stager, new_run
from planner.names import TableName
from planner.ports import ColdStore, Decoder, Log, Staged
from planner.schema import TableSchema
from planner.seam.binding import Binding
from planner.seam.cut import Pin
from planner.seam.watermark import Outcomes, Watermark
from planner.tiering.plan import TieringPlan
from planner.tiering.triggers import ColdSurvey

# A million records take seconds; minutes are for a broker that restarts meanwhile.
TASK_TIMEOUT_S = 600.0
#: What a lost task has to read again at most: half a minute's work. 40 bytes a row make a file of 160 MB.
TASK_OFFSETS = 4_000_000


class SparkTieringTarget:
    """One bound table. Not thread-safe; several targets may share a session."""

    def __init__(
        self,
        session: SparkSession,
        cold: ColdStore,
        table: TableName,
        *,
        open_log: Callable[[], AbstractContextManager[Log]],
        open_decoder: Callable[[TableSchema, Binding], Decoder],
        open_store: Callable[[Pin, str], FileSystem | None],
        task_timeout_s: float = TASK_TIMEOUT_S,
        max_task_offsets: int = TASK_OFFSETS,
    ) -> None:
        """``open_log`` and ``open_decoder`` are pickled and called on the executors.

        ``open_store`` returns Arrow's file system for a location of the pinned table in an object store, with its keys.
        """
        self._session = session
        self._cold = cold
        self._table = table
        self._stager = Stager(
            session,
            table,
            open_log,
            open_decoder,
            open_store,
            task_timeout_s=task_timeout_s,
            max_task_offsets=max_task_offsets,
        )
        self._publisher = Publisher(session, table)

    def pin(self) -> Pin:
        return self._cold.pin(self._table)

    def survey(self) -> ColdSurvey:
        with java_errors(self._table):
            loaded = load_table(self._session, self._table)
            return survey(self._table, read_state(self._session, loaded.operations().current()))

    def stage(self, plan: TieringPlan) -> Staged:
        run = new_run()
        outcomes, log_bytes = Outcomes(), 0
        if plan.splits:
            try:
                outcomes, log_bytes = self._stager.write(plan, run)
            except BaseException:
                self._stager.drop(run)
                raise
        failpoints.reach("after_stage")
        return Staged(plan, run, outcomes, log_bytes)

    def publish(self, staged: Staged) -> Watermark:
        failpoints.reach("before_publish")
        mark = self._publisher.publish(staged)
        failpoints.reach("after_publish")
        return mark

    def discard(self, staged: Staged) -> None:
        self._stager.drop(staged.reference)

    def cancel(self) -> None:
        self._stager.cancel()

    def drop_stale(
        self, *, older_than_s: float, clock: Callable[[], float] = time.time
    ) -> tuple[str, ...]:
        """Remove stage branches of tierers that died; return their names.

        ``older_than_s`` must exceed the longest staging there is. A tierer that still lives finds its branch
        gone, publishes nothing and plans again.
        """
        return self._stager.drop_stale(older_than_s, clock())
