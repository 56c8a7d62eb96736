"""A tierer as a process of its own: ``python -m tests.integration.tierer <JSON>``; prints a line per outcome.

Tiers a ``GeneratedLog`` to each of ``ends`` in turn; after a conflict it plans again, as the real one does.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from connectors import jars
from connectors.iceberg.store import IcebergStore
from connectors.jobs.round import tier_once
from connectors.spark.publish.target import SparkTieringTarget
from connectors.spark.session import SparkSettings, start_session
from planner.errors import StalePlan
from planner.names import TableName
from planner.tiering.plan import TieringBudget
from tests.harness.generated_log import GeneratedLog, open_decoder


def main() -> None:
    document = json.loads(sys.argv[1])
    store = IcebergStore(document["catalogs"])
    session = start_session(
        SparkSettings(master="local[2]", driver_memory="512m"),
        document["catalogs"],
        jars.resolve("iceberg"),
    )
    for ends in document["ends"]:
        log = GeneratedLog(tuple(ends))
        target = SparkTieringTarget(
            session,
            store,
            TableName.parse(document["table"]),
            open_log=log.opened,
            open_decoder=open_decoder,
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
