"""The tiering loop over logs and tables in memory: who is tiered when, and who suffers from what."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest

from connectors.jobs import events
from connectors.jobs.loop import LoopLimits, TableLoop
from connectors.jobs.round import tier_once
from connectors.jobs.tier import RoundLimits, TieringJob, TieringTable
from planner.errors import (
    CatalogUnavailable,
    FederationError,
    LogUnavailable,
    SchemaRegistryUnavailable,
    TailGap,
)
from planner.evolution.changes import Evolving
from planner.names import TableName
from planner.offsets import OffsetVector
from planner.ports import Staged, TopicSource
from planner.seam.binding import Binding
from planner.seam.cut import ColdSlice, Pin
from planner.seam.watermark import Watermark
from planner.tiering.plan import TieringBudget, TieringPlan
from planner.tiering.schedule import Backfill
from planner.tiering.triggers import ColdSurvey, Lag, LogRetention
from tests.doubles.cold import MemoryColdStore
from tests.doubles.log import MemoryLog, MemoryRecord
from tests.doubles.tiering import MemoryTieringTarget
from tests.fixtures.spark import PAYLOAD
from tests.harness.generated_log import open_decoder

TIMEOUT_S = 10.0
LIMITS = LoopLimits(poll_s=0.01, refresh_s=0.05, stop_s=2.0)
ROUNDS = RoundLimits()


@dataclass
class RecordedEvents:
    """Everything the loop told, in order."""

    lines: list[tuple[str, str]] = field(default_factory=list)
    lags: dict[str, Lag] = field(default_factory=dict)
    backfills: list[Backfill | None] = field(default_factory=list)
    triggers: list[str] = field(default_factory=list)
    tries: dict[str, int] = field(default_factory=dict)

    def __call__(self, event: events.Event) -> None:
        name = event.table.name if event.table else "list"
        match event:
            case events.TableMeasured(lag=lag):
                self.lags[name] = lag
            case events.RoundPublished(trigger=trigger, backfill=backfill):
                self.triggers.append(trigger.kind)
                self.backfills.append(backfill)
                self.lines.append((name, "published"))
            case events.TableEvolved():
                self.lines.append((name, "evolved"))
            case events.SchemasNotFollowed():
                self.lines.append((name, "not followed"))
            case events.RoundRefused():
                self.lines.append((name, "refused"))
            case events.TableFailed(error=error, is_first=is_first):
                self.tries[name] = self.tries.get(name, 0) + 1
                if is_first:
                    self.lines.append((name, type(error).__name__))
            case events.DrainFailed(error=error):
                self.lines.append((name, type(error).__name__))
            case events.TableRecovered():
                self.lines.append((name, "recovered"))
            case events.TableRemoved():
                self.lines.append((name, "removed"))

    def of(self, name: str) -> list[str]:
        return [what for table, what in list(self.lines) if table == name]


@dataclass
class Lake:
    """Tables ``t0``, ``t1`` … bound to topics of the same name, two partitions each."""

    log: MemoryLog = field(default_factory=MemoryLog)
    store: MemoryColdStore = field(default_factory=MemoryColdStore)
    heard: RecordedEvents = field(default_factory=RecordedEvents)
    targets: dict[TableName, MemoryTieringTarget] = field(default_factory=dict)
    make: Callable[..., MemoryTieringTarget] = MemoryTieringTarget

    def create(self, topic: str, **options: object) -> TableName:
        name = TableName("lake", ("net",), topic)
        self.log.create_topic(topic, 2)
        bounds = self.log.measure([topic])[topic]
        binding = replace(Binding(topic), **options)  # type: ignore[arg-type]
        first = Watermark(
            cluster_id=bounds.cluster_id,
            topic=topic,
            topic_id=bounds.topic_id,
            next=OffsetVector.of(
                (partition.partition, partition.log_start) for partition in bounds.partitions
            ),
            shape=binding.shape,
            run="created",
        )
        self.store.create(name, PAYLOAD, binding, first)
        return name

    def send(self, topic: str, count: int, *, bad: bool = False) -> None:
        for number in range(count):
            value = b"not json" if bad else json.dumps({"host": "a", "bytes": number}).encode()
            self.log.append(topic, number % 2, MemoryRecord(value))

    def rows(self, name: TableName) -> int:
        facts = self.store.facts(name)
        value = ColdSlice(facts.table, facts.metadata_location, facts.head, facts.schema)
        return self.store.scan(value).table.num_rows

    def open(self, name: TableName) -> MemoryTieringTarget:
        self.targets[name] = self.make(self.store, name, self.log, open_decoder)
        return self.targets[name]

    def loop(
        self,
        *,
        limits: LoopLimits = LIMITS,
        rounds: RoundLimits = ROUNDS,
        check: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        random_share: Callable[[], float] = lambda: 0.0,
        **job: object,
    ) -> TableLoop[TieringTable]:
        """``job``: what is other than usual of the job."""
        usual = {"tables": self.store.tables, "open_target": self.open, "adjust": hasty}
        return TableLoop(
            TieringJob(self.log, limits=rounds, **(usual | job)),  # type: ignore[arg-type]
            listeners=[self.heard],
            limits=limits,
            check=check,
            clock=clock,
            random_share=random_share,
        )


def hasty(survey: ColdSurvey) -> ColdSurvey:
    """Publish whatever is there at once."""
    return replace(survey, options=replace(survey.options, max_age_s=1e-9))


@contextlib.contextmanager
def running(loop: TableLoop[TieringTable]) -> Iterator[TableLoop[TieringTable]]:
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        yield loop
    finally:
        loop.stop()
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline, "it did not get there"
        time.sleep(0.005)


@pytest.fixture
def lake_in_memory() -> Lake:
    return Lake()


def test_tables_are_tiered_as_they_fill_and_new_ones_are_found(lake_in_memory: Lake) -> None:
    first = lake_in_memory.create("t0")
    lake_in_memory.send("t0", 10)
    with running(lake_in_memory.loop()):
        until(lambda: lake_in_memory.rows(first) == 10)
        second = lake_in_memory.create("t1")
        lake_in_memory.send("t1", 6)
        lake_in_memory.send("t0", 4)
        until(lambda: (lake_in_memory.rows(first), lake_in_memory.rows(second)) == (14, 6))
        lake_in_memory.store.drop(second)
        until(lambda: "removed" in lake_in_memory.heard.of("t1"))
    assert lake_in_memory.heard.of("t0") == ["published", "published"]
    assert set(lake_in_memory.heard.triggers) == {"age"}


def test_schemas_that_cannot_be_followed_are_told_once_and_stop_nothing(
    lake_in_memory: Lake,
) -> None:
    name = lake_in_memory.create("t0")
    lake_in_memory.send("t0", 4)
    answers: list[tuple[Evolving, ...] | None] = [(), None, (Evolving((), "{}"),)]
    calls: list[TableName] = []

    def follow(table: TableName, _: Binding) -> tuple[Evolving, ...] | None:
        calls.append(table)
        if lake_in_memory.rows(name) == 4 and answers:
            return answers.pop()
        raise SchemaRegistryUnavailable("no registry answers.")

    with running(lake_in_memory.loop(follow=follow)):
        until(lambda: lake_in_memory.rows(name) == 4)
        until(lambda: not answers)
        count = len(calls)
        until(lambda: len(calls) > count + 4)
    lines = [what for what in lake_in_memory.heard.of("t0") if what != "published"]
    assert lines == ["not followed", "evolved", "not followed"]


def test_rows_wait_until_their_files_would_be_full(lake_in_memory: Lake) -> None:
    name = lake_in_memory.create("t0")
    lake_in_memory.send("t0", 10)
    with running(lake_in_memory.loop(adjust=lambda survey: survey)):
        until(lambda: lake_in_memory.heard.lags.get("t0", Lag()).rows == 10)
        assert lake_in_memory.heard.lags["t0"].log_bytes > 100
        time.sleep(0.1)
        assert lake_in_memory.rows(name) == 0
        lake_in_memory.store.set_properties(name, {"write.target-file-size-bytes": "20"})
        until(lambda: lake_in_memory.rows(name) == 10)
    assert lake_in_memory.heard.triggers == ["bytes"]


def test_the_tables_tail_budget_presses(lake_in_memory: Lake) -> None:
    name = lake_in_memory.create("t0", max_tail_rows=20)
    lake_in_memory.send("t0", 9)
    with running(lake_in_memory.loop(adjust=lambda survey: survey)):
        until(lambda: lake_in_memory.heard.lags.get("t0", Lag()).rows == 9)
        lake_in_memory.send("t0", 1)
        until(lambda: lake_in_memory.rows(name) == 10)
    assert lake_in_memory.heard.triggers == ["pressure"]


def test_the_brokers_retention_presses(lake_in_memory: Lake) -> None:
    name = lake_in_memory.create("t0")
    lake_in_memory.send("t0", 3)

    def retentions(topics: Sequence[str]) -> Mapping[str, LogRetention]:
        return {topic: LogRetention(seconds=0.2) for topic in topics}

    with running(lake_in_memory.loop(adjust=lambda survey: survey, retentions=retentions)):
        until(lambda: lake_in_memory.rows(name) == 3)
    assert lake_in_memory.heard.triggers == ["pressure"]


def test_one_tables_failure_is_told_once_and_stops_no_other(lake_in_memory: Lake) -> None:
    poison, gap, recreated, well = (lake_in_memory.create(f"t{number}") for number in range(4))
    lake_in_memory.send("t0", 2, bad=True)
    lake_in_memory.send("t1", 9)
    lake_in_memory.log.delete_records("t1", 0, 3)
    lake_in_memory.log.delete_topic("t2")
    lake_in_memory.log.create_topic("t2", 2)
    unbound = TableName("lake", ("net",), "plain")
    lake_in_memory.store.create(unbound, PAYLOAD)
    with running(lake_in_memory.loop(limits=replace(LIMITS, at_once=1))):
        for count in range(5, 31, 5):
            lake_in_memory.send("t3", 5)
            until(lambda count=count: lake_in_memory.rows(well) == count)  # type: ignore[misc]
        until(lambda: len({name for name, _ in lake_in_memory.heard.lines}) == 5)
    assert (
        lake_in_memory.rows(poison)
        == lake_in_memory.rows(gap)
        == lake_in_memory.rows(recreated)
        == 0
    )
    # json.loads of the decoder double raises what no decoder may; the loop survives that too.
    assert lake_in_memory.heard.of("t0") == ["InternalError"]
    assert lake_in_memory.heard.of("plain") == ["BadBinding"]
    assert lake_in_memory.heard.of("t1") == ["TailGap"]
    assert lake_in_memory.heard.of("t2") == ["TopicRecreated"]
    assert set(lake_in_memory.heard.of("t3")) == {"published"}


@dataclass
class QuickClock:
    """Two seconds pass between two calls at it."""

    now_s: float = 0.0

    def __call__(self) -> float:
        self.now_s += 2.0
        return self.now_s


class Mute(MemoryLog):
    """No leader tells its log's history, although leaders have changed."""

    mute = False

    def check_history(
        self, source: TopicSource, offsets: Mapping[int, int], epochs: Mapping[int, int]
    ) -> None:
        if self.mute:
            raise LogUnavailable("t0: no leader tells its log's history.")
        super().check_history(source, offsets, epochs)


