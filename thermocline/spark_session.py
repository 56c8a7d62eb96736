"""The Spark session that the settings describe, of a process of ours."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from connectors import jars
from connectors.spark.catalogs import jar_sets
from connectors.spark.session import SparkSettings, start_session, stop_session
from planner.errors import BadConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from thermocline.config.settings import Settings


@contextlib.contextmanager
def configured_session(settings: Settings) -> Iterator[SparkSession]:
    """Start Spark as ``[tier]`` says, and stop it. Fails before Spark has taken seconds to start, where it can.

    Raises:
        BadConfig: no Java, no packed environment where one is named, or Spark does not start as configured.
    """
    tier = settings.tier
    jars.java()
    if tier.environment is not None and not tier.environment.is_file():
        raise BadConfig(
            "tier.environment is not a file; pack a virtual environment with venv-pack or conda-pack.",
            key="tier.environment",
        )
    session = start_session(
        SparkSettings(
            master=tier.master,
            driver_memory=tier.driver_memory,
            environment=tier.environment,
            conf=tier.conf,
        ),
        settings.catalogs,
        [jar for name in jar_sets(settings.catalogs) for jar in jars.resolve(name)],
    )
    try:
        yield session
    finally:
        stop_session(session)
