"""Keeps pins fresh in the background, so that no statement waits for a catalog.

Any pin with the tail from its own watermark gives the same answer, so an outage of the catalog changes nothing but the
age shown by ``status``. A verdict about the table (a foreign commit, a broken binding, a dropped table) takes its pin
away.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

from cachetools import LRUCache

from connectors.iceberg.refreshed_value import Outcome, RefreshedValue, again
from planner.errors import CatalogUnavailable, FederationError, SnapshotExpired
from planner.names import TableName
from planner.ports import ColdStore
from planner.seam.cut import Pin, PinReference
from planner.seam.seam_table import PinFacts
from planner.seam.snapshots import Retained

_log = logging.getLogger(__name__)

_Key: TypeAlias = tuple[TableName, str, int | None, int]

#: Pins kept for tickets that are redeemed after the table moved on. A pin is a few kilobytes.
MAX_RECENT_PINS = 1_000
#: A background read that outlives ``stop`` by this much is left to its daemon thread.
STOP_TIMEOUT_S = 5.0
#: A client that keeps asking for an unknown table costs one listing in this time, after the first few.
RELIST_S = 1.0
#: Listings without a pause: who makes a table and asks for it at once must find it.
RELIST_BURST = 8
#: Callers whose listings are remembered, those who asked last.
MAX_CALLERS = 1_000


@dataclass(frozen=True, slots=True)
class PinStatus:
    """One table in use. ``age_s`` is the time since the catalog last confirmed ``pin``.

    ``error`` is what the newest refresh met, and ``failing_s`` how long ago the first one failed since the last
    that did not; with a pin beside them, the catalog is out and the pin serves on.
    """

    table: TableName
    pin: Pin | None
    age_s: float
    error: FederationError | None
    failing_s: float | None = None


@dataclass(frozen=True, slots=True)
class CatalogStatus:
    """One catalog, by the list of its tables. ``age_s``: since it answered last; None: it never did.

    ``error`` and ``failing_s`` as of a ``PinStatus``.
    """

    name: str
    age_s: float | None = None
    error: FederationError | None = None
    failing_s: float | None = None


class PinCache:
    """Pins of the tables in use, and the list of all tables. Thread-safe.

    One thread per catalog, so that one that hangs does not age the pins of the others. Use as a context
    manager, or call ``stop``.
    """

    def __init__(
        self,
        store: ColdStore,
        *,
        refresh_s: float,
        idle_s: float = 600.0,
        patience_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``idle_s``: a table not asked for this long is forgotten.

        ``patience_s``: how long a statement waits for a catalog it cannot do without.
        """
        self._store = store
        self._refresh_s = refresh_s
        self._idle_s = idle_s
        self._clock = clock
        self._lock = threading.Lock()
        self._pins: dict[TableName, RefreshedValue[Pin]] = {}
        self._patience_s = patience_s
        self._listings: dict[str, RefreshedValue[tuple[TableName, ...]]] = {}
        #: What catalogs listed last, and all of it in order: sorting 10,000 names takes 10 ms, and all ask for them.
        self._sorted: tuple[list[tuple[TableName, ...]], tuple[TableName, ...]] = ([], ())
        #: By caller, when names were missing that had the catalogs listed at once.
        self._relisted_at: LRUCache[str | None, deque[float]] = LRUCache(MAX_CALLERS)
        self._recent: LRUCache[_Key, Pin] = LRUCache(MAX_RECENT_PINS)
        #: Pins of older snapshots, by metadata location and snapshot.
        self._versions: LRUCache[tuple[TableName, str, int], Pin] = LRUCache(MAX_RECENT_PINS)
        self._threads: dict[str | None, threading.Thread] = {}
        self._stopped = threading.Event()

    def get(self, table: TableName) -> Pin:
        """Return the pin held, reading it on first use.

        Raises as ``ColdStore.pin`` on first use, and later where a refresh came to a verdict.
        """
        return self._keep(self._first(table, self._value_of(table)).get())

    def pinned(self, tables: Iterable[TableName]) -> dict[TableName, Pin] | None:
        """Return what ``get`` does where no catalog has to be asked for any of them; else None."""
        with self._lock:
            values = {table: self._pins.get(table) for table in tables}
        pins = {}
        for table, value in values.items():
            outcome = None if value is None else value.outcome
            if value is None or outcome is None or outcome.value is None:
                return None
            value.used_at = self._clock()
            pins[table] = self._keep(outcome.value)
        return pins

    def refresh(self, table: TableName) -> Pin:
        """Read the table again now: for a statement whose plan met a gap. Falls back as ``get`` does.

        Statements that ask at the same time share one read, which began after all of them asked.
        """
        pin = self._value_of(table)
        since = self._clock()
        self._first(table, pin)
        return self._keep(pin.read(since=since).get())

    def pin_at(self, reference: PinReference) -> Pin:
        """As ``ColdStore.pin_at``; pins this board gave out lately need no catalog."""
        with self._lock:
            recent = self._recent.get(_key(reference))
        if recent is not None and recent.table_uuid == reference.table_uuid:
            return recent
        return self._keep(self._store.pin_at(reference))

    def pin_version(self, table: TableName, snapshot_id: int) -> Pin:
        """As ``ColdStore.pin_version`` of the pin held; read again where that does not retain the snapshot."""
        pin = self.get(table)
        if not self._retains(pin, snapshot_id):
            pin = self.refresh(table)
        location = pin.metadata_location
        with self._lock:
            recent = self._versions.get((table, location, snapshot_id))
        if recent is not None:
            return self._keep(recent)
        version = self._keep(self._store.pin_version(pin, snapshot_id))
        with self._lock:
            self._versions[table, location, snapshot_id] = version
        return version

    def _retains(self, pin: Pin, snapshot_id: int) -> bool:
        """Also False where the pin's own metadata file is gone: with its table, or by a clean-up."""
        try:
            return snapshot_id in self._store.retained(pin).ids
        except SnapshotExpired:
            return False

    def retained(self, table: TableName) -> Retained:
        return self._store.retained(self.get(table))

    def tables(self) -> tuple[TableName, ...]:
        """List the tables of every catalog that ever answered, as of at most one refresh ago while they do.

        The first call asks them all at once; a catalog that fails then is asked again in the background.

        Raises CatalogUnavailable: none ever answered.
        """
        listings = self._all_listings()
        unasked = [listing for listing in listings.values() if not listing.has_begun]
        if not any(listing.outcome for listing in listings.values()):
            unasked = list(listings.values())
        for listing in unasked:
            listing.begin()
        failures = []
        for listing in unasked:
            try:
                listing.read(since=None)
            except FederationError as error:
                failures.append(error)
        for catalog in listings:
            self._ensure_thread(catalog)
        if failures and not any(listing.outcome for listing in listings.values()):
            raise failures[0]
        return self._in_order(listings.values())

    @property
    def has_listed(self) -> bool:
        """Whether ``tables`` asks no catalog."""
        listings = self._all_listings().values()
        return all(each.has_begun for each in listings) and any(
            each.outcome for each in listings
        )

    def relist(
        self, caller: str | None = None, is_open: Callable[[str], bool] = lambda _: True
    ) -> tuple[TableName, ...]:
        """List all tables, those of open catalogs as of now, for a name that is not in the list held.

        No error may name a catalog that is not open to the caller. As of at most ``RELIST_S`` ago once this ``caller`` asked
        ``RELIST_BURST`` times in as many seconds; None is everybody without a name, together.

        Raises CatalogUnavailable: an open catalog, which may have it, never answered.
        """
        listings = self._all_listings()
        opened = [listing for catalog, listing in listings.items() if is_open(catalog)]
        since = self._listed_since(caller)
        for listing in opened:
            listing.begin()
        for listing in opened:
            listing.read(since=since).get()
        return self._in_order(listings.values())

    def check_listed(self, catalog: str) -> None:
        """Make sure that a catalog's list is of its latest reading: of a name that it lacks, nothing is known otherwise.

        Raises CatalogUnavailable: the catalog did not answer the last time.
        """
        listing = self._all_listings().get(catalog)
        outcome = None if listing is None else listing.outcome
        if outcome is not None and isinstance(outcome.error, CatalogUnavailable):
            raise again(outcome.error)

    def _listed_since(self, caller: str | None) -> float:
        """Return when a listing must have begun to do for a name that a caller misses."""
        now = self._clock()
        with self._lock:
            earlier = self._relisted_at.setdefault(caller, deque(maxlen=RELIST_BURST))
            if len(earlier) == RELIST_BURST and now - earlier[0] < RELIST_BURST * RELIST_S:
                return now - RELIST_S
            earlier.append(now)
        return now

    def status(self) -> tuple[PinStatus, ...]:
        """Describe every table in use, sorted by name."""
        now = self._clock()
        with self._lock:
            pins = sorted((table, value.outcome) for table, value in self._pins.items())
        return tuple(
            PinStatus(
                table,
                outcome.value,
                now - outcome.confirmed_at,
                outcome.error,
                None if outcome.failing_from is None else now - outcome.failing_from,
            )
            for table, outcome in pins
            if outcome is not None
        )

    def catalog_status(self) -> tuple[CatalogStatus, ...]:
        """Describe every catalog, sorted by name."""
        now = self._clock()
        statuses = []
        for name, listing in sorted(self._all_listings().items()):
            outcome = listing.outcome
            if outcome is None:
                statuses.append(CatalogStatus(name, error=listing.error))
                continue
            failing_from = outcome.failing_from
            statuses.append(
                CatalogStatus(
                    name,
                    now - outcome.confirmed_at,
                    outcome.error,
                    None if failing_from is None else now - failing_from,
                )
            )
        return tuple(statuses)

    def facts(self, table: TableName) -> PinFacts | None:
        with self._lock:
            value = self._pins.get(table)
        outcome = None if value is None else value.outcome
        if outcome is None:
            return None
        now, failing_from = self._clock(), outcome.failing_from
        return PinFacts(
            age_s=now - outcome.confirmed_at,
            failing_s=None if failing_from is None else now - failing_from,
            error=None if outcome.error is None else type(outcome.error).__name__,
        )

    def refresh_due(self, catalog: str | None) -> None:
        """Read again what is due of one catalog (None: the lists of all); forget what is idle.

        What the threads do once per ``refresh_s``.
        """
        now = self._clock()
        listings = self._all_listings()
        due: list[RefreshedValue[Any]] = list(listings.values())
        if catalog is not None:
            with self._lock:
                for table, value in list(self._pins.items()):
                    if table.catalog == catalog and now - value.used_at > self._idle_s:
                        del self._pins[table]
                due = [value for name, value in listings.items() if name == catalog]
                due += [pin for table, pin in self._pins.items() if table.catalog == catalog]
        for value in due:
            if self._stopped.is_set():
                return
            try:
                value.read(since=now)
            except FederationError:
                continue  # never read before: the first reader is told
            except Exception:  # noqa: BLE001
                # A bug of ours must not end the thread that keeps every other table fresh.
                _log.exception("refreshing a pin failed")

    def stop(self) -> None:
        """End the threads. The board still answers from what it holds."""
        self._stopped.set()
        with self._lock:
            threads = list(self._threads.values())
        for thread in threads:
            thread.join(STOP_TIMEOUT_S)

    def __enter__(self) -> PinCache:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _in_order(
        self, listings: Iterable[RefreshedValue[tuple[TableName, ...]]]
    ) -> tuple[TableName, ...]:
        """Return all tables, sorted; the same object as before where nothing changed."""
        outcomes = (listing.outcome for listing in listings)
        listed = [outcome.get() for outcome in outcomes if outcome is not None]
        before, tables = self._sorted
        if listed != before:
            tables = tuple(sorted(chain.from_iterable(listed)))
        # Also where they are equal: the next comparison is one of identities.
        self._sorted = listed, tables
        return tables

    def _all_listings(self) -> dict[str, RefreshedValue[tuple[TableName, ...]]]:
        with self._lock:
            for name in self._store.catalogs():
                if name not in self._listings:
                    self._listings[name] = RefreshedValue(
                        f"catalog {name}",
                        partial(self._store.tables, name),
                        self._clock,
                        self._patience_s,
                    )
            return dict(self._listings)

    def _value_of(self, table: TableName) -> RefreshedValue[Pin]:
        with self._lock:
            if table not in self._pins:
                self._pins[table] = RefreshedValue(
                    str(table), lambda: self._store.pin(table), self._clock, self._patience_s
                )
            value = self._pins[table]
            value.used_at = self._clock()
            return value

    def _first(self, table: TableName, value: RefreshedValue[Pin]) -> Outcome[Pin]:
        """Return what is held. A name that never gave a pin is not kept: callers may ask for any name."""
        try:
            outcome = value.first()
        except BaseException:
            with self._lock:
                if self._pins.get(table) is value:
                    del self._pins[table]
            raise
        self._ensure_thread(table.catalog)
        return outcome

    def _keep(self, pin: Pin) -> Pin:
        with self._lock:
            self._recent[_key(pin.reference)] = pin
        return pin

    def _ensure_thread(self, catalog: str | None) -> None:
        with self._lock:
            if catalog in self._threads or self._stopped.is_set():
                return
            thread = threading.Thread(
                target=self._run, args=(catalog,), name=f"pins {catalog or 'list'}", daemon=True
            )
            self._threads[catalog] = thread
            thread.start()

    def _run(self, catalog: str | None) -> None:
        while not self._stopped.wait(self._refresh_s):
            self.refresh_due(catalog)


def _key(reference: PinReference) -> _Key:
    return (
        reference.table,
        reference.metadata_file,
        reference.snapshot_id,
        reference.schema_id,
    )