def test_a_log_whose_history_nobody_tells_is_asked_again_soon_and_told_of_each_minute() -> None:
    log = Mute()
    lake_in_memory = Lake(log=log)
    name = lake_in_memory.create("t0")
    lake_in_memory.send("t0", 4)
    with running(lake_in_memory.loop()):
        until(lambda: lake_in_memory.rows(name) == 4)
    lake_in_memory.heard.lines.clear()
    log.elect("t0", 0)
    log.mute = True
    lake_in_memory.send("t0", 4)
    clock = QuickClock()
    with running(lake_in_memory.loop(clock=clock, limits=replace(LIMITS, refresh_s=1e9))):
        until(lambda: clock.now_s > 600)
        log.mute = False
        until(lambda: lake_in_memory.rows(name) == 8)
    lines = lake_in_memory.heard.of("t0")
    assert lines[-2:] == ["recovered", "published"]
    assert 5 <= lines.count("LogUnavailable") <= 11
    assert lake_in_memory.heard.tries["t0"] >= 20


def test_a_topic_that_is_gone_fails_its_own_table_only(lake_in_memory: Lake) -> None:
    lake_in_memory.create("t0")
    well = lake_in_memory.create("t1")
    lake_in_memory.log.delete_topic("t0")
    lake_in_memory.send("t1", 4)
    with running(lake_in_memory.loop()):
        until(lambda: lake_in_memory.rows(well) == 4)
    assert lake_in_memory.heard.of("t0") == ["UnknownTopic"]


