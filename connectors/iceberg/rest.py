"""pyiceberg's REST catalog, with a time limit for every request and ``ssl.*`` settings in the form it takes.

Its tables know all keys that came with them, by the places these are good for, and their files are never read by what a
table's own properties say: a table's owner may not name a store (``connectors.iceberg.catalogs``).

pyiceberg 0.12 waits for an answer without end: a catalog whose machine is gone would keep the thread that waits, and
all others that want the catalog. The limits are named as Iceberg's Java client names them, which has none by default
either (``connectors.spark.catalogs``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyiceberg.catalog import rest
from pyiceberg.catalog.rest import TableResponse
from pyiceberg.table import StagedTable, Table
from requests import Response, Session

from connectors.store.catalog_roots import (
    REST_CONNECT_TIMEOUT,
    REST_SOCKET_TIMEOUT,
    REST_TIMEOUTS_MS,
)
from planner.errors import BadConfig

#: Iceberg's name for a catalog that hands out no keys, and signs each request to the store itself.
_SIGNING = "s3.remote-signing-enabled"
_KEY = "s3.access-key-id"


class _TimedSession(Session):
    """``limits_s``: to connect, and between two pieces of an answer."""

    def __init__(self) -> None:
        super().__init__()
        self.limits_s = _limits_s({})

    def request(self, *arguments: Any, **options: Any) -> Response:
        if options.get("timeout") is None:
            options["timeout"] = self.limits_s
        if options.get("verify") is None and isinstance(self.verify, str):
            # Else REQUESTS_CA_BUNDLE wins over it (psf/requests issue 3829).
            options["verify"] = self.verify
        return super().request(*arguments, **options)


# Before there is a catalog that could be told otherwise, its constructor asks for a token and for settings.
setattr(rest, "Session", _TimedSession)  # noqa: B010  its name is not one that it exports


class RestCatalog(rest.RestCatalog):
    """Raises as its base; ``requests.Timeout`` when an answer does not come."""

    def __init__(self, name: str, **properties: Any) -> None:
        super().__init__(name, **in_levels(properties))

    def _create_session(self) -> Session:
        session = super()._create_session()
        if isinstance(session, _TimedSession):
            session.limits_s = _limits_s(self.properties)
        return session

    def _response_to_table(
        self, identifier_tuple: tuple[str, ...], table_response: TableResponse
    ) -> Table:
        options = self._of_response(identifier_tuple, table_response)
        table = VendedTable(**options, config=table_response.config)
        table.by_prefix = tuple(
            (entry.prefix, entry.config) for entry in table_response.storage_credentials
        )
        return table

    def _response_to_staged_table(
        self, identifier_tuple: tuple[str, ...], table_response: TableResponse
    ) -> StagedTable:
        return StagedTable(**self._of_response(identifier_tuple, table_response))

    def _of_response(
        self, identifier: tuple[str, ...], response: TableResponse
    ) -> dict[str, Any]:
        """Return what a table is made of; ``io`` reads as the catalog says, and not as the table's own properties do."""
        properties = self._handed_out(identifier, response)
        return {
            "identifier": identifier,
            "metadata_location": response.metadata_location or "",
            "metadata": response.metadata,
            "io": self._load_file_io(properties, response.metadata_location),
            "catalog": self,
        }

    def _handed_out(
        self, identifier: tuple[str, ...], response: TableResponse
    ) -> dict[str, str]:
        """Return what the catalog says of reading a table's files.

        Raises BadConfig: only requests that the catalog signs could read them.
        """
        keys = self._resolve_storage_credentials(
            response.storage_credentials, response.metadata_location
        )
        vended: dict[str, str] = {**response.config, **keys}
        merged = {**self.properties, **vended}
        is_own = str(self.properties.get(_SIGNING, "")).lower() == "false"
        signs = str(merged.get(_SIGNING, "")).lower() == "true"
        if signs and _KEY not in merged and not is_own:
            raise BadConfig(
                f"{self.name}.{'.'.join(identifier)}: its catalog hands out no keys, and signs each request to the store "
                f"({_SIGNING}), which is not done here; let it hand out keys, name keys in catalogs.{self.name}, or, where "
                f'this process may read the store as it is, set {_SIGNING} = "false" there.',
                catalog=self.name,
                key=_SIGNING,
            )
        return vended


def in_levels(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Turn ``ssl.cabundle`` and ``ssl.client.cert`` into the dictionaries that pyiceberg takes."""
    result: dict[str, Any] = {}
    for key, value in properties.items():
        at, parts = result, key.split(".") if key.startswith("ssl.") else [key]
        for part in parts[:-1]:
            at = at.setdefault(part, {})
        at[parts[-1]] = value
    return result


def _limits_s(properties: Mapping[str, Any]) -> tuple[float, float]:
    connect, answer = (
        _seconds(key, properties.get(key, REST_TIMEOUTS_MS[key]))
        for key in (REST_CONNECT_TIMEOUT, REST_SOCKET_TIMEOUT)
    )
    return connect, answer


def _seconds(key: str, milliseconds: str) -> float:
    if not milliseconds.isascii() or not milliseconds.isdigit() or int(milliseconds) == 0:
        raise BadConfig(
            f"{key} is {milliseconds!r}; it must be milliseconds, above 0.", key=key
        )
    return int(milliseconds) / 1000


#: Properties, each with what the places begin with that they are good for.
KeysByPrefix = tuple[tuple[str, Mapping[str, str]], ...]


class VendedTable(Table):
    """A table and all keys that came with it."""

    by_prefix: KeysByPrefix = ()


def keys_by_prefix(table: Table) -> KeysByPrefix:
    return table.by_prefix if isinstance(table, VendedTable) else ()
