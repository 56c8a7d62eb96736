"""Records of the tables that engines read, and what an engine says that refuses."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Callable

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from planner.schema import Column
from tests.fixtures.kafka import Kafka

NOW_MS = time.time_ns() // 1_000_000

COLUMNS = (
    Column(0, "n", pa.int32()),
    Column(0, "host", pa.string()),
    Column(0, "ratio", pa.float64()),
    Column(0, "price", pa.decimal128(11, 3)),
    Column(0, "day", pa.date32()),
)


def record(n: int) -> bytes:
    row = {
        "n": n,
        "host": None if n % 10 == 7 else f"host {n % 5}",
        "ratio": (0.5, "NaN", None, -1.5)[n % 4],
        "price": f"{n}.125",
        "day": str(dt.date(2026, 1, 1) + dt.timedelta(n % 9)),
    }
    return json.dumps(row).encode()


def produce(kafka: Kafka, topic: str, start: int, stop: int) -> None:
    for partition in range(2):
        own = [record(n) for n in range(start, stop) if n % 2 == partition]
        kafka.produce(topic, own, partition=partition, timestamp_ms=NOW_MS + start)


def refused(run: Callable[[], object]) -> str:
    with pytest.raises((PySparkException, Py4JJavaError)) as error:
        run()
    return str(error.value)
