"""Topics as they are out there, asked by SQL: every codec, records of 10 MB, 200 partitions, a cleaner at work, a topic
made anew while statements run."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import threading
import time
from collections.abc import Callable, Iterator

import adbc_driver_flightsql.dbapi as adbc
import pyarrow as pa
import pytest

from planner.names import TableName
from planner.schema import Column
from tests.fixtures.kafka import COMPACTED, Kafka
from tests.fixtures.server import SqlServer, TieredServer

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COLUMNS = (Column(0, "id", pa.int64()), Column(0, "v", pa.string()))
#: As large as a broker takes here: 10 MB and what is around them.
LARGE = 10_000_000
CLEANED_S = 60.0
#: How long a statement over a log that is gone may still be on its way.
FAILURE_S = 60.0
LARGE_TOPIC = {"max.message.bytes": str(LARGE + 1_000_000)}
PARTITIONS = 200
MADE_ANEW = re.compile(
    "was deleted and created again|which the Kafka cluster does not have|has no topic|do not answer"
)


def record(number: int, value: str = "x") -> bytes:
    return json.dumps({"id": number, "v": value}).encode()


def write_codecs(kafka: Kafka, topic: str, count: int) -> None:
    """A partition for each codec, with the same records."""
    for partition, codec in enumerate(CODECS):
        producer = kafka.producer(compression_type=codec)
        values = [record(number) for number in range(count)]
        kafka.produce(topic, values, partition=partition, producer=producer)


def check_codecs(sql: SqlServer, table: TableName, count: int) -> None:
    answer = sql.ask(
        f"SELECT kafka_partition AS p, count(*) AS n, sum(id) AS s FROM {table} GROUP BY 1 ORDER BY 1"
    )
    total = count * (count - 1) // 2
    assert answer.to_pylist() == [
        {"p": partition, "n": count, "s": total} for partition in range(len(CODECS))
    ]


def write_large(kafka: Kafka, topic: str, first: int, count: int) -> None:
    producer = kafka.producer(message_max_bytes=LARGE + 1_000_000, compression_type="none")
    room = LARGE - len(record(0, ""))
    for number in range(first, first + count):
        value = record(number, chr(ord("a") + number % 26) * room)
        kafka.produce(topic, [value], producer=producer)


def check_large(sql: SqlServer, table: TableName, count: int) -> None:
    room = LARGE - len(record(0, ""))
    answer = sql.ask(
        f"SELECT id, length(v) AS n, v[1] AS first, v[-1] AS last FROM {table} ORDER BY id"
    )
    letters = [chr(ord("a") + number % 26) for number in range(count)]
    assert answer.to_pylist() == [
        {"id": number, "n": room, "first": letter, "last": letter}
        for number, letter in enumerate(letters)
    ]
    statement = f"SELECT v FROM {table} WHERE id = 1"
    with pytest.raises(adbc.Error, match="set the session option max_message_bytes"):
        sql.ask(statement)
    with sql.cursor(
        **{"adbc.flight.sql.client_option.with_max_msg_size": str(2 * LARGE)}
    ) as cursor:
        cursor.execute(f"SET max_message_bytes = {2 * LARGE}")
        cursor.execute(statement)
        assert cursor.fetchall() == [("b" * room,)]


def write_partitions(kafka: Kafka, topic: str) -> int:
    """Partition p gets p % 7 records; the number of all."""
    producer = kafka.producer()
    numbers = itertools.count()
    for partition in range(PARTITIONS):
        for _ in range(partition % 7):
            producer.produce(topic, record(next(numbers)), partition=partition)
    assert producer.flush(60) == 0
    return next(numbers)


def check_partitions(sql: SqlServer, table: TableName, total: int) -> None:
    answer = sql.ask(
        f"SELECT count(*) AS n, count(DISTINCT id) AS d, max(id) AS m, "
        f"count(DISTINCT kafka_partition) AS p FROM {table}"
    )
    used = sum(1 for partition in range(PARTITIONS) if partition % 7)
    assert answer.to_pylist() == [{"n": total, "d": total, "m": total - 1, "p": used}]


def test_every_codec_is_read(kafka: Kafka, server: SqlServer) -> None:
    topic = kafka.topic(len(CODECS))
    table = server.bind(topic, COLUMNS)
    write_codecs(kafka, topic, 500)
    check_codecs(server, table, 500)


def test_records_of_ten_megabytes_are_read(kafka: Kafka, server: SqlServer) -> None:
    topic = kafka.topic(config=LARGE_TOPIC)
    table = server.bind(topic, COLUMNS)
    write_large(kafka, topic, 0, 6)
    check_large(server, table, 6)
    # Followed by now.
    write_large(kafka, topic, 6, 2)
    check_large(server, table, 8)


def test_two_hundred_partitions_are_read(kafka: Kafka, server: SqlServer) -> None:
    topic = kafka.topic(PARTITIONS)
    table = server.bind(topic, COLUMNS)
    check_partitions_empty(server, table)
    total = write_partitions(kafka, topic)
    check_partitions(server, table, total)


def check_partitions_empty(sql: SqlServer, table: TableName) -> None:
    assert sql.ask(f"SELECT count(*) AS n FROM {table}").to_pylist() == [{"n": 0}]


@pytest.mark.spark
@pytest.mark.soak
def test_heavy_topics_are_tiered_and_read_on_both_sides_of_the_seam(
    kafka: Kafka, tiered_server: TieredServer
) -> None:
    sql = tiered_server
    codecs = kafka.topic(len(CODECS))
    table = sql.bind(codecs, COLUMNS)
    write_codecs(kafka, codecs, 300)
    assert sql.tier(table).published
    sql.refresh(table)
    check_codecs(sql, table, 300)

    large = kafka.topic(config=LARGE_TOPIC)
    table = sql.bind(large, COLUMNS)
    write_large(kafka, large, 0, 6)
    assert sql.tier(table).published
    write_large(kafka, large, 6, 2)
    sql.refresh(table)
    check_large(sql, table, 8)

    many = kafka.topic(PARTITIONS)
    table = sql.bind(many, COLUMNS)
    total = write_partitions(kafka, many)
    assert sql.tier(table).published
    sql.refresh(table)
    check_partitions(sql, table, total)


@contextlib.contextmanager
def in_background(step: Callable[[int], None]) -> Iterator[None]:
    """Call it with 0, 1, 2, … until the end; what it raises is raised there."""
    over, problems = threading.Event(), list[BaseException]()

    def run() -> None:
        for number in itertools.count():
            if over.is_set():
                return
            try:
                step(number)
            except BaseException as error:
                problems.append(error)
                return

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if problems:
        raise problems[0]


def test_statements_are_right_while_the_cleaner_works(kafka: Kafka, server: SqlServer) -> None:
    """Of each key the newest record is there; which older ones a statement sees is the cleaner's choice."""
    topic = kafka.topic(config=COMPACTED)
    producer = kafka.producer(linger_ms=0)
    keys, written = 20, [-1]

    def write(number: int) -> None:
        value, key = record(number), b"%d" % (number % keys)
        kafka.produce(topic, [value], keys=[key], producer=producer)
        written[0] = number
        time.sleep(0.005)

    def check(table: TableName) -> bool:
        """Whether the cleaner had been there."""
        before = written[0]
        rows = server.ask(f"SELECT id, kafka_offset FROM {table}").to_pylist()
        ids = {row["id"] for row in rows}
        assert len(ids) == len(rows)
        assert all(row["id"] == row["kafka_offset"] for row in rows)
        last = max(ids, default=-1)
        # The cleaner goes by what was written until the rows were read, not by the end of the cut. One may be on its way.
        newest = written[0] + 1
        assert last >= before or before <= newest - keys
        assert ids >= {number for number in range(last + 1) if number > newest - keys}
        return len(ids) < last + 1

    early = server.bind(topic, COLUMNS)
    cleaned, deadline = 0, time.monotonic() + CLEANED_S
    with in_background(write):
        while cleaned < 10:
            assert time.monotonic() < deadline, "the cleaner never came"
            # What was read before the cleaner came stays, so another table reads the log anew.
            cleaned += check(server.bind(topic, COLUMNS))
            check(early)


