"""Cuts in a user's Spark session, read directly or through a server: DataFrames, views and SQL of their tables.

Names of the temporary views of a cut's tables.
"""

from __future__ import annotations

import abc
import datetime as dt
import threading
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from pyspark.sql import DataFrame, SparkSession

from connectors.spark.options import check_cut_arguments
from connectors.spark.table_lookup import find_tables, named
from planner.errors import BadParameter, LimitExceeded, UnknownTable, UnsupportedStatement
from planner.names import TableName, name_parts
from planner.spark_names import StatementView, backticked, tables_of, with_views

_DOUBLE_QUOTED = "spark.sql.ansi.doubleQuotedIdentifiers"

#: Tables of one cut at most, where none is named.
MAX_TABLES = 100

Side = Literal["cold", "tail"]


def has_double_quoted_names(session: SparkSession) -> bool:
    # Spark keeps the text as it was set, and reads it in any case.
    return str(session.conf.get(_DOUBLE_QUOTED, "false")).strip().lower() == "true"


def check_current_catalog(session: SparkSession, catalogs: Collection[str]) -> None:
    """Make sure that names without a catalog are none of the lake's tables.

    Raises:
        UnsupportedStatement: they would be.
    """
    current = session.catalog.currentCatalog()
    if current in catalogs:
        raise UnsupportedStatement(
            f"the session's current catalog is {current}, so short names would be its tables' cold rows; say USE "
            f"spark_catalog first, and leave spark.sql.defaultCatalog out."
        )


class SparkCut(abc.ABC):
    """Tables as they were at one moment. Thread-safe. The same name gives the same DataFrame."""

    def __init__(self, session: SparkSession, tables: Sequence[TableName]) -> None:
        self._session = session
        self.tables = tuple(tables)
        self._id = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._frames: dict[tuple[TableName, Side | None], DataFrame] = {}

    def table(self, name: str, side: Side | None = None) -> DataFrame:
        """Return a table's rows, or those of one side of the seam: all that may be read of them.

        Raises:
            UnknownTable: the cut is of other tables.
            FederationError: as Spark's catalog, the log, the decoder or the server refuse.
        """
        return self._frame(self._named(name), side)

    def views(self) -> Mapping[str, TableName]:
        """Make a temporary view of each table; return their names. Those of another cut go.

        A table is called by its full name in backticks (`lake.net.flows`), by namespace and name (net_flows), and by its
        name alone where no other of the cut has it.

        Raises:
            BadParameter: the session has a view of such a name that is not ours.
        """
        names = SessionViews(self._session).take(self._id, self.tables)
        for view, table in names.items():
            self._frame(table).createOrReplaceTempView(backticked(view))
        return names

    def sql(self, text: str) -> DataFrame:
        """Run a query of Spark's own SQL, in which the tables of this cut have their full names.

        Raises:
            UnsupportedStatement: it is no query; it names another table of the cut's catalogs or a view of another cut, or
                might; or the session is one of Spark Connect, which looks names up only when the rows are asked for.
        """
        session = self._session
        if not hasattr(session, "_jsparkSession"):
            raise UnsupportedStatement(
                "Spark Connect looks names up after the statement was sent; use cut.table(), or cut.views() and spark.sql()."
            )
        catalogs = {name.catalog for name in self.tables}
        check_current_catalog(session, catalogs)
        # Of this statement alone: another cut, or another thread, has views of the same tables.
        prefix = f"thermocline_{uuid.uuid4().hex}"
        views = {
            table: StatementView(f"{prefix}_{number}", alias)
            for number, (table, alias) in enumerate(aliases(self.tables).items())
        }
        rewritten, tables = with_views(
            text,
            views,
            catalogs,
            foreign_views=SessionViews(session).of_others(self._id),
            double_quotes_are_names=has_double_quoted_names(session),
        )
        try:
            for table in tables:
                self._frame(table).createTempView(views[table].view)
            # Names are looked up here, not when the rows are asked for.
            return session.sql(rewritten)
        finally:
            for table in tables:
                session.catalog.dropTempView(views[table].view)

    def _named(self, text: str) -> TableName:
        matches = named(text, self.tables) or [
            name
            for name in self.tables
            if text == name.name or name_parts(text) == (name.name,)
        ]
        if len(matches) == 1:
            return matches[0]
        listed = ", ".join(map(str, self.tables))
        raise UnknownTable(
            f"this cut has no table {text!r}; it is of {listed}. Name the table in at().",
            table=text,
        )

    def _frame(self, name: TableName, side: Side | None = None) -> DataFrame:
        with self._lock:
            if (name, side) not in self._frames:
                self._frames[name, side] = self._made(name, side)
            return self._frames[name, side]

    @abc.abstractmethod
    def _made(self, name: TableName, side: Side | None) -> DataFrame: ...


C = TypeVar("C", bound=SparkCut)


