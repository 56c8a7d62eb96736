"""A served table under everything at once: producers, a tierer, retention, schema changes, followers, readers.

Real threads over the in-memory log and catalog. A record's value follows from its place, and the ledger notes
which places hold one, so a reader can tell from the cut of its own ticket what the answer must be.
"""

from __future__ import annotations

import bisect
import json
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from connectors.decoding.registry import decoder_for
from connectors.iceberg.pin_cache import PinCache
from planner.errors import SnapshotExpired, StalePlan, TieringConflict
from planner.names import TableName
from planner.offsets import OffsetVector
from planner.schema import Column
from planner.seam.binding import Binding
from planner.seam.cut import TableCut
from planner.seam.watermark import Watermark
from planner.ticket import unseal
from planner.tiering.plan import TieringBudget, plan_tiering
from proxy.query.cut import redeem_tables
from proxy.query.executor import Statements
from proxy.session import Deadline
from proxy.tail.budget import TailLimits
from proxy.tail.followed_table import FollowSettings
from proxy.tail.housekeeping import Keeper
from proxy.tail.pacing import Pacing
from proxy.tail.tails import Tails
from tests.doubles.cold import MemoryColdStore
from tests.doubles.log import MemoryLog, MemoryRecord
from tests.doubles.tiering import MemoryTieringTarget
from tests.harness.serving import NOW_US, SECRET, SESSION, forget, serve

TABLE = TableName("lake", ("net",), "storm")
TOPIC, PARTITIONS = "storm", 4
#: Patient: on a busy machine a fetch of all that is hot takes its time.
LIMITS = TailLimits(max_rows=10_000_000, max_bytes=1 << 30, fetch_timeout_s=120)
SQL = (
    "SELECT kafka_partition, count(*), sum(n), min(kafka_offset), max(kafka_offset), "
    "count(DISTINCT kafka_offset) FROM storm GROUP BY ALL ORDER BY 1"
)
Answer = list[tuple[int, ...]]


def value(partition: int, offset: int) -> int:
    return (offset * 2_654_435_761 + partition * 97) % 1_000_003


@dataclass
class Ledger:
    """Offsets of the records of one partition, ascending, and the running sum of their values."""

    offsets: list[int] = field(default_factory=list)
    sums: list[int] = field(default_factory=lambda: [0])

    def add(self, partition: int, offset: int) -> None:
        self.sums.append(self.sums[-1] + value(partition, offset))
        self.offsets.append(offset)

    def below(self, partition: int, end: int) -> Answer:
        count = bisect.bisect_left(self.offsets, end)
        if not count:
            return []
        first, last = self.offsets[0], self.offsets[count - 1]
        return [(partition, count, self.sums[count], first, last, count)]


#: Steps of this size are added piece by piece, with pauses, between two statements.
IN_PIECES = Pacing(gather_s=0.001, piece_rows=256, pause_ratio=0.5, demand_s=0.01)


