"""Several tierers at once, with compactions, expiries and another writer's DELETEs in between; then a foreign append.

How many publishes: ``THERMOCLINE_PUBLISHES``, in a soak 200.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Row

from connectors.kafka.log import KafkaLog
from tests.chaos.run import (
    PARTITIONS,
    TABLE,
    TOPIC,
    committed_records,
    compare,
    create,
    until_stable,
    write_config,
)
from tests.chaos.tierer import HIT_TIMEOUT_S, ROOT, Tierer
from tests.chaos.writers import Writers
from tests.fixtures.kafka import Kafka
from tests.fixtures.spark import BoundTable, SparkLake
from tests.harness.forked_commands import run

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

SEED = int(os.environ.get("THERMOCLINE_SEED", "1"))
_DELETED_AT_ONCE = 5
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@dataclass
class Rivalry:
    """One table, the writers of its topic, its tierers, and somebody with Spark SQL."""

    table: BoundTable
    tierers: list[Tierer]
    writers: Writers
    config: Path
    deleted: set[int]
    disturbed: Counter[str] = field(default_factory=Counter)
    _expire_from: int = 0

    @property
    def publishes(self) -> int:
        return sum(tierer.said.count(": published ") for tierer in self.tierers)

    @property
    def refused(self) -> int:
        return sum(tierer.said.count("plan again") for tierer in self.tierers)

    def disturb(self, chance: random.Random) -> None:
        """Do what other people's jobs do. One that loses a race with a tierer gives up, as theirs would."""
        kind = chance.choice(("compact", "expire", "delete"))
        with contextlib.suppress(PySparkException, Py4JJavaError):
            match kind:
                case "compact":
                    self.table.compact()
                case "expire" if self.publishes >= self._expire_from:
                    self.table.expire_to_one()
                case "delete" if answer := self.table.sql("SELECT id FROM {t}"):
                    self._delete(chance.sample(answer, min(len(answer), _DELETED_AT_ONCE)))
                case _:
                    return
            self.disturbed[kind] += 1

    def _delete(self, rows: list[Row]) -> None:
        numbers = [row["id"] for row in rows]
        try:
            self.table.sql(f"DELETE FROM {{t}} WHERE id IN ({', '.join(map(str, numbers))})")
            self.deleted.update(numbers)
        finally:
            # An expiry that hides a DELETE above the last watermark is refused (docs/limits.md, hidden history).
            # A publish is told after it was made: of so many more, one was made after the DELETE.
            self._expire_from = self.publishes + len(self.tierers) + 1

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + HIT_TIMEOUT_S
        while not holds():
            assert time.monotonic() < deadline, [tierer.said[-500:] for tierer in self.tierers]
            time.sleep(0.2)

    def until_level(self, kafka: Kafka) -> None:
        """Wait until the watermark is at the log's end."""
        with KafkaLog(kafka.settings) as log:
            ends = {
                item.partition: item.log_end for item in log.measure([TOPIC])[TOPIC].partitions
            }
        self.until(lambda: self.table.watermark() == ends)

    def command(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output and error."""
        return run(("--config", str(self.config), *arguments), ROOT, 600)


@contextlib.contextmanager
def rivalry(lake: SparkLake, kafka: Kafka, folder: Path, tierers: int) -> Iterator[Rivalry]:
    catalog = dict(lake.catalogs["lake"])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
    create(catalog, kafka.settings)
    table = BoundTable(lake.session, lake.store, lake.catalogs, TABLE)
    config = write_config(folder, {"lake": catalog}, kafka.settings)
    writers = Writers(kafka.bootstrap, TOPIC, PARTITIONS, SEED)
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(
                Tierer(
                    config, folder / f"tierer-{n}", "loop", "--interval", "0.3", str(TABLE)
                ).running()
            )
            for n in range(tierers)
        ]
        writers.start()
        try:
            yield Rivalry(table, started, writers, config, set())
        finally:
            table.sql("DROP TABLE {t}")
            kafka.delete_topic(TOPIC)


def _rival(
    lake: SparkLake, kafka: Kafka, folder: Path, tierers: int, publishes: int
) -> dict[str, Any]:
    """Return the facts of a run in which everything was right."""
    chance = random.Random(SEED)
    with rivalry(lake, kafka, folder, tierers) as value:
        deadline = time.monotonic() + HIT_TIMEOUT_S + 60 * publishes
        for tierer in value.tierers:
            tierer.ensure()
        while value.publishes < publishes:
            assert time.monotonic() < deadline, [tierer.said[-500:] for tierer in value.tierers]
            for tierer in value.tierers:
                tierer.ensure()
            value.disturb(chance)
            time.sleep(0.2)
        ledger = value.writers.end()
        counts = value.publishes, value.refused
        until_stable(kafka.settings)
        value.until_level(kafka)
        rows, wrong = compare(
            dict(lake.catalogs["lake"]),
            kafka.settings,
            ledger,
            deleted=frozenset(value.deleted),
        )
        facts = {
            "seed": SEED,
            "tierers": tierers,
            "publishes": counts[0],
            "refused": counts[1],
            "rows": rows,
            "deleted": len(value.deleted),
            "disturbed": dict(value.disturbed),
            "ledger": ledger.facts(),
        }
        print(facts)
        assert wrong == []
        facts["deleted, unexplained"] = _verified(value, kafka)
        _foreign_append_stops_until_accepted(value, kafka)
        assert [tierer.stop() for tierer in value.tierers] == [0] * tierers
    return facts


def _verified(value: Rivalry, kafka: Kafka) -> int:
    """Return how many faults ``verify`` finds, which must all be rows that the other writer deleted.

    A deletion whose snapshot expired since looks like a fault (docs/verify.md, "What cannot be checked, and is said").
    """
    code, out, err = value.command("verify", "--json", str(TABLE))
    assert out, err
    [report] = json.loads(out)
    gone = {
        (partition, offset)
        for partition, offset, number in committed_records(kafka.settings)
        if number in value.deleted
    }
    listed = [
        (fields["partition"], offset)
        for fields in report["findings"]
        for offset in range(fields["start"], fields["stop"])
    ]
    kinds = {fields["kind"] for fields in report["findings"]} | set(report["more"])
    assert set(listed) <= gone
    assert kinds <= {"missing"}
    count = len(listed) + sum(report["more"].values())
    assert count <= len(gone)
    assert code == (1 if count else 0)
    return count


def _foreign_append_stops_until_accepted(value: Rivalry, kafka: Kafka) -> None:
    before = len(value.table.sql("SELECT id FROM {t}"))
    value.table.sql(
        "INSERT INTO {t} (kafka_partition, kafka_offset, kafka_timestamp, id, kind) "
        "VALUES (0, 0, TIMESTAMP '2026-01-01 00:00:00', -1, 'foreign')"
    )
    kafka.produce(TOPIC, [b'{"id": -2, "kind": "after"}'])
    value.until(lambda: all("another writer" in tierer.said for tierer in value.tierers))
    assert len(value.table.sql("SELECT id FROM {t}")) == before + 1
    head = value.table.state().head
    code, out, err = value.command("accept", str(TABLE), "--snapshot", str(head), "--yes")
    assert code == 0, out + err
    value.until_level(kafka)
    assert len(value.table.sql("SELECT id FROM {t}")) == before + 2


@pytest.mark.timeout(1800)
def test_two_tierers_and_other_writers(lake: SparkLake, kafka: Kafka, tmp_path: Path) -> None:
    _rival(lake, kafka, tmp_path, tierers=2, publishes=3)


@pytest.mark.soak
def test_three_tierers_and_other_writers(lake: SparkLake, kafka: Kafka, tmp_path: Path) -> None:
    publishes = int(os.environ.get("THERMOCLINE_PUBLISHES", "200"))
    facts = _rival(lake, kafka, tmp_path, tierers=3, publishes=publishes)
    file = RESULTS / "chaos" / f"rivals-{SEED}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(facts, indent=1) + "\n")
