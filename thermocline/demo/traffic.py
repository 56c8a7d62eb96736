"""The producers of one feed: plain and transactional, sometimes aborting, sometimes sending nonsense."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import replace

from confluent_kafka import KafkaError, Message, Producer

from thermocline.demo.events import Events
from thermocline.demo.ledger import Kind, Ledger, SentRecord, digest_bytes

_BATCH_S = 0.05
_TRANSACTION_S = 0.2
#: How much of the time gone by is made good at once.
_MOST_S = 1.0
_FLUSH_TIMEOUT_S = 30.0
#: One record in ``_BAD`` is bad, one in ``_TOMBSTONE`` has no value; one transaction in ``_ABORT`` is aborted.
_BAD, _TOMBSTONE, _ABORT = 500, 700, 4


class Traffic:
    """Two producers at work on threads of their own. ``stop`` flushes: afterwards the ledger is complete.

    A record counts once the broker acknowledged it, in a transaction once that committed. ``failures`` holds
    what went wrong; a send that failed is not in the ledger, and idempotence keeps retries from doubling it.
    """

    def __init__(
        self, bootstrap: str, events: Events, ledger: Ledger, rate: int, seed: int
    ) -> None:
        """``rate`` is events per second of the plain producer; the transactional one adds a tenth."""
        self._bootstrap, self._ledger = bootstrap, ledger
        self.events, self._feed = events, events.feed
        self.failures: list[str] = []
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._guard, args=producer, daemon=True)
            for producer in ((rate, seed, False), (rate / 10, seed + 1, True))
        ]
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float) -> None:
        """End both producers; give up on a broker that does not acknowledge within ``timeout_s``."""
        self._stop.set()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _guard(self, rate: float, seed: int, transactional: bool) -> None:
        try:
            self._send(rate, random.Random(seed), transactional)  # noqa: S311 - invented traffic
        except Exception as error:  # noqa: BLE001 - a producer that died must show in the demo's verdict
            self.failures.append(f"{type(error).__name__}: {error}")

    def _send(self, rate: float, rng: random.Random, transactional: bool) -> None:
        settings: dict[str, str | int | bool] = {
            "bootstrap.servers": self._bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "compression.type": "lz4",
            # A coordinator that is still loading is retried; nothing a spectator must see.
            "log_level": 2,
        }
        if transactional:
            settings["transactional.id"] = f"thermocline-demo-{self._feed.topic}"
        producer = Producer(settings)
        if transactional:
            producer.init_transactions(_FLUSH_TIMEOUT_S)
        due, last = 0.0, time.monotonic()
        while not self._stop.wait(_TRANSACTION_S if transactional else _BATCH_S):
            now = time.monotonic()
            # A busy machine sends fewer, and the ledger has them in time.
            due, last = min(due % 1 + (now - last) * rate, rate * _MOST_S), now
            if transactional:
                producer.begin_transaction()
            delivered: list[SentRecord] = []
            for _ in range(int(due)):
                self._produce(producer, rng, delivered)
            if producer.flush(_FLUSH_TIMEOUT_S):
                self.failures.append("records were not acknowledged in time")
            if transactional and rng.randrange(_ABORT) == 0:
                producer.abort_transaction(_FLUSH_TIMEOUT_S)
                delivered = [replace(record, kind="aborted") for record in delivered]
            elif transactional:
                producer.commit_transaction(_FLUSH_TIMEOUT_S)
            self._ledger.add(delivered)

    def _produce(
        self, producer: Producer, rng: random.Random, delivered: list[SentRecord]
    ) -> None:
        kind: Kind = "good"
        partition, digest, value = rng.randrange(self._feed.partitions), 0, None
        if rng.randrange(_TOMBSTONE) == 0:
            kind = "tombstone"
        elif rng.randrange(_BAD) == 0:
            kind, value = "bad", rng.choice(self.events.bad_values)
            digest = digest_bytes(value)
        else:
            event = self._feed.make(rng, time.time_ns() // 1_000_000)
            partition = self._feed.partition_of(event)
            value, digest = self.events.encode(event)

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failures.append(str(error))
                return
            position = (message.partition(), message.offset())
            delivered.append(SentRecord(kind, *position, digest))  # type: ignore[arg-type]

        producer.produce(self._feed.topic, value, partition=partition, on_delivery=on_delivery)
