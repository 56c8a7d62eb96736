"""Spark's SQL over the tables of one cut: views of them, and queries that name them in full."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from connectors.spark.naming import named
from connectors.spark.views import SessionViews, aliases
from planner.errors import UnknownTable, UnsupportedStatement
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
