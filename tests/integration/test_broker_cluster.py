"""Three brokers: leaders that change, replicas that move, and an election that loses records."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import adbc_driver_flightsql.dbapi as adbc
import pytest

from connectors.kafka.log import KafkaLog
from planner.errors import LogTruncated
from planner.offsets import OffsetRange
from planner.ports import LogSubscription, TopicSource
from tests.fixtures.commands import CliSite, cli_serving, cli_site_of
from tests.harness.kafka_cluster import KafkaCluster, kafka_cluster, wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

#: Two copies that may differ: the second leads once the first is gone, whatever it lacks.
UNCLEAN = [[2, 3]]
ANSWER_S = 60.0
#: Between two records: all of them are read again by each statement, by three brokers of two cores.
PAUSE_S = 0.005
#: Between two tries of a statement that has no answer yet.
RETRY_S = 0.1
NO_LEADER = re.compile("do not answer|target unreachable|refuses offsets|out of date")
LOST = re.compile(
    "the log lost records|records that were readable are lost|but the log ends at"
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with kafka_cluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(autouse=True)
def whole_cluster(cluster: KafkaCluster) -> Iterator[None]:
    yield
    for broker in cluster.brokers.values():
        broker.start()


class Story:
    """A topic whose leader loses the newest records, in steps."""

    def __init__(self, cluster: KafkaCluster, topic: str) -> None:
        self.cluster, self.topic = cluster, topic
        self._ids = itertools.count()

    def write(self, word: str, count: int) -> list[tuple[int, str]]:
        """Write records with ids that go on; return them as rows."""
        rows = [(next(self._ids), word) for _ in range(count)]
        producer = self.cluster.producer()
        values = [json.dumps({"id": number, "v": word}).encode() for number, _ in rows]
        self.cluster.kafka.produce(self.topic, values, producer=producer)
        return rows


def leave_behind(cluster: KafkaCluster, topics: list[str]) -> None:
    """Stop node 3: what is written now is on node 2 only."""
    cluster.brokers[3].kill()
    for topic in topics:
        cluster.await_in_sync(topic, 2)


def elect_unclean(cluster: KafkaCluster, topics: list[str]) -> None:
    """Have node 3 lead, without what it lacks, while node 2 is down."""
    cluster.brokers[2].kill()
    for topic in topics:
        cluster.await_leader(topic, None)
    cluster.brokers[3].start()
    for topic in topics:
        cluster.elect(topic, is_clean=False)
        cluster.await_leader(topic, 3)


def test_the_history_below_a_backlog_is_told_without_reading_the_backlog(
    cluster: KafkaCluster,
) -> None:
    """Else a tierer that is behind fails after each change of leaders, and is ever further behind."""
    topic = cluster.topic([[2, 3]] * 3)
    producer = cluster.producer()
    few, many = [b"few"] * 10, [b"x" * 100] * 40_000
    with KafkaLog(cluster.settings) as log:
        for partition in range(3):
            cluster.kafka.produce(topic, few, partition=partition, producer=producer)
        epochs = log.measure([topic])[topic].epochs.as_dict()
        cluster.reassign(topic, [[3, 2]] * 3)
        for partition in range(3):
            cluster.elect(topic, partition=partition)
            cluster.await_leader(topic, 3, partition=partition)
            cluster.kafka.produce(topic, many, partition=partition, producer=producer)
        assert log.measure([topic])[topic].epochs.as_dict() != epochs
        used_s = time.thread_time()
        log.check_history(TopicSource(topic), dict.fromkeys(range(3), 10), epochs)
        # Reading them takes this thread more than a second.
        assert time.thread_time() - used_s < 0.4


def read_to(following: LogSubscription, end: int) -> None:
    """Take until the first partition is read up to ``end``, all by its first leader."""
    reached = 0
    while reached < end:
        if (step := following.take(1.0)) is not None:
            assert step.epochs == {0: 0}
            reached = step.ranges[0].stop


def check_what_the_log_tells(log: KafkaLog, source: TopicSource) -> None:
    """Of ten records the last five are lost, and eight are new: who read five goes on, who read more is told."""
    for offset, survives in [(5, True), (6, False), (10, False)]:
        with contextlib.nullcontext() if survives else pytest.raises(LogTruncated):
            log.check_history(source, {0: offset}, {0: 0})
        with contextlib.nullcontext() if survives else pytest.raises(LogTruncated):
            span = OffsetRange(0, offset, 13)
            list(log.fetch(source, [span], timeout_s=20, epochs={0: 0}))
        again = log.follow(source, {0: offset}, {0: 0})
        with (
            contextlib.closing(again),
            contextlib.nullcontext() if survives else pytest.raises(LogTruncated),
        ):
            read_on(again.take)
    epochs = log.measure([source.topic])[source.topic].epochs.as_dict()
    log.check_history(source, {0: 13}, epochs)


def read_on(take: Callable[[float], object]) -> None:
    """Take until something comes, or it fails."""
    deadline = time.monotonic() + 30
    while take(1.0) is None:
        assert time.monotonic() < deadline


@pytest.mark.spark
def test_an_unclean_election_leaves_the_rows_of_one_log_or_a_named_error(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Three tables: not tiered, tiered up to what both copies have, and beyond; and a topic that is read without one."""
    site = site_of(tmp_path, cluster)
    stories = {
        name: Story(cluster, cluster.topic(UNCLEAN)) for name in ("hot", "below", "above")
    }
    bare = Story(cluster, cluster.topic(UNCLEAN))
    source = TopicSource(bare.topic)
    topics = [story.topic for story in (*stories.values(), bare)]
    for name, story in stories.items():
        rows = story.write("both", 5)
        run(site, "create", f"lake.net.{name}", "--topic", story.topic, "--infer")
    bare.write("both", 5)
    with cli_serving(site), KafkaLog(cluster.settings) as log:
        run(site, "tier", "--once", "lake.net.below")
        leave_behind(cluster, topics)
        lost = {name: story.write("lost", 5) for name, story in stories.items()}
        bare.write("lost", 5)
        run(site, "tier", "--once", "lake.net.above")
        for name in stories:
            wait_for(lambda name=name: answer(site, name) == rows + lost[name], name)  # type: ignore[misc]
        with contextlib.closing(log.follow(source, {0: 0}, {})) as following:
            read_to(following, 10)
            log.check_history(source, {0: 10}, {0: 0})
            elect_unclean(cluster, topics)
            bare.write("new", 8)
            with pytest.raises(LogTruncated, match="lost records below offset 10"):
                read_on(following.take)
        check_what_the_log_tells(log, source)
        # Fewer than were lost, as many, and more.
        new = {name: list(rows) for name in stories}
        for count in (3, 2, 3):
            for name, story in stories.items():
                new[name] += story.write("new", count)
            for name in ("hot", "below"):
                assert first_answer(site, name) == new[name]
            if len(new["above"]) != len(rows + lost["above"]):
                last_failure(site, "above", LOST)
        code, _, err = site.run("tier", "--once", "lake.net.above")
        assert code != 0
        assert "lost records below offset 10" in " ".join(err.split())
        run(site, "tier", "--once", "lake.net.hot", "lake.net.below")
        for name in ("hot", "below"):
            assert first_answer(site, name) == new[name]
            run(site, "verify", f"lake.net.{name}")


