"""Which catalogs can exist: looked at when settings are read, before anything is asked over a network."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from connectors.store.catalog_roots import catalog_type

#: pyiceberg's catalog types: the module its client needs, and the extra of pyiceberg that brings it.
_CLIENTS = {
    "rest": ("requests", ""),
    "sql": ("sqlalchemy", "sql-sqlite"),
    "hive": ("thrift", "hive"),
    "glue": ("boto3", "glue"),
    "dynamodb": ("boto3", "dynamodb"),
    "bigquery": ("google.cloud.bigquery", "bigquery"),
}
_BUNDLES = ("ssl.cabundle", "s3.cabundle")
_NEED_URI = ("rest", "sql", "hive")


@dataclass(frozen=True, slots=True)
class Mistake:
    """Why a catalog cannot exist as described. ``option`` is empty when the whole section is meant."""

    option: str
    what: str
    fix: str


def catalog_mistake(options: Mapping[str, str]) -> Mistake | None:
    """Return what is impossible about a catalog's options, None when nothing is."""
    if "py-catalog-impl" in options:
        return None
    kind = catalog_type(options)
    types = ", ".join(_CLIENTS)
    if kind == "in-memory" or _is_in_memory(options):
        return Mistake(
            "uri" if kind == "sql" else "type",
            "a catalog in memory is another one in every process",
            'use type = "sql" with a file, as in uri = "sqlite:////var/lib/thermocline/catalog.db"',
        )
    if kind is None:
        return Mistake("", "it names no type of catalog", f"set type to one of {types}")
    if kind not in _CLIENTS:
        return Mistake("type", f"there is no catalog type {kind!r}", f"types are {types}")
    if kind in _NEED_URI and not options.get("uri"):
        return Mistake("uri", f"a {kind} catalog needs an address", "set uri")
    for key in _BUNDLES:
        if key in options and not Path(options[key]).is_file():
            return Mistake(key, "there is no such file", "name a file with certificates in PEM")
    of_python = next((key for key in options if key.startswith("auth.")), None)
    if of_python is not None:
        what = "it is known to pyiceberg alone, and the tierer logs in, too"
        return Mistake(of_python, what, "set credential, oauth2-server-uri and scope, or token")
    module, extra = _CLIENTS[kind]
    if not _installed(module):
        what = f"the client for {kind} catalogs is not installed"
        return Mistake("type", what, f"pip install 'pyiceberg[{extra}]'")
    return None


def _is_in_memory(options: Mapping[str, str]) -> bool:
    parts = urlsplit(options.get("uri", ""))
    if parts.scheme.partition("+")[0] != "sqlite":
        return False
    return parts.path in ("", "/", "/:memory:") or "mode=memory" in parts.query


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
