"""Cold tables in memory: ``planner.ports.ColdStore``, with every move a real table's history can make.

Part of the product: the demo, the tests and anybody's own tests run on it. What a metadata file is to
Iceberg, a ``TableFacts`` is here: frozen, kept under a location of its own, and replaced as a whole.
"""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from connectors.table_facts import (
    COMMENT,
    TableFacts,
    decide_pin,
    earlier_line,
    with_statistics,
)
from planner.errors import BadConfig, CutExpired, SnapshotExpired, UnknownTable
from planner.names import (
    KAFKA_OFFSET,
    KAFKA_OP,
    KAFKA_PARTITION,
    LEADING_COLUMNS,
    TableName,
)
from planner.offsets import OffsetVector
from planner.ports import ArrowRelation, ColdTotals
from planner.reading.filters import EVERY_FILE, EVERYTHING, Bounds, FileSpan, ScanFilter
from planner.repairs import AddedRows
from planner.schema import METADATA_TYPES, Column, TableSchema, check_federated
from planner.seam.binding import MIRROR, Binding, check_keyed
from planner.seam.cut import ColdSlice, Pin, PinReference
from planner.seam.snapshots import History, Retained, Snapshot
from planner.seam.watermark import SUMMARY_KEY, Watermark, format_watermark

#: From the rows before, those after and of them those added. Columns are named by field id.
Change: TypeAlias = Callable[[pa.Table], tuple[pa.Table, pa.Table]]


#: Sees the state a commit builds on, refuses by raising, or gives the watermark to write.
Check: TypeAlias = Callable[[TableFacts, History], Watermark | None]


def accept_any(_facts: TableFacts, _history: History) -> None:
    """Commit as a writer that knows no watermark."""


def no_fault(step: str) -> None:
    """Inject nothing."""


@dataclass(frozen=True, slots=True)
class _Data:
    """Rows of a snapshot, and of them those it added. Columns are named by field id; ``schema`` wrote them."""

    rows: pa.Table
    added: pa.Table
    schema: TableSchema


