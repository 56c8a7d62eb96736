"""What DuckDB's httpfs needs to read a catalog's files on S3, from the catalog's pyiceberg properties. Pure.

pyiceberg's names: https://py.iceberg.apache.org/configuration/#s3. DuckDB's: https://duckdb.org/docs/stable/core_extensions/httpfs/s3api.
A secret counts for the files below its scope; of several, the one with the longest scope does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from planner.errors import BadConfig
from planner.sql_text import literal

#: Iceberg's writers call one store by any of these.
_SCHEMES = ("s3", "s3a", "s3n")
#: The authorities whose certificates a store may have; without it those that Arrow, DuckDB and Java trust by default.
#: A name of ours: no client has one.
CA_BUNDLE = "s3.cabundle"
#: Keys that catalogs hand out with tables (Iceberg REST specification, "LoadTableResult").
_VENDED = frozenset(
    (
        *("s3.access-key-id", "s3.secret-access-key"),
        *("s3.session-token", "s3.session-token-expires-at-ms"),
        *("gcs.oauth2.token", "gcs.oauth2.token-expires-at"),
    )
)
_SAS_TOKEN = "adls.sas-token"  # noqa: S105  a name
#: Where the keys are good for.
_ENDPOINT_KEYS = ("client.region", "s3.region", "s3.endpoint", "s3.path-style-access")
#: A region has to be in every signature; stores other than Amazon's ignore which.
DEFAULT_REGION = "us-east-1"

#: Amazon's libraries, Arrow's and this process' Java, send sums behind the content unless told otherwise. Other stores answer
#: that with 400: https://docs.aws.amazon.com/sdkref/latest/guide/feature-dataintegrity.html.
UNSUMMED = ("AWS_REQUEST_CHECKSUM_CALCULATION", "AWS_RESPONSE_CHECKSUM_VALIDATION")


def is_object_store(location: str) -> bool:
    """Whether httpfs reads what lies there."""
    return location.partition("://")[0] in _SCHEMES


def secrets(
    catalogs: Mapping[str, Mapping[str, str]], locations: Mapping[str, Sequence[str]]
) -> tuple[str, ...]:
    """Return a CREATE SECRET for each catalog on S3, which counts for the files below its ``places`` there.

    Raises BadConfig: an endpoint is no URL, one half of a key is missing, or two catalogs have one place in two stores.
    """
    options = {name: _options(name, catalogs[name]) for name in locations}
    first: dict[str, str] = {}
    keyed: set[str] = set()
    for name, roots in locations.items():
        for root in roots:
            other = first.setdefault(_bare(root), name)
            if "KEY_ID" in options[name]:
                keyed.add(_bare(root))
            if not are_one_store((other, catalogs[other]), (name, catalogs[name])):
                raise BadConfig(
                    f"catalogs.{other} and catalogs.{name}: both have files at {root}, in two stores, and a file's name does "
                    f"not tell in which; give one of them another bucket or path, or both the same s3.endpoint.",
                    key=name,
                )
    # By number: names of secrets do not tell small letters from capitals.
    return tuple(
        _secret(f"catalog_{number}", options[name], own)
        for number, (name, roots) in enumerate(locations.items())
        # No key must not stand in the way of another catalog's key to the same root.
        if (
            own := [
                root for root in roots if "KEY_ID" in options[name] or _bare(root) not in keyed
            ]
        )
    )


def are_one_store(
    one: tuple[str, Mapping[str, str]], other: tuple[str, Mapping[str, str]]
) -> bool:
    """Whether two catalogs mean one store by the same place. Each is its name and properties, which may be vended.

    Raises BadConfig: as ``secrets``.
    """
    return _options(*one).get("ENDPOINT") == _options(*other).get("ENDPOINT")


def vended_secret(
    name: str, configured: Mapping[str, str], vended: Mapping[str, str], location: str
) -> str | None:
    """Return a CREATE SECRET for a table's files at ``location``, by what its catalog handed out with the table.

    None where that are the keys of the catalog's own properties. It replaces the one before of the same place.

    Raises BadConfig: as ``secrets``.
    """
    if not is_object_store(location):
        return None
    options = _options(name, vended)
    keys = ("KEY_ID", "SECRET", "SESSION_TOKEN")
    own = _options(name, configured)
    if all(options.get(key) == own.get(key) for key in keys):
        return None
    number = hashlib.sha256(location.encode()).hexdigest()[:16]
    return _secret(f"table_{number}", options, [location])


def vended_properties(
    configured: Mapping[str, str], vended: Mapping[str, str]
) -> dict[str, str]:
    """Return what a catalog handed out with a table to read its files by, in Iceberg's names: no property of our own.

    Empty where it handed out no keys. ``vended`` may have the ``configured`` ones in it, as pyiceberg joins both.
    """
    keys = {
        name: value
        for name, value in vended.items()
        if (name in _VENDED or name.startswith(_SAS_TOKEN)) and configured.get(name) != value
    }
    return keys | endpoint_of(vended) if keys else {}


def endpoint_of(properties: Mapping[str, str]) -> dict[str, str]:
    """Return which store properties name, without keys."""
    return {name: properties[name] for name in _ENDPOINT_KEYS if name in properties}


def _options(name: str, properties: Mapping[str, str]) -> dict[str, str | bool]:
    def value(key: str) -> str | None:
        return properties.get(f"s3.{key}", properties.get(f"client.{key}"))

    options: dict[str, str | bool] = {"REGION": value("region") or DEFAULT_REGION}
    key, secret = value("access-key-id"), value("secret-access-key")
    if (key is None) != (secret is None):
        raise BadConfig(
            f"catalogs.{name}: s3.access-key-id and s3.secret-access-key go together; set both, or none.",
            key=name,
        )
    if key is not None and secret is not None:
        options |= {"KEY_ID": key, "SECRET": secret}
        if (token := value("session-token")) is not None:
            options["SESSION_TOKEN"] = token
    endpoint = properties.get("s3.endpoint")
    if endpoint is not None:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadConfig(
                f"catalogs.{name}.s3.endpoint: it is not a URL; write https://host:port.",
                key=f"{name}.s3.endpoint",
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


def _bare(root: str) -> str:
    """Return a root without its scheme: Iceberg's writers call one store by several."""
    return root.partition("://")[2].rstrip("/")


def _secret(name: str, options: Mapping[str, str | bool], roots: Sequence[str]) -> str:
    scopes = [f"{scheme}://{_bare(root)}/" for root in roots for scheme in _SCHEMES]
    listed = ", ".join(
        f"{key} {'true' if value is True else 'false' if value is False else literal(value)}"
        for key, value in options.items()
    )
    scope = ", ".join(map(literal, scopes))
    return f"CREATE OR REPLACE SECRET {name} (TYPE s3, {listed}, SCOPE [{scope}])"