def test_a_foreign_append_stops_the_table_until_it_is_gone(lake_in_memory: Lake) -> None:
    name = lake_in_memory.create("t0")
    head = lake_in_memory.store.facts(name).head
    assert head is not None
    schema = lake_in_memory.store.facts(name).schema
    lake_in_memory.send("t0", 4)
    rows = [{"kafka_partition": 0, "kafka_offset": 99, "host": "x", "bytes": 1}]
    lake_in_memory.store.append(name, pa.Table.from_pylist(rows, schema.arrow))
    with running(lake_in_memory.loop()):
        until(lambda: "ForeignCommit" in lake_in_memory.heard.of("t0"))
        assert lake_in_memory.rows(name) == 1
        lake_in_memory.store.rollback(name, head)
        until(lambda: lake_in_memory.rows(name) == 4)
    assert lake_in_memory.heard.of("t0") == ["ForeignCommit", "recovered", "published"]


def test_an_outage_of_the_catalog_is_told_once_and_known_tables_go_on(
    lake_in_memory: Lake,
) -> None:
    name = lake_in_memory.create("t0")
    down: list[bool] = []

    def discover() -> tuple[TableName, ...]:
        if down:
            raise CatalogUnavailable("lake: no answer.")
        return lake_in_memory.store.tables()

    with running(lake_in_memory.loop(tables=discover)):
        lake_in_memory.send("t0", 2)
        until(lambda: lake_in_memory.rows(name) == 2)
        down.append(True)
        until(lambda: "CatalogUnavailable" in lake_in_memory.heard.of("list"))
        lake_in_memory.send("t0", 2)
        until(lambda: lake_in_memory.rows(name) == 4)
    assert lake_in_memory.heard.of("list") == ["CatalogUnavailable"]


