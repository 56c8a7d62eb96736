"""Tables of Thermocline in Apache Spark: ``import thermocline.spark as tc`` (docs/spark.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

from connectors.spark.errors import unpack
from connectors.spark.lake.cut import LakeCut
from connectors.spark.lake.lake import Lake
from connectors.spark.lake.source import register_served, register_source
from connectors.spark.lake.tail import TAIL_LOCAL_BYTES
from connectors.spark.options import LakeSettings
from connectors.spark.remote.lake import ServerCut, ServerLake
from connectors.spark.remote.load import ServedTails
from connectors.spark.remote.plan import ServerAddress
from planner.errors import BadConfig, FederationError
from thermocline.catalog_access import catalog_roots, engine_secrets
from thermocline.config.settings import load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "Lake",
    "LakeCut",
    "ServerCut",
    "ServerLake",
    "connect",
    "error_of",
    "follow",
    "register",
]


@overload
def connect(
    spark: SparkSession,
    config: str | None = None,
    *,
    tail_local_bytes: int = TAIL_LOCAL_BYTES,
    tail_location: str | None = None,
) -> Lake: ...


@overload
def connect(
    spark: SparkSession,
    config: str,
    *,
    server: str,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    tls_root_certificates: str | None = None,
    tail_local_bytes: int = TAIL_LOCAL_BYTES,
    tail_location: str | None = None,
) -> Lake: ...


@overload
def connect(
    spark: SparkSession,
    *,
    server: str,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    tls_root_certificates: str | None = None,
) -> ServerLake: ...


def connect(
    spark: SparkSession,
    config: str | None = None,
    *,
    server: str | None = None,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    tls_root_certificates: str | None = None,
    tail_local_bytes: int = TAIL_LOCAL_BYTES,
    tail_location: str | None = None,
) -> Lake | ServerLake:
    """Attach to a Spark session: with settings directly, or through a ``server``, where its user's grants hold.

    ``config`` is a file of settings, by default found as the commands find it; ``tail_local_bytes`` and ``tail_location``
    as ``connectors.spark.lake.lake.Lake``. Users who can read that file read everything: permissions of the server do not hold
    then. ``server`` is grpc://HOST:PORT or grpc+tls://HOST:PORT; ``tls_root_certificates`` a file. With both, small tails
    come from the server, all else directly, and tables with rows or columns that grants hide from its user are refused.

    Raises:
        BadConfig: the settings are wrong, or name no catalog.
    """
    address = _address(
        server,
        user=user,
        password=password,
        token=token,
        tls_root_certificates=tls_root_certificates,
    )
    if address is not None and config is None:
        return ServerLake(spark, address)
    return Lake(
        spark,
        _settings(config),
        tail_local_bytes=tail_local_bytes,
        tail_location=tail_location,
        served=None if address is None else ServedTails(address),
    )


def follow(cut: LakeCut, table: str) -> tuple[DataFrame, DataFrame]:
    """Return the rows of a cut's table, and the stream that goes on exactly behind them."""
    return cut.table(table), cut.follow(table)


def register(
    spark: SparkSession,
    config: str | None = None,
    *,
    server: str | None = None,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    tls_root_certificates: str | None = None,
) -> None:
    """Register the source ``thermocline`` with a session: ``spark.read.format("thermocline")``, and its stream.

    With a ``server`` it reads through that alone, and there is no stream.

    Raises:
        BadConfig: as ``connect``; or settings and a server are given.
    """
    address = _address(
        server,
        user=user,
        password=password,
        token=token,
        tls_root_certificates=tls_root_certificates,
    )
    if address is not None and config is not None:
        raise BadConfig(
            "settings read everything directly, and a server what its user may; give one of config and server."
        )
    if address is not None:
        register_served(spark, address)
    else:
        register_source(spark, _settings(config))


def error_of(error: BaseException) -> FederationError | None:
    """Return what of ours went wrong inside an error of Spark, which repeats it on every page of its trace; None: nothing."""
    return unpack(str(error))


def _settings(config: str | None) -> LakeSettings:
    settings = load(config).require_catalogs()
    return LakeSettings(
        catalogs={name: dict(options) for name, options in settings.catalogs.items()},
        clusters=settings.clusters,
        roots=catalog_roots(settings),
        secrets=engine_secrets(settings),
        registries=settings.registries,
    )


def _address(server: str | None, **login: str | None) -> ServerAddress | None:
    """Return the server that is named, if any.

    Raises:
        BadConfig: half of one is given.
    """
    if server is not None:
        return ServerAddress.of(server, **login)
    if any(each is not None for each in login.values()):
        raise BadConfig("user, password, token and certificates are for a server; name it.")
    return None
