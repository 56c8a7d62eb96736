"""What is common to the ways that pyiceberg's and Iceberg's own clients read a catalog's properties. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import urlsplit

#: What pyiceberg takes a catalog without ``type`` for, by the scheme of its ``uri``.
_TYPE_OF_SCHEME = {
    "http": "rest",
    "https": "rest",
    "thrift": "hive",
    "sqlite": "sql",
    "postgresql": "sql",
    "postgres": "sql",
}
REST_CONNECT_TIMEOUT = "rest.client.connection-timeout-ms"
REST_SOCKET_TIMEOUT = "rest.client.socket-timeout-ms"
#: How long requests to a REST catalog may take where its properties do not say: to connect, and between two pieces of
#: an answer. Neither client has a limit of its own.
REST_TIMEOUTS_MS = MappingProxyType(
    {REST_CONNECT_TIMEOUT: "10000", REST_SOCKET_TIMEOUT: "60000"}
)


def catalog_type(options: Mapping[str, str]) -> str | None:
    """The type as given, else the one pyiceberg takes from the scheme of ``uri``."""
    if "type" in options:
        return options["type"].lower()
    return _TYPE_OF_SCHEME.get(urlsplit(options.get("uri", "")).scheme.partition("+")[0])
