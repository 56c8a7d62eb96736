"""Names of the temporary views of a cut's tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from planner.errors import BadParameter
from planner.names import TableName

#: In the session's own settings: views that are ours, and may be replaced.
_OURS = "thermocline.views"


@dataclass(frozen=True, slots=True)
class ViewNames:
    session: SparkSession

    def of(self, tables: Sequence[TableName]) -> Mapping[str, TableName]:
        """Choose the names, and note that they are ours.

        A view of an earlier cut goes where its name may mean several tables now: it would answer for one of them.

        Raises:
            BadParameter: the session has a temporary view of such a name that is not ours.
        """
        views = view_names(tables)
        ours = set((self.session.conf.get(_OURS, None) or "").split("\n"))
        others = {
            each.name.lower() for each in self.session.catalog.listTables() if each.isTemporary
        } - ours
        for view, table in views.items():
            if view.lower() in others:
                raise BadParameter(
                    f"{table}: this session has a temporary view {view} of its own; drop it, or use "
                    f"cut.table({str(table)!r}).",
                    table=str(table),
                )
        for name in ours & shared_names(tables):
            self.session.catalog.dropTempView(name)
        ours |= {view.lower() for view in views}
        self.session.conf.set(_OURS, "\n".join(sorted(ours)))
        return views


def view_names(tables: Sequence[TableName]) -> dict[str, TableName]:
    """Return views by name: full names, namespace_name and name, where no two tables would have it in any case."""
    return {name: tables_[0] for name, tables_ in _called(tables) if len(tables_) == 1}


def shared_names(tables: Sequence[TableName]) -> frozenset[str]:
    """Return the names, in small letters, that several of the tables would have."""
    return frozenset(name.lower() for name, tables_ in _called(tables) if len(tables_) > 1)


def _called(tables: Sequence[TableName]) -> Iterator[tuple[str, Sequence[TableName]]]:
    """Yield every name with all tables that Spark, to which views have no case, would take for it."""
    names = [(name, table) for table in tables for name in _names(table)]
    by_name: dict[str, list[TableName]] = {}
    for name, table in names:
        by_name.setdefault(name.lower(), []).append(table)
    for name, _ in names:
        yield name, by_name[name.lower()]


def _names(table: TableName) -> Iterable[str]:
    return dict.fromkeys((str(table), "_".join((*table.namespace, table.name)), table.name))
