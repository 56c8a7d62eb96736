"""pyiceberg's REST catalog, with a time limit for every request and ``ssl.*`` settings in the form it takes.

pyiceberg 0.12 waits for an answer without end: a catalog whose machine is gone would keep the thread that waits, and
all others that want the catalog. The limits are named as Iceberg's Java client names them, which has none by default
either (``connectors.spark.catalogs``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyiceberg.catalog import rest
from requests import Response, Session

from connectors.catalog_properties import (
    REST_CONNECT_TIMEOUT,
    REST_SOCKET_TIMEOUT,
    REST_TIMEOUTS_MS,
)
from planner.errors import BadConfig


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
