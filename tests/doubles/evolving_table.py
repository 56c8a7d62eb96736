"""A table in memory that follows the schemas of its writers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from planner.evolution.changes import AddColumn, Change, Decide, Evolving, Widen
from planner.evolution.ledger import SCHEMAS
from planner.names import TableName
from planner.schema import Column, TableSchema
from planner.seam.binding import Binding, parse_binding
from planner.sql_text import FieldPath
from tests.harness.builders import FLOWS


class EvolvingTable:
    """Its schema and properties change as pyiceberg would change them; ``commits`` are what did, oldest first."""

    def __init__(self, schema: TableSchema, binding: Binding) -> None:
        self.schema = schema
        self.properties = dict(binding.properties())
        self.commits: list[Evolving] = []
        self._past: set[FieldPath] = set()
        self._last_id = 100

    @property
    def binding(self) -> Binding:
        binding = parse_binding(FLOWS, self.properties)
        assert binding is not None
        return binding

    def commit(self, _: TableName, decide: Decide) -> Evolving | None:
        """See ``connectors.registry.table_schemas.Commit``."""
        evolving = decide(self.schema, self.properties, self._past)
        if evolving is not None:
            for change in evolving.changes:
                self._change(change)
            self.properties[SCHEMAS] = evolving.ledger
            self.commits.append(evolving)
        return evolving

    def drop(self, name: str) -> None:
        """Drop a column as a person does."""
        self._set(each for each in self.schema.columns if each.name != name)

    def _change(self, change: Change) -> None:
        name, *inside = change.path
        if isinstance(change, AddColumn) and not inside:
            self._last_id += 1
            self._set((*self.schema.columns, Column(self._last_id, name, change.type)))
            return
        (column,) = (each for each in self.schema.columns if each.name == name)
        changed = replace(column, type=_changed(column.type, inside, change))
        self._set(changed if each is column else each for each in self.schema.columns)

    def _set(self, columns: Iterable[Column]) -> None:
        self._past |= {(each.name,) for each in self.schema.columns}
        self.schema = TableSchema(self.schema.schema_id + 1, tuple(columns))


def _changed(kind: pa.DataType, path: list[str], change: Change) -> pa.DataType:
    if not path:
        assert isinstance(change, Widen)
        return change.after
    fields = list(kind)
    if len(path) == 1 and isinstance(change, AddColumn):
        return pa.struct([*fields, pa.field(path[0], change.type)])
    return pa.struct(
        [
            each.with_type(_changed(each.type, path[1:], change))
            if each.name == path[0]
            else each
            for each in fields
        ]
    )