def test_a_silent_catalog_is_asked_for_one_table_a_look(lake_in_memory: Lake) -> None:
    items: list[TableName] = []

    class Silent(MemoryTieringTarget):
        def pin(self) -> Pin:
            if self._table.catalog == "lake":
                items.append(self._table)
                raise CatalogUnavailable("lake: no answer.")
            return super().pin()

    lake_in_memory.make = Silent
    for number in range(5):
        lake_in_memory.create(f"t{number}")
    with running(lake_in_memory.loop(random_share=lambda: 1.0)):
        until(lambda: len(items) >= 5)
    # Each waits for itself after it has been asked.
    assert sorted(set(items[:5])) == sorted(lake_in_memory.store.tables())


class Rivalled(MemoryTieringTarget):
    """Another tierer publishes between stage and publish, as often as ``rivals`` says."""

    rivals = 1

    def publish(self, staged: Staged) -> Watermark:
        if self.rivals:
            self.rivals -= 1
            rival = MemoryTieringTarget(self._store, self._table, self._log, open_decoder)
            rival.publish(rival.stage(staged.plan))
        return super().publish(staged)


def test_a_refused_publish_is_counted_and_planned_again(lake_in_memory: Lake) -> None:
    lake_in_memory.make = Rivalled
    name = lake_in_memory.create("t0")
    lake_in_memory.send("t0", 8)
    with running(lake_in_memory.loop()):
        until(lambda: "refused" in lake_in_memory.heard.of("t0"))
        lake_in_memory.send("t0", 2)
        until(lambda: lake_in_memory.rows(name) == 10)
    assert lake_in_memory.heard.of("t0") == ["refused", "published"]


