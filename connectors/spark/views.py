"""Names of the temporary views of a cut's tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
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
        ours |= {view.lower() for view in views}
        self.session.conf.set(_OURS, "\n".join(sorted(ours)))
        return views


def view_names(tables: Sequence[TableName]) -> dict[str, TableName]:
    """Return views by name: full names, namespace_name and name, where no two tables would have it."""
    short: Counter[str] = Counter()
    for table in tables:
        short.update({name.lower() for name in _short(table)})
    views = {str(table): table for table in tables}
    for table in tables:
        views |= {name: table for name in _short(table) if short[name.lower()] == 1}
    return views


def _short(table: TableName) -> tuple[str, str]:
    return "_".join((*table.namespace, table.name)), table.name
