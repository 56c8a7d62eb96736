"""Translates a catalog's pyiceberg properties to those of Iceberg's Spark catalog. Pure.

Both sides must open the same tables. The names agree for most properties (Iceberg's catalog properties and
pyiceberg's configuration page); those that differ are in the tables below.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from connectors.store.catalog_roots import REST_TIMEOUTS_MS, catalog_type
from connectors.store.object_store import CA_BUNDLE, DEFAULT_REGION, is_object_store
from planner.errors import BadConfig

_CATALOG_CLASS = "org.apache.iceberg.spark.SparkCatalog"
_S3_FILE_IO = "org.apache.iceberg.aws.s3.S3FileIO"

#: pyiceberg's catalog types, and Iceberg's name for each.
_TYPES = {"sql": "jdbc", "rest": "rest", "hive": "hive", "glue": "glue"}
#: Settings of pyiceberg's own machinery.
_PYTHON_ONLY = frozenset({"type", "uri", "echo", "pool_pre_ping", "init_catalog_tables"})
_GLUE = ("region", "access-key-id", "secret-access-key", "session-token")
_RENAMED = {"s3.region": "client.region"} | {f"glue.{key}": f"client.{key}" for key in _GLUE}
# A tierer and the servers' refreshers share one SQLite file; a writer waits for the other this long.
_SQLITE_BUSY_TIMEOUT_MS = 10_000


def catalog_conf(name: str, properties: Mapping[str, str]) -> dict[str, str]:
    """Return the Spark configuration of one catalog.

    The name must be equal on both sides: JDBC catalogs store it in every row.

    Raises:
        BadConfig: the type is unknown, or the ``uri`` cannot be opened from Java.
    """
    kind = catalog_type(properties)
    if kind not in _TYPES:
        raise BadConfig(
            f"catalog {name}: Spark cannot tier into a catalog of type {kind or ''!r}; types are "
            f"{', '.join(_TYPES)}.",
            catalog=name,
        )
    conf = {
        _RENAMED.get(key, key): value
        for key, value in properties.items()
        if key not in (*_PYTHON_ONLY, CA_BUNDLE)
        and not key.startswith(("py-", "hive.", "ssl."))
    }
    conf["type"] = _TYPES[kind]
    if kind == "sql":
        conf |= _jdbc(name, properties.get("uri", ""))
    elif "uri" in properties:
        conf["uri"] = properties["uri"]
    if kind == "rest":
        conf = {**REST_TIMEOUTS_MS, **conf}
        # As pyiceberg asks by default: a catalog that can hands out keys for a table's files.
        conf.setdefault("header.X-Iceberg-Access-Delegation", "vended-credentials")
        # By default Java exchanges its first token for another (RFC 8693). Most identity providers do not do that, and the
        # tierer would be locked out when the token expires; asking with the credential again works everywhere.
        if "credential" in conf:
            conf.setdefault("token-exchange-enabled", "false")
    # pyiceberg addresses by path unless told otherwise, Java by host: a store of one's own is rarely a domain.
    is_virtual = properties.get("s3.force-virtual-addressing", "").lower()
    if is_virtual == "false" or ("s3.endpoint" in properties and is_virtual != "true"):
        conf["s3.path-style-access"] = "true"
    if "s3.endpoint" in properties:
        # Else Amazon's library asks Amazon's machines where it runs.
        conf.setdefault("client.region", DEFAULT_REGION)
    # A REST catalog's warehouse is a name: its keys tell where the files are.
    if is_object_store(properties.get("warehouse", "")) or any(
        key.startswith("s3.") for key in properties
    ):
        conf.setdefault("io-impl", _S3_FILE_IO)
    # The compare-and-set reads the table again before each commit; a cached one is up to 30 s old.
    conf["cache-enabled"] = "false"
    prefix = f"spark.sql.catalog.{name}"
    return {prefix: _CATALOG_CLASS} | {f"{prefix}.{key}": value for key, value in conf.items()}


def jar_sets(catalogs: Mapping[str, Mapping[str, str]]) -> tuple[str, ...]:
    """Return the sets of ``connectors.jars`` that Spark needs for these catalogs.

    Raises:
        BadConfig: as ``catalog_conf``.
    """
    values = [
        value
        for name, properties in catalogs.items()
        for value in catalog_conf(name, properties).values()
    ]
    sets = ["iceberg"]
    if _S3_FILE_IO in values:
        sets.append("s3")
    if any(value.startswith("jdbc:postgresql:") for value in values):
        sets.append("postgresql")
    return tuple(sets)


def _jdbc(name: str, uri: str) -> dict[str, str]:
    """Translate an SQLAlchemy URL (``dialect+driver://user:password@host/database``) to JDBC."""
    parts = urlsplit(uri)
    dialect = parts.scheme.partition("+")[0]
    # V1 is the layout pyiceberg creates: a column tells tables from views.
    common = {"jdbc.schema-version": "V1"}
    path = unquote(parts.path).removeprefix("/")
    if dialect == "sqlite" and path and path != ":memory:":
        return common | {
            "uri": f"jdbc:sqlite:{path}",
            "jdbc.busy_timeout": str(_SQLITE_BUSY_TIMEOUT_MS),
        }
    if dialect == "postgresql" and parts.hostname:
        port = f":{parts.port}" if parts.port else ""
        query = f"?{parts.query}" if parts.query else ""
        conf = common | {"uri": f"jdbc:postgresql://{parts.hostname}{port}/{path}{query}"}
        if parts.username:
            conf["jdbc.user"] = unquote(parts.username)
        if parts.password:
            conf["jdbc.password"] = unquote(parts.password)
        return conf
    raise BadConfig(
        f"catalog {name}: its `uri` is not a database that Python and Java can share; use a SQLite file "
        f"(sqlite:////path) or PostgreSQL (postgresql+psycopg2://host/database).",
        catalog=name,
    )
