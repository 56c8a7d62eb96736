"""A tierer as a process of its own: ``python -m tests.integration.tierer <JSON>``; prints a line per outcome.

Tiers a ``GeneratedLog``, or ``DEVICES`` to a keyed table, to each of ``ends`` in turn; after a conflict it plans again, as the
real one does.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from functools import partial

from connectors import jars
from connectors.iceberg.store import IcebergStore
from connectors.jobs.round import tier_once
from connectors.registry.decoders import shipped_decoder
from connectors.spark.publish.target import SparkTieringTarget
from connectors.spark.session import SparkSettings, start_session
from planner.errors import StalePlan
from planner.names import TableName
from planner.tiering.plan import TieringBudget
from tests.harness.generated_log import GeneratedLog, open_decoder
from tests.harness.keyed_log import DEVICES


def main() -> None:
    document = json.loads(sys.argv[1])
    store = IcebergStore(document["catalogs"])
    session = start_session(
        SparkSettings(master="local[2]", driver_memory="512m"),
        document["catalogs"],
        jars.resolve("iceberg"),
    )
    name = TableName.parse(document["table"])
    binding = store.pin(name).binding
    is_keyed = binding is not None and binding.upsert is not None
    for ends in document["ends"]:
        log = DEVICES.to(*ends) if is_keyed else GeneratedLog(tuple(ends))
        target = SparkTieringTarget(
            session,
            store,
            name,
            open_log=log.opened,
            open_decoder=partial(shipped_decoder, str(name)) if is_keyed else open_decoder,
            open_store=store.files.open_store,
        )
        while True:
            try:
                result = tier_once(log, target, TieringBudget())
            except StalePlan as error:
                print(json.dumps({"refused": type(error).__name__}), flush=True)
            else:
                outcomes = asdict(result.outcomes) if result.published else None
                print(json.dumps({"published": outcomes}), flush=True)
                break
    session.stop()


if __name__ == "__main__":
    main()
