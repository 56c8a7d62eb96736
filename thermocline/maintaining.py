"""Puts the loop of maintenance together: that of the command, whose Spark starts with the first step, and that beside a tierer."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import click

from connectors.iceberg.maintenance_facts import MaintenanceReader
from connectors.iceberg.store import IcebergStore
from connectors.jobs import events
from connectors.jobs.loop import LoopLimits, TableLoop
from connectors.jobs.maintain import MaintainedTable, MaintenanceJob, MaintenanceTarget
from planner.errors import FederationError, InternalError
from planner.names import TableName
from thermocline.bound_tables import BoundTables
from thermocline.catalog_access import catalog_roots
from thermocline.config.settings import Settings
from thermocline.tiering.console import Lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Between a fault of ours and the next try.
_PAUSE_S = 60.0


@contextlib.contextmanager
def command_loop(
    settings: Settings, reader: MaintenanceReader, names: Sequence[TableName]
) -> Iterator[TableLoop[MaintainedTable]]:
    """Yield the command's loop; stop its Spark in the end, if it started. No names: all bound tables."""
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(
            closing(IcebergStore(settings.catalogs, roots=catalog_roots(settings)))
        )
        sparks = _LazySpark(settings, stack)
        job = MaintenanceJob(
            tables=(lambda: names) if names else BoundTables(store, with_unread=True),
            read_facts=reader.read,
            open_target=functools.partial(_target, sparks, reader),
            by_command=True,
        )
        yield _loop(job, settings, (Lines(bars=False),), sparks.check)


@contextlib.contextmanager
def beside(
    tables: Callable[[], Iterable[TableName]],
    settings: Settings,
    session: SparkSession,
    listeners: Sequence[events.Listener],
    check: Callable[[], None],
) -> Iterator[TableLoop[MaintainedTable]]:
    """Run a loop of maintenance in a thread of its own, over the tables and the Spark of a tierer; stop it in the end."""
    with closing(MaintenanceReader(settings.catalogs, catalog_roots(settings))) as reader:
        job = MaintenanceJob(
            tables=tables,
            read_facts=reader.read,
            open_target=functools.partial(_target, lambda: session, reader, is_beside=True),
        )
        loop = _loop(job, settings, listeners, check)

        thread = threading.Thread(target=run_on, args=(loop,), name=job.name)
        thread.start()
        try:
            yield loop
        finally:
            loop.stop()
            thread.join()


def run_on(loop: TableLoop[MaintainedTable], pause_s: float = _PAUSE_S) -> None:
    """Run a loop until it stops; after a fault of ours again, which is told."""
    while not loop.stopping:
        try:
            loop.run()
        except FederationError:
            # What ends this loop ends the tierer's too, which says so.
            return
        except Exception as raised:  # noqa: BLE001 - tables are tiered all the same
            what = f"{type(raised).__name__} in {loop.job.name}; tables are tiered all the same, report it."
            loop.tell(events.TableFailed(None, InternalError(what), pause_s))
            until_s = time.monotonic() + pause_s
            while not loop.stopping and time.monotonic() < until_s:
                time.sleep(min(pause_s, 0.2))


def _loop(
    job: MaintenanceJob,
    settings: Settings,
    listeners: Sequence[events.Listener],
    check: Callable[[], None],
) -> TableLoop[MaintainedTable]:
    tier = settings.tier
    # One table at a time: a rewrite takes the cores that tiering leaves.
    limits = LoopLimits(
        at_once=1, poll_s=tier.poll_s, refresh_s=tier.refresh_s, stop_s=tier.stop_s
    )
    return TableLoop(job, listeners=listeners, limits=limits, check=check)


class _LazySpark:
    """Starts Spark once, when a step needs it: tables with nothing to do cost no JVM."""

    def __init__(self, settings: Settings, stack: contextlib.ExitStack) -> None:
        self._settings = settings
        self._stack = stack
        self._lock = threading.Lock()
        self._session: SparkSession | None = None

    def __call__(self) -> SparkSession:
        from thermocline.spark_session import configured_session

        with self._lock:
            if self._session is None:
                self._session = self._stack.enter_context(configured_session(self._settings))
                tier = self._settings.tier
                click.echo(
                    f"maintaining on Spark {self._session.version}, {tier.master}", err=True
                )
            return self._session

    def check(self) -> None:
        from connectors.spark.session import check_alive

        if self._session is not None:
            check_alive(self._session)


def _target(
    sparks: Callable[[], SparkSession],
    reader: MaintenanceReader,
    name: TableName,
    *,
    is_beside: bool = False,
) -> MaintenanceTarget:
    session = sparks()
    from connectors.spark.errors import java_errors
    from connectors.spark.maintenance.target import SparkMaintenance

    with java_errors(name):
        return SparkMaintenance(session, name, reader.neighbours.of, is_beside=is_beside)
