"""Tables of a lake in a user's Spark session: cuts of several tables at one moment."""

from __future__ import annotations

import atexit
import datetime as dt
import functools
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyspark.sql import SparkSession

from connectors.bounds_cache import BoundsCache
from connectors.cuts import PastCuts, WaitFor, current_cuts
from connectors.iceberg.pin_cache import PinCache
from connectors.iceberg.store import IcebergStore
from connectors.kafka.clusters import KafkaClusters
from connectors.registry.registries import SchemaRegistries
from connectors.registry.shipping import SchemaShipping
from connectors.spark.errors import java_errors
from connectors.spark.lake.cut import LakeCut, first_offsets
from connectors.spark.lake.opened import refuse_keyed
from connectors.spark.lake.sql import SparkLake, check_count
from connectors.spark.lake.tail import TAIL_LOCAL_BYTES, TailKeeper
from connectors.spark.options import LakeSettings
from connectors.spark.remote.load import ServedTails
from connectors.spark.session_check import check_catalog, check_same_table
from connectors.spark.shipping import is_local, ship_to
from connectors.spark.table_lookup import find_tables
from planner.errors import BadParameter, UnknownTable
from planner.names import TableName
from planner.seam.cut import Pin, TableCut, cold_cut
from planner.seam.freshness import parse_freshness, parse_wait_for
from planner.seam.time_travel import AtTime, check_not_expired, ended, parse_cut
from planner.statement.references import check_no_side

#: Pins are read anew with every cut; nothing is refreshed in between.
_NEVER_S = 365 * 86_400.0
#: Catalog calls at once: they wait for the catalog more than they work.
_PINS_AT_ONCE = 16


