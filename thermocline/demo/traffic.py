"""The producers of one feed: plain and transactional, sometimes aborting, sometimes sending nonsense."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import KafkaError, Message, Producer

from thermocline.demo.feeds import DemoFeed
from thermocline.demo.ledger import Kind, Ledger, digest_bytes, digest_event

_BATCH_S = 0.05
_TRANSACTION_RECORDS = 25
_FLUSH_TIMEOUT_S = 30.0
_BAD_VALUES = (b"", b"not json", b'{"ts": "soon"}', b"[1, 2]", b'{"ts": true}', b"\xff\xfe")


Delivered = Callable[[KafkaError | None, Message], None]


@dataclass(frozen=True, slots=True)
class Mix:
    """Shares of one record in so many: one in ``bad`` is bad, one in ``tombstone`` has no value."""

    bad: int = 500
    tombstone: int = 700
    abort: int = 4


class Traffic:
    """Two producers on threads of their own. ``stop`` flushes: afterwards the ledger is complete.

    A record counts once the broker acknowledged it, in a transaction once that committed. ``failures`` holds
    what went wrong; a send that failed is not in the ledger, and idempotence keeps retries from doubling it.
    """

    def __init__(
        self,
        bootstrap: str,
        feed: DemoFeed,
        ledger: Ledger,
        *,
        rate: int,
        seed: int,
    ) -> None:
        """``rate`` is events per second of the plain producer; the transactional one adds a tenth."""
        self._bootstrap = bootstrap
        self._feed = feed
        self._ledger = ledger
        self._upgraded = False
        self._rate = rate
        self._seed = seed
        self._mix = Mix()
        self._stop = threading.Event()
        self.failures: list[str] = []
        self._threads = [
            threading.Thread(target=self._guard, args=(run,), name=run.__name__, daemon=True)
            for run in (self._send_plainly, self._send_in_transactions)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def upgrade(self) -> None:
        """From now on, events carry the field that newer agents add."""
        self._upgraded = True

    def stop(self, timeout_s: float = _FLUSH_TIMEOUT_S) -> None:
        """End both producers; give up on a broker that does not acknowledge within ``timeout_s``."""
        self._stop.set()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))

    def _guard(self, run: Callable[[], None]) -> None:
        try:
            run()
        except Exception as error:  # noqa: BLE001 - a producer that died must show in the demo's verdict
            self.failures.append(f"{type(error).__name__}: {error}")

    def _producer(self, **more: object) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "compression.type": "lz4",
                # A coordinator that is still loading is retried; nothing a spectator must see.
                "log_level": 2,
                **more,
            }
        )

    def _send_plainly(self) -> None:
        rng = random.Random(self._seed)  # noqa: S311 - invented traffic
        producer = self._producer()
        due = 0.0
        last = time.monotonic()
        while not self._stop.is_set():
            now = time.monotonic()
            due += (now - last) * self._rate
            last = now
            for _ in range(int(due)):
                kind, partition, value, digest = self._record(rng)
                producer.produce(
                    self._feed.topic,
                    value,
                    partition=partition,
                    on_delivery=self._on_delivery(kind, digest),
                )
            due -= int(due)
            producer.poll(0)
            self._stop.wait(_BATCH_S)
        if producer.flush(_FLUSH_TIMEOUT_S):
            self.failures.append("records were not acknowledged in time")

    def _send_in_transactions(self) -> None:
        rng = random.Random(self._seed + 1)  # noqa: S311
        producer = self._producer(
            **{"transactional.id": f"thermocline-demo-{self._feed.topic}"}
        )
        producer.init_transactions(_FLUSH_TIMEOUT_S)
        pause_s = _TRANSACTION_RECORDS / max(self._rate / 10, 1)
        while not self._stop.wait(pause_s):
            acked: list[tuple[int, int, Kind, int]] = []
            producer.begin_transaction()
            for _ in range(_TRANSACTION_RECORDS):
                kind, partition, value, digest = self._record(rng)
                producer.produce(
                    self._feed.topic,
                    value,
                    partition=partition,
                    on_delivery=self._into(acked, kind, digest),
                )
            producer.flush(_FLUSH_TIMEOUT_S)
            if rng.randrange(self._mix.abort) == 0:
                producer.abort_transaction(_FLUSH_TIMEOUT_S)
                self._ledger.abort(len(acked))
                continue
            producer.commit_transaction(_FLUSH_TIMEOUT_S)
            for partition, offset, kind, digest in acked:
                self._ledger.acknowledged(partition, offset, kind, digest)

    def _record(self, rng: random.Random) -> tuple[Kind, int, bytes | None, int]:
        """Kind, partition, value and the value's hash."""
        if rng.randrange(self._mix.tombstone) == 0:
            return "tombstone", rng.randrange(self._feed.partitions), None, 0
        if rng.randrange(self._mix.bad) == 0:
            value = rng.choice(_BAD_VALUES)
            return "bad", rng.randrange(self._feed.partitions), value, digest_bytes(value)
        event = self._feed.make(rng, time.time_ns() // 1_000_000)
        partition, digest = self._feed.partition_of(event), digest_event(event)
        if self._upgraded:
            event[self._feed.later] = self._feed.later_of(event)
        return "good", partition, json.dumps(event).encode(), digest

    def _on_delivery(self, kind: Kind, digest: int) -> Delivered:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failures.append(str(error))
                return
            self._ledger.acknowledged(message.partition(), message.offset(), kind, digest)  # type: ignore[arg-type]

        return delivered

    def _into(
        self, acked: list[tuple[int, int, Kind, int]], kind: Kind, digest: int
    ) -> Delivered:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failures.append(str(error))
                return
            acked.append((message.partition(), message.offset(), kind, digest))  # type: ignore[arg-type]

        return delivered