def test_a_topic_made_anew_while_statements_run_is_named_and_never_mixed(
    kafka: Kafka, server: SqlServer
) -> None:
    topic = kafka.topic()
    table = server.bind(topic, COLUMNS)
    old, new = 2_000, 3_000
    kafka.produce(topic, [record(number, "old") for number in range(old)])
    statement = f"SELECT count(*) AS n, min(v) AS lo, max(v) AS hi FROM {table}"
    whole = [{"n": old, "lo": "old", "hi": "old"}]
    assert server.ask(statement).to_pylist() == whole
    failures: list[str] = []

    def ask(_: int) -> None:
        try:
            rows = server.ask(statement).to_pylist()
        except adbc.Error as error:
            failures.append(str(error))
        else:
            assert rows == whole

    with in_background(ask), in_background(ask):
        time.sleep(0.3)
        kafka.delete_topic(topic)
        time.sleep(0.3)
        kafka.topic(name=topic)
        kafka.produce(topic, [record(number, "new") for number in range(new)])
        count, deadline = len(failures), time.monotonic() + FAILURE_S
        while len(failures) <= count:
            assert time.monotonic() < deadline, "statements go on over a log that is gone"
            time.sleep(0.05)
    for failure in failures:
        assert MADE_ANEW.search(failure), failure
    with pytest.raises(adbc.Error, match="was deleted and created again"):
        server.ask(statement)
