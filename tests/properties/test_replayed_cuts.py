"""A cut that is asked again gives what it gave, or says by name that it cannot be had any more.

One table whose columns are renamed, renamed back, mapped, widened, added and dropped by turns, while tierers publish
(also what they planned before), rows age out, retention and expiry go on and servers restart. Cuts are taken all along, and after
each event the kept ones are asked again, of two servers.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from connectors.decoding.registry import decoder_for
from connectors.table_facts import TableFacts
from planner.errors import CutExpired, StalePlan, TieringConflict
from planner.maintenance.retention import aged
from planner.names import TableName
from planner.offsets import OffsetVector
from planner.ports import Staged
from planner.schema import Column
from planner.seam.binding import Binding, parse_binding
from planner.seam.boundary import RetentionBoundary
from planner.seam.resolver import resolve
from planner.seam.snapshots import History
from planner.seam.watermark import LastPublish, Outcomes, Watermark
from planner.tiering.plan import TieringBudget, plan_tiering
from tests.doubles.cold import MemoryColdStore
from tests.doubles.log import MemoryLog, MemoryRecord
from tests.doubles.tiering import MemoryTieringTarget
from tests.harness.renaming import also_called, commented, not_called, renamed
from tests.harness.serving import SESSION, answer_of, forget, plan, serve

TABLE, TOPIC = TableName("lake", ("net",), "ledger"), "ledger"
PARTITIONS, NAMES = 2, ("s", "s2", "t")
COLUMNS = [
    Column(0, "n", pa.int32()),
    Column(0, "s", pa.string()),
    Column(0, "d", pa.struct([pa.field("a", pa.int32())])),
]
Rows = list[dict[str, object]]


@dataclass(frozen=True)
class SavedCut:
    """A cut, and what it gave."""

    sql: str
    text: str
    rows: Rows


class World:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.events: Counter[str] = Counter()
        self.log = MemoryLog(batch_rows=5)
        topic_id = self.log.create_topic(TOPIC, PARTITIONS)
        self.store = MemoryColdStore()
        binding = Binding(TOPIC, on_error="skip")
        begin = OffsetVector.of((partition, 0) for partition in range(PARTITIONS))
        first = Watermark("memory", TOPIC, topic_id, begin, binding.shape, "create")
        self.store.create(TABLE, COLUMNS, binding, first)
        self.servers = [serve(self.store, self.log) for _ in range(2)]
        self.target = MemoryTieringTarget(
            self.store, TABLE, self.log, partial(decoder_for, str(TABLE))
        )
        self.now_s = 0
        self.staged: list[Staged] = []
        self.saved_cuts: list[SavedCut] = []

    def close(self) -> None:
        for board, tails, _ in self.servers:
            forget(board, tails)

    def ask(self, server: int, sql: str, cut: str | None = None) -> Rows:
        _, _, statements = self.servers[server]
        session = SESSION if cut is None else replace(SESSION, cut=cut)
        ticket, _ = plan(statements, sql, session=session)
        return answer_of(statements, ticket).to_pylist()

    # --- what happens ---

    def produce(self) -> None:
        """Producers learn of a name one by one, and before or after the table does."""
        for _ in range(self.rng.randrange(1, 6)):
            partition, n = self.rng.randrange(PARTITIONS), self.rng.randrange(99)
            name = self.rng.choice(NAMES)
            value = {"n": n, name: "x" * n, "d": {"a": n}, "extra": n}
            self.now_s += 1
            # Some come late, and some have no time at all.
            late = self.rng.choice([0, 0, 0, 5, 30])
            at_ms = 1000 * max(0, self.now_s - late) if self.rng.random() < 0.9 else None
            record = MemoryRecord(json.dumps(value).encode(), timestamp_ms=at_ms)
            self.log.append(TOPIC, partition, record)

    def stage(self) -> None:
        """What was planned, and is published later or never."""
        bounds = self.log.measure([TOPIC])[TOPIC]
        plan = plan_tiering(
            self.target.pin(), bounds, TieringBudget(max_rows=self.rng.randrange(1, 9))
        )
        self.staged.append(self.target.stage(plan))

    def publish(self) -> None:
        """Whatever was staged and when: it is refused, or changes no answer."""
        if not self.staged:
            return
        before = self.whole()
        try:
            self.target.publish(self.staged.pop(self.rng.randrange(len(self.staged))))
        except TieringConflict:
            self.events["conflict"] += 1
        else:
            self.events["published"] += 1
        assert self.whole() == before

    def tier(self) -> None:
        self.stage()
        self.staged = self.staged[-1:]
        self.publish()

    def tier_while_names_change(self) -> None:
        self.stage()
        self.staged = self.staged[-1:]
        self.rng.choice([self.rename_and_back, self.map_name])()
        self.publish()

    def age(self) -> None:
        """Rows leave cold and tail in one commit: what is left is what was there, without those before the boundary."""
        before = self.whole()
        boundary = RetentionBoundary(3, 1_000_000 * self.rng.randrange(self.now_s + 1))
        limit = boundary.limit(self.store.facts(TABLE).schema.columns[2])

        def check(facts: TableFacts, history: History) -> Watermark:
            assert facts.head is not None
            mark = resolve(history, facts.head, table=str(TABLE))
            if not boundary.is_after(mark.boundary):
                raise TieringConflict("the boundary is beyond already.")
            binding = parse_binding(TABLE, facts.properties)
            assert binding is not None
            last, commit = LastPublish(0, None, Outcomes()), (f"age {self.now_s}", facts.head)
            return aged(mark, boundary, last, facts.schema, binding, commit)

        def without_old(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
            # Columns are named by field id; before the first publish there are none.
            if not rows.num_rows:
                return rows, rows
            old = pc.fill_null(pc.less(rows["3"], limit), fill_value=False)
            rows = rows.filter(pc.invert(old))
            return rows, rows

        try:
            self.store.commit(TABLE, "overwrite", without_old, check=check)
        except TieringConflict:
            assert self.whole() == before
            return
        left = [
            row
            for row in before
            if (at := row["kafka_timestamp"]) is None or at >= limit.as_py()
        ]
        assert self.whole() == left
        self.events["aged"] += len(left) < len(before)

    def whole(self) -> Rows:
        self.servers[0][0].refresh(TABLE)
        return self.ask(0, f"SELECT * FROM {TABLE} ORDER BY kafka_partition, kafka_offset")

    def name(self) -> str:
        """What the text column is called now."""
        return self.store.facts(TABLE).schema.columns[4].name

    def rename(self) -> None:
        now = self.name()
        self.store.set_columns(TABLE, renamed(now, "s" if now == "s2" else "s2"))

    def rename_and_back(self) -> None:
        self.rename()
        self.rename()

    def map_name(self) -> None:
        change = self.rng.choice([also_called, not_called])
        self.store.set_columns(TABLE, change(self.name(), "t"))

    def comment(self) -> None:
        self.store.set_columns(TABLE, commented("n", self.rng.choice(["", "a number"])))

    def widen(self) -> None:
        """``n``, or the member of ``d``; once each."""
        at, kind = self.rng.choice(
            [(3, pa.int64()), (5, pa.struct([pa.field("a", pa.int64())]))]
        )
        self.store.set_columns(
            TABLE,
            lambda value: (*value[:at], replace(value[at], type=kind), *value[at + 1 :]),
        )

    def add_or_drop_column(self) -> None:
        extra = Column(7, "extra", pa.int32(), keys=("extra",))
        self.store.set_columns(
            TABLE, lambda items: items[:6] if len(items) > 6 else (*items, extra)
        )

    def retain(self) -> None:
        """The log loses what is cold."""
        mark = self.target.pin().watermark
        assert mark is not None
        for partition, offset in mark.next:
            self.log.delete_records(TOPIC, partition, offset)

    def expire(self) -> None:
        self.store.expire(TABLE, set())

    def roll_back(self) -> None:
        """Somebody does, to one of the last snapshots, also over a move of the boundary; what was staged may still be published."""
        facts = self.store.facts(TABLE)
        line = [each.snapshot_id for each in facts.history.line(facts.head)]
        start = {
            partition.partition: partition.log_start
            for partition in self.log.measure([TOPIC])[TOPIC].partitions
        }
        for snapshot_id in self.rng.sample(line[1:4], len(line[1:4])):
            mark = resolve(facts.history, snapshot_id, table=str(TABLE))
            # Below what retention of the log took it would be refused.
            if all(mark.offset(partition) >= least for partition, least in start.items()):
                self.store.rollback(TABLE, snapshot_id)
                self.events["rolled back"] += 1
                return

    def restart(self) -> None:
        forget(*self.servers[1][:2])
        self.servers[1] = serve(self.store, self.log)

    def take_cut(self) -> None:
        columns = ", ".join(
            f"sum(coalesce({self.text_of(column)}, -1)) AS c{column.field_id}"
            for column in self.store.facts(TABLE).schema.columns
            if column.name != "kafka_timestamp"
        )
        server = self.rng.randrange(2)
        self.servers[server][0].refresh(TABLE)
        sql = f"SELECT count(*) AS rows, {columns} FROM {TABLE}"
        # None, where all rows aged out.
        for row in self.ask(
            server, f"{sql.replace(' FROM', ', thermocline_cut() AS cut FROM')} GROUP BY cut"
        ):
            self.saved_cuts.append(SavedCut(sql, str(row.pop("cut")), [row]))

    def text_of(self, column: Column) -> str:
        if column.type == pa.string():
            return f"length({column.name})"
        return f"{column.name}.a" if pa.types.is_struct(column.type) else column.name

    # --- what must hold ---

    def replay(self, saved: SavedCut) -> None:
        for server in range(2):
            if self.rng.random() < 0.5:
                self.servers[server][0].refresh(TABLE)
            try:
                rows = self.ask(server, saved.sql, saved.text)
            except (CutExpired, StalePlan) as error:
                self.events[type(error).__name__] += 1
            else:
                assert rows == saved.rows, self.store.facts(TABLE)
                self.events["replayed"] += 1

    def step(self) -> None:
        events: list[tuple[int, Callable[[], None]]] = [
            (6, self.produce),
            (5, self.take_cut),
            (3, self.tier),
            (2, self.stage),
            (3, self.publish),
            (2, self.tier_while_names_change),
            (2, self.rename),
            (1, self.rename_and_back),
            (3, self.map_name),
            (1, self.comment),
            (1, self.widen),
            (1, self.add_or_drop_column),
            (3, self.age),
            (1, self.retain),
            (1, self.expire),
            (1, self.roll_back),
            (1, self.restart),
        ]
        (event,) = self.rng.choices(
            [value for _, value in events], [many for many, _ in events]
        )
        event()
        chosen = self.saved_cuts[-2:] + self.rng.sample(
            self.saved_cuts[:-2], min(2, len(self.saved_cuts[:-2]))
        )
        for saved in chosen:
            self.replay(saved)


def played(seed: int, steps: int) -> Counter[str]:
    world = World(seed)
    try:
        world.produce()
        for _ in range(steps):
            world.step()
        return world.events
    finally:
        world.close()


def test_a_cut_asked_again_gives_what_it_gave_or_says_why_not() -> None:
    observed = sum((played(seed, 40) for seed in (1, 2, 3)), Counter[str]())
    must = {"replayed", "CutExpired", "conflict", "published", "aged", "rolled back"}
    assert must <= set(observed), observed


def test_a_cut_is_not_answered_by_rows_that_were_tiered_anew_below_its_era() -> None:
    world = World(0)
    try:
        world.log.append(TOPIC, 0, MemoryRecord(json.dumps({"n": 1, "s2": "text"}).encode()))
        first = world.store.facts(TABLE).head
        assert first is not None
        world.tier()
        # The record's text is NULL in cold, and records above it may have it by its other name.
        world.rename_and_back()
        world.take_cut()
        [saved] = world.saved_cuts
        assert saved.rows[0]["c5"] == -1
        world.store.rollback(TABLE, first)
        world.add_or_drop_column()
        # The same offsets again, with the text.
        world.tier()
        world.expire()
        world.add_or_drop_column()
        for server in range(2):
            world.servers[server][0].refresh(TABLE)
            with pytest.raises(CutExpired):
                world.ask(server, saved.sql, saved.text)
    finally:
        world.close()


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(100, 300, 50))
def test_cuts_of_two_hundred_tables_asked_again(first: int) -> None:
    fields = sum((played(seed, 120) for seed in range(first, first + 50)), Counter[str]())
    assert fields["replayed"] > fields["CutExpired"] > 100, fields
