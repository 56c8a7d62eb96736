"""Opens the tiering targets of tables, as the settings say."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator

from pyspark.sql import SparkSession

from connectors.iceberg.catalogs import Catalogs
from connectors.iceberg.evolve import evolve_table
from connectors.iceberg.store import IcebergStore
from connectors.kafka.clusters import KafkaClusters
from connectors.registry.decoders import shipped_decoder
from connectors.registry.following import SchemaFollower
from connectors.registry.registries import SchemaRegistries
from connectors.spark.errors import java_errors
from connectors.spark.publish.target import SparkTieringTarget
from planner.names import TableName
from thermocline.catalog_access import catalog_roots
from thermocline.config.settings import Settings


@contextlib.contextmanager
def schema_follower(
    settings: Settings, registries: SchemaRegistries
) -> Iterator[SchemaFollower]:
    with contextlib.closing(Catalogs(settings.catalogs, catalog_roots(settings))) as catalogs:
        yield SchemaFollower(registries.of, functools.partial(evolve_table, catalogs))


def tiering_target(
    spark: SparkSession,
    store: IcebergStore,
    settings: Settings,
    schemas: SchemaFollower,
    name: TableName,
) -> SparkTieringTarget:
    with java_errors(name):
        return SparkTieringTarget(
            spark,
            store,
            name,
            open_log=functools.partial(KafkaClusters, settings.clusters),
            open_decoder=functools.partial(shipped_decoder, str(name)),
            open_store=store.files.open_store,
            schemas=schemas,
        )
