"""Names of the temporary views of a cut's tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from planner.errors import BadParameter
from planner.names import TableName

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
