"""``thermocline tier``: move log rows into Iceberg on Spark."""

from __future__ import annotations

import contextlib
import functools
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace

import click
from pyspark.sql import SparkSession

from connectors.iceberg.store import IcebergStore
from connectors.jobs.loop import LoopLimits, TableLoop
from connectors.jobs.maintain import MaintainedTable
from connectors.jobs.tier import RoundLimits, TieringJob, TieringTable
from connectors.kafka.admin import RetentionReader
from connectors.kafka.clusters import KafkaClusters
from connectors.registry.following import SchemaFollower
from connectors.registry.registries import SchemaRegistries
from connectors.spark.publish.stage import STALE_STAGE_S
from connectors.spark.publish.target import TASK_OFFSETS, SparkTieringTarget
from connectors.spark.session import check_alive
from planner.errors import FederationError
from planner.names import TableName
from planner.tiering.triggers import ColdSurvey
from proxy.ops.schema_registries import SchemaRegistryStates
from thermocline.bound_tables import BoundTables
from thermocline.catalog_access import catalog_roots
from thermocline.config.settings import Settings, load
from thermocline.maintaining import beside
from thermocline.spark_session import configured_session
from thermocline.tiering.console import Lines
from thermocline.tiering.maintenance_metrics import MaintenanceMetrics
from thermocline.tiering.metrics import TieringMetrics
from thermocline.tiering.targets import schema_follower, tiering_target


@click.command(epilog="Example: thermocline tier --once lake.net.flows")
@click.argument("arguments", nargs=-1, metavar="[loop] [CATALOG.NAMESPACE.TABLE]...")
@click.option("--once", is_flag=True, help="Tier up to the log's end, then stop.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=0.1),
    help="Publish rows this many seconds old; default: as configured, half an hour.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Serve /metrics and /healthz there; default: tier.http_port.",
)
@click.pass_obj
def command(
    config: str | None,
    arguments: tuple[str, ...],
    once: bool,
    interval_s: float | None,
    metrics_port: int | None,
) -> None:
    """Move log rows into Iceberg and advance the watermark, until stopped or with --once up to the log's end.

    Without names, all bound tables; new ones are found. A table is published when its files would be full, its
    oldest row is old, or its tail or the log's retention presses. A line per publish. One table's failure stops
    no other: it is told and tried again, ever more slowly; with --once each is told, and the first is the exit code.
    """
    loop = arguments[:1] == ("loop",)
    if once and loop:
        raise click.UsageError("say either --once or loop.")
    names = [TableName.parse(text) for text in arguments[loop:]]
    settings = load(config).require_catalogs()
    with running_loop(settings, names, interval_s, metrics_port, once=once) as tables:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: tables.stop())
        if not once:
            tables.run()
        elif not tables.drain():
            raise click.UsageError(
                "there is no bound table; make one with `thermocline create`."
            )


@contextlib.contextmanager
def running_loop(
    settings: Settings,
    names: list[TableName],
    interval_s: float | None = None,
    metrics_port: int | None = None,
    *,
    once: bool = False,
) -> Iterator[TableLoop[TieringTable]]:
    """Start Spark and everything a tierer needs; stop it in the opposite order. No names: all bound tables.

    ``once``: tables whose binding cannot be read are tried, so that their failure is reported.

    Raises:
        BadConfig: a setting does not fit.
    """
    tier = settings.tier
    with contextlib.ExitStack() as stack:
        store = IcebergStore(settings.catalogs, roots=catalog_roots(settings))
        stack.callback(store.close)
        log = stack.enter_context(KafkaClusters(settings.require_clusters()))
        # Nothing of it is opened before a table of a schema registry is tiered.
        registries = stack.enter_context(SchemaRegistries(settings.registries))
        schemas = stack.enter_context(schema_follower(settings, registries))
        spark = stack.enter_context(configured_session(settings))
        click.echo(f"tiering on Spark {spark.version}, {tier.master}", err=True)
        metrics = TieringMetrics()
        metrics.registry.register(SchemaRegistryStates(registries.states))
        lines = Lines(bars=sys.stderr.isatty())
        stack.enter_context(lines.progress)
        port = tier.http_port if metrics_port is None else metrics_port
        if port is not None:
            # The HTTP stack takes a tenth of a second to load.
            from proxy.ops.http import OpsServer

            ops = OpsServer(
                address=(tier.http_host, port),
                registry=metrics.registry,
                healthy=lambda: True,
                state=dict,
            )
            stack.callback(ops.stop)
            ops.accept()
            click.echo(f"metrics on port {ops.port}", err=True)
        bound = BoundTables(store, with_unread=once)
        job = TieringJob(
            log,
            tables=(lambda: names) if names else bound,
            open_target=functools.partial(_target, spark, store, settings, schemas),
            follow=schemas.follow,
            limits=RoundLimits(
                # Full files from every core; what is read at one time is bounded by each task's own buffers.
                max_rows=tier.max_rows or spark.sparkContext.defaultParallelism * TASK_OFFSETS,
                split_rows=tier.split_rows,
                publish_s=tier.max_publish_s,
            ),
            retentions=RetentionReader(settings.clusters),
            adjust=functools.partial(_shortened, interval_s or tier.max_age_s),
        )
        check = functools.partial(check_alive, spark)
        others: tuple[TableLoop[MaintainedTable], ...] = ()
        if not once:
            listeners = (MaintenanceMetrics(metrics.registry), lines.beside)
            others = (
                stack.enter_context(beside(job.tables, settings, spark, listeners, check)),
            )
        yield TableLoop(
            job,
            listeners=(metrics, lines),
            limits=LoopLimits(
                at_once=tier.at_once,
                poll_s=min(tier.poll_s, interval_s or tier.poll_s),
                refresh_s=tier.refresh_s,
                stop_s=tier.stop_s,
            ),
            check=check,
            beside=others,
        )


def _shortened(max_age_s: float | None, survey: ColdSurvey) -> ColdSurvey:
    """Let an age that was asked for shorten every table's own, and never lengthen it."""
    options = survey.options
    age_s = min(max_age_s or options.max_age_s, options.max_age_s)
    return replace(survey, options=replace(options, max_age_s=age_s))


def _target(
    spark: SparkSession,
    store: IcebergStore,
    settings: Settings,
    schemas: SchemaFollower,
    name: TableName,
) -> SparkTieringTarget:
    target = tiering_target(spark, store, settings, schemas, name)
    try:
        for branch in target.drop_stale(older_than_s=STALE_STAGE_S):
            click.echo(f"{name}: removed {branch}, left by a tierer that died", err=True)
    except FederationError as error:
        click.echo(f"{name}: stale stage branches stay: {error.message}", err=True)
    return target
