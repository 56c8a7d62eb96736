"""Relations: the tables of one statement, as SQL the engine can bind.

Each relation is a clause ``WITH "name" AS NOT MATERIALIZED (...)`` in front of the statement: bound once
however often it is named, with projections and filters pushed into every use (DuckDB 1.5.5: 10 ms for a
self-join, a view takes 26). A name in it can be any text, so messages show the user's own table names.

Rows in Arrow are a clause of their own, ``MATERIALIZED``: a stream that the engine reads once however often the
relation is named; a second read would be an error. As streams they cost half of what tables of the cursor do, most of it time
to plan. Arrow tables themselves cannot be scanned: DuckDB 1.5.5 hands filters to pyarrow, where ``NaN > 1`` is
false (in SQL it is true, the row would be lost) and a filter on a UUID fails. A stream gets no filter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from planner.names import KAFKA_OFFSET, KAFKA_OP, KAFKA_PARTITION
from planner.ports import ArrowRelation, SqlRelation
from planner.reading.plan import ALL_COLUMNS, CONSTANT_NAME, ColumnRead
from planner.schema import TableSchema
from planner.sql_text import identifier, literal
from planner.type_text import exact_select, sql_type
from proxy.engine.macros import IN_TWO_PARTITIONS

_CONSTANT = identifier(CONSTANT_NAME)


@dataclass(frozen=True, slots=True)
class AccessFilter:
    """What of a relation a statement sees: names with expressions over its rows, and a condition on these."""

    columns: tuple[tuple[str, str], ...]
    rows: str | None = None


@dataclass(frozen=True, slots=True)
class Changes:
    """The tail of a keyed table's cut: changes, of which the newest of each ``key`` decides.

    ``rows`` have the columns that are read, the key, partition, offset and ``kafka_op`` of every change of the cut, and of no
    other. ``superseded`` has partition and offset of those that a later one of the cut follows, of the same key. ``beside`` are
    the columns that the older rows have, the key and the partition among them.
    """

    table: str
    rows: tuple[SqlRelation, ...]
    superseded: tuple[SqlRelation, ...]
    key: tuple[str, ...]
    beside: ColumnRead

    def select(self, names: Sequence[str], cold: Sequence[str]) -> list[str]:
        """Return the SELECTs of ``names`` that together have the newest row of each key.

        ``cold`` have an older row of some keys, one each at most. A change of its key hides it there, also a delete, and also one
        that the statement does not look for; and of the changes of a key the newest below the cut's end decides. So conditions
        of the statement, permissions and masks belong above both. A row whose key has a change in another partition is an
        error: offsets of two partitions do not say which is newer.
        """
        columns = ", ".join(map(identifier, names))
        if not self.rows:
            return [f"SELECT {columns} FROM ({each})" for each in cold]  # noqa: S608 - our names
        changes, superseded = (
            " UNION ALL ".join(each.sql for each in relations)
            for relations in (self.rows, self.superseded)
        )
        key = [identifier(name) for name in self.key]
        by_key = " AND ".join(f"cold.{name} = newer.{name}" for name in key)
        own = ", ".join(f"cold.{identifier(name)}" for name in names)
        # An anti-join may be faster, and cannot say that a row and its key's change are in two partitions.
        selects = [
            f"SELECT {own} FROM ({each}) AS cold "  # noqa: S608 - our names
            f"LEFT JOIN (SELECT {', '.join(key)}, {KAFKA_PARTITION} FROM ({changes})) AS newer ON {by_key} "
            f"WHERE CASE WHEN newer.{KAFKA_PARTITION} IS NULL THEN true "
            f"WHEN newer.{KAFKA_PARTITION} <> cold.{KAFKA_PARTITION} THEN {self._refusal} ELSE false END"
            for each in cold
        ]
        winners = (
            f"SELECT {columns} FROM ({changes}) AS change ANTI JOIN ({superseded}) AS later "  # noqa: S608
            f"ON change.{KAFKA_PARTITION} = later.{KAFKA_PARTITION} "
            f"AND change.{KAFKA_OFFSET} = later.{KAFKA_OFFSET} WHERE change.{KAFKA_OP} = 'u'"
        )
        return [*selects, winners]

    @property
    def _refusal(self) -> str:
        table = literal(f"{IN_TWO_PARTITIONS}{self.table} ")
        return f"error({table} || cold.{KAFKA_PARTITION} || ' and ' || newer.{KAFKA_PARTITION})::BOOLEAN"


@dataclass(frozen=True, slots=True)
class Relation:
    """Rows under a name: those of all sources together, with the names and types of ``schema``.

    ``schema`` is the table's, or an Arrow schema for relations that are not tables. No sources: no rows. ``access_filter``
    is None where a statement sees all of it. ``reads`` are the columns that are read. ``changes``: newer than the sources.
    """

    name: str
    schema: TableSchema | pa.Schema
    sources: tuple[SqlRelation | ArrowRelation, ...] = ()
    access_filter: AccessFilter | None = None
    reads: ColumnRead = ALL_COLUMNS
    changes: Changes | None = None

    @property
    def arrow(self) -> pa.Schema:
        return self._fields(self.reads)

    @property
    def source_arrow(self) -> pa.Schema:
        """What the sources have."""
        return self._fields(self.reads if self.changes is None else self.changes.beside)

    def _fields(self, reads: ColumnRead) -> pa.Schema:
        schema = self.schema
        return reads.of(schema.arrow if isinstance(schema, TableSchema) else schema)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of what a statement sees."""
        if self.access_filter is not None:
            return tuple(name for name, _ in self.access_filter.columns)
        return tuple(self.arrow.names)

    @property
    def nested(self) -> frozenset[str]:
        """Names among ``columns`` of those with fields; none of a column that is not shown."""
        has_fields = (
            field.name
            for field in self.arrow
            if pa.types.is_struct(field.type) or pa.types.is_map(field.type)
        )
        return frozenset(has_fields).intersection(self.columns)