class Slow(MemoryTieringTarget):
    """Stages until it is cancelled."""

    staging = threading.Event()
    cancelled = threading.Event()

    def stage(self, plan: TieringPlan) -> Staged:
        self.staging.set()
        assert self.cancelled.wait(TIMEOUT_S)
        raise CatalogUnavailable("cancelled")

    def cancel(self) -> None:
        self.cancelled.set()


def test_a_stop_waits_for_a_round_and_cancels_it_in_the_end(lake_in_memory: Lake) -> None:
    lake_in_memory.make = Slow
    Slow.staging.clear()
    Slow.cancelled.clear()
    name = lake_in_memory.create("t0")
    lake_in_memory.send("t0", 8)
    with running(lake_in_memory.loop(limits=replace(LIMITS, stop_s=0.3))) as loop:
        until(Slow.staging.is_set)
        loop.stop()
        time.sleep(0.1)
        assert not Slow.cancelled.is_set()
        until(Slow.cancelled.is_set)
    assert lake_in_memory.rows(name) == 0
    # What a stop breaks off is no failure.
    assert lake_in_memory.heard.lines == []


def test_a_backfill_goes_in_bounded_publishes_and_tells_how_far_it_is(
    lake_in_memory: Lake,
) -> None:
    name = lake_in_memory.create("t0")
    lake_in_memory.send("t0", 100)
    with running(lake_in_memory.loop(rounds=RoundLimits(max_rows=30))):
        until(lambda: lake_in_memory.rows(name) == 100)
    assert [
        (backfill.done, backfill.left)
        for backfill in lake_in_memory.heard.backfills
        if backfill
    ] == [
        (30, 70),
        (60, 40),
        (90, 10),
        (100, 0),
    ]
    assert all(
        backfill.eta_s is not None for backfill in lake_in_memory.heard.backfills if backfill
    )


@pytest.mark.parametrize(("publish_s", "done"), [(1e9, [10, 25]), (1e-9, [10, *range(11, 26)])])
def test_a_drain_starts_with_little_and_goes_on_as_its_pace_allows(
    lake_in_memory: Lake, monkeypatch: pytest.MonkeyPatch, publish_s: float, done: list[int]
) -> None:
    monkeypatch.setattr("connectors.jobs.tier._START_ROWS", 10)
    lake_in_memory.create("t0")
    lake_in_memory.send("t0", 25)
    lake_in_memory.loop(rounds=RoundLimits(publish_s=publish_s)).drain()
    assert [backfill.done for backfill in lake_in_memory.heard.backfills if backfill] == done


def test_a_table_may_ask_for_smaller_publishes(lake_in_memory: Lake) -> None:
    name = lake_in_memory.create("t0")
    lake_in_memory.store.set_properties(name, {"thermocline.tier.max_rows": "50"})
    lake_in_memory.send("t0", 100)
    lake_in_memory.loop(rounds=RoundLimits(max_rows=80)).drain()
    assert lake_in_memory.heard.of("t0") == ["published", "published"]
    assert lake_in_memory.rows(name) == 100


def test_a_wrong_option_stops_the_table_by_name(lake_in_memory: Lake) -> None:
    name = lake_in_memory.create("t0")
    lake_in_memory.store.set_properties(name, {"thermocline.tier.max_rowz": "50"})
    with running(lake_in_memory.loop()):
        until(lambda: lake_in_memory.heard.of("t0") == ["BadBinding"])
        lake_in_memory.store.set_properties(name, {"thermocline.tier.max_rowz": None})
        lake_in_memory.send("t0", 1)
        until(lambda: lake_in_memory.rows(name) == 1)
    assert lake_in_memory.heard.of("t0") == ["BadBinding", "recovered", "published"]


