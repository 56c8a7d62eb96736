"""``planner.ports.TieringTarget`` over a ``MemoryColdStore``, publishing by the same compare-and-set."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from connectors.table_facts import TableFacts, with_units
from planner.errors import SnapshotExpired, TieringConflict
from planner.names import KAFKA_OFFSET, KAFKA_OP, KAFKA_PARTITION, TableName
from planner.offsets import joined
from planner.ports import Decoder, Log, Staged, TopicSource
from planner.schema import TableSchema
from planner.seam.binding import Binding, decoded_schema, parse_binding
from planner.seam.cut import Pin
from planner.seam.snapshots import History
from planner.seam.watermark import Outcomes, Watermark, parse_watermark
from planner.tiering.keyed import two_partitions
from planner.tiering.plan import TieringPlan
from planner.tiering.publish import advance, check_publish, check_schemas
from planner.tiering.triggers import ColdSurvey, parse_options
from tests.doubles.cold import MemoryColdStore, add_rows, no_fault, replace_rows


class MemoryTieringTarget:
    """One bound table of a store. ``fault`` is called before ``stage``, ``publish`` and after ``published``."""

    def __init__(
        self,
        store: MemoryColdStore,
        table: TableName,
        log: Log,
        decoder: Callable[[TableSchema, Binding], Decoder],
        *,
        fetch_timeout_s: float = 30.0,
        fault: Callable[[str], None] = no_fault,
    ) -> None:
        self._store = store
        self._table = table
        self._log = log
        self._decoder = decoder
        self._fetch_timeout_s = fetch_timeout_s
        self._fault = fault
        self._staged: dict[str, pa.Table] = {}

    def pin(self) -> Pin:
        return self._store.pin(self._table)

    def survey(self) -> ColdSurvey:
        facts = self._store.facts(self._table)
        head = facts.history.snapshots.get(facts.head or 0)
        mark = self.pin().watermark
        return ColdSurvey(
            options=parse_options(self._table, facts.properties),
            rows=(head.count("total-records") or 0) if head is not None else 0,
            published_at_s=None if mark is None else mark.published_s,
        )

    def stage(self, plan: TieringPlan) -> Staged:
        self._fault("stage")
        schema = plan.pin.schema
        decoder = self._decoder(schema, plan.binding)
        batches: list[pa.RecordBatch] = []
        outcomes, log_bytes = Outcomes(), 0
        # No splits: an advance without rows, such as a partition that was only just created.
        for batch in (
            self._log.fetch(
                TopicSource.of(decoder, plan.binding.topic, plan.start.topic_id),
                joined(plan.splits),
                timeout_s=self._fetch_timeout_s,
            )
            if plan.splits
            else ()
        ):
            log_bytes += batch.column("kafka_value").nbytes
            decoded = decoder.decode(batch)
            batches.append(decoded.rows)
            outcomes += decoded.outcomes
        run = str(uuid.uuid4())
        rows = pa.Table.from_batches(batches, decoded_schema(schema, plan.binding))
        if plan.binding.upsert is not None:
            rows = _newest(str(self._table), rows, _key_of(plan))
            count = pc.sum(pc.equal(rows[KAFKA_OP], "u")).as_py() or 0
            outcomes = outcomes.folded(count, rows.num_rows - count)
        self._staged[run] = rows
        return Staged(plan, run, outcomes, log_bytes)

    def publish(self, staged: Staged) -> Watermark:
        self._fault("publish")
        landed = _landed(self._store.facts(self._table), staged)
        if landed is not None:
            return landed
        rows = self._staged.get(staged.reference)
        if rows is None:
            raise SnapshotExpired(
                f"{self._table}: the staged rows were discarded; stage them again.",
                table=str(self._table),
                run=staged.reference,
            )
        marks: list[Watermark] = []

        def check(facts: TableFacts, history: History) -> Watermark:
            _check_same_table(staged.plan, facts)
            binding = parse_binding(facts.table, facts.properties)
            check_schemas(facts.table, staged.schemas, binding)
            check_publish(staged.plan, history, facts.head)
            # A table without a head was refused just now.
            head = cast("int", facts.head)
            mark = advance(staged.plan, staged.outcomes, run=staged.reference, head=head)
            marks.append(mark)
            return mark

        schema = staged.plan.pin.schema
        if staged.plan.binding.upsert is None:
            self._store.commit(self._table, "append", add_rows(rows, schema), check=check)
        else:
            change = replace_rows(rows, schema, _key_of(staged.plan))
            self._store.commit(self._table, "overwrite", change, check=check)
        self._fault("published")
        del self._staged[staged.reference]
        return marks[0]

    def discard(self, staged: Staged) -> None:
        self._staged.pop(staged.reference, None)

    def cancel(self) -> None:
        """Nothing to do: a stage in memory ends soon by itself."""


def _key_of(plan: TieringPlan) -> list[str]:
    upsert = plan.binding.upsert
    return [] if upsert is None else [each.name for each in upsert.columns(plan.pin.schema)]


def _newest(table: str, changes: pa.Table, key: list[str]) -> pa.Table:
    """Return the newest change of each key. Raises KeyInTwoPartitions."""
    newest: dict[tuple[object, ...], tuple[int, int]] = {}
    partition_of: dict[tuple[object, ...], int] = {}
    columns = [changes[name].to_pylist() for name in (KAFKA_PARTITION, KAFKA_OFFSET, *key)]
    for at, (partition, offset, *values) in enumerate(zip(*columns, strict=True)):
        other = partition_of.setdefault(tuple(values), partition)
        if other != partition:
            raise two_partitions(table, partition, offset, other)
        newest[tuple(values)] = max(newest.get(tuple(values), (-1, -1)), (offset, at))
    return changes.take(pa.array(sorted(at for _, at in newest.values()), pa.int64()))


def _landed(facts: TableFacts, staged: Staged) -> Watermark | None:
    """Return this run's watermark if its commit is in the table: an answer that was lost may be asked again."""
    snapshots = facts.history.snapshots
    snapshot = snapshots.get(facts.head or 0)
    while snapshot is not None:
        text = snapshot.watermark_text
        if text is not None and snapshot.operation != "replace":
            mark = parse_watermark(text)
            if mark.run == staged.reference:
                return mark
        snapshot = snapshots.get(snapshot.parent_id or 0)
    return None


def _check_same_table(plan: TieringPlan, facts: TableFacts) -> None:
    # A column or a name added since would be null in the staged rows and filled in the tail of the same records.
    binding = parse_binding(facts.table, facts.properties)
    schema = facts.schema if binding is None else with_units(facts.schema, binding)
    value = (facts.table_uuid, schema.schema_id, schema.fingerprint, binding)
    # What the watermark says is compared as such.
    binding = plan.binding.under(None)
    schema = plan.pin.schema
    if value != (plan.pin.table_uuid, schema.schema_id, schema.fingerprint, binding):
        raise TieringConflict(
            f"{facts.table}: the table, its schema or its binding changed since this tiering was planned; plan "
            f"again.",
            table=str(facts.table),
        )
