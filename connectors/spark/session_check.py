"""Checks that a user's session has the catalogs of the settings, and that they show the same tables."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark.sql import SparkSession

from connectors.spark.catalogs import catalog_conf
from connectors.spark.metadata import load_table
from connectors.spark.session import REDACTED
from planner.errors import BadConfig
from planner.names import TableName

_SECRET = re.compile(REDACTED)


def check_catalog(
    session: SparkSession, name: str, catalogs: Mapping[str, Mapping[str, str]]
) -> None:
    """Make sure that the session has a catalog of that name.

    Raises:
        BadConfig: it has none; the message has the configuration to start it with, secrets left out.
    """
    if session.conf.get(f"spark.sql.catalog.{name}", None) is not None:
        return
    lines = "\n".join(f"  {line}" for line in missing_conf(name, catalogs.get(name, {})))
    raise BadConfig(
        f"this Spark session has no catalog {name}; start it with the package "
        f"org.apache.iceberg:iceberg-spark-runtime-4.1_2.13 and this configuration:\n{lines}",
        catalog=name,
    )


def missing_conf(name: str, properties: Mapping[str, str]) -> list[str]:
    """Return Spark's configuration of a catalog, a line each; of secrets the names alone."""
    return [
        f"{key}={'…' if _SECRET.search(key) else value}"
        for key, value in catalog_conf(name, properties).items()
    ]


def check_same_table(session: SparkSession, name: TableName, table_uuid: str) -> None:
    """Compare the table's id in Spark's catalog with that of the pin; on Spark Connect its snapshot's id tells.

    Raises:
        BadConfig: they differ: Spark's catalog of that name is another one.
    """
    if not hasattr(session, "_jsparkSession"):
        return
    uuid = str(load_table(session, name).uuid())
    if uuid != table_uuid:
        raise BadConfig(
            f"{name}: Spark's catalog {name.catalog} has another table of that name (id {uuid}, and {table_uuid} in the "
            f"settings' catalog); have both point at one catalog: compare spark.sql.catalog.{name.catalog}.* with the "
            f"settings.",
            table=str(name),
        )