class MemoryColdStore:
    """Tables by name. Thread-safe.

    ``fault`` is called with the name of each step (``tables``, ``pin``, ``scan``, ``commit``) before it is
    taken, and injects a failure by raising, or another writer by committing.
    """

    def __init__(
        self,
        *,
        fault: Callable[[str], None] = no_fault,
        clock: Callable[[], float] = time.time,
        older_files: int = 100,
    ) -> None:
        """``older_files``: how many metadata files before the newest the resolver may go by."""
        self.older_files = older_files
        self._fault = fault
        self._clock = clock
        self._lock = threading.RLock()
        self._ids = itertools.count(1)
        self._current: dict[TableName, TableFacts] = {}
        self._files: dict[str, TableFacts] = {}
        self._data: dict[int, _Data] = {}
        #: By table UUID, when each snapshot became the head: microseconds since 1970, snapshot id.
        self._log: dict[str, list[tuple[int, int]]] = {}

    # The port.

    def catalogs(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(sorted({table.catalog for table in self._current}))

    def tables(self, catalog: str | None = None) -> tuple[TableName, ...]:
        self._fault("tables")
        with self._lock:
            return tuple(
                sorted(value for value in self._current if catalog in (None, value.catalog))
            )

    def pin(self, table: TableName) -> Pin:
        self._fault("pin")
        return decide_pin(self.facts(table), self)

    def pin_at(self, reference: PinReference) -> Pin:
        self._fault("pin")
        table, snapshot_id = reference.table, reference.snapshot_id
        current = self.facts(table)
        location = f"{current.metadata_location.rsplit('/', 1)[0]}/{reference.metadata_file}"
        value = self._files.get(location)
        if value is not None and (value.head, value.schema.schema_id) != (
            snapshot_id,
            reference.schema_id,
        ):
            value = self._version(value, snapshot_id)
        if value is None or (value.table_uuid, value.schema.schema_id) != (
            reference.table_uuid,
            reference.schema_id,
        ):
            raise SnapshotExpired(
                f"{table}: the metadata file the ticket names is not one of this table's any more; plan the "
                f"statement again.",
                table=str(table),
                snapshot_id=snapshot_id,
            )
        return decide_pin(value, self)

    def pin_version(self, pin: Pin, snapshot_id: int) -> Pin:
        value = self._version(self._file(pin), snapshot_id)
        if value is None:
            raise CutExpired(
                f"{pin.table}: snapshot {snapshot_id} is not one of the {len(self.retained(pin).ids)} that the "
                f"table retains.",
                table=str(pin.table),
                snapshot_id=snapshot_id,
            )
        return decide_pin(value, self)

    def retained(self, pin: Pin) -> Retained:
        facts = self._file(pin)
        with self._lock:
            log = tuple(self._log.get(facts.table_uuid, ()))
        return Retained(frozenset(facts.history.snapshots), log)

    def _file(self, pin: Pin) -> TableFacts:
        value = self._files.get(pin.metadata_location)
        if value is None:
            raise _gone(pin.snapshot_id)
        return value

    def _version(self, facts: TableFacts, snapshot_id: int | None) -> TableFacts | None:
        """Return a metadata file as if another snapshot it retains were its head, in that one's schema.

        The name mapping is the file's own all the same.
        """
        data = self._data.get(snapshot_id or 0)
        if data is None or snapshot_id not in facts.history.snapshots:
            return None
        mapped = {column.field_id: column.keys for column in facts.schema.columns}
        columns = tuple(
            replace(column, keys=tuple(dict.fromkeys((column.name, *names))))
            for column in data.schema.columns
            for names in (mapped.get(column.field_id, column.keys),)
        )
        return replace(facts, head=snapshot_id, schema=replace(data.schema, columns=columns))

    def scan(
        self,
        cold: ColdSlice,
        expected: ScanFilter = EVERYTHING,
        names: Collection[str] | None = None,
        span: FileSpan = EVERY_FILE,
    ) -> ArrowRelation:
        del expected, names  # all rows are in memory
        assert span.is_whole  # nothing here has files
        self._fault("scan")
        if cold.snapshot_id is None:
            return ArrowRelation(cold.schema.arrow.empty_table())
        data = self._rows(cold.snapshot_id)
        if cold.metadata_location not in self._files:
            raise _gone(cold.snapshot_id)
        return ArrowRelation(_project(data.rows, cold.schema))

    # What the tierer builds on.

    def totals(self, cold: ColdSlice) -> ColdTotals:
        """See ``planner.ports.ColdStore.totals``. Nothing here has files."""
        return ColdTotals(records=self.scan(cold).table.num_rows)

    def count_rows(self, cold: ColdSlice) -> int | None:
        """See ``planner.ports.ColdStore.count_rows``."""
        return self.scan(cold).table.num_rows

    def bounds(self, cold: ColdSlice, name: str) -> Bounds | None:
        """See ``planner.ports.ColdStore.bounds``. Each row counts as a file."""
        return Bounds.exact(self.scan(cold).table[name].combine_chunks())

    def file_positions(self, cold: ColdSlice, expected: ScanFilter = EVERYTHING) -> None:
        """See ``planner.ports.ColdStore.file_positions``. Nothing here has files."""

    def count_files(self, cold: ColdSlice, expected: ScanFilter = EVERYTHING) -> int | None:
        """See ``planner.ports.ColdStore.count_files``."""
        del cold, expected
        return None

    def facts(self, table: TableName) -> TableFacts:
        """Return what the table's newest metadata file says."""
        with self._lock:
            if table not in self._current:
                raise UnknownTable(f"{table}: there is no such table.", table=str(table))
            return self._current[table]

    def schema_of(self, snapshot_id: int) -> TableSchema:
        """Return the schema a retained snapshot was written with."""
        return self._rows(snapshot_id).schema

    def commit(
        self,
        table: TableName,
        operation: str,
        rows: Change,
        *,
        check: Check = accept_any,
        summary: Mapping[str, str] | None = None,
    ) -> int:
        """Commit a snapshot in one transaction and return its id.

        A watermark given by ``check`` is written with its tag and mirror. ``summary`` is added to the counts.
        """
        self._fault("commit")
        with self._lock:
            facts = self.facts(table)
            history = facts.history
            if facts.head is not None:
                history = with_statistics(history, facts.head, self)
            mark = check(facts, history)
            before = _no_rows() if facts.head is None else self._rows(facts.head).rows
            after, added = rows(before)
            counts = {
                "added-records": str(added.num_rows),
                "deleted-records": str(before.num_rows + added.num_rows - after.num_rows),
                "total-records": str(after.num_rows),
                "total-delete-files": "0",
            }
            snapshot = self._snapshot(
                facts,
                operation,
                {**(summary or {}), **counts},
                mark,
            )
            self._data[snapshot.snapshot_id] = _Data(after, added, facts.schema)
            history = replace(
                facts.history,
                snapshots={**facts.history.snapshots, snapshot.snapshot_id: snapshot},
            )
            properties = facts.properties
            if mark is not None:
                text = format_watermark(mark)
                history = replace(history, tagged_id=snapshot.snapshot_id, mirror=text)
                properties = {**properties, MIRROR: text}
            self._replace(
                replace(
                    facts, head=snapshot.snapshot_id, history=history, properties=properties
                )
            )
            return snapshot.snapshot_id

    # Moves of a table's owner and of other writers.

    def create(
        self,
        table: TableName,
        columns: Sequence[Column],
        binding: Binding | None = None,
        first: Watermark | None = None,
        *,
        comment: str | None = None,
    ) -> None:
        """Create a table; a bound one gets the leading columns and its first watermark.

        Raises:
            BadConfig: the table exists.
            BadBinding, UnsupportedType: as ``check_federated`` and ``check_keyed``.
        """
        leading = (
            [Column(0, name, METADATA_TYPES[name]) for name in LEADING_COLUMNS]
            if binding
            else []
        )
        schema = TableSchema(
            0,
            tuple(
                replace(column, field_id=index, keys=column.keys or (column.name,))
                for index, column in enumerate((*leading, *columns), start=1)
            ),
            frozenset(binding.upsert.key if binding and binding.upsert else ()),
        )
        properties: dict[str, str] = {} if comment is None else {COMMENT: comment}
        if binding is not None:
            check_federated(table, schema)
            check_keyed(str(table), schema, binding)
            properties |= binding.properties()
        with self._lock:
            if table in self._current:
                raise BadConfig(f"{table}: the table exists already.", table=str(table))
            table_uuid = str(uuid.uuid4())
            location = f"memory://{table_uuid}/0"
            self._replace(
                TableFacts(table, table_uuid, location, None, schema, properties, History({}))
            )
            if first is not None:
                self.commit(table, "append", _unchanged, check=lambda *_: first)

    def append(self, table: TableName, rows: pa.Table) -> int:
        """Append as another writer does: without looking at any watermark."""
        return self.commit(table, "append", add_rows(rows, self.facts(table).schema))

    def delete(self, table: TableName, where: pc.Expression) -> int:
        """Delete the rows that match, by rewriting the others: an ``overwrite``, as Iceberg says."""

        def rewritten(value: pa.Table) -> tuple[pa.Table, pa.Table]:
            saved = self._filter(table, value, ~where)
            return saved, saved

        return self.commit(table, "overwrite", rewritten)

    def update(self, table: TableName, where: pc.Expression, column: str, value: object) -> int:
        """Set one column of the rows that match, by rewriting them."""
        schema = self.facts(table).schema

        def rewritten(entry: pa.Table) -> tuple[pa.Table, pa.Table]:
            changed = _project(self._filter(table, entry, where), schema)
            index = schema.names.index(column)
            values = pa.array([value] * changed.num_rows, schema.columns[index].type)
            added = _by_field_id(changed.set_column(index, column, values), schema)
            return _concat(self._filter(table, entry, ~where), added), added

        return self.commit(table, "overwrite", rewritten)

    def compact(self, table: TableName) -> int:
        """Rewrite all files: a ``replace`` without a watermark."""
        return self.commit(table, "replace", lambda value: (value, value))

    def rollback(self, table: TableName, snapshot_id: int) -> None:
        self._change(table, lambda facts: replace(facts, head=snapshot_id))

    def expire(self, table: TableName, keep: Set[int], *, orphans: bool = False) -> None:
        """Expire all snapshots but ``keep``, the head and the tagged one.

        ``orphans``: as pyiceberg does it, which also takes the parent id of what it leaves without a parent.
        """

        def expired(facts: TableFacts) -> TableFacts:
            saved = {*keep, facts.head, facts.history.tagged_id}
            snapshots = facts.history.snapshots
            for snapshot_id in set(snapshots) - saved:
                self._data.pop(snapshot_id, None)
            left = {
                key: replace(snapshot, parent_id=None)
                if orphans and snapshot.parent_id not in saved
                else snapshot
                for key, snapshot in snapshots.items()
                if key in saved
            }
            return replace(facts, history=replace(facts.history, snapshots=left))

        self._change(table, expired)

    def tag(self, table: TableName, snapshot_id: int | None) -> None:
        """Move the tag ``thermocline``; None removes it."""
        self._change(
            table,
            lambda facts: replace(facts, history=replace(facts.history, tagged_id=snapshot_id)),
        )

    def set_properties(self, table: TableName, changes: Mapping[str, str | None]) -> None:
        """Set table properties; None removes one."""

        def changed(facts: TableFacts) -> TableFacts:
            entry = {**facts.properties, **changes}
            properties = {key: value for key, value in entry.items() if value is not None}
            history = replace(facts.history, mirror=properties.get(MIRROR))
            return replace(facts, properties=properties, history=history)

        self._change(table, changed)

    def set_columns(
        self, table: TableName, change: Callable[[tuple[Column, ...]], tuple[Column, ...]]
    ) -> None:
        """Evolve the schema, or edit the name mapping; columns keep their rows by field id.

        As in Iceberg, a schema that the table had before gets its old id back, and the mapping has no part in it.
        """

        def evolved(facts: TableFacts) -> TableFacts:
            columns = change(facts.schema.columns)
            ids = {
                _unmapped(file.schema.columns): file.schema.schema_id
                for file in self._files.values()
                if file.table_uuid == facts.table_uuid
            }
            schema_id = ids.get(_unmapped(columns), max(ids.values()) + 1)
            return replace(
                facts, schema=replace(facts.schema, schema_id=schema_id, columns=columns)
            )

        self._change(table, evolved)

    def lose(self, snapshot_id: int) -> None:
        """Remove a snapshot's rows and leave the metadata, as a clean-up of files gone wrong does."""
        with self._lock:
            del self._data[snapshot_id]

    def drop(self, table: TableName) -> None:
        with self._lock:
            facts = self._current.pop(table)
            for location in [
                key
                for key, value in self._files.items()
                if value.table_uuid == facts.table_uuid
            ]:
                del self._files[location]

    def _change(self, table: TableName, change: Callable[[TableFacts], TableFacts]) -> None:
        with self._lock:
            self._replace(change(self.facts(table)))

    def _replace(self, facts: TableFacts) -> None:
        root, _, name = facts.metadata_location.rpartition("/")
        version = int(name.partition(".")[0]) + 1
        facts = replace(facts, metadata_location=f"{root}/{version}.metadata.json")
        self._files[facts.metadata_location] = facts
        self._current[facts.table] = facts
        log = self._log.setdefault(facts.table_uuid, [])
        if facts.head is not None and (not log or log[-1][1] != facts.head):
            log.append((int(self._clock() * 1_000_000), facts.head))

    def _snapshot(
        self,
        facts: TableFacts,
        operation: str,
        summary: dict[str, str],
        mark: Watermark | None,
    ) -> Snapshot:
        if mark is not None:
            summary[SUMMARY_KEY] = format_watermark(mark)
        number = max(
            (snapshot.sequence_number for snapshot in facts.history.snapshots.values()),
            default=0,
        )
        return Snapshot(
            next(self._ids),
            facts.head,
            number + 1,
            operation,
            summary,
            committed_ms=int(self._clock() * 1000),
        )

    def _rows(self, snapshot_id: int) -> _Data:
        with self._lock:
            data = self._data.get(snapshot_id)
        if data is None:
            raise _gone(snapshot_id)
        return data

    def _filter(self, table: TableName, rows: pa.Table, where: pc.Expression) -> pa.Table:
        """Filter by an expression over column names; null counts as no match, as in SQL."""
        schema = self.facts(table).schema
        named = _project(rows, schema).append_column(
            "#", pa.array(range(rows.num_rows), pa.int64())
        )
        return rows.take(named.filter(where)["#"])

    def added_next(self, snapshot_id: int) -> OffsetVector | None:
        """Return 1 + the greatest offset per partition among the rows a snapshot added; None with nulls."""
        added = self.rows(snapshot_id)
        return None if added.without_offset else added.next

    def live_rows(self, snapshot_id: int) -> int:
        """See ``connectors.table_facts.Evidence.live_rows``."""
        return int(self._rows(snapshot_id).rows.num_rows)

    def single_keys(self, snapshot_id: int, key: tuple[int, ...]) -> bool:
        """See ``connectors.table_facts.Evidence.single_keys``."""
        rows = self._rows(snapshot_id).rows
        keys = rows.group_by(list(map(str, key))).aggregate([])
        return bool(keys.num_rows == rows.num_rows)

    def reach(self, snapshot_id: int, below: OffsetVector) -> OffsetVector | None:
        """See ``connectors.table_facts.Evidence.reach``."""
        del below  # exact everywhere
        rows, reach = _places(self._rows(snapshot_id).rows)
        return None if rows.num_rows != rows.drop_null().num_rows else reach

    def earlier(self, snapshot_id: int) -> Mapping[int, Snapshot]:
        """See ``connectors.table_facts.Evidence.earlier``."""
        with self._lock:
            (root,) = {
                location.rpartition("/")[0]
                for location, facts in self._files.items()
                if snapshot_id in facts.history.snapshots
            }
            numbered = {
                int(name.partition(".")[0]): facts.history.snapshots
                for location, facts in self._files.items()
                for folder, _, name in (location.rpartition("/"),)
                if folder == root
            }
        newest_first = [numbered[number] for number in sorted(numbered, reverse=True)]
        return earlier_line(snapshot_id, newest_first[1 : 1 + self.older_files])

    def rows(self, snapshot_id: int) -> AddedRows:
        """See ``connectors.repairs.RepairEvidence.rows``."""
        rows, reach = _places(self._rows(snapshot_id).added)
        return AddedRows(rows.num_rows, reach, rows.num_rows - rows.drop_null().num_rows)


def _places(added: pa.Table) -> tuple[pa.Table, OffsetVector]:
    # The leading columns of a bound table are its first fields.
    partition, offset = (
        str(1 + LEADING_COLUMNS.index(name)) for name in (KAFKA_PARTITION, KAFKA_OFFSET)
    )
    if added.num_rows == 0:
        return pa.table({}), OffsetVector()
    places = added.select([partition, offset])
    reach = places.drop_null().group_by(partition).aggregate([(offset, "max")])
    return places, OffsetVector.of(
        (row[partition], row[f"{offset}_max"] + 1) for row in reach.to_pylist()
    )


def _gone(snapshot_id: int | None) -> SnapshotExpired:
    return SnapshotExpired(
        f"snapshot {snapshot_id} is gone: it was expired or removed; plan the statement again.",
        snapshot_id=snapshot_id,
    )


def add_rows(rows: pa.Table, schema: TableSchema) -> Change:
    """Append ``rows``, written with ``schema``."""
    added = _by_field_id(rows, schema)
    return lambda value: (_concat(value, added), added)


def replace_rows(changes: pa.Table, schema: TableSchema, key: Sequence[str]) -> Change:
    """Put each change in the place of its key's row: its own row, or none. One change for each key."""
    ids = {column.name: str(column.field_id) for column in schema.columns}
    keys = changes.select(list(key)).rename_columns([ids[name] for name in key])
    rows = changes.filter(pc.equal(changes[KAFKA_OP], "u")).drop_columns(KAFKA_OP)
    added = _by_field_id(rows, schema)

    def replaced(before: pa.Table) -> tuple[pa.Table, pa.Table]:
        if not before.num_columns:
            return added, added
        left = before.join(keys, keys.column_names, join_type="left anti")
        return _concat(left.select(before.column_names), added), added

    return replaced


def _unmapped(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    return tuple(replace(column, keys=(), epoch_unit=None) for column in columns)


def _unchanged(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    return table, table.slice(0, 0)


def _no_rows() -> pa.Table:
    return pa.table({})


def _by_field_id(rows: pa.Table, schema: TableSchema) -> pa.Table:
    cast = rows.select(schema.names).cast(schema.arrow)
    return cast.rename_columns([str(column.field_id) for column in schema.columns])


def _concat(table: pa.Table, added: pa.Table) -> pa.Table:
    if table.num_columns == 0:
        return added
    return pa.concat_tables([table, added], promote_options="permissive")


def _project(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """Read rows by field id: a column they were written without is null in them."""
    arrays = [
        rows[str(column.field_id)].cast(column.type)
        if str(column.field_id) in rows.column_names
        else pa.nulls(rows.num_rows, column.type)
        for column in schema.columns
    ]
    return pa.table(arrays, schema=schema.arrow)
