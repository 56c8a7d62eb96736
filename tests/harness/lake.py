"""Two topics, two tables and a server, all in memory, with a ledger of what is true beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from connectors.decoding.registry import decoder_for
from connectors.table_facts import TableFacts
from planner.errors import (
    CatalogUnavailable,
    FederationError,
    ForeignCommit,
    LogTruncated,
    LogUnavailable,
    OffsetsExpired,
    SnapshotExpired,
    TailGap,
    TopicRecreated,
    WatermarkMissing,
)
from planner.names import TableName
from planner.offsets import OffsetRange, OffsetVector
from planner.ports import Staged
from planner.schema import Column
from planner.seam.binding import MIRROR, Binding
from planner.seam.watermark import SUMMARY_KEY, Watermark
from planner.ticket import Ticket, TicketTable
from planner.tiering.plan import TieringBudget, TieringPlan, plan_tiering
from proxy.session import Session
from tests.doubles.cold import MemoryColdStore
from tests.doubles.followers import SteppedFollowers
from tests.doubles.log import MemoryLog, MemoryTransaction
from tests.doubles.tiering import MemoryTieringTarget
from tests.harness.ledger import (
    Place,
    Row,
    Slot,
    Topic,
    Version,
    chain_is_whole,
    hidden_swap,
    plain,
    rows,
)
from tests.harness.records import FLOWS_COLUMNS, HOSTS_COLUMNS, record
from tests.harness.serving import SESSION, answer_of, forget, plan, serve

FLOWS = TableName("lake", ("net",), "flows")
HOSTS = TableName("lake", ("net",), "hosts")
TABLES: Mapping[TableName, tuple[Binding, tuple[Column, ...]]] = {
    FLOWS: (Binding("flows", on_error="skip"), FLOWS_COLUMNS),
    HOSTS: (Binding("hosts", on_error="null"), HOSTS_COLUMNS),
}


@dataclass(frozen=True)
class Work:
    """What a tierer staged, with what the log had lost by then."""

    table: TableName
    target: MemoryTieringTarget
    plan: TieringPlan
    staged: Staged
    gone: frozenset[Place]
    truncations: int


class Lake:
    """``before`` is called with the name of each step that reads or commits: ``pin``, ``measure``, ``batch``,
    ``scan``, ``commit``."""

    def __init__(self, make_store: Callable[..., MemoryColdStore] = MemoryColdStore) -> None:
        self.before: Callable[[str], None] = lambda _: None
        self.log = MemoryLog(
            batch_rows=3,
            on_measure=lambda: self.before("measure"),
            on_batch=lambda: self.before("batch"),
        )
        self.store = make_store(fault=self._fault)
        self.catalog_answers = self.brokers_answer = True
        self.numbers = 0
        self.topics: dict[str, Topic] = {}
        self.transactions: list[tuple[MemoryTransaction, list[tuple[Topic, int, Slot]]]] = []
        self.versions: dict[int, Version] = {}
        #: Metadata files by location, as they were written.
        self.files: dict[str, TableFacts] = {}
        #: Snapshots whose files are gone, and those that hold offsets the log lost by truncation.
        self.lost: set[int] = set()
        self.rewound: set[int] = set()
        for table, (binding, _) in TABLES.items():
            self.create_topic(binding.topic, 2)
            self.create_table(table)
        self.start_server()

    # --- the server ---

    def start_server(self) -> None:
        """A new process: it knows no pin and holds no tail."""
        self.followers = SteppedFollowers()
        self.board, self.tails, self.statements = serve(
            self.store, self.log, followers=self.followers
        )

    def stop_server(self) -> None:
        forget(self.board, self.tails)

    def plan(
        self, sql: str, parameter: int | None = None, session: Session = SESSION
    ) -> tuple[bytes, Ticket]:
        bound = None
        if parameter is not None:
            bound = pa.RecordBatch.from_arrays([pa.array([parameter], pa.int64())], ["1"])
        return plan(self.statements, sql, bound, session)

    def open(self, ticket: bytes) -> pa.Table:
        return answer_of(self.statements, ticket)

    def ask(self, sql: str, **request: Any) -> pa.Table:
        """Ask in a session with these settings."""
        return self.open(self.plan(sql, session=replace(SESSION, **request))[0])

    def _fault(self, step: str) -> None:
        self.before(step)
        if step in ("pin", "tables") and not self.catalog_answers:
            raise CatalogUnavailable("the catalog does not answer.")

    # --- the log ---

    def create_topic(self, name: str, partitions: int) -> None:
        topic_id = self.log.create_topic(name, partitions)
        self.topics[name] = Topic(
            name, topic_id, [[] for _ in range(partitions)], [0] * partitions
        )

    def recreate_topic(self, name: str, partitions: int) -> None:
        for index, (_, slots) in reversed(list(enumerate(self.transactions))):
            if any(topic.name == name for topic, _, _ in slots):
                self.end_transaction(index, commit=False)
        self.log.delete_topic(name)
        self.create_topic(name, partitions)

    def produce(
        self, topic: Topic, partition: int, kind: str, transaction: int | None = None
    ) -> None:
        table = next(t for t, (binding, _) in TABLES.items() if binding.topic == topic.name)
        written = record(self.numbers, kind, self.store.facts(table).schema)
        self.numbers += 1
        slot = Slot(written, "committed" if transaction is None else "open")
        if transaction is None:
            offset = self.log.append(topic.name, partition, written)
        else:
            opened, slots = self.transactions[transaction]
            offset = opened.append(topic.name, partition, written)
            slots.append((topic, partition, slot))
        assert offset == len(topic.partitions[partition])
        topic.partitions[partition].append(slot)

    def end_transaction(self, index: int, *, commit: bool) -> None:
        transaction, slots = self.transactions.pop(index)
        transaction.commit() if commit else transaction.abort()
        for _, _, slot in slots:
            slot.state = "committed" if commit else "aborted"
        for topic, partition in dict.fromkeys((topic, number) for topic, number, _ in slots):
            topic.partitions[partition].append(Slot(None))

    def add_partition(self, topic: Topic) -> None:
        self.log.add_partitions(topic.name, len(topic.partitions) + 1)
        topic.partitions.append([])
        topic.starts.append(0)

    def retain(self, topic: Topic, partition: int, before: int) -> None:
        before = min(before, topic.end(partition))
        self.log.delete_records(topic.name, partition, before)
        topic.starts[partition] = max(topic.starts[partition], before)

    def compact_log(self, topic: Topic, partition: int) -> None:
        self.log.compact(topic.name, partition)
        topic.compact(partition)

    def truncate(self, topic: Topic, partition: int, end: int) -> None:
        self.log.truncate(topic.name, partition, end)
        del topic.partitions[partition][end:]
        topic.starts[partition] = min(topic.starts[partition], end)
        topic.truncations.append((partition, end))
        self.rewound |= {
            snapshot_id
            for snapshot_id, version in self.versions.items()
            if version.topic is topic and version.covered.get(partition, 0) > end
        }

    # --- the tables ---

    def create_table(self, table: TableName) -> None:
        binding, columns = TABLES[table]
        topic = self.topics[binding.topic]
        first = Watermark(
            cluster_id="memory",
            topic=topic.name,
            topic_id=topic.topic_id,
            next=OffsetVector.of(enumerate(topic.starts)),
            shape=binding.shape,
            run="create",
        )
        self.store.create(table, columns, binding, first)
        below = frozenset(
            (p, at) for p, start in enumerate(topic.starts) for at in range(start)
        )
        covered = dict(enumerate(topic.starts))
        self.note(table, Version(topic, covered, gone=below, is_ours=True))

    def bind_anew(self, table: TableName) -> None:
        self.store.drop(table)
        self.create_table(table)

    def note(self, table: TableName, version: Version | None = None) -> None:
        """Keep the metadata file just written; a new head is what ``version`` says."""
        facts = self.store.facts(table)
        self.files[facts.metadata_location] = facts
        if version is not None:
            assert facts.head is not None
            self.versions[facts.head] = version

    def head(self, table: TableName) -> Version:
        facts = self.store.facts(table)
        assert facts.head is not None
        return self.versions[facts.head]

    def change(self, table: TableName, commit: Callable[[], object], **changes: Any) -> None:
        """Let another writer commit: the new head is the old one but for ``changes``."""
        before = self.store.facts(table)
        if before.head in self.lost:
            return
        swapped = hidden_swap(before, self.versions)
        version = replace(self.head(table), is_ours=False, **changes)
        was_rewound = before.head in self.rewound
        commit()
        self.note(table, replace(version, swapped=swapped or version.swapped))
        if was_rewound:
            self.rewound.add(self.store.facts(table).head or 0)

    def delete(self, table: TableName, place: Place, *, rewriting: bool) -> None:
        def without(value: pa.Table) -> tuple[pa.Table, pa.Table]:
            if not value.num_columns:
                return value, value
            partition, offset = (pc.equal(value[str(at)], place[at - 1]) for at in (1, 2))
            saved = value.filter(pc.invert(pc.and_(partition, offset)))
            return saved, saved if rewriting else value.slice(0, 0)

        version = self.head(table)
        gone = version.gone | (
            {place} if place[1] < version.covered.get(place[0], 0) else set()
        )
        operation = "overwrite" if rewriting else "delete"
        self.change(table, lambda: self.store.commit(table, operation, without), gone=gone)

    def update(self, table: TableName, place: Place) -> None:
        schema = self.store.facts(table).schema
        column = next(value for value in schema.columns if value.name.startswith("host"))
        where = (pc.field("kafka_partition") == place[0]) & (
            pc.field("kafka_offset") == place[1]
        )
        version = self.head(table)
        value = {**version.updated.get(place, {}), column.field_id: "changed"}
        self.change(
            table,
            lambda: self.store.update(table, where, column.name, "changed"),
            updated={**version.updated, place: value},
        )

    def append(self, table: TableName, place: Place) -> None:
        schema = self.store.facts(table).schema
        row: dict[str, Any] = dict.fromkeys(schema.names)
        row |= {"kafka_partition": place[0], "kafka_offset": place[1]}
        added = pa.Table.from_pylist([row], schema.arrow)
        self.change(table, lambda: self.store.append(table, added), foreign=True)

    def compact(self, table: TableName, *, copies_summary: bool = False) -> None:
        """Rewrite all files; some writers copy the summary of the snapshot before, watermark and all."""
        text = self.store.facts(table).properties[MIRROR]
        self.change(
            table,
            lambda: self.store.commit(
                table,
                "replace",
                lambda value: (value, value),
                summary={SUMMARY_KEY: text} if copies_summary else None,
            ),
        )

    def expire(self, table: TableName, keep: int, *, orphans: bool) -> None:
        facts = self.store.facts(table)
        items: set[int] = set()
        current = facts.head
        while current is not None and current in facts.history.snapshots and len(items) < keep:
            items.add(current)
            current = facts.history.snapshots[current].parent_id
        self.store.expire(table, items, orphans=orphans)
        left = self.store.facts(table).history.snapshots
        self.lost |= set(facts.history.snapshots) - set(left)
        self.note(table)

    def lose(self, snapshot_id: int) -> None:
        self.store.lose(snapshot_id)
        self.lost.add(snapshot_id)

    # --- tierers ---

    def plan_tiering(
        self, table: TableName, max_rows: int
    ) -> tuple[MemoryTieringTarget, TieringPlan]:
        binding, _ = TABLES[table]
        target = MemoryTieringTarget(
            self.store, table, self.log, partial(decoder_for, str(table))
        )
        pin = target.pin()
        bounds = self.log.measure([binding.topic])[binding.topic]
        budget = TieringBudget(max_rows=max_rows, split_rows=3)
        return target, plan_tiering(pin, bounds, budget)

    def stage(self, table: TableName, target: MemoryTieringTarget, plan: TieringPlan) -> Work:
        staged = target.stage(plan)
        topic = self.topics[TABLES[table][0].topic]
        gone = {
            (split.partition, offset)
            for split in plan.splits
            for offset in range(split.start, split.stop)
            if topic.partitions[split.partition][offset].compacted
        }
        return Work(table, target, plan, staged, frozenset(gone), len(topic.truncations))

    def publish(self, work: Work) -> bool:
        """Return whether it committed; False when its commit was in the table already."""
        before = self.store.facts(work.table)
        parent = self.versions[before.head or 0]
        swapped = hidden_swap(before, self.versions)
        was_rewound = before.head in self.rewound
        work.target.publish(work.staged)
        after = self.store.facts(work.table)
        if after.head == before.head:
            return False
        covered = {**parent.covered, **work.plan.next.as_dict()}
        schemas = dict(parent.schemas)
        for partition, stop in covered.items():
            for offset in range(parent.covered.get(partition, 0), stop):
                schemas[partition, offset] = work.plan.pin.schema
        version = replace(
            parent,
            covered=covered,
            schemas=schemas,
            gone=parent.gone | work.gone,
            is_ours=True,
            swapped=swapped,
        )
        self.note(work.table, version)
        since = parent.topic.truncations[work.truncations :]
        if was_rewound or any(covered.get(partition, 0) > end for partition, end in since):
            self.rewound.add(after.head or 0)
        return True

    # --- what must be answered, and what may be refused ---

    def expected(
        self, ticket_table: TicketTable, ends: list[int]
    ) -> tuple[pa.Table, pa.Table] | None:
        """Rows that must be in the answer, and rows compaction may have taken; None: not promised."""
        facts = self.facts_of(ticket_table)
        assert facts.head == ticket_table.snapshot_id
        version = self.versions[ticket_table.snapshot_id or 0]
        if ticket_table.snapshot_id in self.rewound or hidden_swap(facts, self.versions):
            return None
        sure: list[Row] = []
        maybe: list[Row] = []
        for is_maybe, row in self._rows(version, facts, ends):
            (maybe if is_maybe else sure).append(row)
        schema = facts.schema.arrow
        return pa.Table.from_pylist(sure, schema), pa.Table.from_pylist(maybe, schema)

    def expected_version(self, ticket_table: TicketTable) -> pa.Table | None:
        """The rows of a version, in the schema it was written with; None: not promised."""
        snapshot_id = ticket_table.snapshot_id or 0
        version = self.versions[snapshot_id]
        facts = replace(
            self.facts_of(ticket_table),
            head=snapshot_id,
            schema=self.store.schema_of(snapshot_id),
        )
        if snapshot_id in self.rewound or hidden_swap(facts, self.versions):
            return None
        ends = [version.covered.get(at, 0) for at in range(len(version.topic.partitions))]
        whole = [row for _, row in self._rows(version, facts, ends)]
        return pa.Table.from_pylist(whole, facts.schema.arrow)

    @staticmethod
    def _rows(
        version: Version, facts: TableFacts, ends: list[int]
    ) -> Iterator[tuple[bool, Row]]:
        (binding,) = (of for of, _ in TABLES.values() if of.topic == version.topic.name)
        for _, is_maybe, row in rows(version, facts.schema, facts.table_uuid, binding, ends):
            yield is_maybe, plain(row)

    def facts_of(self, ticket_table: TicketTable) -> TableFacts:
        return self.files[f"memory://{ticket_table.table_uuid}/{ticket_table.metadata_file}"]

    def causes_of(self, facts: TableFacts) -> set[type[FederationError]]:
        """Why a cut of this metadata file must be refused now."""
        assert facts.head is not None
        version = self.versions[facts.head]
        topic = self.topics[version.topic.name]
        result: set[type[FederationError]] = set()
        if version.foreign:
            result.add(ForeignCommit)
        if not chain_is_whole(facts, self.versions):
            result.add(WatermarkMissing)
        if version.topic is not topic:
            return result | {TopicRecreated}
        for partition, (start, end) in enumerate(zip(topic.starts, topic.ends(), strict=True)):
            covered = version.covered.get(partition, 0)
            if start > covered:
                result.add(TailGap)
            if end < covered:
                result.add(LogTruncated)
        return result

    def may_refuse_to_plan(self, table: TableName) -> set[type[FederationError]]:
        facts = self.store.facts(table)
        result = self.causes_of(facts)
        if not self.catalog_answers:
            result.add(CatalogUnavailable)
        if facts.head in self.lost:
            # What an overwrite added cannot be looked up.
            result.add(SnapshotExpired)
        if not self.catalog_answers or facts.head in self.lost:
            # The newest metadata cannot be read, so the pin held is all the server has to go by.
            for status in self.board.status():
                if status.table == table and status.pin is not None:
                    result |= self.causes_of(self.files[status.pin.metadata_location])
        if not self.brokers_answer:
            result.add(LogUnavailable)
        return result

    def may_refuse_to_open(self, ticket_table: TicketTable) -> set[type[FederationError]]:
        result: set[type[FederationError]] = set()
        current = self.store.facts(ticket_table.table)
        if (
            current.table_uuid != ticket_table.table_uuid
            or ticket_table.snapshot_id in self.lost
        ):
            result.add(SnapshotExpired)
        if not self.catalog_answers:
            result.add(CatalogUnavailable)
        if not self.brokers_answer:
            result.add(LogUnavailable)
        return result | self.may_refuse_to_read(
            ticket_table.table, ticket_table.topic_id, ticket_table.ranges
        )

    def may_refuse_to_read(
        self, table: TableName, topic_id: str | None, ranges: Sequence[OffsetRange]
    ) -> set[type[FederationError]]:
        topic = self.topics[TABLES[table][0].topic]
        if topic.topic_id != topic_id:
            return {TopicRecreated}
        result: set[type[FederationError]] = set()
        for item in ranges:
            if item.start < topic.starts[item.partition]:
                result.add(OffsetsExpired)
            if item.stop > topic.end(item.partition):
                result.add(LogTruncated)
        return result
