"""The demo's keyed table: the state of each device, from a topic of changes, and what every answer must hold."""

from __future__ import annotations

import json
import math
import random
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from confluent_kafka import KafkaError, Message, Producer

from planner.names import TableName
from planner.schema import Column
from planner.seam.binding import Binding
from planner.seam.keys import RecordKey, Upsert
from thermocline.client import Client
from thermocline.demo.ledger import SETTLE_S

TABLE = TableName("lake", ("edr",), "devices")
TOPIC = "edr-devices"
PARTITIONS = 2
#: Of its topic. Longer than the demo's cuts live.
TOPIC_SETTINGS = {"cleanup.policy": "compact", "min.compaction.lag.ms": "7200000"}
COLUMNS = (
    Column(0, "device_id", pa.string()),
    Column(0, "status", pa.string()),
    Column(0, "changes", pa.int64()),
)
KEY = ("device_id",)
BINDING = Binding(TOPIC, key=RecordKey("string"), upsert=Upsert(()))

_DEVICES, _CHANGES_PER_BATCH, _BATCH_S = 300, 10, 0.2
#: One change in so many removes the device.
_DELETE = 5
_STATES = ("online", "idle", "quarantined")
_FLUSH_TIMEOUT_S = 30.0

#: Status and count of changes by device.
Rows = Mapping[str, tuple[str, int]]


@dataclass(frozen=True, slots=True)
class DeviceChange:
    """A change the broker acknowledged; ``row`` None removes the device."""

    partition: int
    offset: int
    device: str
    row: tuple[str, int] | None


@dataclass(frozen=True, slots=True)
class DeviceRows:
    """The rows of one statement, the ends that it was cut at (exclusive offsets by partition), and when that was."""

    rows: Rows
    ends: Mapping[int, int]
    at: float


class DeviceLedger:
    """All changes, by partition in the order of offsets, and how many answers were what they say. Thread-safe."""

    def __init__(self) -> None:
        self.checked = self.off_by = 0
        self._changes: list[DeviceChange] = []
        self._unsettled: list[DeviceRows] = []
        self._lock = threading.Lock()

    @property
    def changes(self) -> int:
        return len(self._changes)

    def add(self, change: DeviceChange) -> None:
        with self._lock:
            self._changes.append(change)

    def take(self, answer: DeviceRows) -> None:
        self._unsettled.append(answer)
        self.settle(answer.at)

    def settle(self, now: float) -> None:
        """Compare answers with the newest changes below their ends, once all of these are acknowledged."""
        with self._lock:
            changes = list(self._changes)
        following = {change.partition: change.offset + 1 for change in changes}
        unsettled, self._unsettled = self._unsettled, []
        for answer in unsettled:
            is_whole = all(following.get(at, 0) >= end for at, end in answer.ends.items())
            if not is_whole and now - answer.at <= SETTLE_S:
                self._unsettled.append(answer)
                continue
            newest = {
                change.device: change.row
                for change in changes
                if change.offset < answer.ends.get(change.partition, 0)
            }
            expected = {device: row for device, row in newest.items() if row is not None}
            self.checked += 1
            self.off_by += len(expected.items() ^ answer.rows.items())


class Devices:
    """A producer on a thread of its own, and what is shown of its table."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        self.ledger, self.rows, self.publishes = DeviceLedger(), 0, 0
        self.failures: list[str] = []
        self._bootstrap, self._rng = bootstrap, random.Random(seed)  # noqa: S311 - invented traffic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """End the producer: afterwards all its changes are known."""
        self._stop.set()
        self._thread.join(timeout_s)

    def look(self, client: Client) -> None:
        """Ask for all rows and the ends of their cut, and compare what can be. Raises FederationError."""
        answer = list(client.rows(_STATEMENT))
        rows = {
            row["device_id"]: (row["status"], row["changes"])
            for row in answer
            if row["device_id"] is not None
        }
        ends = {
            row["kafka_partition"]: row["log_end"] for row in answer if row["device_id"] is None
        }
        self.rows = len(rows)
        self.ledger.take(DeviceRows(rows, ends, time.monotonic()))

    def line(self) -> str:
        """Return how the table stands."""
        ledger = self.ledger
        check = (
            f"{ledger.off_by} differences"
            if ledger.off_by
            else f"exact {ledger.checked:,} times"
        )
        return f"{TABLE}: {self.rows:,} devices, the newest of {ledger.changes:,} changes; {self.publishes} publishes; {check}"

    def verdict(self) -> tuple[bool, str]:
        """Return whether every answer was what the changes say, and a line that says so. The producer has stopped."""
        ledger = self.ledger
        ledger.settle(math.inf)
        equal = not (ledger.off_by or self.failures)
        counted = f"{ledger.checked:,} answers were the newest row of each device"
        if not equal:
            counted = f"{ledger.off_by:,} rows differ {' '.join(self.failures[:1])}".rstrip()
        return equal, (
            f"{'EQUAL' if equal else 'DIFFERENT'}: {TABLE}: {counted}; {self.rows:,} rows of {ledger.changes:,} changes, "
            f"{self.publishes} publishes"
        )

    def _run(self) -> None:
        try:
            self._send()
        except Exception as error:  # noqa: BLE001 - a producer that died must show in the demo's verdict
            self.failures.append(f"{type(error).__name__}: {error}")

    def _send(self) -> None:
        settings = {
            "bootstrap.servers": self._bootstrap,
            "enable.idempotence": True,
            "log_level": 2,
        }
        producer = Producer(settings)
        count = 0
        while not self._stop.wait(_BATCH_S):
            for _ in range(_CHANGES_PER_BATCH):
                count += 1
                number = self._rng.randrange(_DEVICES)
                removed = self._rng.randrange(_DELETE) == 0
                self._produce(
                    producer, number, None if removed else (self._rng.choice(_STATES), count)
                )
            if producer.flush(_FLUSH_TIMEOUT_S):
                self.failures.append("changes were not acknowledged in time")

    def _produce(self, producer: Producer, number: int, row: tuple[str, int] | None) -> None:
        device = f"dev-{number:04}"

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failures.append(str(error))
                return
            position = message.partition(), message.offset()
            self.ledger.add(DeviceChange(*position, device, row))  # type: ignore[arg-type]

        value = None if row is None else json.dumps({"status": row[0], "changes": row[1]})
        producer.produce(
            TOPIC, value, key=device, partition=number % PARTITIONS, on_delivery=on_delivery
        )


_STATEMENT = f"""
SELECT device_id, status, changes, NULL AS kafka_partition, NULL AS log_end FROM {TABLE}
UNION ALL SELECT NULL, NULL, NULL, kafka_partition, log_end FROM {TABLE.catalog}.{TABLE.schema}."{TABLE.name}$seam"
"""  # noqa: S608
