"""Reads cold for ``verify`` with the engine that serves it, so that what is verified is what readers see."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from connectors.iceberg.audit import Auditor, TableAudit
from connectors.iceberg.file_access import EngineCalls
from connectors.iceberg.store import IcebergStore
from connectors.verification.comparing import ColdCount
from connectors.verification.keyed import change_columns
from planner.covering import PartitionRows, RowsOfHead, boundaries
from planner.names import KAFKA_OFFSET, KAFKA_PARTITION
from planner.offsets import OffsetRange
from planner.ports import ColdStore, SqlRelation
from planner.schema import Column, TableSchema
from planner.seam.boundary import time_us
from planner.seam.cut import ColdSlice
from planner.seam.keys import Upsert
from planner.sql_text import identifier, literal
from proxy.engine.engine import Engine, StoreAccess
from proxy.engine.relations import Relation
from thermocline.catalog_access import catalog_roots, engine_ca_file, engine_secrets
from thermocline.cold_keys import EngineChanges
from thermocline.config.settings import Settings

_NAME = "cold"


@contextlib.contextmanager
def cold_engine(
    settings: Settings, spill: Path
) -> Iterator[tuple[IcebergStore, Auditor, Engine]]:
    """Open the catalogs, what audits their tables, and an engine over them that spills to the folder ``spill``."""
    with (
        contextlib.closing(Auditor(settings.catalogs, catalog_roots(settings))) as auditor,
        contextlib.closing(
            Engine(
                storage_roots=settings.storage_roots,
                stores=StoreAccess(engine_secrets(settings), engine_ca_file(settings, spill)),
                memory_limit_bytes=settings.server.memory_limit_bytes,
                threads=settings.server.threads,
                spill_dir=spill,
            )
        ) as engine,
        contextlib.closing(
            IcebergStore(
                settings.catalogs,
                roots=catalog_roots(settings),
                engine=EngineCalls(engine.take_secret, try_manifests=engine.try_manifests),
            )
        ) as store,
    ):
        yield store, auditor, engine


class EngineColdRows:
    """``connectors.verification.comparing.ColdRows`` over DuckDB, row deletes of every kind applied."""

    def __init__(self, engine: Engine, store: ColdStore, audit: TableAudit) -> None:
        facts = audit.facts
        self._engine = engine
        self._audit = audit
        self._schema = facts.schema
        self._cold = ColdSlice(facts.table, facts.metadata_location, facts.head, facts.schema)
        self._store = store

    def counts(self) -> tuple[ColdCount, ...]:
        sql = (
            f"SELECT {KAFKA_PARTITION}, count(*), count(*) - count({KAFKA_OFFSET}), "  # noqa: S608 - our names
            f"min({KAFKA_OFFSET}), max({KAFKA_OFFSET}) FROM {_NAME} GROUP BY 1 ORDER BY 1"
        )
        rows = self._run(sql, self._now()).to_pylist()
        return tuple(ColdCount(*row.values()) for row in rows)

    def all(self) -> RowsOfHead:
        """Read what a person is shown who says what the table covers."""
        facts = self._audit.facts
        # Tag and mirror mostly say one column.
        columns = {each.column(self._schema) for each in boundaries(facts.history)}
        oldest_us = {
            column.field_id: oldest
            for column in columns
            if column is not None and (oldest := self._oldest_us(column)) is not None
        }
        return RowsOfHead(facts.head, *self._partitions(), oldest_us)

    def _oldest_us(self, column: Column) -> int | None:
        sql = f"SELECT min({identifier(column.name)}) FROM {_NAME}"  # noqa: S608 - the name is quoted
        (oldest,) = self._run(sql, self._now()).column(0).cast(column.type)
        return time_us(oldest)

    def _partitions(self) -> tuple[tuple[PartitionRows, ...], int]:
        """Return the rows of each partition, and how many rows lack partition or offset."""
        places = f"SELECT {KAFKA_PARTITION} AS p, {KAFKA_OFFSET} AS o FROM {_NAME}"  # noqa: S608 - our names
        sql = (
            f"SELECT p, min(o), max(o), count(*), count(DISTINCT o) FROM ({places}) "  # noqa: S608
            "WHERE p IS NOT NULL AND o IS NOT NULL GROUP BY 1 ORDER BY 1"
        )
        rows = self._run(sql, self._now()).to_pylist()
        placed = tuple(PartitionRows(*row.values()) for row in rows)
        every = sum(count.rows for count in self.counts())
        return placed, every - sum(count.rows for count in placed)

    def read(
        self,
        ranges: Sequence[OffsetRange],
        columns: Sequence[str],
        *,
        snapshot_id: int | None = None,
    ) -> pa.Table:
        relation = self._now() if snapshot_id is None else self._before(snapshot_id)
        present = [name for name in columns if name in relation.arrow.names]
        where = " OR ".join(
            f"({KAFKA_PARTITION} = {item.partition} AND {KAFKA_OFFSET} >= {item.start} "
            f"AND {KAFKA_OFFSET} < {item.stop})"
            for item in ranges
        )
        kinds = self._schema.arrow
        listed = ", ".join(
            f"{in_bytes(identifier(name), kinds.field(name).type)} AS {identifier(name)}"
            for name in present
        )
        sql = f"SELECT {listed} FROM {_NAME} WHERE {_bounds(ranges)} AND ({where or 'false'})"  # noqa: S608
        rows = self._run(sql, relation)
        return rows.cast(
            pa.schema([pa.field(name, kinds.field(name).type) for name in present])
        )

    @contextlib.contextmanager
    def changes(self, upsert: Upsert) -> Iterator[EngineChanges]:
        segments, schema = self._engine.segments, change_columns(self._schema, upsert)
        name = segments.create(schema)
        try:
            key = [column.name for column in upsert.columns(self._schema)]
            yield EngineChanges(self._engine, name, schema, self._now(), key)
        finally:
            segments.drop(name)

    def _now(self) -> Relation:
        return Relation(_NAME, self._schema, (self._store.scan(self._cold),))

    def _before(self, snapshot_id: int) -> Relation:
        """Name an older snapshot's rows under the columns' names of today, those it had."""
        facts = self._audit.facts
        schema = self._audit.schemas[self._audit.schema_ids[snapshot_id]]
        rows = self._store.scan(
            ColdSlice(facts.table, facts.metadata_location, snapshot_id, schema)
        )
        names = {column.field_id: column.name for column in schema.columns}
        common = [column for column in self._schema.columns if column.field_id in names]
        listed = ", ".join(
            f"{identifier(names[each.field_id])} AS {identifier(each.name)}" for each in common
        )
        renamed: tuple[SqlRelation, ...] = ()
        # Without a file, there are no rows.
        if isinstance(rows, SqlRelation):
            renamed = (SqlRelation(f"SELECT {listed} FROM ({rows.sql})"),)  # noqa: S608 - names are quoted
        return Relation(_NAME, TableSchema(schema.schema_id, tuple(common)), renamed)

    def _run(self, sql: str, relation: Relation) -> pa.Table:
        document = self._engine.parse(sql)
        with self._engine.run(document, [relation]) as result:
            return pa.Table.from_batches(list(result), result.schema)


def _bounds(ranges: Sequence[OffsetRange]) -> str:
    """Return SQL that holds in all ranges: the engine skips files and row groups by it, not by alternatives."""
    if not ranges:
        return "true"
    return (
        f"{KAFKA_PARTITION} >= {min(item.partition for item in ranges)} "
        f"AND {KAFKA_PARTITION} <= {max(item.partition for item in ranges)} "
        f"AND {KAFKA_OFFSET} >= {min(item.start for item in ranges)} "
        f"AND {KAFKA_OFFSET} < {max(item.stop for item in ranges)}"
    )


def in_bytes(value: str, kind: pa.DataType) -> str:
    """Return SQL for a value whose UUIDs arrive as their 16 bytes: the engine hands them out as text.

    Members are taken by a function: ``e.a`` is of a column ``e``, if the table has one, and not of the element.
    """
    if not _holds_uuid(kind):
        return value
    if kind.equals(pa.uuid()):
        return f"unhex(replace(CAST({value} AS VARCHAR), '-', ''))"
    if pa.types.is_list(kind):
        return f"list_transform({value}, lambda e: {in_bytes('e', kind.value_type)})"
    if pa.types.is_map(kind):
        keys = in_bytes(f"map_keys({value})", pa.list_(kind.key_type))
        values = in_bytes(f"map_values({value})", pa.list_(kind.item_type))
        return f"CASE WHEN {value} IS NULL THEN NULL ELSE map({keys}, {values}) END"
    parts = ", ".join(
        f"{identifier(field.name)} := "
        f"{in_bytes(f'struct_extract({value}, {literal(field.name)})', field.type)}"
        for field in kind
    )
    return f"CASE WHEN {value} IS NULL THEN NULL ELSE struct_pack({parts}) END"


def _holds_uuid(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_holds_uuid(kind.field(index).type) for index in range(kind.num_fields))
    return bool(kind.equals(pa.uuid()))
