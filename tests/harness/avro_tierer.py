"""One process that tiers a table of a schema registry, on real parts."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping

from connectors.iceberg.catalogs import Catalogs
from connectors.iceberg.evolve import evolve_table
from connectors.jobs import events
from connectors.jobs.loop import LoopLimits, TableLoop
from connectors.jobs.tier import TieringJob, TieringTable
from connectors.kafka.log import KafkaLog
from connectors.registry.client import SchemaRegistry
from connectors.registry.decoders import shipped_decoder
from connectors.registry.following import SchemaFollower
from connectors.spark.publish.target import SparkTieringTarget
from planner.names import TableName
from planner.ports import Staged
from planner.tiering.plan import TieringBudget, plan_tiering
from tests.fixtures.kafka import Kafka
from tests.fixtures.spark import SparkLake


class AvroTierer:
    """It asks a registry by ``options``, of which it knows nothing yet. ``events`` are those of its loops. Close it."""

    def __init__(
        self,
        lake: SparkLake,
        kafka: Kafka,
        name: TableName,
        options: Mapping[str, str],
        *,
        speed: float = 1,
    ) -> None:
        """``speed``: how much faster than the clock it looks at versions, and again at a registry that was away."""
        self.events: list[events.Event] = []
        self._lake, self._kafka, self._name = lake, kafka, name
        self._log = KafkaLog(kafka.settings)
        self._catalogs = Catalogs(lake.catalogs)
        options = {**options, "max.retries": "1"}
        self._registry = SchemaRegistry(options, unknown_id_grace_s=1)
        self._follower = SchemaFollower(
            lambda *_: self._registry,
            functools.partial(evolve_table, self._catalogs),
            timeout_s=8,
            clock=lambda: speed * time.monotonic(),
        )

    def loop(self) -> TableLoop[TieringTable]:
        job = TieringJob(
            self._log,
            tables=lambda: [self._name],
            open_target=self._target,
            follow=self._follower.follow,
        )
        return TableLoop(job, listeners=(self.events.append,), limits=LoopLimits(poll_s=0.1))

    def drain(self) -> None:
        """Tier up to the log's end, as ``thermocline tier --once`` does."""
        assert self.loop().drain() == 1

    def look(self) -> None:
        """Take up versions of the subject, as ``thermocline tier`` does every ten seconds."""
        binding = self._target(self._name).pin().binding
        assert binding is not None
        self._follower.follow(self._name, binding)

    def stage(self) -> tuple[SparkTieringTarget, Staged]:
        target = self._target(self._name)
        pin = target.pin()
        assert pin.binding is not None
        bounds = self._log.measure([pin.binding.topic])[pin.binding.topic]
        return target, target.stage(plan_tiering(pin, bounds, TieringBudget()))

    def _target(self, name: TableName) -> SparkTieringTarget:
        return SparkTieringTarget(
            self._lake.session,
            self._lake.store,
            name,
            open_log=functools.partial(KafkaLog, self._kafka.settings),
            open_decoder=functools.partial(shipped_decoder, str(name)),
            open_store=self._lake.store.files.open_store,
            schemas=self._follower,
            task_timeout_s=60,
            max_task_offsets=400,
        )

    def close(self) -> None:
        self._registry.close()
        self._catalogs.close()
        self._log.close()
