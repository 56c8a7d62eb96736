"""Finds the columns of one schema of a table in another, by field id: names and places change, ids do not."""

from __future__ import annotations

from dataclasses import dataclass

from planner.schema import Column, TableSchema


@dataclass(frozen=True, slots=True)
class ProjectedColumn:
    """A column, and what it was called in another schema of its table; None: it was added later, or dropped."""

    column: Column
    source: Column | None


def project(schema: TableSchema, own: TableSchema) -> tuple[ProjectedColumn, ...]:
    """Return the columns of ``schema`` as rows written with ``own`` have them, in the order of ``schema``."""
    by_id = {column.field_id: column for column in own.columns}
    return tuple(
        ProjectedColumn(column, by_id.get(column.field_id)) for column in schema.columns
    )