class Lake(SparkLake[LakeCut]):
    """Cuts of tables for Spark. Thread-safe; use it as a context manager, or call ``close``."""

    def __init__(
        self,
        session: SparkSession,
        settings: LakeSettings,
        *,
        tail_local_bytes: int = TAIL_LOCAL_BYTES,
        tail_location: str | None = None,
        served: ServedTails | None = None,
    ) -> None:
        """``tail_local_bytes``: a larger tail is read by executors. ``served``: smaller ones come from a server, and tables of
        which that hides anything from its user are refused.

        ``tail_location``: a folder that driver and executors share, for large tails on a cluster; their files stay there.

        Raises:
            BadConfig: a property of a catalog or cluster is wrong.
        """
        super().__init__(session)
        self._settings = settings
        self._catalogs = settings.catalogs
        self._served = served
        self._store = IcebergStore(settings.catalogs, roots=settings.roots)
        self._log = KafkaClusters(settings.clusters)
        self._pins = PinCache(self._store, refresh_s=_NEVER_S, idle_s=_NEVER_S)
        self._bounds = BoundsCache(self._log)
        self._registries = SchemaRegistries(settings.registries)
        self._earlier = PastCuts(self._pins, self._bounds.measure)
        self._checked: set[tuple[TableName, str]] = set()
        self._folder: Path | None = None
        if is_local(session):
            self._folder = Path(tempfile.mkdtemp(prefix="thermocline-tails-"))
        # Not before: DataFrames of its cuts may outlive all references to this.
        atexit.register(self.close)
        ship_to(session)
        self._tails = TailKeeper(
            session,
            self._log,
            functools.partial(KafkaClusters, settings.clusters),
            SchemaShipping(self._registries.of),
            self._folder,
            tail_location,
            tail_local_bytes,
            served,
        )

    def close(self) -> None:
        """Close connections, and remove the files of tails: DataFrames of cuts cannot be read any more."""
        atexit.unregister(self.close)
        self._pins.stop()
        self._registries.close()
        self._log.close()
        self._store.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Lake:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _listed(self) -> list[TableName]:
        return list(self._pins.relist())

    def _past(self, cut: str, tables: Sequence[str]) -> LakeCut:
        entries = parse_cut(cut)
        names = [entry.table for entry in entries.tables]
        if tables:
            names = find_tables(self._listed(), tables)
        self._check_catalogs(names)
        self._pin(names)
        return self._made({name: self._earlier.cut(entries.of(name)) for name in names})

    def _take(
        self,
        names: Sequence[TableName],
        timestamp: dt.datetime | str | None,
        max_staleness: str | None,
        wait_for: str | None,
    ) -> LakeCut:
        staleness_s = None
        if max_staleness is not None:
            staleness_s = parse_freshness(f"max_staleness {max_staleness}").max_staleness_s
        self._check_catalogs(names)
        self._pin(outdated(self._pins, names, staleness_s))
        cuts, _ = current_cuts(
            self._pins,
            self._bounds,
            names,
            max_staleness_s=staleness_s,
            wait=WaitFor({} if wait_for is None else parse_wait_for(wait_for)),
        )
        if timestamp is None:
            return self._made(cuts)
        return self._before(cuts, _microseconds(timestamp))

    def _check_catalogs(self, names: Iterable[TableName]) -> None:
        for name in names:
            check_catalog(self._session, name.catalog, self._settings.catalogs)

    def _made(self, cuts: Mapping[TableName, TableCut]) -> LakeCut:
        for name, cut in cuts.items():
            self._check(name, cut)
        return LakeCut(self._session, cuts, self._tails, self._store, self._settings)

    def _check(self, name: TableName, cut: TableCut) -> None:
        refuse_keyed(cut)
        if (name, cut.table_uuid) not in self._checked:
            if self._served is not None:
                self._served.check_whole(name)
            with java_errors(name):
                check_same_table(self._session, name, cut.table_uuid)
            self._checked.add((name, cut.table_uuid))

    def _before(self, cuts: Mapping[TableName, TableCut], time_us: int) -> LakeCut:
        """End every cut before its first row of a time; a table without a topic says by its snapshots what it was."""
        for cut in cuts.values():
            check_not_expired(cut, time_us)
        whole = self._made({name: cut for name, cut in cuts.items() if cut.hot is not None})
        past = {
            name: ended(cut, first_offsets(whole.table(str(name)), time_us))
            if cut.hot is not None
            else cold_cut(self._earlier.then(self._pins.get(name), AtTime(time_us)))
            for name, cut in cuts.items()
        }
        for name, cut in past.items():
            self._check(name, cut)
        return whole.narrowed(past)

    def _pin(self, names: Sequence[TableName]) -> list[Pin]:
        with ThreadPoolExecutor(_PINS_AT_ONCE) as pool:
            return list(pool.map(self._pins.refresh, names))

    def _all(self) -> list[TableName]:
        """List the tables that are bound to a topic, but keyed ones, which Spark does not read by itself.

        Raises:
            UnknownTable: there is none.
            LimitExceeded: there are too many for one cut without names.
            BadConfig: as ``check_no_side``.
        """
        tables = self._pins.tables()
        names = [
            pin.table
            for pin in self._pin(tables)
            if pin.binding is not None and pin.binding.upsert is None
        ]
        for name in names:
            check_no_side(name, tables)
        if not names:
            raise UnknownTable("no table is bound to a topic; name the tables to read.")
        check_count(names, f"{len(names)} tables are bound to topics")
        return names


def outdated(
    pins: PinCache, names: Sequence[TableName], staleness_s: float | None
) -> list[TableName]:
    """Return the tables to pin anew; None: all. A log measured now does not tell of rows that were deleted since a pin."""
    facts = {name: pins.facts(name) for name in names}
    return [
        name
        for name, pin in facts.items()
        if staleness_s is None or pin is None or pin.age_s > staleness_s
    ]


def _microseconds(moment: dt.datetime | str) -> int:
    try:
        time_ = dt.datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    except ValueError as error:
        raise BadParameter(
            f"{moment!r} is no time; write it as 2026-11-24T08:00:00Z, or give a datetime."
        ) from error
    if time_.tzinfo is None:
        time_ = time_.replace(tzinfo=dt.UTC)
    return (time_ - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
