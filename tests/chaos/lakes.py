"""Where the chaos run's tables are, how their catalogs and their store go away, and what goes wrong there meanwhile."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from planner.names import TableName
from tests.fixtures.object_store import ObjectStore
from tests.fixtures.postgresql import PostgreSQL
from tests.fixtures.rest_catalog import RestCatalog
from tests.fixtures.server import sqlite_catalog
from tests.harness import catalog_gateway, store_gateway
from tests.harness.catalog_gateway import CatalogGateway
from tests.harness.store_gateway import StoreGateway, StoreRequest

_LOCK_TIMEOUT_S = 600.0
#: Of the requests to a store: all its clients ask again.
_FAULTY_SHARE = 0.01
_FAULTS = (store_gateway.Fault.BUSY, store_gateway.Fault.FAILED)
#: What may happen to a commit over REST: refused, or made and not told.
_OF_COMMITS = (
    catalog_gateway.Fault.REFUSED,
    catalog_gateway.Fault.DONE_AND_FAILED,
    catalog_gateway.Fault.DONE_AND_CUT,
)


@dataclass(frozen=True)
class Lake:
    """Catalogs with one table in each. An outage takes a catalog, or the store, away while its block runs."""

    catalogs: Mapping[str, Mapping[str, str]]
    tables: tuple[TableName, ...]
    catalog_outages: tuple[Callable[[], AbstractContextManager[None]], ...]
    store: StoreGateway | None = None
    commits: CatalogGateway | None = None

    def disturb(self, chance: random.Random) -> None:
        """Have the next commit go wrong, where that can be done."""
        if self.commits is not None:
            self.commits.faults.append(chance.choice(_OF_COMMITS))

    @contextlib.contextmanager
    def store_outage(self) -> Iterator[None]:
        assert self.store is not None
        usual = self.store.choose_fault
        self.store.choose_fault = lambda _: store_gateway.Fault.BUSY
        try:
            yield
        finally:
            self.store.choose_fault = usual

    def __add__(self, other: Lake) -> Lake:
        """Both, over one store."""
        return Lake(
            {**self.catalogs, **other.catalogs},
            self.tables + other.tables,
            self.catalog_outages + other.catalog_outages,
            self.store,
            self.commits or other.commits,
        )


def sqlite_lake(folder: Path, table: TableName) -> Lake:
    """On this disk. Its database is locked: what any other writer could do, for longer than its clients wait."""

    @contextlib.contextmanager
    def outage() -> Iterator[None]:
        with contextlib.closing(
            sqlite3.connect(folder / "catalog.db", timeout=_LOCK_TIMEOUT_S)
        ) as lock:
            lock.execute("BEGIN EXCLUSIVE")
            yield
            lock.rollback()

    return Lake({table.catalog: sqlite_catalog(folder)}, (table,), (outage,))


def postgresql_lake(
    database: PostgreSQL, store: ObjectStore, gateway: StoreGateway, folder: Path
) -> Lake:
    """On S3. Its server is stopped at once, connections and all."""

    @contextlib.contextmanager
    def outage() -> Iterator[None]:
        database.control("stop", "-m", "immediate")
        try:
            yield
        finally:
            database.begin()

    catalog = database.catalog(folder) | store.warehouse() | {"s3.endpoint": gateway.endpoint}
    table = TableName("sql_lake", ("net",), "chaos")
    return Lake({table.catalog: catalog}, (table,), (outage,), gateway)


def rest_lake(rest: RestCatalog, gateway: StoreGateway, commits: CatalogGateway) -> Lake:
    """On S3, by a gateway whose commits may go wrong. Its server is killed."""

    @contextlib.contextmanager
    def outage() -> Iterator[None]:
        rest.kill()
        try:
            yield
        finally:
            rest.start()

    catalog = {**rest.catalog(), "uri": commits.uri, "s3.endpoint": gateway.endpoint}
    table = TableName("rest_lake", (rest.namespace(),), "chaos")
    return Lake({table.catalog: catalog}, (table,), (outage,), gateway, commits)


def faulty(chance: random.Random) -> Callable[[StoreRequest], store_gateway.Fault | None]:
    """Some requests fail."""

    def choose(_: StoreRequest) -> store_gateway.Fault | None:
        return chance.choice(_FAULTS) if chance.random() < _FAULTY_SHARE else None

    return choose