class Storm:
    """One run. ``readers`` times ``statements`` answers are compared; everything else goes on meanwhile."""

    def __init__(self, seed: int, *, readers: int, statements: int) -> None:
        self.rng = random.Random(seed)
        self.readers, self.count = readers, statements
        self.log = MemoryLog(batch_rows=200)
        self.store = MemoryColdStore()
        topic_id = self.log.create_topic(TOPIC, PARTITIONS)
        self.binding = Binding(TOPIC)
        first = Watermark(
            "memory",
            TOPIC,
            topic_id,
            OffsetVector.of((partition, 0) for partition in range(PARTITIONS)),
            self.binding.shape,
            "create",
        )
        self.store.create(TABLE, [Column(0, "n", pa.int64())], self.binding, first)
        self.ledgers = [Ledger() for _ in range(PARTITIONS)]
        self.over = threading.Event()
        self.published = self.schemas = self.compared = self.stale = 0

    def run(self) -> None:
        following = FollowSettings(keep_s=0.5, idle_s=2.0, tables=(TABLE,))
        board, tails, statements = serve(
            *(self.store, self.log, LIMITS),
            following=following,
            threads=True,
            refresh_s=0.05,
            pacing=IN_PIECES,
        )
        pins = lambda: [value.pin for value in board.status() if value.pin is not None]  # noqa: E731
        keeper = Keeper(tails, tables=[], pins=pins, cut=_unused)
        keeper.start()
        try:
            self._run(board, statements, tails)
        finally:
            keeper.stop()
            forget(board, tails)

    def _run(self, board: PinCache, statements: Statements, tails: Tails) -> None:
        around: list[Callable[[], None]] = [
            *(partial(self._produce, partition) for partition in range(PARTITIONS)),
            self._tier,
            self._evolve,
        ]
        with ThreadPoolExecutor(len(around) + self.readers) as pool:
            world = [pool.submit(work) for work in around]
            seeds = [self.rng.random() for _ in range(self.readers)]
            reading = [pool.submit(self._read, board, statements, seed) for seed in seeds]
            try:
                for done in reading:
                    done.result()
            finally:
                self.over.set()
            for done in world:
                done.result()
        # Nobody may have asked since the schema was last changed, and all may be tiered.
        (end,) = (bounds.log_end for bounds in self.log.measure([TOPIC])[TOPIC].partitions[:1])
        self.log.append(TOPIC, 0, _record(0, end))
        board.refresh(TABLE)
        _answer(statements, statements.plan(SESSION, SQL, None, Deadline(60)).ticket)
        (newest,) = [state for state in tails.states() if state.schema_id == self.schemas]
        assert newest.is_followed
        assert newest.error is None

    # --- the world ---

    def _produce(self, partition: int) -> None:
        """Single records, transactions that commit or abort; the ledger is written before others can measure."""
        rng = random.Random(partition)
        while not self.over.is_set():
            self._write(partition, rng)
            # As fast as the interpreter lets everybody live: a few thousand records a second.
            time.sleep(rng.random() * 0.03)

    def _write(self, partition: int, rng: random.Random) -> None:
        ledger, chance = self.ledgers[partition], rng.random()
        end = self.log.measure([TOPIC])[TOPIC].partitions[partition].log_end
        count = rng.randrange(1, 40)
        places = range(end, end + count)
        if chance < 0.2:
            transaction = self.log.begin()
            for offset in places:
                transaction.append(TOPIC, partition, _record(partition, offset))
            if chance < 0.1:
                transaction.abort()
                return
            for offset in places:
                ledger.add(partition, offset)
            transaction.commit()
            return
        for offset in places:
            ledger.add(partition, offset)
            assert self.log.append(TOPIC, partition, _record(partition, offset)) == offset

    def _tier(self) -> None:
        """Publish, then let retention remove what cold has, but for the last thousands."""
        while not self.over.wait(0.05):
            target = MemoryTieringTarget(
                self.store, TABLE, self.log, partial(decoder_for, str(TABLE))
            )
            pin = target.pin()
            bounds = self.log.measure([TOPIC])[TOPIC]
            budget = TieringBudget(max_rows=self.rng.randrange(1, 10_000), split_rows=500)
            plan = plan_tiering(pin, bounds, budget)
            if not plan.advances:
                continue
            try:
                watermark = target.publish(target.stage(plan))
            except (TieringConflict, SnapshotExpired):
                continue  # the schema changed in between
            self.published += 1
            for partition, offset in watermark.next:
                self.log.delete_records(TOPIC, partition, max(0, offset - 5_000))

    def _evolve(self) -> None:
        """A new schema: every reader's next statement needs another generation, the old one is dropped."""
        pause_s = 0.2  # the shortest storm lasts less than a second
        while not self.over.wait(pause_s):
            self.store.set_columns(TABLE, partial(_evolved, self.schemas))
            self.schemas += 1
            pause_s = self.rng.uniform(1.0, 3.0)

    # --- readers ---

    def _read(self, board: PinCache, statements: Statements, seed: float) -> None:
        rng, observed = random.Random(seed), [0] * PARTITIONS
        tickets: list[bytes] = []
        answered = 0
        while answered < self.count:
            planned = statements.plan(SESSION, SQL, None, Deadline(60)).ticket
            ends = _ends(board, planned)
            assert all(end >= before for end, before in zip(ends, observed, strict=True)), "T28"
            observed = ends
            tickets.append(planned)
            chosen = tickets[-1] if rng.random() < 0.8 else rng.choice(tickets[-5:])
            expected = [
                row
                for partition, end in enumerate(_ends(board, chosen))
                for row in self.ledgers[partition].below(partition, end)
            ]
            try:
                result = _answer(statements, chosen)
            except StalePlan:
                # Retention went on while this reader did not: on a slow machine. Its client would plan anew.
                self.stale += 1
                tickets.clear()
                continue
            assert result == expected
            answered += 1
            self.compared += 1


def _evolved(number: int, columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Metadata, ``n``, and one column that no record has."""
    return (*columns[:4], Column(5 + number, f"later_{number}", pa.string()))


def _record(partition: int, offset: int) -> MemoryRecord:
    return MemoryRecord(json.dumps({"n": value(partition, offset)}).encode())


def _ends(board: PinCache, ticket: bytes) -> list[int]:
    tables = unseal(ticket, [SECRET], user="", now_us=NOW_US).tables
    (cut,) = redeem_tables(board, tables).values()
    end = cut.end
    return [end.get(partition) or 0 for partition in range(PARTITIONS)]


def _answer(statements: Statements, ticket: bytes) -> Answer:
    stream = statements.open(SESSION, ticket, Deadline(60))
    try:
        table = pa.Table.from_batches(list(stream), stream.schema)
    finally:
        stream.close()
    return [tuple(int(cell) for cell in row.values()) for row in table.to_pylist()]


def _unused(table: TableName) -> TableCut:
    raise AssertionError(f"nothing is configured to be followed, not {table}")