def prelude(cursor: duckdb.DuckDBPyConnection, relations: Sequence[Relation]) -> str:
    """Return the WITH clauses of ``relations``, for one execution; ``cursor`` has a stream of the Arrow rows."""
    clauses = []
    for number, relation in enumerate(relations):
        selects = []
        schema = relation.source_arrow
        for position, source in enumerate(relation.sources):
            if isinstance(source, ArrowRelation):
                if source.table.num_rows:
                    name = f"rows_{number}_{position}"
                    rows = exact_select(schema, _streamed(cursor, source.table, name))
                    ours = identifier(f"__tc:{name}")
                    clauses.append(f"{ours} AS MATERIALIZED ({rows})")
                    selects.append(f"SELECT * FROM {ours}")  # noqa: S608 - ours
            elif source.is_native:
                selects.append(source.sql)
            else:
                rows = f"(\n{source.sql}\n)"
                exact = relation.reads.floats_exact(source.without_nan, source.without_zero)
                selects.append(exact_select(schema, rows, exact))
        if relation.changes is not None:
            selects = relation.changes.select(relation.arrow.names, selects)
        if relation.reads.has_constant:
            selects = [f"SELECT true AS {_CONSTANT}, * FROM ({select})" for select in selects]  # noqa: S608 - ours
        clauses.append(_clause(relation, selects))
    return _with(clauses)


def empty_prelude(relations: Sequence[Relation]) -> str:
    """Return the WITH clauses of the same relations without rows: enough to bind a statement."""
    return _with([_clause(relation, []) for relation in relations])


def plain_names(schema: pa.Schema, relations: Sequence[Relation]) -> pa.Schema:
    """Return a result's schema without our names: a column without alias is called after its text."""
    names = schema.names
    if not any("__tc:" in name for name in names):
        return schema
    for relation in relations:
        ours = f"{identifier(relation.name)} AS "
        names = [name.replace(ours, "") for name in names]
    fields = zip(schema, names, strict=True)
    return pa.schema([field.with_name(name) for field, name in fields], schema.metadata)


def nested(sql: str) -> str:
    """Return a query around a query, so that only a query can run (docs/internals/engine.md).

    ORDER BY survives, parameters stay.
    """
    return f"SELECT * FROM (\n{sql}\n)"  # noqa: S608 - printed by DuckDB from a tree that passed the gate


def _with(clauses: list[str]) -> str:
    return f"WITH {', '.join(clauses)} " if clauses else ""


def _clause(relation: Relation, selects: list[str]) -> str:
    body = " UNION ALL ".join(selects) or f"SELECT {_nulls(relation.arrow)} WHERE false"
    if relation.access_filter is not None:
        body = _restricted(body, relation.access_filter)
    return f"{identifier(relation.name)} AS NOT MATERIALIZED ({body})"


def _restricted(body: str, access_filter: AccessFilter) -> str:
    """Return the rows and columns of ``body`` that are shown.

    No expression of the statement may meet a row that is not shown, where it could fail and quote it. DuckDB has
    two ways there (1.5.5):

    * Conditions are moved towards the scan, but never past a sample, even one of all rows. A materialized WITH
      clause is no such barrier. A sample by blocks might be moved into the scan.
    * Of a column that a file keeps as a dictionary, a function is evaluated on the whole dictionary, values of
      rows that are gone included. COALESCE copies what it takes from its second argument; that the first is
      always NULL only the execution knows, as it is left to chance.
    """
    columns = ", ".join(
        f"{value} AS {identifier(name)}" for name, value in access_filter.columns
    )
    if access_filter.rows is None:
        return f"SELECT {columns} FROM ({body})"  # noqa: S608 - printed by DuckDB, gated
    names_in_use = {name.lower() for name, _ in access_filter.columns}
    never = "__tc:never"
    while never in names_in_use:
        never += "'"
    never = identifier(never)
    source = (
        f"SELECT {columns}, random() > 2 AS {never} FROM ({body}) WHERE {access_filter.rows}"  # noqa: S608
    )
    copied = ", ".join(
        f"coalesce(CASE WHEN {never} THEN {name} END, {name}) AS {name}"
        for name in (identifier(name) for name, _ in access_filter.columns)
    )
    return f"SELECT {copied} FROM ({source}) TABLESAMPLE BERNOULLI (100 PERCENT)"  # noqa: S608


def _streamed(cursor: duckdb.DuckDBPyConnection, table: pa.Table, name: str) -> str:
    """Have ``cursor`` know the rows by a name, and return that. One batch is read by one thread, in order."""
    # A capsule, as any other Arrow object is first wrapped in a scanner of pyarrow's.
    cursor.register(name, table.combine_chunks().to_reader().__arrow_c_stream__())
    return f"temp.main.{name}"


def _nulls(schema: pa.Schema) -> str:
    return ", ".join(
        f"CAST(NULL AS {sql_type(field.type)}) AS {identifier(field.name)}" for field in schema
    )
