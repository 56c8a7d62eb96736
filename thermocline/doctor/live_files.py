"""Reads a live table with engines that are installed here, as their users would: over HTTP, and by files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from importlib.util import find_spec

import duckdb
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

from connectors import duckdb_extensions
from planner.sql_text import identifier, literal


@dataclass(frozen=True, slots=True)
class LiveAddress:
    """A catalog of live tables, and how to log in; ``user`` is None where no login is needed."""

    uri: str
    warehouse: str
    user: str | None = None
    password: str = ""

    @property
    def token_uri(self) -> str:
        return f"{self.uri}/v1/oauth/tokens"

    @property
    def attach(self) -> str:
        """The statement by which DuckDB names the catalog ``live``."""
        login = "AUTHORIZATION_TYPE 'none'"
        if self.user is not None:
            login = (
                f"CLIENT_ID {literal(self.user)}, CLIENT_SECRET {literal(self.password)}, "
                f"OAUTH2_SERVER_URI {literal(self.token_uri)}"
            )
        catalog, uri = literal(self.warehouse), literal(self.uri)
        return f"ATTACH {catalog} AS live (TYPE iceberg, ENDPOINT {uri}, {login})"

    def properties(self) -> dict[str, str]:
        """As pyiceberg and Spark name them."""
        own = {"type": "rest", "uri": self.uri, "warehouse": self.warehouse}
        if self.user is not None:
            own["credential"] = f"{self.user}:{self.password}"
            own["oauth2-server-uri"] = self.token_uri
        return own


def first_table(address: LiveAddress) -> tuple[str, ...] | None:
    """Return a table that the caller sees; None: there is none.

    Raises:
        Exception: pyiceberg's own, where the catalog does not let it in or does not answer.
    """
    with closing(load_catalog("live", **address.properties())) as catalog:
        pending = [tuple(name) for name in catalog.list_namespaces()]
        while pending:
            namespace = pending.pop(0)
            for name in catalog.list_tables(namespace):
                return tuple(name)
            pending += [tuple(name) for name in catalog.list_namespaces(namespace)]
    return None


def trials() -> Mapping[str, Callable[[LiveAddress, tuple[str, ...]], int]]:
    """Return what counts a table's rows by engine, of those that are installed."""
    engines = {"pyiceberg": _pyiceberg, "DuckDB": _duckdb}
    return engines | ({} if find_spec("polars") is None else {"Polars": _polars})


def _loaded(address: LiveAddress, table: tuple[str, ...]) -> Table:
    with closing(load_catalog("live", **address.properties())) as catalog:
        return catalog.load_table(table)


def _pyiceberg(address: LiveAddress, table: tuple[str, ...]) -> int:
    return _loaded(address, table).scan().count()


def _polars(address: LiveAddress, table: tuple[str, ...]) -> int:
    import polars

    frame = polars.scan_iceberg(_loaded(address, table))
    return int(frame.select(polars.len()).collect().item())


def _duckdb(address: LiveAddress, table: tuple[str, ...]) -> int:
    with duckdb.connect() as connection:
        for names in (duckdb_extensions.LOCAL, duckdb_extensions.REMOTE):
            duckdb_extensions.load(connection, names)
        connection.execute(address.attach)
        name = ".".join(identifier(part) for part in ("live", ".".join(table[:-1]), table[-1]))
        row = connection.execute(f"SELECT count(*) FROM {name}").fetchone()  # noqa: S608 - quoted
    return int(row[0]) if row else 0
