"""Three real brokers in one cluster: the first is its controller too, the others may be killed and come back."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import (
    ElectionType,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from connectors import jars
from tests.fixtures.kafka import Kafka
from tests.harness.calm_broker import IDLE
from tests.harness.quick_jvm import quick_jvm
from thermocline.demo.broker import Broker

#: Kafka's own commands: librdkafka has no request that moves replicas.
_TOOLS = (jars.Coordinate("org.apache.kafka", "kafka-tools", "4.3.1"),)
_REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
_CHANGES_S = 30.0
#: A broker that is gone is found out within a second, and its partitions get another leader.
_QUICK = {
    **IDLE,
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "300",
    "replica.lag.time.max.ms": "2000",
    "log.retention.ms": "-1",
}


@dataclass
class KafkaCluster:
    """Brokers by node id: 1 is the controller and stays, 2 and 3 may go."""

    brokers: Mapping[int, Broker]
    kafka: Kafka
    folder: Path

    @property
    def settings(self) -> dict[str, str]:
        """What a KafkaLog takes: every broker, so that any may be down."""
        return {
            "bootstrap.servers": ",".join(broker.bootstrap for broker in self.brokers.values())
        }

    def producer(self) -> Producer:
        """A producer that knows every broker, and waits for all replicas in sync."""
        return self.kafka.producer(bootstrap_servers=self.settings["bootstrap.servers"])

    def topic(
        self, replicas: Sequence[Sequence[int]], config: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic with these replicas of each partition, the first preferred as its leader."""
        return self.kafka.topic(len(replicas), replicas=replicas, config=config)

    def leader(self, topic: str, partition: int = 0) -> int | None:
        return self._described(topic, partition)[0]

    def in_sync(self, topic: str, partition: int = 0) -> set[int]:
        return self._described(topic, partition)[1]

    def _described(self, topic: str, partition: int) -> tuple[int | None, set[int]]:
        admin = self._admin()
        described = admin.describe_topics(TopicCollection([topic]))[topic].result(3)
        part = next(part for part in described.partitions if part.id == partition)
        leader = None if part.leader is None or part.leader.id < 0 else part.leader.id
        return leader, {node.id for node in part.isr}

    def elect(self, topic: str, *, is_clean: bool = True, partition: int = 0) -> None:
        """Have the preferred replica lead, or (unclean) any that lives."""
        kind = ElectionType.PREFERRED if is_clean else ElectionType.UNCLEAN
        at = TopicPartition(topic, partition)
        admin = self._admin()
        outcome = admin.elect_leaders(kind, [at]).result(30)
        passes = (None, KafkaError.ELECTION_NOT_NEEDED) if is_clean else (None,)
        errors = [None if error is None else error.code() for error in outcome.values()]
        assert set(errors) <= set(passes), outcome

    def reassign(self, topic: str, replicas: Sequence[Sequence[int]]) -> None:
        """Move each partition to these nodes, the first preferred as its leader; returns once it is asked for."""
        partitions = [
            {"topic": topic, "partition": partition, "replicas": list(nodes)}
            for partition, nodes in enumerate(replicas)
        ]
        plan = self.folder / "reassignment.json"
        plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
        # As the archive of classes has them, and then the tools: else the JVM takes none from it.
        classes = os.pathsep.join(
            map(str, (*jars.resolve("kafka"), *jars.resolve("kafka-tools", _TOOLS)))
        )
        address = ("--bootstrap-server", self.brokers[1].bootstrap)
        command = [jars.java(), "-Xmx128m", *quick_jvm("kafka"), "-cp", classes]
        command += [_REASSIGN, *address, "--reassignment-json-file", str(plan), "--execute"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def await_leader(self, topic: str, *nodes: int | None, partition: int = 0) -> None:
        wait_for(
            lambda: self.leader(topic, partition) in nodes, f"{topic} is not led by {nodes}"
        )

    def await_in_sync(self, topic: str, *nodes: int, partition: int = 0) -> None:
        wait_for(
            lambda: self.in_sync(topic, partition) == set(nodes),
            f"{topic}: not in sync: {nodes}",
        )

    def _admin(self) -> AdminClient:
        # Node 1 has the controller and always lives. A new client each time: an old one may ask a broker that is gone.
        return AdminClient({"bootstrap.servers": self.brokers[1].bootstrap, "log_level": 0})


@contextlib.contextmanager
def kafka_cluster(folder: Path) -> Iterator[KafkaCluster]:
    """Start three brokers; about twelve seconds."""
    flags = (*quick_jvm("kafka"), "-Xmx384m")
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(Broker(folder / "1", properties=_QUICK, jvm_flags=flags))
        brokers = {1: first}
        for node in (2, 3):
            properties = {**_QUICK, "node.id": str(node)}
            brokers[node] = Broker(
                folder / str(node),
                properties=properties,
                controlled_by=first,
                jvm_flags=flags,
            )
        with ThreadPoolExecutor(2) as starting:
            list(starting.map(Broker.start, (brokers[2], brokers[3])))
        try:
            yield KafkaCluster(brokers, Kafka(first), folder)
        finally:
            for node in (3, 2, 1):
                brokers[node].kill()


def wait_for(holds: Callable[[], bool], failure: str, timeout_s: float = _CHANGES_S) -> None:
    deadline = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(KafkaException, TimeoutError):
            if holds():
                return
        assert time.monotonic() < deadline, failure
        time.sleep(0.1)