class SparkLake(abc.ABC, Generic[C]):
    """Takes cuts of tables for a user's session. ``_catalogs``: names in them are tables; empty: those of the tables there are."""

    _catalogs: Collection[str] = ()

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def at(
        self,
        *tables: str,
        cut: str | None = None,
        timestamp: dt.datetime | str | None = None,
        max_staleness: str | None = None,
        wait_for: str | None = None,
    ) -> C:
        """Take one cut of some tables, or of all there are: now, or at a moment of the past.

        Without names all are those bound to a topic, or those that the server shows. ``cut`` is the text of a cut, of any
        engine; without names, of all its tables. ``timestamp`` means before the first row of that time or later; one without a
        zone is UTC. ``max_staleness`` (``5s``) lets snapshots and logs that were looked at so lately stand. ``wait_for``
        (``topic/partition:offset, ...``) names records that must be in it.

        Raises:
            NotAllowed: rows of a table are hidden from the server's user, and a cut would tell how many; use ``table`` and
                ``query``.
            UnknownTable, BadParameter, CutExpired, NotYetCommitted, LimitExceeded, BadConfig: as they say.
            FederationError: a system does not answer, a table's state is refused, or the server's sentence.
        """
        check_cut_arguments(cut, timestamp, max_staleness, wait_for)
        if cut is not None:
            return self._past(cut, tables)
        names = find_tables(self._listed(), tables) if tables else self._all()
        return self._take(names, timestamp, max_staleness, wait_for)

    def named(self, text: str) -> list[TableName]:
        """Return the tables that a query of Spark's SQL names.

        Raises:
            UnsupportedStatement, UnknownTable: as ``planner.spark_names.tables_of``; or short names would be tables' too.
        """
        if self._catalogs:
            check_current_catalog(self._session, self._catalogs)  # before any catalog is asked
        tables = self._listed()
        catalogs = self._catalogs or {table.catalog for table in tables}
        if not self._catalogs:
            check_current_catalog(self._session, catalogs)
        quoted = has_double_quoted_names(self._session)
        return tables_of(text, tables, catalogs, double_quotes_are_names=quoted)

    @abc.abstractmethod
    def _listed(self) -> Sequence[TableName]: ...

    @abc.abstractmethod
    def _all(self) -> Sequence[TableName]:
        """Return the tables of a cut without names; at most ``MAX_TABLES``."""

    @abc.abstractmethod
    def _past(self, cut: str, tables: Sequence[str]) -> C: ...

    @abc.abstractmethod
    def _take(
        self,
        names: Sequence[TableName],
        timestamp: dt.datetime | str | None,
        max_staleness: str | None,
        wait_for: str | None,
    ) -> C: ...


def check_count(names: Sequence[TableName], some: str) -> None:
    """Refuse a cut of all tables where they are too many; ``some`` begins the sentence.

    Raises:
        LimitExceeded: they are.
    """
    if len(names) > MAX_TABLES:
        raise LimitExceeded(
            f"{some}, more than {MAX_TABLES}; name those to read.", tables=len(names)
        )


#: In the session's own settings: whose views it has, and which they are. They are ours, and may be replaced.
_OURS = "thermocline.views"


@dataclass(frozen=True, slots=True)
class SessionViews:
    """The temporary views of a session that are of a cut: of one cut at a time."""

    session: SparkSession

    def take(self, cut_id: str, tables: Sequence[TableName]) -> Mapping[str, TableName]:
        """Choose names for the views of a cut, and note that they are ours; drop those of another cut.

        A view of an earlier cut would answer with that cut, without saying so.

        Raises:
            BadParameter: the session has a temporary view of such a name that is not ours.
        """
        views = view_names(tables)
        _, ours = self._noted()
        # Spark lists the session's own views with any namespace. This one it keeps itself; ``catalog.listTables()`` would
        # load each table of the current namespace.
        rows = self.session.sql("SHOW VIEWS IN spark_catalog.global_temp").collect()
        others = {row["viewName"].lower() for row in rows if not row["namespace"]} - ours
        for view, table in views.items():
            if view.lower() in others:
                raise BadParameter(
                    f"{table}: this session has a temporary view {view} of its own; drop it, or use "
                    f"cut.table({str(table)!r}).",
                    table=str(table),
                )
        names = {view.lower() for view in views}
        for name in ours - names:
            self.session.catalog.dropTempView(name)
        self.session.conf.set(_OURS, "\n".join([cut_id, *sorted(names)]))
        return views

    def of_others(self, cut_id: str) -> frozenset[str]:
        """Return the names of the views, in small letters, where these are of another cut."""
        owner, ours = self._noted()
        return frozenset() if owner == cut_id else ours

    def _noted(self) -> tuple[str, frozenset[str]]:
        owner, *names = (self.session.conf.get(_OURS, None) or "").split("\n")
        return owner, frozenset(names)


def aliases(tables: Sequence[TableName]) -> dict[TableName, str]:
    """Return what columns of each table may be called by: its name, or all of it where several have that name.

    Tables whose full names differ in case alone are left out: to Spark they are one.
    """
    views = view_names(tables)
    return {table: view for view, table in views.items() if view in (table.dotted, table.name)}


def view_names(tables: Sequence[TableName]) -> dict[str, TableName]:
    """Return views by name: full names, namespace_name and name, where Spark takes it, in any case, for one table alone."""
    names = [(name, table) for table in tables for name in _names(table)]
    uses = Counter(name.lower() for name, _ in names)
    return {name: table for name, table in names if uses[name.lower()] == 1}


def _names(table: TableName) -> Iterable[str]:
    return dict.fromkeys((table.dotted, "_".join((*table.namespace, table.name)), table.name))