def test_statements_are_exact_while_leaders_change_a_broker_is_gone_and_replicas_move(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    topic = cluster.topic([[2, 3], [3, 2], [2, 3], [3, 2]])
    alone = cluster.topic([[3]])
    site = site_of(tmp_path, cluster)
    with writing(cluster, topic) as acknowledged, cli_serving(site):
        cluster.kafka.produce(alone, [b'{"id": 1}'], producer=cluster.producer())
        wait_for(lambda: bool(acknowledged), "nothing was written")
        run(site, "create", "lake.net.led", "--topic", topic, "--infer")
        run(site, "create", "lake.net.alone", "--topic", alone, "--infer")
        check_rounds(site, acknowledged)
        for node in (2, 3):
            cluster.brokers[node].stop()
            for partition in range(4):
                cluster.await_leader(topic, 5 - node, partition=partition)
            check_rounds(site, acknowledged)
            if node == 3:
                # Its only copy is gone, and stays so: that table says it, the other does not mind.
                last_failure(site, "alone", NO_LEADER)
                check_rounds(site, acknowledged)
            cluster.brokers[node].start()
            for partition in range(4):
                cluster.await_in_sync(topic, 2, 3, partition=partition)
                cluster.elect(topic, partition=partition)
            check_rounds(site, acknowledged)
        # To a node that had no copy of it, and away from both that had.
        cluster.reassign(topic, [[1]] * 4)
        check_rounds(site, acknowledged)
        for partition in range(4):
            cluster.await_in_sync(topic, 1, partition=partition)
            cluster.await_leader(topic, 1, partition=partition)
        check_rounds(site, acknowledged)
        assert first_answer(site, "alone", "count(*)") == [(1,)]


@pytest.mark.soak
def test_statements_are_exact_while_replicas_move_under_load(
    cluster: KafkaCluster, tmp_path: Path
) -> None:
    """Each move takes every partition to the node that had no copy of it, and drops the other."""
    nodes = [[2], [3], [2], [3]]
    topic = cluster.topic(nodes)
    site = site_of(tmp_path, cluster)
    with writing(cluster, topic) as acknowledged, cli_serving(site):
        wait_for(lambda: bool(acknowledged), "nothing was written")
        run(site, "create", "lake.net.led", "--topic", topic, "--infer")
        check_rounds(site, acknowledged)
        for _ in range(12):
            nodes = [[5 - node] for [node] in nodes]
            cluster.reassign(topic, nodes)
            check_rounds(site, acknowledged)
            for partition, [node] in enumerate(nodes):
                cluster.await_in_sync(topic, node, partition=partition)
                cluster.await_leader(topic, node, partition=partition)
            check_rounds(site, acknowledged)


def check_rounds(site: CliSite, acknowledged: list[int]) -> None:
    """Ask until three rounds were answered; each has all that was acknowledged before, once."""
    deadline = time.monotonic() + ANSWER_S
    left = 3
    while left:
        before = len(acknowledged)
        columns = f"count(*), count(DISTINCT id), count(*) FILTER (id < {before})"
        rows, failure = outcome(site, "led", columns)
        if failure:
            assert NO_LEADER.search(failure), failure
            assert time.monotonic() < deadline, failure
            time.sleep(RETRY_S)
            continue
        [(count, distinct, earlier)] = rows
        assert count == distinct
        assert earlier == before
        left -= 1


@contextlib.contextmanager
def writing(cluster: KafkaCluster, topic: str) -> Iterator[list[int]]:
    """Write numbers from 0 on, one after another, in all partitions; yield those that were acknowledged."""
    acknowledged: list[int] = []
    stopped = threading.Event()
    producer = cluster.producer()

    def write() -> None:
        for number in itertools.count():
            if stopped.is_set():
                return
            value = json.dumps({"id": number}).encode()
            cluster.kafka.produce(topic, [value], partition=number % 4, producer=producer)
            acknowledged.append(number)
            stopped.wait(PAUSE_S)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield acknowledged
    finally:
        stopped.set()
        thread.join()


def site_of(folder: Path, cluster: KafkaCluster) -> CliSite:
    return cli_site_of(folder, cluster.settings)


def run(site: CliSite, *arguments: str) -> str:
    code, out, err = site.run(*arguments)
    assert code == 0, err
    return out


def answer(site: CliSite, name: str, columns: str = "id, v") -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = site.ask(f"SELECT {columns} FROM net.{name} ORDER BY ALL")
    return rows


def first_answer(site: CliSite, name: str, columns: str = "id, v") -> list[tuple[object, ...]]:
    """The first one that is no error; errors are named, and pass."""
    deadline = time.monotonic() + ANSWER_S
    while True:
        rows, failure = outcome(site, name, columns)
        if not failure:
            return rows
        assert NO_LEADER.search(failure) or LOST.search(failure), failure
        assert time.monotonic() < deadline, failure
        time.sleep(RETRY_S)


def last_failure(site: CliSite, name: str, words: re.Pattern[str]) -> str:
    """Ask until it fails for this reason; until then a leader that is not known yet may be the reason."""
    deadline = time.monotonic() + ANSWER_S
    while True:
        rows, failure = outcome(site, name, "count(*)")
        assert failure, rows
        if words.search(failure):
            return failure
        assert NO_LEADER.search(failure), failure
        assert time.monotonic() < deadline, failure
        time.sleep(RETRY_S)


def outcome(site: CliSite, name: str, columns: str) -> tuple[list[tuple[object, ...]], str]:
    """The rows, or what went wrong."""
    try:
        return answer(site, name, columns), ""
    except adbc.Error as error:
        return [], str(error)
