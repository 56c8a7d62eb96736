"""Tables of Thermocline in Apache Spark: ``import thermocline.spark as tc`` (docs/spark.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from connectors.spark.errors import unpack
from connectors.spark.lake import Lake
from connectors.spark.lake_cut import LakeCut
from connectors.spark.lake_settings import LakeSettings
from connectors.spark.source import register_source
from connectors.spark.tail import TAIL_LOCAL_BYTES
from planner.errors import FederationError
from thermocline.config.settings import load
from thermocline.engine_secrets import engine_secrets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Lake", "LakeCut", "connect", "error_of", "follow", "register"]


def connect(
    spark: SparkSession,
    config: str | None = None,
    *,
    tail_local_bytes: int = TAIL_LOCAL_BYTES,
    tail_location: str | None = None,
) -> Lake:
    """Attach to a Spark session. ``config`` is a file of settings, by default found as the commands find it.

    The rest as ``connectors.spark.lake.Lake``. Whoever can read that file reads everything: permissions of the server
    do not hold here.

    Raises:
        BadConfig: the settings are wrong, or name no catalog.
    """
    return Lake(
        spark,
        _settings(config),
        tail_local_bytes=tail_local_bytes,
        tail_location=tail_location,
    )


def follow(cut: LakeCut, table: str) -> tuple[DataFrame, DataFrame]:
    """Return the rows of a cut's table, and the stream that goes on exactly behind them."""
    return cut.table(table), cut.follow(table)


def register(spark: SparkSession, config: str | None = None) -> None:
    """Register the source ``thermocline`` with a session: ``spark.read.format("thermocline")``, and its stream.

    Raises:
        BadConfig: as ``connect``.
    """
    register_source(spark, _settings(config))


def error_of(error: BaseException) -> FederationError | None:
    """Return what of ours went wrong inside an error of Spark, which repeats it on every page of its trace; None: nothing."""
    return unpack(str(error))


def _settings(config: str | None) -> LakeSettings:
    settings = load(config).require_catalogs()
    return LakeSettings(
        catalogs={name: dict(options) for name, options in settings.catalogs.items()},
        clusters=settings.clusters,
        catalog_roots=settings.server.catalog_roots,
        secrets=engine_secrets(settings),
    )
