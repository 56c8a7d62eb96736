"""Producers that write down every acknowledgement."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

_BATCH = 40
_PAUSE_S = 0.1
_TIMEOUT_S = 60.0


@dataclass
class Ledger:
    """By the record's number: where it was acknowledged. ``unknown``: the producer never learnt."""

    acknowledged: dict[int, tuple[int, int]] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)
    unknown: set[int] = field(default_factory=set)

    def facts(self) -> dict[str, int]:
        return {
            "acknowledged": len(self.acknowledged),
            "aborted": len(self.aborted),
            "unknown": len(self.unknown),
        }


class Writers(threading.Thread):
    """Writes plain batches and transactions, of which every third is aborted, until ``end``.

    A transactional producer that met a crash of the broker is left, and its last transaction not believed, one
    way or the other: afterwards stock producer and stock consumer alone were seen to disagree, a commit reported
    and aborted in the log, an abort reported and committed. librdkafka 2.16 takes any answer to EndTxn for the
    answer to the transaction under way (``rd_kafka_txn_handle_EndTxn``); with another broker, the same:
    redpanda-data/redpanda#17921.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int, seed: int) -> None:
        super().__init__(name="writers", daemon=True)
        self.ledger = Ledger()
        self._settings = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "log_level": 0,
            "delivery.timeout.ms": int(_TIMEOUT_S * 1000),
        }
        self._topic = topic
        self._partitions = partitions
        self._random = random.Random(seed)
        self._next = 0
        self._ending = threading.Event()
        self._crashes = 0
        self.failure: BaseException | None = None

    def crash(self) -> None:
        """Say that the broker is about to be killed."""
        self._crashes += 1

    def end(self) -> Ledger:
        self._ending.set()
        self.join(10 * _TIMEOUT_S)
        assert not self.is_alive(), "the writers did not end"
        assert self.failure is None, self.failure
        return self.ledger

    def run(self) -> None:
        try:
            self._write()
        except BaseException as error:
            self.failure = error

    def _write(self) -> None:
        plain = Producer(self._settings)
        writer: Producer | None = None
        count = crashes = 0
        while not self._ending.wait(_PAUSE_S):
            count += 1
            self._send(plain, self._numbers())
            try:
                if writer is None or crashes != self._crashes:
                    # It ends what the one of its name before left open, one way or the other.
                    crashes = self._crashes
                    writer = self._transactional()
                self._transact(writer, crashes, commit=count % 3 != 0)
            except KafkaException:
                writer = None

    def _numbers(self) -> Sequence[int]:
        start, self._next = self._next, self._next + _BATCH
        return range(start, self._next)

    def _transactional(self) -> Producer:
        writer = Producer({**self._settings, "transactional.id": "chaos"})
        writer.init_transactions(_TIMEOUT_S)
        return writer

    def _send(self, producer: Producer, numbers: Sequence[int]) -> dict[int, tuple[int, int]]:
        result = self._produce(producer, numbers)
        self.ledger.acknowledged.update(result)
        self.ledger.unknown.update(set(numbers) - set(result))
        return result

    def _transact(self, writer: Producer, crashes: int, *, commit: bool) -> None:
        numbers = self._numbers()
        self.ledger.unknown.update(numbers)
        writer.begin_transaction()
        result = self._produce(writer, numbers)
        if commit:
            writer.commit_transaction(_TIMEOUT_S)
        else:
            writer.abort_transaction(_TIMEOUT_S)
        if crashes != self._crashes:
            return
        if commit:
            self.ledger.acknowledged.update(result)
            self.ledger.unknown.difference_update(result)
        else:
            self.ledger.aborted.update(numbers)
            self.ledger.unknown.difference_update(numbers)

    def _produce(
        self, producer: Producer, numbers: Sequence[int]
    ) -> dict[int, tuple[int, int]]:
        rows: dict[int, tuple[int, int]] = {}

        def done(number: int, error: KafkaError | None, message: Message) -> None:
            partition, offset = message.partition(), message.offset()
            if error is None and partition is not None and offset is not None:
                rows[number] = partition, offset

        for number in numbers:
            producer.produce(
                self._topic,
                json.dumps({"id": number, "kind": "abc"[number % 3]}).encode(),
                partition=self._random.randrange(self._partitions),
                on_delivery=partial(done, number),
            )
        producer.flush(_TIMEOUT_S)
        return rows
