"""Spark's SQL over the tables of one cut: views of them, and queries that name them in full.

Names of the temporary views of a cut's tables.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from connectors.spark.table_lookup import named
from planner.errors import BadParameter, UnknownTable, UnsupportedStatement
from planner.names import TableName, name_parts
from planner.spark_names import StatementView, backticked, with_views

_DOUBLE_QUOTED = "spark.sql.ansi.doubleQuotedIdentifiers"


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


@dataclass(frozen=True)
class CutSql:
    """``frame`` gives the rows of a table of the cut: of one table always the same."""

    session: SparkSession
    tables: Sequence[TableName]
    frame: Callable[[TableName], DataFrame]
    cut_id: str = field(default_factory=lambda: uuid.uuid4().hex)

    def table(self, text: str) -> TableName:
        """Find a table by its full name, with its namespace, or by its name alone.

        Raises:
            UnknownTable: the cut is of other tables.
        """
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

    def views(self) -> Mapping[str, TableName]:
        """Make a temporary view of each table, instead of another cut's views; return their names.

        Raises:
            BadParameter: the session has a view of such a name that is not ours.
        """
        names = SessionViews(self.session).take(self.cut_id, self.tables)
        for view, table in names.items():
            self.frame(table).createOrReplaceTempView(backticked(view))
        return names

    def query(self, text: str) -> DataFrame:
        """Run a query in which the tables of the cut have their full names.

        Raises:
            UnsupportedStatement: it is no query; it names another table of the cut's catalogs or a view of another cut, or
                might; or the session is one of Spark Connect, which looks names up only when the rows are asked for.
        """
        if not hasattr(self.session, "_jsparkSession"):
            raise UnsupportedStatement(
                "Spark Connect looks names up after the statement was sent; use cut.table(), or cut.views() and spark.sql()."
            )
        catalogs = {name.catalog for name in self.tables}
        check_current_catalog(self.session, catalogs)
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
            foreign_views=SessionViews(self.session).of_others(self.cut_id),
            double_quotes_are_names=has_double_quoted_names(self.session),
        )
        try:
            for table in tables:
                self.frame(table).createTempView(views[table].view)
            # Names are looked up here, not when the rows are asked for.
            return self.session.sql(rewritten)
        finally:
            for table in tables:
                self.session.catalog.dropTempView(views[table].view)


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
        others = _temporary_views(self.session) - ours
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


def _temporary_views(session: SparkSession) -> frozenset[str]:
    """Return the names of all temporary views that are this session's alone, in small letters.

    Spark lists them with any namespace. This one it keeps itself; ``catalog.listTables()`` would load each table of the
    current namespace.
    """
    rows = session.sql("SHOW VIEWS IN spark_catalog.global_temp").collect()
    return frozenset(row["viewName"].lower() for row in rows if not row["namespace"])


def aliases(tables: Sequence[TableName]) -> dict[TableName, str]:
    """Return what columns of each table may be called by: its name, or all of it where several have that name.

    Tables whose full names differ in case alone are left out: to Spark they are one.
    """
    views = view_names(tables)
    return {table: view for view, table in views.items() if view in (table.dotted, table.name)}


def view_names(tables: Sequence[TableName]) -> dict[str, TableName]:
    """Return views by name: full names, namespace_name and name, where no two tables would have it in any case."""
    return {name: tables_[0] for name, tables_ in _called(tables) if len(tables_) == 1}


def _called(tables: Sequence[TableName]) -> Iterator[tuple[str, Sequence[TableName]]]:
    """Yield every name with all tables that Spark, to which views have no case, would take for it."""
    names = [(name, table) for table in tables for name in _names(table)]
    by_name: dict[str, list[TableName]] = {}
    for name, table in names:
        by_name.setdefault(name.lower(), []).append(table)
    for name, _ in names:
        yield name, by_name[name.lower()]


def _names(table: TableName) -> Iterable[str]:
    return dict.fromkeys((table.dotted, "_".join((*table.namespace, table.name)), table.name))
