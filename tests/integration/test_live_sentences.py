"""What users of engines read where a person must look: our sentence, soon, and no older answer."""

from __future__ import annotations

import contextlib
import json
import re
import time
import urllib.error
from collections.abc import Callable

import pyarrow as pa
import pytest

from planner.errors import ForeignCommit
from planner.names import TableName
from tests.fixtures.kafka import Kafka
from tests.fixtures.live import LiveServer
from tests.harness.live_rows import COLUMNS, produce

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]


def lose_records(live: LiveServer, kafka: Kafka, table: TableName, topic: str) -> None:
    kafka.delete_records(topic, 0, 10)


def create_the_topic_again(
    live: LiveServer, kafka: Kafka, table: TableName, topic: str
) -> None:
    kafka.delete_topic(topic)
    kafka.topic(2, name=topic)
    produce(kafka, topic, 0, 10)


def append_as_a_stranger(live: LiveServer, kafka: Kafka, table: TableName, topic: str) -> None:
    with live.catalog() as catalog:
        loaded = catalog.load_table((*table.namespace, table.name))
        loaded.append(pa.Table.from_pylist([{"n": 1}], loaded.schema().as_arrow()))
    with pytest.raises(ForeignCommit):
        live.refresh(table)


def produce_more(live: LiveServer, kafka: Kafka, table: TableName, topic: str) -> None:
    produce(kafka, topic, 100, 300)


@pytest.mark.parametrize(
    ("harm", "kind", "sentence"),
    [
        (lose_records, "TailGap", "10 offsets were removed before they were tiered"),
        (create_the_topic_again, "TopicRecreated", "the topic was deleted and created again"),
        (append_as_a_stranger, "ForeignCommit", "was committed by another writer above the"),
        (produce_more, "TailTooLarge", "the untiered tail holds more than 200 (max_tail_rows)"),
    ],
)
def test_our_sentence_reaches_users_of_engines_within_seconds(
    kafka: Kafka,
    live: LiveServer,
    harm: Callable[[LiveServer, Kafka, TableName, str], None],
    kind: str,
    sentence: str,
) -> None:
    topic = kafka.topic(2)
    table = live.bind(topic, COLUMNS, max_tail_rows=200)
    produce(kafka, topic, 0, 100)
    count = "SELECT count(*) FROM {t}"
    spark = live.through_spark(table)
    with live.through_duckdb(table) as duck:
        for engine in (spark, duck):
            assert engine(count) == [(100,)]
        assert live.arrow(table).num_rows == 100
        harm(live, kafka, table, topic)
        for ask in (
            lambda: spark(count),
            lambda: duck(count),
            lambda: live.arrow(table),
        ):
            began_s = time.monotonic()
            with pytest.raises(Exception, match=re.escape(sentence)):
                ask()
            assert time.monotonic() - began_s < 5
    with pytest.raises(urllib.error.HTTPError) as caught:
        live.document(table)
    with contextlib.closing(caught.value) as answer:
        error = json.load(answer)["error"]
    assert (error["code"], error["type"]) == (422, kind)
    assert sentence in error["message"]
