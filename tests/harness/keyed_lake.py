"""A topic of changes, its keyed table and a server, all in memory, with a dictionary of what is true beside them."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa

from connectors.decoding.registry import decoder_for
from planner.names import TableName
from planner.offsets import OffsetVector
from planner.seam.binding import Binding
from planner.seam.watermark import Watermark
from planner.ticket import Ticket
from planner.tiering.plan import TieringBudget, plan_tiering
from tests.doubles.cold import MemoryColdStore
from tests.doubles.followers import SteppedFollowers
from tests.doubles.log import MemoryLog, MemoryRecord, MemoryTransaction
from tests.doubles.tiering import MemoryTieringTarget
from tests.harness.keyed import (
    BINDING,
    SCHEMA,
    UPSERT,
    Entry,
    Key,
    newest,
    partition_of,
    table_of,
)
from tests.harness.serving import SESSION, answer_of, forget, plan, serve

DEVICES = TableName("lake", ("net",), "devices")
SKIPPING: Binding = replace(BINDING, on_error="skip")
PARTITIONS = 2
HOLE = Entry(is_hole=True)
#: Records of no change, which policy skip leaves out: (key, value).
BAD = (
    (None, b'{"status": "no key"}'),
    (b"{}", b'{"status": "part of no key"}'),
    (b'{"id": null, "region": "eu"}', b'{"status": "null key"}'),
    (b'{"id": 1, "region": "eu"}', b"not json"),
)


@dataclass
class Slot:
    """One offset, and whether its transaction is ``open``, ``committed`` or ``aborted``."""

    entry: Entry
    state: str = "committed"


class KeyedLake:
    """One table over a topic of two partitions."""

    def __init__(self) -> None:
        #: The clock of tierer, server and broker.
        self.now_s = 1_800_000_000.0
        #: What the topic's settings say of deletes; None: they cannot be read.
        self.deletes_s: float | None = math.inf
        self.log = MemoryLog(batch_rows=3)
        self.store = MemoryColdStore(clock=lambda: self.now_s)
        topic_id = self.log.create_topic("devices", PARTITIONS)
        self.slots: list[list[Slot]] = [[] for _ in range(PARTITIONS)]
        self.transaction: tuple[MemoryTransaction, list[Slot], set[int]] | None = None
        self.written = 0
        first = Watermark(
            cluster_id="memory",
            topic="devices",
            topic_id=topic_id,
            next=OffsetVector.of((at, 0) for at in range(PARTITIONS)),
            shape=SKIPPING.shape,
            run="create",
            key=UPSERT.key,
        )
        self.store.create(DEVICES, SCHEMA.payload, SKIPPING, first)
        self.start_server()

    def start_server(self) -> None:
        """A new process: it knows no pin and holds no tail."""
        self.followers = SteppedFollowers()
        self.board, self.tails, self.statements = serve(
            *(self.store, self.log),
            followers=self.followers,
            delete_retention=lambda *_: self.deletes_s,
            now_s=lambda: self.now_s,
        )

    def stop_server(self) -> None:
        forget(self.board, self.tails)

    # --- the log ---

    def change(self, key: Key, status: str | None, *, in_transaction: bool = False) -> None:
        """Write a row of ``key``, or where ``status`` is None its delete. Clocks run backwards."""
        self.written += 1
        value = None
        if status is not None:
            value = json.dumps({"status": status, "n": self.written}).encode()
        time_ms = 10_000 - self.written // 2
        entry = Entry(
            key,
            "d" if value is None else "u",
            status,
            self.written,
            timestamp_us=time_ms * 1000,
        )
        name = json.dumps({"region": key[1], "id": key[0]}).encode()
        record = MemoryRecord(value, name, timestamp_ms=time_ms)
        self._append(partition_of(key, PARTITIONS), record, entry, in_transaction)

    def bad(self, partition: int, kind: int) -> None:
        key, value = BAD[kind % len(BAD)]
        self._append(partition, MemoryRecord(value, key), Entry(), in_transaction=False)

    def _append(
        self, partition: int, record: MemoryRecord, entry: Entry, in_transaction: bool
    ) -> None:
        slot = Slot(entry)
        if in_transaction:
            if self.transaction is None:
                self.transaction = (self.log.begin(), [], set())
            transaction, slots, touched = self.transaction
            slot.state = "open"
            slots.append(slot)
            touched.add(partition)
            transaction.append("devices", partition, record)
        else:
            self.log.append("devices", partition, record)
        self.slots[partition].append(slot)

    def end_transaction(self, *, commit: bool) -> None:
        if self.transaction is None:
            return
        transaction, slots, touched = self.transaction
        transaction.commit() if commit else transaction.abort()
        for slot in slots:
            slot.state = "committed" if commit else "aborted"
        for partition in touched:
            self.slots[partition].append(Slot(HOLE))
        self.transaction = None

    @property
    def end(self) -> OffsetVector:
        """Where committed reads end."""
        bounds = self.log.measure(["devices"])["devices"]
        return OffsetVector.of((each.partition, each.log_end) for each in bounds.partitions)

    def rows(self, end: OffsetVector) -> pa.Table:
        """The newest row of each key below an end."""
        log = [
            [slot.entry if slot.state == "committed" else HOLE for slot in slots]
            for slots in self.slots
        ]
        return table_of(newest(log, end))

    # --- the table ---

    @property
    def mark(self) -> Watermark:
        mark = self.store.pin(DEVICES).watermark
        assert mark is not None
        return mark

    def tier(self, max_rows: int = 1000) -> Watermark:
        target = MemoryTieringTarget(
            self.store, DEVICES, self.log, partial(decoder_for, str(DEVICES))
        )
        bounds = self.log.measure(["devices"])["devices"]
        plan = plan_tiering(
            target.pin(), bounds, TieringBudget(max_rows=max_rows, split_rows=3)
        )
        return target.publish(target.stage(plan)) if plan.advances else self.mark

    def compact(self) -> None:
        self.store.commit(DEVICES, "replace", lambda value: (value, value))

    # --- statements ---

    def plan(self, sql: str, **request: Any) -> tuple[bytes, Ticket]:
        return plan(self.statements, sql, session=replace(SESSION, **request))

    def open(self, ticket: bytes) -> pa.Table:
        return answer_of(self.statements, ticket)

    def ask(self, sql: str, **request: Any) -> pa.Table:
        """Ask in a session with these settings."""
        return self.open(self.plan(sql, **request)[0])
