"""A tierer on a cluster: ``python -m tests.integration.cluster_tierer <JSON>``; a round and an answer per line.

Each line of standard input is ``{"ends": […], "gate": path or null}``: tier a ``GeneratedLog`` to those ends.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark import cloudpickle

import planner.seam.cut
from connectors import jars
from connectors.iceberg.store import IcebergStore
from connectors.jobs.round import tier_once
from connectors.spark.catalogs import jar_sets
from connectors.spark.publish.target import SparkTieringTarget
from connectors.spark.session import SparkSettings, start_session
from planner.names import TableName
from planner.tiering.plan import TieringBudget
from tests.harness import generated_log
from tests.harness.generated_log import GeneratedLog, open_decoder
from thermocline.demo.world import QUICK_JVM


def main() -> None:
    document = json.loads(sys.argv[1])
    secret = {"header.Authorization": os.environ["CLUSTER_SECRET"]}
    catalogs = {name: each | secret for name, each in document["catalogs"].items()}
    store = IcebergStore(document["catalogs"])
    session = start_session(
        SparkSettings(
            master=document["master"],
            driver_memory="512m",
            environment=Path(document["environment"]),
            conf={
                "spark.ui.enabled": "true",
                "spark.ui.port": "0",
                "spark.executor.memory": "512m",
                "spark.executor.cores": "1",
                "spark.executor.defaultJavaOptions": " ".join(QUICK_JVM),
                "spark.driver.host": "127.0.0.1",
                **document["conf"],
            },
        ),
        catalogs,
        [path for name in jar_sets(catalogs) for path in jars.resolve(name)],
    )
    context = session.sparkContext
    # The tests are not on the cluster, and are no part of what the job ships.
    cloudpickle.register_pickle_by_value(generated_log)
    for line in sys.stdin:
        order = json.loads(line)
        gate = None if order["gate"] is None else Path(order["gate"])
        log = GeneratedLog(tuple(order["ends"]), gate=gate)
        target = SparkTieringTarget(
            session,
            store,
            TableName.parse(document["table"]),
            open_log=log.opened,
            open_decoder=open_decoder,
            open_store=store.files.open_store,
            max_task_offsets=2_000,
        )
        done = tier_once(log, target, TieringBudget(split_rows=2_000))
        answer = {
            "published": done.published,
            "ui": context.uiWebUrl,
            "imported_from": context.parallelize(range(2), 2).map(_imported_from).collect(),
            "interpreters": context.parallelize(range(2), 2).map(_interpreter).collect(),
        }
        print(json.dumps(answer), flush=True)
    session.stop()


def _imported_from(_number: int) -> str:
    return str(planner.seam.cut.__file__)


def _interpreter(_number: int) -> str:
    return sys.prefix


if __name__ == "__main__":
    main()
