"""What DuckDB's httpfs needs to read a catalog's files on S3, from the catalog's pyiceberg properties. Pure.

pyiceberg's names: https://py.iceberg.apache.org/configuration/#s3. DuckDB's: https://duckdb.org/docs/stable/core_extensions/httpfs/s3api.
A secret counts for the files below its scope; of several, the one with the longest scope does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlsplit

from planner.errors import BadConfig
from planner.sqltext import literal

#: Iceberg's writers call one store by any of these.
_SCHEMES = ("s3", "s3a", "s3n")
#: A region has to be in every signature; stores other than Amazon's ignore which.
_DEFAULT_REGION = "us-east-1"


def is_object_store(location: str) -> bool:
    """Whether httpfs reads what lies there."""
    return location.partition("://")[0] in _SCHEMES


def secrets(
    catalogs: Mapping[str, Mapping[str, str]],
    catalog_roots: Mapping[str, Sequence[str]],
    storage_roots: Iterable[str],
) -> tuple[str, ...]:
    """Return a CREATE SECRET for each catalog that names a store or credentials.

    It counts below the catalog's warehouse and its ``catalog_roots``. Where these are no locations, as with the name of a
    REST catalog's warehouse, it counts below the storage roots that no other has.

    Raises:
        BadConfig: an endpoint is no URL, one half of a key is missing, or two catalogs' secrets would count for the same.
    """
    places = {
        name: [
            root
            for root in (properties.get("warehouse", ""), *catalog_roots.get(name, ()))
            if is_object_store(root)
        ]
        for name, properties in catalogs.items()
    }
    owned = {root for roots in places.values() for root in roots}
    rest = [root for root in storage_roots if is_object_store(root) and root not in owned]
    nameless = [
        name
        for name, properties in catalogs.items()
        if rest
        and not places[name]
        and _is_name(properties.get("warehouse", ""))
        and any(key.startswith("s3.") for key in properties)
    ]
    if len(nameless) > 1:
        raise BadConfig(
            f"catalogs {' and '.join(nameless)} both have s3 properties and no location; say in server.catalog_roots "
            f"where the files of each lie."
        )
    return tuple(
        _secret(name, _options(name, properties), places[name] or rest)
        for name, properties in catalogs.items()
        if places[name] or name in nameless
    )


def _is_name(warehouse: str) -> bool:
    return "://" not in warehouse and not warehouse.startswith("/")


def _options(name: str, properties: Mapping[str, str]) -> dict[str, str | bool]:
    def value(key: str) -> str | None:
        return properties.get(f"s3.{key}", properties.get(f"client.{key}"))

    options: dict[str, str | bool] = {"REGION": value("region") or _DEFAULT_REGION}
    key, secret, token = (
        value("access-key-id"),
        value("secret-access-key"),
        value("session-token"),
    )
    if (key is None) != (secret is None):
        raise BadConfig(
            f"catalog {name}: s3.access-key-id and s3.secret-access-key go together; set both, or none.",
            catalog=name,
        )
    if key is not None and secret is not None:
        options |= {"KEY_ID": key, "SECRET": secret}
        if token is not None:
            options["SESSION_TOKEN"] = token
    endpoint = properties.get("s3.endpoint")
    if endpoint is not None:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadConfig(
                f"catalog {name}: s3.endpoint is not a URL; write https://host:port.",
                catalog=name,
            )
        options |= {
            "ENDPOINT": parts.netloc + parts.path.rstrip("/"),
            "USE_SSL": parts.scheme == "https",
            "URL_STYLE": "path",
        }
    # pyiceberg addresses by path unless told otherwise; DuckDB by host, which is right for Amazon's own endpoint.
    if properties.get("s3.force-virtual-addressing", "").lower() == "true":
        options["URL_STYLE"] = "vhost"
    return options


def _secret(name: str, options: Mapping[str, str | bool], roots: Sequence[str]) -> str:
    scopes = [
        f"{scheme}://{root.partition('://')[2].rstrip('/')}/"
        for root in roots
        for scheme in _SCHEMES
    ]
    listed = ", ".join(
        f"{key} {'true' if value is True else 'false' if value is False else literal(value)}"
        for key, value in options.items()
    )
    scope = ", ".join(map(literal, scopes))
    quoted = name.replace('"', '""')
    return f'CREATE SECRET "{quoted}" (TYPE s3, {listed}, SCOPE [{scope}])'