def test_a_drain_ends_at_the_logs_end_and_tells_the_first_failure_last(
    lake_in_memory: Lake,
) -> None:
    gap, well = lake_in_memory.create("t0"), lake_in_memory.create("t1")
    lake_in_memory.send("t0", 9)
    lake_in_memory.send("t1", 9)
    lake_in_memory.log.delete_records("t0", 0, 3)
    with pytest.raises(FederationError, match="cold data ends at offset 0"):
        lake_in_memory.loop(limits=replace(LIMITS, at_once=1)).drain()
    assert (lake_in_memory.rows(gap), lake_in_memory.rows(well)) == (0, 9)
    assert lake_in_memory.loop(tables=lambda: [well]).drain() == 1


def test_a_drain_tells_each_table_that_was_not_tiered(lake_in_memory: Lake) -> None:
    for number in range(4):
        lake_in_memory.create(f"t{number}")
        lake_in_memory.send(f"t{number}", 9)
    for topic in ("t0", "t2", "t3"):
        lake_in_memory.log.delete_records(topic, 0, 3)
    with pytest.raises(TailGap, match=r"t0.*cold data ends at offset 0"):
        lake_in_memory.loop().drain()
    heard = {f"t{number}": lake_in_memory.heard.of(f"t{number}") for number in range(4)}
    assert heard == {"t0": [], "t1": ["published"], "t2": ["TailGap"], "t3": ["TailGap"]}


def test_what_all_tables_need_ends_the_loop_when_it_is_gone(lake_in_memory: Lake) -> None:
    lake_in_memory.create("t0")

    def gone() -> None:
        raise CatalogUnavailable("Spark has ended.")

    with pytest.raises(CatalogUnavailable, match="Spark has ended"):
        lake_in_memory.loop(check=gone).run()


class Lost(MemoryTieringTarget):
    """What all tables need ends while this one stages."""

    lost = threading.Event()

    def stage(self, plan: TieringPlan) -> Staged:
        self.lost.set()
        raise ConnectionRefusedError(111, "Connection refused")


@pytest.mark.parametrize("once", [False, True])
def test_a_round_that_fails_with_what_all_tables_need_says_nothing_of_its_own(
    lake_in_memory: Lake, once: bool
) -> None:
    lake_in_memory.make = Lost
    Lost.lost.clear()
    lake_in_memory.create("t0")
    lake_in_memory.send("t0", 8)

    def check() -> None:
        if Lost.lost.is_set():
            raise CatalogUnavailable("Spark has ended.")

    loop = lake_in_memory.loop(check=check)
    with pytest.raises(CatalogUnavailable, match="Spark has ended"):
        loop.drain() if once else loop.run()
    assert lake_in_memory.heard.lines == []


def test_a_binding_to_another_topic_is_told_as_such(lake_in_memory: Lake) -> None:
    name = lake_in_memory.create("t0")
    lake_in_memory.store.set_properties(name, {"thermocline.topic": "elsewhere"})
    with running(lake_in_memory.loop()):
        until(lambda: lake_in_memory.heard.of("t0") == ["BadBinding"])
        lake_in_memory.store.set_properties(name, {"thermocline.topic": "t0"})
        lake_in_memory.send("t0", 1)
        until(lambda: lake_in_memory.rows(name) == 1)
    lake_in_memory.store.set_properties(name, {"thermocline.topic": "elsewhere"})
    with pytest.raises(FederationError, match="names topic elsewhere, but the table holds"):
        tier_once(lake_in_memory.log, lake_in_memory.open(name), TieringBudget())


def test_a_drain_can_be_stopped(lake_in_memory: Lake) -> None:
    lake_in_memory.make = Slow
    Slow.staging.clear()
    Slow.cancelled.clear()
    lake_in_memory.create("t0")
    lake_in_memory.send("t0", 8)
    loop = lake_in_memory.loop(limits=replace(LIMITS, stop_s=0.1))
    ended = threading.Thread(target=_until_stopped, args=(loop,))
    ended.start()
    until(Slow.staging.is_set)
    loop.stop()
    ended.join(TIMEOUT_S)
    assert not ended.is_alive()


def _until_stopped(loop: TableLoop[TieringTable]) -> None:
    with contextlib.suppress(FederationError):
        loop.drain()
